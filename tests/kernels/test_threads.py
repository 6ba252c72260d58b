"""What a run computes does not depend on how many threads its loops run on, bit for bit."""

import os
import subprocess
import sys

import pytest

from nscaching.evaluation import rank_triples
from nscaching.kernels import threads
from nscaching.models import SCORING
from nscaching.training import Progress, TrainConfig, Trainer
from tests.conftest import random_graph, random_model, with_one_thread_and_with_all

#: Enough for several steps, and for each thread to have rows of its own in every loop.
GRAPH = random_graph(entities=400, relations=5, train=1500, held_out=40)


@pytest.fixture(autouse=True)
def _any_work_pays(monkeypatch):
    """Let the loops take all threads, however little they do."""
    monkeypatch.setattr(threads, "LITTLE_WORK", -1)


def trained(**options):
    """Train two epochs; return everything that a step writes."""
    small = {"dim": 12, "epochs": 2, "batch_size": 256, "valid_every": 0, "device": "cpu"}
    sizes = {"cache_size": 10, "candidates": 10, "generator_dim": 8}
    config = TrainConfig(**{**small, **sizes, **options})
    trainer = Trainer(GRAPH, config, None, Progress("none"))
    trainer.run(resume=False)
    parts = (trainer.model.state(), trainer.optimizer.state(), trainer.sampler.state())
    return [{name: table.numpy().tobytes() for name, table in part.items()} for part in parts]


@pytest.mark.parametrize("scoring", SCORING)
@pytest.mark.parametrize("sampler", ["nscaching", "bernoulli"])
def test_every_scoring_function_learns_the_same(scoring, sampler):
    one, other = with_one_thread_and_with_all(lambda: trained(scoring=scoring, sampler=sampler))
    assert one == other


@pytest.mark.parametrize("sampler", ["self-adversarial", "kbgan", "igan"])
def test_every_sampler_draws_the_same(sampler):
    one, other = with_one_thread_and_with_all(lambda: trained(scoring="transd", sampler=sampler))
    assert one == other


@pytest.mark.parametrize(
    "options",
    [
        {"int8": False},
        {"pool": 16},
        {"alpha1": 1.0, "alpha2": 1.0, "alpha3": 3.0},
        {"alpha2": 1.0, "rescale": "none", "known_positives": "allow"},
        {"alpha2": 1.0, "nu": 0.5},
        {"negatives": 3, "optimizer": "lazy-adam"},
        {"loss": "softmax", "reciprocal": True},
        {"negatives": 3, "optimizer": "adagrad", "n3": 0.01, "reciprocal": True},
    ],
    ids=lambda options: "-".join(options),
)
def test_every_way_of_the_cache_is_the_same(options):
    one, other = with_one_thread_and_with_all(lambda: trained(scoring="simple", **options))
    assert one == other


@pytest.mark.parametrize("sampler", ["all", "uniform", "nscaching"])
@pytest.mark.parametrize("scoring", ["complex", "transe", "transd"])
def test_the_softmax_loss_learns_the_same(scoring, sampler):
    options = {"loss": "softmax", "sampler": sampler, "negatives": 9, "pool": 15, "dropout": 0.2}
    one, other = with_one_thread_and_with_all(
        lambda: trained(scoring=scoring, optimizer="adagrad", reciprocal=True, **options)
    )
    assert one == other


@pytest.mark.parametrize("scoring", SCORING)
def test_ranks_are_the_same(scoring):
    model = random_model(scoring, GRAPH.num_entities, GRAPH.num_relations, dim=12)

    def ranked():
        sides = rank_triples(model, GRAPH, GRAPH.test)
        return [value.tobytes() for side in sides.values() for value in vars(side).values()]

    one, other = with_one_thread_and_with_all(ranked)
    assert one == other


FORKED = """
import os, sys
import nscaching as ns
triples = [(f"e{i}", f"r{i % 3}", f"e{(7 * i + 1) % 20}") for i in range(60)]
options = {"epochs": 1, "dim": 4, "progress": "none", "device": "cpu"}
if sys.argv[1] == "after":
    ns.train(triples, **options)
child = os.fork()
if child == 0:
    try:
        ns.train(triples, **options)
    except ns.UserError as error:
        print(error)
        os._exit(7)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize(("when", "code"), [("before", 0), ("after", 7)])
def test_a_fork_after_training_says_what_to_do(when, code):
    command = [sys.executable, "-c", FORKED, when]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr
    assert ("spawn" in done.stdout) == (when == "after")


@pytest.mark.parametrize(("layer", "overlap"), [("workqueue", False), ("omp", True)])
def test_loops_overlap_only_on_threads_that_allow_it(layer, overlap):
    pytest.importorskip("numba")
    if layer == "omp":
        pytest.importorskip("numba.np.ufunc.omppool")
    script = "from nscaching.kernels.threads import loops_may_overlap; print(loops_may_overlap())"
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer}
    told = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    assert told.strip() == str(overlap)
