"""Compile kernels for a GPU that need not be there; run by test_compilation.py."""

import time

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nscaching.models import all_pairs_gpu
from nscaching.models.gradients import (
    bilinear_gpu,
    distances_gpu,
    rotation_gpu,
    translational_gpu,
)
from nscaching.sampling import gpu_kernels as sampling
from nscaching.sampling import uniform_gpu

IDS = ("heads", "relations", "tails", "negatives")
TYPES = {**dict.fromkeys(IDS, "*i64"), "replaces_head": "*i1", "count": "i32", "margin": "fp32"}
ROWS = ("head_rows", "tail_rows", "head_offsets", "tail_offsets", "entities", "seed")
ANSWERS = ("head_answers", "tail_answers")
DRAW_TYPES = {
    **dict.fromkeys(ROWS, "*i64"),
    **dict.fromkeys(ANSWERS, "*i32"),
    **dict.fromkeys(("replaces_head", "proper"), "*i1"),
    **dict.fromkeys(("rows", "count", "k", "num_entities"), "i32"),
    "finished": "*i32",
}
RENEWAL_TYPES = {
    **dict.fromkeys(("rows", "candidates", "seed"), "*i64"),
    **dict.fromkeys(("cache", "owner"), "*i32"),
    **dict.fromkeys(("n1", "k"), "i32"),
    "stored": "*fp16",
    "alpha": "fp32",
}
OFFER_TYPES = {
    **dict.fromkeys(("rows", "candidates", "seed", "offsets"), "*i64"),
    **dict.fromkeys(("cache", "owner", "answers"), "*i32"),
    **dict.fromkeys(("n1", "n2", "num_entities"), "i32"),
}
PAIR_TYPES = dict.fromkeys(("queries", "entities", "dim"), "i32")
HOPPER = GPUTarget("cuda", 90, 32)
DIM = 5


def compile_kernel(kernel, known=TYPES, **constants):
    names = kernel.arg_names
    types = {n: "constexpr" if n in constants else known.get(n, "*fp32") for n in names}
    values = {(names.index(n),): value for n, value in constants.items()}
    made = triton.compile(ASTSource(kernel, types, constexprs=values), target=HOPPER)
    print(kernel.__module__, constants)
    return made.asm["ttir"]


def assert_places_are_wide(code):
    """Refuse a product of two sizes in 32 bits; one with a constant is that of a block."""
    products = [line for line in code.splitlines() if "arith.muli" in line and ": i32" in line]
    assert products
    assert all("%c" in line for line in products), products


for ranking in (True, False):
    usual = {"K": 2, "RANKING": ranking, "BLOCK": 8}
    compile_kernel(rotation_gpu._gradients, dim=DIM, **usual)
    for kind in (0, 1, 2):
        width = DIM if kind == 0 else 2 * DIM
        compile_kernel(bilinear_gpu._gradients, half=DIM, width=width, KIND=kind, **usual)
        widths = {"dim": DIM, "width": 2 * DIM if kind == 2 else DIM, "relation_width": width}
        norm = 1 if ranking else 2
        compile_kernel(translational_gpu._gradients, **widths, NORM=norm, KIND=kind, **usual)

started = time.monotonic()
many = {"half": DIM, "width": DIM, "K": 2048, "KIND": 0, "RANKING": True, "BLOCK": 8}
compile_kernel(bilinear_gpu._gradients, **many)
assert time.monotonic() - started < 60, "a loop over the negatives is compiled once for each"
compile_kernel(distances_gpu._pulls, {"ids": "*i64", "k": "i32"}, width=DIM, BLOCK_K=8, BLOCK_D=8)
tile = {"BLOCK_Q": 16, "BLOCK_E": 16}
assert_places_are_wide(compile_kernel(all_pairs_gpu._all_complex_distances, PAIR_TYPES, **tile))
for norm in (1, 2):
    code = compile_kernel(all_pairs_gpu._all_distances, PAIR_TYPES, NORM=norm, **tile)
    assert_places_are_wide(code)
for known in (True, False):
    depth = {"HEAD_STEPS": 3, "TAIL_STEPS": 4} if known else {"HEAD_STEPS": 0, "TAIL_STEPS": 0}
    usual = {"TRIES": 17, "KNOWN": known, "BLOCK": 128, **depth}
    compile_kernel(uniform_gpu._draw, DRAW_TYPES, **usual)
    compile_kernel(uniform_gpu._draw, DRAW_TYPES, **usual, num_entities=1)  # as Triton takes a 1
offered = {"ALL": False, "KNOWN": True, "STEPS": 3, "BLOCK": 64}
compile_kernel(sampling._offer, OFFER_TYPES, **offered)
compile_kernel(sampling._offer, OFFER_TYPES, **offered, num_entities=1)
for weighting in (0, 1, 2, 3):
    compile_kernel(sampling._renew, RENEWAL_TYPES, WEIGHTING=weighting, BLOCK=256, CHUNK=16)
