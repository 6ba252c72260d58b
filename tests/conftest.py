"""Small graphs, models and checks that several packages share."""

import importlib.util
import os
import pkgutil
import signal
import sys
from importlib import import_module

# Scores and gradients are held equal to those of slow twins; the tests of bfloat16 products, which
# few processors have, take the variable away.
os.environ.setdefault("NSCACHING_PRODUCTS", "float32")
# Numba reads this when it is first imported, and no change of it is allowed later. Two threads,
# also where there is one core, are for the tests that compare one with more.
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
# Kernels are compiled where they are used: runs of tests are as short as a warm-up.
os.environ.setdefault("NSCACHING_WARM_UP", "0")

# Tests of other things take the paper's settings; those of recipes take the variable away.
os.environ.setdefault("NSCACHING_RECIPE", "paper")

import numba
import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from nscaching import kernels
from nscaching.graph import KnowledgeGraph
from nscaching.kernels.registry import CPU, GPU, PLAIN, forced
from nscaching.models import SCORING, EmbeddingModel
from nscaching.models.match import multiplies_bfloat16

#: A statistical test with a fixed seed fails below this: a broken sampler is far below it.
UNLIKELY = 1e-4

# The tensors of tests are tiny: on a busy machine threads waiting for each other take ten times as
# long as one thread alone.
torch.set_num_threads(1)
numba.set_num_threads(1)

# In the background of a shell, or below nohup, signals are ignored, by the processes of tests too.
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
for _number, _handler in _USUAL.items():
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.fixture
def generator():
    return seeded(0)


#: A part that Triton imports when it first runs a kernel, and that looks at the variable too.
LATE_PART = "triton.experimental.gluon"


def interpret_gpu_kernels():
    """Have Triton's interpreter run the GPU kernels on the tensors of the CPU, if that can be.

    A kernel is interpreted if ``TRITON_INTERPRET`` is set while Triton and the kernel are imported.
    So that happens here, once, and the variable is gone before any test runs or starts a process.
    """
    if importlib.util.find_spec("triton") is None or torch.cuda.is_available():
        return torch.cuda.is_available()
    if "triton" in sys.modules:
        return False
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        if importlib.util.find_spec(LATE_PART) is not None:
            import_module(LATE_PART)
        for module in pkgutil.iter_modules(kernels.__path__):
            if module.name.endswith("_gpu"):
                import_module(f"nscaching.kernels.{module.name}")
    finally:
        del os.environ["TRITON_INTERPRET"]
    return True


HAVE_GPU_FORMS = interpret_gpu_kernels()


def kernel_forms():
    """Return the forms of kernels that can run here: plain, compiled, and those of a GPU."""
    return [PLAIN, CPU, GPU] if HAVE_GPU_FORMS else [PLAIN, CPU]


def quick_forms():
    """Return them with those of a GPU marked slow, for tests of more than the kernels."""
    return [pytest.param(f, marks=pytest.mark.slow) if f == GPU else f for f in kernel_forms()]


def device_of(form):
    """Return where the tensors of a form lie: on a real GPU if there is one."""
    return "cuda" if form == GPU and torch.cuda.is_available() else "cpu"


@pytest.fixture(params=["kernel", "plain"])
def path(request):
    """Run a test with the compiled kernels of the CPU, and again with plain torch."""
    with forced(CPU if request.param == "kernel" else PLAIN):
        yield request.param


@pytest.fixture
def bfloat16_products(monkeypatch):
    """Have matrix products round to bfloat16, as runs do where the processor multiplies that."""
    monkeypatch.setenv("NSCACHING_PRODUCTS", "bfloat16")
    multiplies_bfloat16.cache_clear()
    if not multiplies_bfloat16():
        pytest.skip("this processor does not multiply bfloat16")
    yield
    monkeypatch.undo()
    multiplies_bfloat16.cache_clear()


on_both_paths = pytest.mark.usefixtures("path")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def graph_of(train, valid=(), test=(), entities=None, relations=None):
    """Make a graph of id triples; entities and relations default to those that occur."""
    ids = np.array([*train, *valid, *test], dtype=np.int64).reshape(-1, 3)
    entities = int(ids[:, [0, 2]].max()) + 1 if entities is None else entities
    relations = int(ids[:, 1].max()) + 1 if relations is None else relations
    names = [f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)]
    splits = (np.array(split, dtype=np.int64).reshape(-1, 3) for split in (train, valid, test))
    return KnowledgeGraph(*names, *splits)


def random_graph(entities=25, relations=4, train=120, held_out=20, seed=0):
    """Make a graph of distinct random triples in three splits."""
    space = entities * relations * entities
    keys = np.random.default_rng(seed).choice(space, train + 2 * held_out, replace=False)
    triples = np.stack(np.unravel_index(keys, (entities, relations, entities)), axis=1)
    valid, test = triples[train : train + held_out], triples[train + held_out :]
    return graph_of(triples[:train], valid, test, entities, relations)


def random_model(name, entities=25, relations=4, dim=5, norm=1, seed=0):
    """Make a model whose parameters are far from zero and from each other."""
    scoring = SCORING[name](dim, norm)
    rng = seeded(seed)
    entity = torch.randn(entities, scoring.entity_width, generator=rng)
    relation = torch.randn(relations, scoring.relation_width, generator=rng)
    return EmbeddingModel(scoring, entity, relation)


def assert_follows(drawn, probabilities):
    """Check draws of cells 0, 1, ... against their probabilities; a cell of 0 is never drawn."""
    chances = np.asarray(probabilities, dtype=np.float64)
    counts = np.bincount(np.asarray(drawn).ravel(), minlength=len(chances))
    assert len(counts) == len(chances)
    assert counts[chances == 0].sum() == 0
    expected = chances / chances.sum() * counts.sum()
    rare = (expected > 0) & (expected < 8)
    cells = [*zip(counts[expected >= 8], expected[expected >= 8], strict=True)]
    if expected[rare].sum() > 0:
        cells.append((counts[rare].sum(), expected[rare].sum()))
    observed, wanted = np.array(cells, dtype=np.float64).T
    assert len(cells) > 1 or (chances > 0).sum() == 1, "too few draws for a chi-square test"
    assert len(cells) == 1 or chisquare(observed, wanted).pvalue > UNLIKELY


def counting_steps(make):
    """Return what a function makes, and the steps of Python that this package took for it.

    A loop over the data shows in their number, on a machine of any speed.
    """
    steps = 0

    def count(frame, event, argument):
        nonlocal steps
        if "/nscaching/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        made = make()
    finally:
        sys.settrace(before)
    return made, steps


def with_one_thread_and_with_all(make):
    """Return what a function makes with one thread of Numba's, and with all of them."""
    found = []
    try:
        for threads in (1, numba.config.NUMBA_NUM_THREADS):
            numba.set_num_threads(threads)
            found.append(make())
    finally:
        numba.set_num_threads(1)
    return found
