"""What a run starts from: its graph, split where it has no test, its parameters, an optimiser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from nscaching.errors import UserError
from nscaching.graph import GraphSource, KnowledgeGraph, as_graph, load_graph
from nscaching.graph.datasets import known_dataset
from nscaching.graph.store import StoredGraph
from nscaching.models import EmbeddingModel, HalfTable, Int8Table
from nscaching.optim import Adagrad, Adam, Copy, Optimizer
from nscaching.training.config import TrainConfig
from nscaching.training.folder import RunFolder


def named_or_graph(source: GraphSource | None) -> KnowledgeGraph | str | Path | None:
    """Return a name or a path as it is, and whatever is in memory as a graph."""
    return source if source is None or isinstance(source, str | Path) else as_graph(source)


def open_graph(
    settings: TrainConfig,
    graph: KnowledgeGraph | str | Path | None = None,
    say: Callable[[str], None] = lambda remark: None,
) -> KnowledgeGraph:
    """Return the graph to train on: the one given, or the one a configuration names.

    A single file, and a graph in memory with training triples only, are split as the configuration
    says; a folder or a data set is taken as it is, unless a share is named and it has training
    triples only. A share that has no effect is remarked on.
    """
    if not isinstance(graph, KnowledgeGraph):
        data = settings.data if graph is None else str(graph)
        if known_dataset(data) is None and Path(data).expanduser().is_file():
            return load_graph(data, split=settings.split, seed=settings.seed)
        graph = load_graph(data)
        if not settings.split:
            return graph
    if settings.split and _is_split(graph) and not graph.on_disk:  # that is refused
        say(f"--split has no effect: {graph.name} has valid or test triples of its own.")
    return _held_out(graph, settings)


def verified(graph: KnowledgeGraph) -> KnowledgeGraph:
    """Return a graph to take steps on; one on disk that was changed since is refused.

    A large one is only mapped when it is opened, and kernels take its ids as they are.
    """
    if isinstance(graph, StoredGraph):
        graph.store.verify()
    return graph


def graph_of_run(
    graph: KnowledgeGraph, stored: KnowledgeGraph, settings: TrainConfig
) -> KnowledgeGraph | None:
    """Return the graph as a run has stored it, whole or split; None when it is another graph."""
    for given in (graph, _held_out(graph, settings)):
        if given.fingerprint == stored.fingerprint:
            return given
    return None


def _held_out(graph: KnowledgeGraph, settings: TrainConfig) -> KnowledgeGraph:
    """Split a graph that has training triples only; any other stays as it is."""
    if _is_split(graph) or graph.on_disk:
        return graph
    return load_graph(graph, split=settings.split, seed=settings.seed)


def _is_split(graph: KnowledgeGraph) -> bool:
    return bool(len(graph.valid) or len(graph.test) or graph.labelled)


def data_name(data: str) -> str:
    """Return what folders call the data: its name, that of a file without its endings."""
    return Path(data).name.split(".")[0] or "graph"


def default_out(config: TrainConfig, *, by_method: bool = True) -> Path:
    """Return the folder a run goes to when none is named; its name may say the method."""
    source = data_name(config.data)
    return Path("runs") / (f"{source}-{config.scoring}-{config.sampler}" if by_method else source)


# Parameters: random ones, or those of another run ------------------------------------------------


def initial_model(
    graph: KnowledgeGraph, config: TrainConfig, device: torch.device
) -> EmbeddingModel:
    """Initialise on the CPU, so that a seed means the same parameters on every device.

    Tables of bfloat16 are made where they stay.
    """
    if config.init_from is not None:
        model = _parameters_of(RunFolder(config.init_from), graph, config)
    else:
        compact = config.table == "bfloat16"  # too large, perhaps, to be made on the CPU
        generator = torch.Generator(device if compact else "cpu")
        model = EmbeddingModel.initialised(
            config.build_scoring(),
            graph.num_entities,
            graph.num_relations,
            generator.manual_seed(config.seed),
            reciprocal=config.reciprocal,
            dtype=getattr(torch, config.table),
        )
    model.entity = model.entity.to(getattr(torch, config.table))
    return model.to(device)


def _parameters_of(folder: RunFolder, graph: KnowledgeGraph, config: TrainConfig) -> EmbeddingModel:
    """Read another run, which must be on the same entities and relations."""
    source, source_graph = folder.read_config(), folder.read_graph()
    for name in ("scoring", "dim", "reciprocal"):
        theirs, ours = getattr(source, name), getattr(config, name)
        if theirs != ours:
            raise UserError(
                f"init_from: {folder.path} was trained with {name} {theirs}, this run has {name} "
                f"{ours}; they must be the same."
            )
    same_entities = source_graph.entities == graph.entities
    if not same_entities or source_graph.relations != graph.relations:
        raise UserError(
            f"init_from: {folder.path} was trained on other entities or relations; both runs "
            "must be on the same graph."
        )
    return folder.read_model(source, source_graph)


def make_optimizer(
    model: EmbeddingModel, config: TrainConfig, triples: int, copies: dict[str, Copy]
) -> Optimizer:
    """Return the optimiser of a model's tables; L2 is a weight decay (paper, Section 5.1)."""
    scoring = model.scoring
    l2 = config.penalty(scoring.usual_l2, scoring.usual_loss)
    decay = l2 * min(config.batch(triples), triples) / triples
    if config.optimizer == "adagrad":
        return Adagrad(model.state(), config.lr, decay, copies)
    lazy = config.optimizer == "lazy-adam"
    return Adam(model.state(), config.lr, decay, lazy=lazy, copies=copies)


def copies_of(model: EmbeddingModel, config: TrainConfig, graph: KnowledgeGraph) -> dict[str, Copy]:
    """Give a model the copy with fewer bits that candidates are scored from, if it has one."""
    kind = model.device.type
    if not config.uses_copy(kind, len(graph.train), graph.num_entities):
        return {}
    if kind == "cuda":
        model.half = HalfTable(model.entity)
        return {"entity": model.half}
    model.int8 = Int8Table(model.entity)
    return {"entity": model.int8}
