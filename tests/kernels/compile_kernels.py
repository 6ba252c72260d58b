"""Compile the Triton kernels for a GPU that need not be there; run by test_compilation.py."""

import itertools

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nscaching.kernels import (
    adagrad_gpu,
    adam_gpu,
    all_pairs_gpu,
    batch_gpu,
    cache_gpu,
    draw_gpu,
    match_gpu,
    pool_gpu,
    query_gpu,
    uniform_gpu,
)

HOPPER = GPUTarget("cuda", 90, 32)
DIM = 5
#: What the arguments of these names are; others are pointers to float32.
IDS = (
    *("ids", "heads", "relations", "tails", "asked", "anchors", "targets", "order", "batch"),
    *("head_rows", "tail_rows", "head_offsets", "tail_offsets", "offsets", "entities", "seed"),
    *("candidates", "start", "places", "sizes"),
)
SIZES = (
    *("k", "n1", "n2", "size", "width", "num_entities", "queries", "dim", "first", "stride"),
    *("second_half", "context_width", "relation_width", "share"),
)
TYPES = {
    **dict.fromkeys(IDS, "*i64"),
    **dict.fromkeys(SIZES, "i32"),
    **dict.fromkeys(("answers", "head_answers", "tail_answers", "cache", "owner"), "*i32"),
    **dict.fromkeys(("head_cache", "tail_cache", "stamp", "columns"), "*i32"),
    **dict.fromkeys(("lr", "alpha", "sharp", "spread", "epsilon", "decay"), "fp32"),
    "replaces_head": "*i1",
    "stored": "*fp16",
    "copy": "*bf16",
}
NAMED = []


def compile_kernel(kernel, types=None, **constants):
    """Compile a kernel; return its code before it is one for a kind of GPU."""
    names, known = kernel.arg_names, {**TYPES, **(types or {})}
    kinds = {n: "constexpr" if n in constants else known.get(n, "*fp32") for n in names}
    values = {(names.index(n),): value for n, value in constants.items()}
    made = triton.compile(ASTSource(kernel, kinds, constexprs=values), target=HOPPER)
    NAMED.append(kernel)
    print(kernel.__module__, kernel.__name__, constants)
    return made.asm["ttir"]


def assert_places_are_wide(code):
    """Refuse a product of two sizes in 32 bits; one with a constant is that of a block."""
    products = [line for line in code.splitlines() if "arith.muli" in line and ": i32" in line]
    assert products
    assert all("%c" in line for line in products), products


def compile_matches():
    blocks = {"BLOCK_K": 8, "BLOCK_D": 8}
    rows = {"width": DIM, "stride": DIM, **blocks}
    for kernel in (match_gpu._dot_forward, match_gpu._dot_backward):
        for placed in (0, 1):
            summed = {"WRITTEN": 1, "SUMMED": 0} if kernel is match_gpu._dot_backward else {}
            compile_kernel(kernel, **rows, PLACED=placed, **summed)
    for written in (0, 1):
        compile_kernel(match_gpu._dot_backward, **rows, PLACED=0, WRITTEN=written, SUMMED=written)
    half = {"table": "*bf16", "entity": "*bf16"}
    compile_kernel(match_gpu._dot_backward, half, **rows, PLACED=1, WRITTEN=1, SUMMED=0)
    halves = {"dim": DIM, "stride": 2 * DIM}
    compile_kernel(match_gpu._distance_forward, **halves, NORM=0, VIEW=0, **blocks)
    compile_kernel(match_gpu._modulus_backward, **halves, BLOCK_D=8)
    for view, norm in ((0, 1), (1, 2), (2, 1), (3, 2)):
        settings = {**halves, "NORM": norm, "VIEW": view}
        compile_kernel(match_gpu._distance_forward, **settings, **blocks)
        for summed in (0, 1):
            backward = {**settings, "SUMMED": summed, "BLOCK_D": 8}
            compile_kernel(match_gpu._distance_backward, half, **backward)
    tile = {"BLOCK_Q": 16, "BLOCK_E": 16}
    pairs = {"queries": "i32", "entities": "i32"}
    for norm, unrolled in itertools.product((0, 1, 2), (1, 8)):
        settings = {**tile, "NORM": norm, "UNROLLED": unrolled}
        code = compile_kernel(all_pairs_gpu._all_distances, pairs, **settings)
        assert_places_are_wide(code)
    for norm, own in itertools.product((1, 2), (False, True)):
        settings = {**tile, "NORM": norm, "OWN": own, "UNROLLED": 8}
        code = compile_kernel(all_pairs_gpu._all_views, {**pairs, "group": "*i64"}, **settings)
        assert_places_are_wide(code)
    sums = {"stride_q": "i32", "stride_e": "i32", "share": "i32", **pairs}
    for modulus in (False, True):
        tile = {"BLOCK_Q": 16, "BLOCK_D": 64, "UNROLLED": 4}
        compile_kernel(all_pairs_gpu._gradient_sums, sums, MODULUS=modulus, **tile)


def compile_queries():
    counts = {"count": "i32", "rows": "*i64", "queries": "*fp32"}
    terms = {"HEAD_PLUS": 0b10000001, "HEAD_MINUS": 0b100, "TAIL_PLUS": 0b1001, "TAIL_MINUS": 0b10}
    usual = {"dim": DIM, "P": 2, "Q": 2, **terms, "BLOCK": 8}
    compile_kernel(query_gpu._bilinear_forward, counts, **usual)
    counts["entity"] = counts["table"] = "*bf16"
    compile_kernel(query_gpu._bilinear_forward, counts, **usual)
    for asked in (True, False):
        compile_kernel(query_gpu._bilinear_backward, counts, **usual, ASKED=asked)
    counts["rows"] = "*fp32"
    for view in range(4):
        usual = {"dim": DIM, "stride": 2 * DIM, "VIEW": view, "BLOCK": 8}
        compile_kernel(query_gpu._translation_forward, counts, **usual)
        compile_kernel(query_gpu._translation_backward, counts, **usual, ASKED=view % 2 == 0)


def compile_sampling():
    counts = {"count": "i32", "rows": "*i64"}
    for known in (True, False):
        depth = {"HEAD_STEPS": 3, "TAIL_STEPS": 4} if known else {"HEAD_STEPS": 0, "TAIL_STEPS": 0}
        usual = {"TRIES": 17, "KNOWN": known, "BLOCK": 128, **depth}
        compile_kernel(uniform_gpu._draw, counts, **usual)
        compile_kernel(uniform_gpu._draw, counts, **usual, num_entities=1)  # as Triton takes a 1
    compile_kernel(uniform_gpu._is_answer, {**counts, "found": "*i1"}, STEPS=3, BLOCK=128)
    compile_kernel(cache_gpu._sample_rows, counts, BLOCK=64)
    compile_kernel(cache_gpu._claim, counts, BLOCK=256)
    compile_kernel(cache_gpu._hashed_entities, counts, BLOCK=64)
    for every, parts in ((True, False), (False, False), (False, True)):
        offered = {"ALL": every, "PARTS": parts, "KNOWN": True, "STEPS": 3, "BLOCK": 64}
        compile_kernel(cache_gpu._offer, counts, **offered)
        compile_kernel(cache_gpu._offer, counts, **offered, num_entities=1)
    for weighting in range(4):
        kept = {"WEIGHTING": weighting, "BLOCK": 256, "CHUNK": 16}
        compile_kernel(cache_gpu._keep, counts, **kept)
    pool = {"pool": "*i64", "own": "*i64", "count": "i32"}
    compile_kernel(pool_gpu._draw_pool, pool, BLOCK=64, CHUNK=64)
    compile_kernel(pool_gpu._draw_pool, pool, BLOCK=64, CHUNK=64, num_entities=1)
    compile_kernel(pool_gpu._pool_weights, pool, BLOCK=256, CHUNK=16)
    compile_kernel(pool_gpu._hardest, {**pool, "kept": "i32"}, BLOCK=256)
    picks = {"draws": "i32", "picked": "*i64"}
    compile_kernel(draw_gpu._draw_softmax, picks, BLOCK=64)
    rewards = {"count": "i32", "row": "i32", "column": "i32", "keep": "fp32"}
    compile_kernel(draw_gpu._above_baseline, rewards, BLOCK=256)
    compile_kernel(draw_gpu._above_baseline, rewards, BLOCK=256, k=1, column=1)  # as Triton does
    compile_kernel(batch_gpu._gather_batch, counts, COLUMNS=5, BLOCK=128)


def compile_steps():
    count = {"count": "*fp64"}
    for large in (True, False):
        usual = {"beta1": 0.9, "beta2": 0.999, "width": DIM, "LARGE": large, "BLOCK": 512}
        compile_kernel(adam_gpu._adam, count, LAZY=large, COPIED=large, **usual)
    waiting = {**count, "moved": "*i32", "listed": "i32", "rows": "i32", "period": "i32"}
    for copied in (True, False):
        usual = {"beta1": 0.9, "beta2": 0.999, "width": DIM, "COPIED": copied, "BLOCK": 8}
        compile_kernel(adam_gpu._catch_up, waiting, **usual)
    compile_kernel(adam_gpu._begin, count, log_beta1=-0.1, log_beta2=-0.001)
    compile_kernel(adam_gpu._accumulate, count, BLOCK=8)
    compile_kernel(adagrad_gpu._adagrad, CLEAR=True, BLOCK=1024)
    for half in (True, False):
        kinds = dict.fromkeys(("table", "square"), "*bf16" if half else "*fp32")
        usual = {"width": DIM, "ROUND": half, "BLOCK_J": 4, "BLOCK": 8}
        usual["DECAYS"] = half
        kinds |= {"count": "i32", "written": "i32", "ids": "*i32"}
        for products, placed in ((False, False), (True, False), (True, True)):
            each = {"PRODUCTS": products, "PLACED": placed, **usual}
            compile_kernel(adagrad_gpu._adagrad_large, kinds, **each)
            compile_kernel(adagrad_gpu._adagrad_large, kinds, **each, k=1)  # as Triton takes a 1
    compile_kernel(all_pairs_gpu._logsumexp, {"count": "i32"}, BLOCK=1024)
    compile_kernel(all_pairs_gpu._gradient, {"count": "i32"}, BLOCK=1024)
    counted = {"count": "i32", "row": "*i64", "better": "*i64", "equal": "*i64"}
    compile_kernel(all_pairs_gpu._count_above, counted, BLOCK=1024)


def assert_none_is_left_out():
    """Every kernel of a module is compiled, or is a part of one that is."""
    modules = {kernel.__module__: __import__(kernel.__module__, fromlist=["_"]) for kernel in NAMED}
    compiled = {(kernel.__module__, kernel.__name__) for kernel in NAMED}
    parts = {"_mix", "stream_of", "hashed", "in_order", "at_place", "_quantile", "_is_known"}
    parts |= {
        "_view_of",
        "_give",
        "find",
        "_sum_products",
        "_bilinear_query",
        "_bilinear_gradient",
        "_question",
        "_gradient_of",
        "_rounded",
    }
    for name, module in modules.items():
        for kernel in vars(module).values():
            if isinstance(kernel, triton.JITFunction) and kernel.__module__ == name:
                missing = kernel.__name__ not in parts
                assert not missing or (name, kernel.__name__) in compiled, kernel.__name__


for compile_all in (compile_matches, compile_queries, compile_sampling, compile_steps):
    compile_all()
assert_none_is_left_out()
print("done")
