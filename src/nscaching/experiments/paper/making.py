"""The graph and the row of a cell: a training, a search, an embedding of nodes, or a study.

The study of variances (``fig:var_fn``) asks how the scores of false negatives and of large-gradient
negatives vary. NSCaching is trained once, and negatives are taken from its last cache. The same run
is made again, and after each epoch those and the held-out facts are scored; the variances are over
the epochs so far. Nothing is kept on the way: a study that is stopped starts again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nscaching.artefacts.files import write_atomically
from nscaching.errors import UserError
from nscaching.evaluation import score_triples
from nscaching.evaluation.metrics import METRICS, fact_values
from nscaching.experiments.paper.definitions import Cell, decided_by_search
from nscaching.experiments.paper.results import Row
from nscaching.experiments.runner import PlannedRun, RunResult
from nscaching.experiments.tune import tune
from nscaching.experiments.tune.space import PAPERS_FIRST
from nscaching.experiments.tune.trials import SearchFolder
from nscaching.graph import KnowledgeGraph, load_graph
from nscaching.graph.datasets import dataset_info, find_dataset
from nscaching.graph.pairs import contained
from nscaching.models import Side
from nscaching.nodes import NodeGraph, load_node_graph
from nscaching.nodes.api import method_scores
from nscaching.nodes.graph import Labels, graph_of_edges
from nscaching.nodes.tasks import SHARES
from nscaching.report.experiment_pages import read_curve
from nscaching.report.markup import thinned
from nscaching.runs.api import decided, make_config, make_trainer, not_left_open
from nscaching.sampling.cache import PADDING
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.training import Progress, RunFolder, TrainConfig

Ids = npt.NDArray[np.int64]
#: ``--on shape`` is a random graph with the sizes of the data set, ``shape/100`` a hundredth.
SHAPE = "shape"
#: Nodes, edges and classes of the graphs without relations.
_NODE_SHAPES: Mapping[str, tuple[int, int, int]] = {
    "cora": (2708, 5278, 7),
    "citeseer": (3264, 4536, 6),
}
#: A stand-in for a graph without relations is so much smaller where nothing else is said.
_NODE_SCALE = 20
#: Triples of each kind that the study of variances follows, as in the paper.
FOLLOWED = 5000
#: Points of a series that are kept in a row.
POINTS = 100
_COUNTERS = ("epoch", "nonzero_loss", "repeated", "gradient_norm", "false_sampled", "false_cached")
_MEASURED = ("test", "valid", "accuracy", "seconds_per_epoch", "seconds", "epochs", "best_epoch",
             "extra_parameters", "device", "error")  # fmt: skip


def train_row(
    cell: Cell,
    options: dict[str, Any],
    graph: KnowledgeGraph,
    folder: Path,
    progress: Progress,
    ranks: Path | None = None,
) -> Row:
    """Train a cell, or resume it, and return what its row gets.

    ``ranks`` is where the mean reciprocal rank of every test fact is kept; shape: (n,).
    """
    run, blank = RunFolder(folder), RunResult(cell.label, cell.seed, cell.folder)
    planned = PlannedRun(blank, run, options, make_config(graph, options))
    made, result = planned.make(graph, resume=True, overwrite=False, progress=progress)
    if ranks is not None:
        ranks.parent.mkdir(parents=True, exist_ok=True)
        report = made.evaluations.get("test") or made.evaluate("test")
        values = fact_values(report.ranks)[:, METRICS.index("mrr")].astype(np.float32)
        write_atomically(ranks, lambda path: np.save(path, values))
    return {name: getattr(result, name) for name in _MEASURED} | series(run)


def series(run: RunFolder) -> Row:
    """Return validations, losses and what a trace saw, each thinned to what a picture shows."""
    lines = run.read_metrics()
    curve = read_curve(lines)
    losses = [[x["epoch"], x["loss"]] for x in lines if x.get("event") == "epoch"]
    found: Row = {"curve": {name: values.tolist() for name, values in curve.items()}}
    found["losses"] = thinned(losses, POINTS)
    trace = run.read_trace()
    counted = [{name: x[name] for name in _COUNTERS} for x in trace if x["event"] == "epoch"]
    if counted:
        found["trace"] = thinned(counted, POINTS)
    rows = run.read_config().trace_row  # a definition shows the rows it names, no others
    snapshots = [line for line in trace if line["event"] == "gradients" or line.get("row") in rows]
    if snapshots:
        found["looks"] = snapshots  # the key of the first results
    return found


def named_traces(
    settings: dict[str, Any], graph: KnowledgeGraph, standing_in: bool
) -> dict[str, Any]:
    """Return options with traced triples by name; a stand-in has none of the paper's names."""
    options = dict(settings)
    count = options.pop("trace_triples", 0)
    if count:
        chosen = np.random.default_rng(0).choice(len(graph.train), count, replace=False)
        options["trace_triple"] = [_named(graph, place) for place in chosen]
        options.setdefault("trace_every", max(1, options["epochs"] // 5))
    if standing_in and "trace_row" in options:
        options["trace_row"] = [_named(graph, 0).rsplit("\t", 1)[0] + "\t?"]
    return options


def _named(graph: KnowledgeGraph, place: int) -> str:
    return "\t".join(graph.named(graph.train[place].tolist()))


def search_row(
    cell: Cell, settings: dict[str, Any], graph: KnowledgeGraph, folder: Path, progress: Progress
) -> Row:
    """Search, or resume a search; train the best of SMAC, whose test split is ranked once."""
    base = dict(settings)
    trials, space, trial = base.pop("trials"), base.pop("space", "sampler"), base.pop("trial", {})
    if space == "sampler":
        base["rescale"] = "quantile"  # the ranges of its temperatures are those of rescaled scores
    place = SearchFolder(folder / "search")
    begun = place.holds_one() and place.log.path.exists()
    common: dict[str, Any] = {"out": place.path, "trials": trials, "progress": progress}
    first = {name: PAPERS_FIRST[name] for name in decided_by_search()}
    if begun and place.starts_at_the_paper():  # whatever its base says
        first = {}
    each = make_config(graph, {**base, **trial, **first})
    if begun:
        _refuse_another(place, space, cell.mode, decided(each, graph))
        found = tune(resume=True, **common)
    else:
        found = tune(graph, method=cell.mode, space=space, base=each, **common)
    search = {
        "method": found.method,
        "space": space,
        "trials": len(found.trials),
        "best": found.best.config,
        "valid_mrr": found.best.score,
        "curve": [asdict(point) for point in found.curve],
    }
    if cell.mode != "smac":  # only its curve is asked for
        return {"search": search, "seconds": found.curve[-1].seconds}
    best = RunFolder(folder / "best")
    if best.is_run():  # a longer search may find another best
        stored = best.read_config()
        if any(getattr(stored, name) != value for name, value in found.best.config.items()):
            best = RunFolder(folder / f"best-of-{len(found.trials)}")
    row = train_row(cell, {**base, **found.best.config}, graph, best.path, progress)
    return {**row, "search": search, "seconds": found.curve[-1].seconds + row["seconds"]}


def _refuse_another(place: SearchFolder, space: str, method: str, each: TrainConfig) -> None:
    """Refuse to resume a search whose settings are not those that are asked for now."""
    options, _, _ = place.read()
    base = RunFolder(place.base).read_config()
    given = not_left_open(each.as_dict())
    now = TrainConfig.from_mapping({**base.as_dict(), **given}, "options")
    as_begun = replace(base, device=each.device, data=each.data)
    if (options.space, options.method, as_begun) != (space, method, now):
        raise UserError(
            f"{place.path} holds a search that was begun with other settings. Remove that folder, "
            "or choose another --out."
        )


def node_row(cell: Cell, settings: Mapping[str, Any], graph: NodeGraph, progress: Progress) -> Row:
    """Train and classify; the numbers are means over five draws of labelled nodes."""
    scores, seconds = method_scores(graph, cell.sampler, cell.seed, progress=progress, **settings)
    titles = [f"{share:.0%} {name}" for share in SHARES for name in ("micro_f1", "macro_f1")]
    f1 = dict(zip(titles, scores.mean(axis=1).ravel().tolist(), strict=True))
    return {"f1": f1, "seconds": seconds, "device": "cpu"}


# The graphs ---------------------------------------------------------------------------------------


def has_data(dataset: str, on: str | None) -> bool:
    """Tell whether a data set, or what stands in, is on this machine; nothing is downloaded."""
    if on is not None:
        return True
    if dataset not in _NODE_SHAPES:
        return find_dataset(dataset) is not None
    try:
        load_node_graph(dataset)
    except UserError:
        return False
    return True


@cache
def loaded(dataset: str, on: str | None) -> KnowledgeGraph | UserError:
    """Return the graph, or why it cannot be had, the same each time; ``on`` stands in for it."""
    try:
        scale = scale_of(on)
        return load_graph(on or dataset) if scale is None else shape_of(dataset, scale)
    except UserError as error:
        return error


def graph_of(dataset: str, on: str | None) -> KnowledgeGraph:
    """Return the graph, which is read once in a process."""
    found = loaded(dataset, on)
    if isinstance(found, UserError):
        raise found
    return found


def nodes_of(dataset: str, on: str | None) -> NodeGraph:
    """Return a graph without relations."""
    return load_node_graph(dataset) if on is None else node_shape(dataset, scale_of(on))


def scale_of(on: str | None) -> int | None:
    """Return by how much ``shape`` or ``shape/100`` is smaller; None for any other graph."""
    shape, slash, divisor = (on or "").partition("/")
    if shape != SHAPE:
        return None
    if not slash:
        return 1
    if not divisor.isdigit() or int(divisor) < 1:
        raise UserError(f"--on {on} is not a shape; write --on shape or --on shape/100.")
    return int(divisor)


def shape_of(dataset: str, scale: int = 1) -> KnowledgeGraph:
    """Return a random graph with the sizes of a named data set, divided by ``scale``."""
    info = dataset_info(dataset)
    rng = np.random.default_rng(0)
    entities = max(10, info.entities // scale)
    splits = []
    for size in (info.train, info.valid, info.test):
        columns = (entities, info.relations, entities)
        rows = max(10, size // scale)
        splits.append(np.stack([rng.integers(0, high, rows) for high in columns], axis=1))
    names = [[f"{kind}{i}" for i in range(n)] for kind, n in zip("er", columns[:2], strict=True)]
    return KnowledgeGraph(*names, *splits, name=f"{dataset}-shape")


def node_shape(dataset: str, scale: int | None) -> NodeGraph:
    """Return a random graph of the size of Cora or Citeseer; most edges stay within a class."""
    nodes, edges, classes = _NODE_SHAPES[dataset]
    scale = scale or _NODE_SCALE
    nodes, edges = max(40, nodes // scale), max(80, edges // scale)
    rng = np.random.default_rng(0)
    of_node = np.arange(nodes) % classes
    heads = rng.integers(0, nodes, edges)
    near = (heads + classes * rng.integers(1, 4, edges)) % nodes
    tails = np.where(rng.random(edges) < 0.9, near, rng.integers(0, nodes, edges))
    made = graph_of_edges([str(i) for i in range(nodes)], np.stack([heads, tails], axis=1))
    labels = Labels([str(i) for i in range(classes)], of_node.astype(np.int32))
    return replace(made, labels=labels, name=dataset)


# How scores vary ----------------------------------------------------------------------------------


def variances(scores: Sequence[np.ndarray], steps: Sequence[int]) -> list[float]:
    """Return the mean variance of the first so many scores of some triples. Shapes: (n,)."""
    stacked = np.stack(scores)
    return [float(stacked[:step].var(axis=0, dtype=np.float64).mean()) for step in steps]


def variance_row(settings: dict[str, Any], graph: KnowledgeGraph, progress: Progress) -> Row:
    """Return the mean variance of both kinds of triples after each epoch."""
    started = time.monotonic()
    # Validation would neither change the training nor the scores that are followed.
    settings = {**settings, "valid_every": 0}
    first = make_trainer(graph, out=None, progress=progress, **settings)
    first.run(resume=False)
    assert isinstance(first.sampler, NSCachingSampler)
    rng = np.random.default_rng(settings["seed"])
    facts = np.concatenate([graph.valid, graph.test]).astype(np.int64)
    followed = {
        "false negatives": _some(facts, rng),
        "negatives of the cache": _some(cached_negatives(graph, first.sampler), rng),
    }
    second = make_trainer(graph, out=None, progress=progress, **settings)
    scores: dict[str, list[np.ndarray]] = {name: [] for name in followed}

    def observe(epoch: int) -> None:
        for name, triples in followed.items():
            scores[name].append(score_triples(second.model, triples))

    second.after_epoch = observe
    second.run(resume=False)
    epochs = thinned(range(1, second.counters.epoch + 1), POINTS)
    columns = [variances(each, epochs) for each in scores.values()]
    points = zip(epochs, *columns, strict=True)
    return {
        "variance": [dict(zip(("epoch", *scores), point, strict=True)) for point in points],
        "followed": {name: len(triples) for name, triples in followed.items()},
        "seconds": time.monotonic() - started,
        "device": str(second.device),
    }


def cached_negatives(graph: KnowledgeGraph, sampler: NSCachingSampler) -> Ids:
    """Return the triples that the caches hold, without those that are facts. Shape: (n, 3)."""
    parts = []
    for side in Side:
        rows = graph.rows[side]
        held = sampler.caches[side].ids.cpu().numpy().astype(np.int64)
        size = held.shape[1]
        anchor, relation = (np.repeat(each, size) for each in (rows.anchor, rows.relation))
        head, tail = (held.ravel(), anchor) if side is Side.HEAD else (anchor, held.ravel())
        parts.append(np.stack([head, relation, tail], axis=1)[held.ravel() != PADDING])
    triples = np.unique(np.concatenate(parts).astype(np.int64), axis=0)
    facts = np.concatenate([graph.train, graph.valid, graph.test])
    return triples[~contained(triples, facts, graph.num_entities, graph.num_relations)]


def _some(triples: Ids, rng: np.random.Generator) -> Ids:
    if len(triples) <= FOLLOWED:
        return triples
    return triples[rng.choice(len(triples), FOLLOWED, replace=False)]
