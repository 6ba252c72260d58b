"""Runs that grow: new facts, entities and relations, and what people said of discovered facts.

A new run starts from the parameters of the old one. Rows of what was known, and the state of their
optimiser, are kept. The row of a new entity is the mean of those that stand in its place: the
entities with the same facts, else those in the same positions. Then new rows are trained on their
facts while all others stay as they are, and at last all rows on all facts. Rejected facts are kept
with the graph, ``graph.labelled["rejected"]``, for the training step, which takes them as
negatives, and in ``rejected.tsv``.

All of that is in the folder of the new run before its first epoch: an update that is killed is
resumed like any run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from nscaching.artefacts.files import write_text
from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph, read_triples
from nscaching.graph.names import REJECTED, SPLITS, Ids
from nscaching.graph.pairs import contained
from nscaching.optim import Gradients, Optimizer
from nscaching.runs.growing import grown_tables
from nscaching.runs.learning import Learning
from nscaching.runs.predictions import Named, rows_of, triple_of
from nscaching.training import Progress, RunFolder, TrainConfig, Trainer, checkpoint

if TYPE_CHECKING:
    from nscaching.runs.run import Run

#: The share of the old run's epochs that an update trains, and the fewest.
_SHARE_OF_EPOCHS, _FEWEST_EPOCHS = 0.5, 5
#: Epochs in which new rows alone are trained, on the facts that they stand in; with Adam, which
#: moves a row by about the learning rate per step, as many as it takes to come this far.
_NEW_ROW_EPOCHS, _NEW_ROW_WAY = 10, 0.2
#: How much of Adagrad's sums of squared gradients is kept: with less, known rows move more. Chosen
#: with the epochs on valid of ``world`` (docs/notes/decisions.md).
_KEPT_SQUARES = 0.1


class Growth(Learning):
    """The part of :class:`nscaching.Run` that learns from new facts and from decisions."""

    def update(
        self,
        facts: Any = None,
        *,
        accept: Any = None,
        reject: Any = None,
        out: str | Path | None = None,
        epochs: int | None = None,
        overwrite: bool = False,
        progress: Progress | str = "auto",
    ) -> Run:
        """Learn from new facts and from decisions, and return a new run; this one stays as it is.

        Args:
            facts: New triples, a file, a data frame or a list; entities and relations may be new.
            accept: Discovered triples that were found true; they become facts.
            reject: Discovered triples that were found false; they are never offered again.
            out: Folder of the new run.
            epochs: Epochs of training, from the parameters of this run; by default half of this
                run's, at least 5.
            overwrite: Whether a run in that folder is replaced.
            progress: How progress is shown.

        Returns:
            The new run.

        Examples:
            >>> facts = [("Atlantis City", "in country", "Iceland")]
            >>> new = run.update(facts, epochs=1, progress="none")

        """
        from nscaching.runs.api import make_trainer
        from nscaching.runs.run import finished

        shown = progress if isinstance(progress, Progress) else Progress(progress)
        folder = None if out is None else RunFolder(out)
        if folder and self.folder and folder.path.resolve() == self.folder.path.resolve():
            raise UserError(
                f"{out} is the run itself, which an update leaves as it is; name another."
            )
        accepted, new, rejected = self._decided(facts, accept, reject)
        graph = grown_graph(self.graph, new, rejected)
        run = cast("Run", self)
        tables = dict(zip(("entity", "relation"), grown_tables(run, graph), strict=True))
        with contextlib.nullcontext() if folder is None else folder.writing():
            if folder is not None:
                folder.refuse_occupied(overwrite)
            config = _shorter(run, epochs)
            trainer = make_trainer(graph, out=None, config=config, progress=shown)
            _start_from(trainer, tables, run)
            if folder is not None:

                def also(new: RunFolder) -> None:
                    for name, rows in (("rejected", rejected), ("accepted", set(accepted))):
                        if rows:
                            lines = "".join("\t".join(row) + "\n" for row in sorted(rows))
                            write_text(new.path / f"{name}.tsv", lines)
                    trainer.save_start(new)

                folder.create(trainer.config, graph, also)
                trainer.folder = folder
            trainer.run(resume=True)
            updated = finished(trainer, shown)
        updated.rejected = frozenset(rejected)
        return updated

    def _decided(
        self, facts: Any, accept: Any, reject: Any
    ) -> tuple[list[Named], list[Named], frozenset[Named]]:
        """Return accepted facts, all new ones, and all that are rejected from now on."""
        accepted, refused = _named(accept), _named(reject)
        for triple in accepted:  # discovered ones: a name that is not known is a mistake
            triple_of(self.graph, triple)
        new = [*_named(facts), *accepted]
        both = set(new) & set(refused)
        if both:
            raise UserError(f"{' · '.join(min(both))} is both given as a fact and rejected.")
        if not new and not refused:
            raise UserError("There is nothing to update: give facts, or facts to accept or reject.")
        return accepted, new, (self.rejected | set(refused)) - set(new)


def _shorter(run: Run, epochs: int | None) -> TrainConfig:
    """Return how a run is trained on."""
    trained = run.summary.get("best_epoch") or run.config.epochs
    fewer = max(_FEWEST_EPOCHS, round(_SHARE_OF_EPOCHS * trained))
    return replace(
        run.config,
        init_from=None,
        split=0.0,  # what is held out stays held out, and nothing else
        epochs=fewer if epochs is None else epochs,
        pretrain_epochs=0,
        max_seconds=None,
        strata=1,  # the tables are those of all entities, in their order
    )


def _named(given: Any) -> list[Named]:
    """Return triples of names from a file, a data frame, a list or a list of predictions."""
    if given is None:
        return []
    if isinstance(given, str | Path):
        return read_triples(given)
    rows: list[Named] = []
    for row in rows_of(given):
        names = tuple(row)
        if isinstance(row, str) or len(names) != 3 or not all(isinstance(n, str) for n in names):
            raise UserError(f"Give triples of names (head, relation, tail); {row!r} is none.")
        rows.append(names)
    return rows


def _start_from(trainer: Trainer, tables: dict[str, Tensor], run: Run) -> None:
    """Give a trainer the parameters and the state of the optimiser that the old run has."""
    trained = train_new_rows(run, trainer.graph, trainer.config, tables)
    for name, table in trainer.model.state().items():
        table.copy_(tables[name] if trained is None else trained.model.state()[name])
    _keep_optimiser(trainer, run, trained)
    trainer.model.refresh_copies()


def grown_graph(
    graph: KnowledgeGraph, facts: Sequence[Named], rejected: Iterable[Named]
) -> KnowledgeGraph:
    """Return a graph with more training triples; the ids of what was known stay.

    Rejected facts are taken out of every split. A new fact that valid or test holds stays there.
    """
    entities, relations = list(graph.entities), list(graph.relations)
    entity_ids, relation_ids = dict(graph.entity_ids), dict(graph.relation_ids)
    rows = []
    for head, relation, tail in facts:
        for name, names, ids in (
            (head, entities, entity_ids),
            (relation, relations, relation_ids),
            (tail, entities, entity_ids),
        ):
            if name not in ids:
                ids[name] = len(names)
                names.append(name)
        rows.append((entity_ids[head], relation_ids[relation], entity_ids[tail]))
    sizes = len(entities), len(relations)
    refused = _ids(graph, rejected, entity_ids, relation_ids)
    splits = {split: graph.split(split) for split in SPLITS}
    added = np.array(rows, dtype=np.int32).reshape(-1, 3)
    held = np.concatenate([splits["valid"], splits["test"], refused])
    added = added[~contained(added, held, *sizes)]
    splits["train"] = np.concatenate([splits["train"], added])
    labelled = {name: rows for name, rows in graph.labelled.items() if name != REJECTED}
    if len(refused):
        against = np.full((len(refused), 1), -1, dtype=np.int32)
        labelled[REJECTED] = np.hstack([refused, against])
    return KnowledgeGraph(
        entities,
        relations,
        *(ids[~contained(ids, refused, *sizes)] for ids in splits.values()),
        name=graph.name,
        labelled=labelled,
    )


def _ids(
    graph: KnowledgeGraph,
    triples: Iterable[Named],
    entity_ids: dict[str, int],
    relation_ids: dict[str, int],
) -> Ids:
    def entity(name: str) -> int:  # a look-up that fails says which names are near
        return entity_ids[name] if name in entity_ids else graph.entity_id(name)

    def relation(name: str) -> int:
        return relation_ids[name] if name in relation_ids else graph.relation_id(name)

    rows = [(entity(h), relation(r), entity(t)) for h, r, t in sorted(triples)]
    return np.array(rows, dtype=np.int32).reshape(-1, 3)


# Parameters --------------------------------------------------------------------------------------


class OnlyNewRows:
    """An optimiser that moves the rows of new entities and relations and no others."""

    def __init__(self, optimizer: Optimizer, moved: dict[str, Tensor]) -> None:
        self._optimizer, self._moved = optimizer, moved

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def takes_products(self, name: str, few: bool) -> bool:
        """Return False: gradients are masked row by row, so that they must be written out."""
        return False

    def accumulate(self, gradients: Gradients) -> None:
        """Take the gradients of all other rows away."""
        for name, parts in gradients.items():
            for part in parts:
                moved = self._moved[name]
                part.rows.mul_((moved if part.ids is None else moved[part.ids]).unsqueeze(1))
        self._optimizer.accumulate(gradients)


def train_new_rows(
    run: Run, graph: KnowledgeGraph, config: TrainConfig, tables: dict[str, Tensor]
) -> Trainer | None:
    """Train the rows of new entities and relations, on their facts, before all are trained.

    Among rows that have long been trained a new one would take as many epochs as they took; alone
    it costs as much as its facts are. Returns the trainer, or None where nothing is new.
    """
    known, size = run.graph.num_entities, run.graph.num_relations
    train = graph.train
    new = (train[:, [0, 2]] >= known).any(axis=1) | (train[:, 1] >= size)
    if not new.any():
        return None
    part = KnowledgeGraph(graph.entities, graph.relations, train[new], name=graph.name)
    epochs = _NEW_ROW_EPOCHS
    if config.optimizer == "adam":
        count = int(new.sum())
        steps = -(-count // config.batch(count))
        epochs = max(epochs, round(_NEW_ROW_WAY / config.lr / steps))
    settings = replace(config, epochs=epochs, trace=False, trace_row=(), trace_triple=())
    trainer = Trainer(part, settings, None, Progress("none"))
    for name, table in trainer.model.state().items():
        table.copy_(tables[name])
    trainer.model.refresh_copies()
    moved = {
        name: torch.arange(len(table), device=table.device) % sizes[1] >= sizes[0]
        for (name, table), sizes in zip(
            trainer.model.state().items(),
            ((known, graph.num_entities), (size, graph.num_relations)),
            strict=True,
        )
    }
    trainer.optimizer = OnlyNewRows(trainer.optimizer, moved)  # type: ignore[assignment]
    trainer.executor = trainer._make_executor()
    trainer.run(resume=False)
    for name, table in trainer.model.state().items():  # a weight decay moves all rows
        table[~moved[name]] = tables[name].to(table.device)[~moved[name]]
    return trainer


def _keep_optimiser(trainer: Trainer, run: Run, trained: Trainer | None) -> None:
    """Give the optimiser what it knew of the rows that stay, where the old run has it."""
    if run.folder is None or not run.folder.checkpoint.exists():
        return
    stored = checkpoint.load(run.folder.checkpoint)[1].get("adam", {})
    optimiser = trainer.optimizer
    # Which steps rows have waited in stands in the state of a processor's Adam and not of a GPU's.
    # All have been moved: the tables are as of the last step.
    present = optimiser.state().items()
    state = {name: tensor.cpu().clone() for name, tensor in present if not _waited(name)}
    if any(name not in state for name in stored if not _waited(name)):
        return  # another optimiser
    old = run.graph.num_entities, run.graph.num_relations
    new = trainer.graph.num_entities, trainer.graph.num_relations
    learnt = {} if trained is None else trained.optimizer.state()
    for name, tensor in stored.items():
        if name.endswith(".moved"):
            continue
        kept = tensor * _KEPT_SQUARES if optimiser.name == "adagrad" else tensor
        like = state[name.replace(".since", ".mean")]
        fresh = like[:, 0].to(tensor.dtype) if _waited(name) else like
        of_new = learnt[name].cpu() if name in learnt else None
        state[name] = _grown_state(kept, fresh, of_new, name, old, new)
    optimiser.load_state(state)


def _waited(name: str) -> bool:
    return name.endswith((".since", ".moved"))


def _grown_state(
    tensor: Tensor,
    fresh: Tensor,
    learnt: Tensor | None,
    name: str,
    old: tuple[int, int],
    new: tuple[int, int],
) -> Tensor:
    """Return the state of the old rows, followed by what is known of each new row."""
    which = 0 if name.startswith("entity") else 1
    if tensor.ndim == 0 or tensor.shape == fresh.shape or tensor.shape[0] % old[which]:
        return tensor
    blocks = tensor.view(-1, old[which], *tensor.shape[1:])
    grown = fresh.clone().view(-1, new[which], *fresh.shape[1:])
    if not tensor.dtype.is_floating_point:  # steps that rows have waited: new ones have not
        grown[:] = tensor.max()
    elif tensor.ndim > 1 and learnt is not None:
        grown[:] = learnt.view(grown.shape)
    grown[:, : old[which]] = blocks
    return grown.view(fresh.shape)
