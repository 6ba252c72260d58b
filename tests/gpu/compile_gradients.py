"""Compile the gradient kernels for a GPU that need not be there; run by test_compilation.py."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nscaching.scoring.gradients import bilinear_gpu, rotation_gpu, translational_gpu

IDS = ("heads", "relations", "tails", "negatives")
TYPES = {**dict.fromkeys(IDS, "*i64"), "replaces_head": "*i1", "count": "i32", "margin": "fp32"}
HOPPER = GPUTarget("cuda", 90, 32)
DIM = 5


def compile_kernel(kernel, **constants):
    names = kernel.arg_names
    types = {n: "constexpr" if n in constants else TYPES.get(n, "*fp32") for n in names}
    values = {(names.index(n),): value for n, value in constants.items()}
    triton.compile(ASTSource(kernel, types, constexprs=values), target=HOPPER)
    print(kernel.__module__, constants)


for ranking in (True, False):
    usual = {"K": 2, "RANKING": ranking, "BLOCK": 8}
    compile_kernel(rotation_gpu._gradients, dim=DIM, **usual)
    for kind in (0, 1, 2):
        width = DIM if kind == 0 else 2 * DIM
        compile_kernel(bilinear_gpu._gradients, half=DIM, width=width, KIND=kind, **usual)
        widths = {"dim": DIM, "width": 2 * DIM if kind == 2 else DIM, "relation_width": width}
        norm = 1 if ranking else 2
        compile_kernel(translational_gpu._gradients, **widths, NORM=norm, KIND=kind, **usual)
