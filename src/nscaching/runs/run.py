"""A trained run, ready to be evaluated, asked and exported."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from nscaching.artefacts.showing import export_embeddings
from nscaching.errors import HOLD_OUT, UserError, resume_command
from nscaching.evaluation import (
    ClassificationReport,
    Drawing,
    RankingReport,
    Thresholds,
    classification_report,
    classify_triples,
    learn_thresholds,
    score_triples,
)
from nscaching.graph import KnowledgeGraph
from nscaching.models import SCORING, EmbeddingModel, Side
from nscaching.models.sharded import INDEX
from nscaching.processes import current_group
from nscaching.runs.decisions import Decisions, check_count
from nscaching.runs.discover import Discovery
from nscaching.runs.predictions import (
    Neighbour,
    Neighbours,
    Prediction,
    Predictions,
    Reference,
    Triples,
    triple_of,
)
from nscaching.runs.update import Growth
from nscaching.runs.verdicts import Verdicts
from nscaching.training import Progress, RunFolder, TrainConfig, Trainer
from nscaching.training.folder import evaluation_line
from nscaching.training.tracing import GradientNorms, norms_of_negatives

#: Samplers as a title names them; the others as they are.
SAMPLER_TITLES = {
    "nscaching": "NSCaching",
    "kbgan": "KBGAN",
    "igan": "IGAN",
    "bernoulli": "Bernoulli",
    "all": "all entities",
}

__all__ = ["Neighbour", "Prediction", "Predictions", "Run"]


class Run(Decisions, Discovery, Growth):
    """The outcome of :func:`nscaching.train`, or a run folder read back.

    Entities and relations are given by name, as text, or by id, as a whole number. Where names are
    numbers themselves, one that is the name of one row and the id of another is refused.
    """

    def __init__(
        self,
        config: TrainConfig,
        graph: KnowledgeGraph,
        model: EmbeddingModel,
        *,
        folder: RunFolder | None = None,
        summary: dict[str, Any] | None = None,
        trace: list[dict[str, Any]] | None = None,
    ) -> None:
        self.config, self.graph, self.model, self.folder = config, graph, model, folder
        #: Epochs, best epoch, seconds and final metrics, as ``train --json`` prints them; of a run
        #: read back without ``device`` and ``extra_parameters``, which are not kept.
        self.summary = summary or {}
        #: What ``trace`` wrote down: one line per epoch, snapshots of rows and of gradient norms.
        self.trace: list[dict[str, Any]] = trace or []
        #: The evaluation of each split that :meth:`evaluate` made, with mean ranks of ties.
        self.evaluations: dict[str, RankingReport] = {}
        self._thresholds: dict[tuple[Drawing, bool], Thresholds] = {}

    @classmethod
    def load(
        cls, path: str | Path, device: torch.device | None = None, mapped: bool | None = None
    ) -> Run:
        """Read a run folder; ``mapped`` shards stay on disk, see :meth:`RunFolder.read_model`."""
        folder = RunFolder(path)
        config = folder.read_config()
        if not folder.has_model():
            if writer := folder.lock.writer():
                raise UserError(f"{folder.path} holds no model yet: {writer} is training it.")
            resume = resume_command("train", folder.path)
            if folder.has_checkpoint() and folder.read_counters().finished:
                missing = folder.path / INDEX if config.strata > 1 else folder.model
                raise UserError(
                    f"{missing} is missing. Write it again from the checkpoint with: {resume}"
                )
            raise UserError(
                f"{folder.path} holds no model yet: its training was stopped early. Resume with: "
                f"{resume}"
            )
        graph = folder.read_graph()
        model = folder.read_model(config, graph, mapped)
        if device is not None:
            model = model.to(device)
        trace = folder.read_trace()
        return cls(config, graph, model, folder=folder, summary=folder.summary(), trace=trace)

    @property
    def title(self) -> str:
        """Scoring function, sampler and graph, as a page and a summary name the run."""
        name, sampler = SCORING[self.config.scoring].__name__, self.config.sampler
        link = "over" if sampler == "all" else "with"
        return f"{name} {link} {SAMPLER_TITLES.get(sampler, sampler)} on {self.graph.name}"

    def __repr__(self) -> str:
        where = f" in {self.folder.path}" if self.folder else ""
        return f"Run({self.config.scoring}, dim {self.config.dim}, on {self.graph.name}{where})"

    @property
    def unfinished(self) -> str | None:
        """A sentence on a run whose training has not come to its end; None for any other."""
        if self.folder is None:
            return None
        try:
            counters = self.folder.read_counters()
        except UserError:  # it has no checkpoint any more
            return None
        if counters.finished:
            return None
        epoch = counters.epoch
        place = f"in epoch {epoch + 1}" if counters.steps_into_epoch else f"after epoch {epoch}"
        said = f"This run is not finished: it stands {place} of {self.config.epochs}"
        if writer := self.folder.lock.writer():
            return f"{said}, and {writer} trains it on."
        return f"{said}. Resume it with: {resume_command('train', self.folder.path)}"

    # Evaluation ----------------------------------------------------------------------------------

    def evaluate(
        self,
        split: str = "test",
        *,
        ties: str = "mean",
        memory_mb: int | None = None,
        progress: Progress | None = None,
    ) -> RankingReport:
        """Rank a split, filtered, on both sides; see :class:`nscaching.RankingReport`.

        Args:
            split: ``"test"``, ``"valid"`` or ``"train"``; an empty split is refused.
            ties: Which rank equal scores have: ``"mean"``, ``"optimistic"`` or ``"pessimistic"``.
            memory_mb: Bound of the memory for scores.
            progress: Where progress is shown.

        Returns:
            MRR, MR, AMRI and Hits@k, for both sides, per side and per relation, with intervals.

        Examples:
            >>> run.evaluate("test").mrr > 0
            True

        """
        size = len(self.graph.split(split))
        if size == 0:
            raise _empty(split, "rank")
        how: Any = {"ties": ties, "memory_mb": memory_mb or self.config.eval_memory}
        with (progress or Progress("none")).work(f"ranking {split}", 2 * size) as advance:
            report = RankingReport.of_split(self.model, self.graph, split, progress=advance, **how)
        if ties == "mean":
            self.evaluations[split] = report
        return report

    def classification(
        self, split: str = "test", *, seed: int = 0, replaced: str = "tail"
    ) -> ClassificationReport:
        """Tell the facts of a split from negatives, by a threshold per relation learnt on valid.

        Args:
            split: ``"test"`` or ``"valid"``.
            seed: Decides the negatives. They are the data set's own where it has them; else one is
                drawn for each fact.
            replaced: The side that is replaced, ``"tail"``, ``"head"`` or ``"either"``.

        Returns:
            Accuracy over all, and accuracy and threshold per relation.

        """
        self.graph.split(split)  # an unknown split is named before any work
        started = time.monotonic()
        thresholds = self.thresholds(seed=seed, replaced=replaced)
        report = classification_report(
            self.model, self.graph, thresholds, split, Drawing(seed, replaced)
        )
        if report.count == 0:
            raise _empty(split, "classify")
        return replace(report, seconds=time.monotonic() - started)

    def thresholds(
        self, *, seed: int = 0, replaced: str = "tail", any_type: bool = False
    ) -> Thresholds:
        """Return the score from which on each relation takes a triple as true; kept once found.

        ``any_type`` adds negatives with an entity of any type to those of the right type.
        """
        drawing = Drawing(seed, replaced)
        if (drawing, any_type) not in self._thresholds:
            self._thresholds[drawing, any_type] = learn_thresholds(
                self.model, self.graph, drawing, any_type=any_type
            )
        return self._thresholds[drawing, any_type]

    # Questions -----------------------------------------------------------------------------------

    def score(self, triples: Triples) -> np.ndarray:
        """Score triples of names or ids: higher is more plausible. Shape: (n,).

        Examples:
            >>> run.score([("France", "speaks", "French"), ("France", "speaks", "Dutch")]).shape
            (2,)

        """
        return score_triples(self.model, self._triples(triples))

    def classify(
        self, triples: Triples, *, seed: int = 0, replaced: str = "tail", any_type: bool = True
    ) -> Verdicts:
        """Say of triples of names or ids whether each is true, and by what margin.

        Args:
            triples: A list of (head, relation, tail), or a data frame of names.
            seed: As in :meth:`classification`.
            replaced: As in :meth:`classification`.
            any_type: Whether thresholds know negatives of any type too, and not only of the right
                one, as those of :meth:`classification` do.

        Returns:
            Labels and margins; shapes: (n,), (n,). The margin is the score less the threshold of
            the relation; a triple is true from 0 on. ``as_dicts()`` and ``to_frame()`` add the
            probability of each, what the graph says of it, and whether label and probability
            disagree.

        Examples:
            >>> labels, margins = run.classify([("France", "speaks", "French")])

        """
        ids = self._triples(triples)
        thresholds = self.thresholds(seed=seed, replaced=replaced, any_type=any_type)
        decided = classify_triples(self.model, thresholds, ids)
        return Verdicts.of(decided, lambda: self._judged(ids, as_claims=True))

    def neighbours(self, entity: Reference, k: int = 10) -> Neighbours:
        """Return the k entities whose embeddings are most similar, by cosine.

        Args:
            entity: Name or id.
            k: How many.

        Returns:
            Entities with their similarity, the most similar first; a list with ``to_frame()``.

        Examples:
            >>> [neighbour.entity for neighbour in run.neighbours("Uruguay", k=3)]  # doctest: +SKIP
            ['Paraguay', 'Argentina', 'Bolivia']

        """
        check_count(k)
        this = self.graph.entity_id(entity)
        mine = normalize(self.model.rows(torch.tensor([this])), dim=1)[0]
        similarity = torch.empty(self.model.num_entities, device=mine.device)
        for ids, rows in self.model.blocks():
            similarity[ids] = normalize(rows, dim=1) @ mine
        similarity[this] = -torch.inf
        best = similarity.topk(min(k, len(similarity) - 1))
        return Neighbours(
            Neighbour(self.graph.entities[other], value)
            for other, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        )

    def report(self, path: str | Path | None = None, *, progress: Progress | None = None) -> Path:
        """Write one page of HTML about the run, by default ``report.html`` in its folder."""
        from nscaching.report.run_page import write_run_page

        return write_run_page(self, None if path is None else Path(path), progress)

    def gradient_ccdf(
        self, triple: tuple[Reference, Reference, Reference], side: str = "tail"
    ) -> GradientNorms:
        """Return the gradient norms of a triple with each of its negatives (paper, fig-distance).

        ``side`` is what the negatives replace. Norms are l2, of the loss of a positive and one
        negative by all rows in it; ``result.ccdf()`` gives x and the share of norms >= x.
        """
        if side not in ("head", "tail"):
            raise UserError(f"side must be head or tail, not '{side}'.")
        loss = self.config.build_loss(self.model.scoring.usual_loss)
        replaced = Side.HEAD if side == "head" else Side.TAIL
        return norms_of_negatives(
            self.graph, self.model, loss, triple_of(self.graph, triple), replaced
        )

    # Embeddings ----------------------------------------------------------------------------------

    def embeddings(self, what: str = "entity") -> np.ndarray:
        """Return the table of entities or relations, rows in the order of their names.

        With reciprocal relations those of the inverse relations follow.
        """
        table: np.ndarray = self._table(what).detach().cpu().numpy().copy()
        return table

    def _table(self, what: str) -> torch.Tensor:
        tables = self.model.state()
        if what not in tables:
            raise UserError(f"embeddings are of 'entity' or 'relation', not '{what}'.")
        return tables[what].float()

    def export(self, path: str | Path, what: str = "entity", format: str = "auto") -> list[Path]:
        """Write embeddings for other programs: npy with names, word2vec text, or Parquet.

        Args:
            path: File to write; its suffix says the format.
            what: ``"entity"`` or ``"relation"``.
            format: ``"npy"``, ``"word2vec"`` or ``"parquet"``, where the suffix does not say it.

        Returns:
            The files that were written.

        """
        names = self.graph.entities if what == "entity" else self.graph.relations
        if what == "relation" and self.model.reciprocal:
            names = [*names, *(f"{name}_inverse" for name in names)]
        return export_embeddings(Path(path), names, self._table(what), format)

    def to_pykeen(self) -> Any:
        """Return the model as a PyKEEN model with the same scores, where PyKEEN has such a one."""
        from nscaching.interop.pykeen import to_pykeen_model

        return to_pykeen_model(self)


def _empty(split: str, verb: str) -> UserError:
    return UserError(f"The {split} split is empty; there is nothing to {verb}. {HOLD_OUT}")


# The end of a training ----------------------------------------------------------------------------


def finished(trainer: Trainer, shown: Progress, probabilities: bool = True) -> Run:
    """Look at the test split, once, with the best model; sum the run up.

    Probabilities are fitted now, so that the first question is quick, or when they are asked for.
    """
    counters, group = trainer.counters, current_group()
    extra_parameters = trainer.sampler.extra_parameters
    if group.size > 1:
        run, test = _finished_together(trainer)
    else:
        model, trace = trainer.best_model(), trainer.tracer.lines if trainer.tracer else None
        run = Run(trainer.config, trainer.graph, model, folder=trainer.folder, trace=trace)
        test = run.evaluate("test", progress=shown) if len(trainer.graph.test) else None
    run._lines = trainer.tracking.lines
    if test is not None and group.rank == 0:
        line = evaluation_line(test.overall(), "test", test.seconds, counters.best_epoch)
        trainer.record(line)
    run.summary = {
        "run": str(trainer.folder.path) if trainer.folder else None,
        "select": trainer.config.select,
        "device": str(trainer.device),
        "extra_parameters": extra_parameters,
        **counters.summary(),
        "test": test.overall() if test is not None else None,
    }
    if run.folder is not None and group.rank == 0 and probabilities:
        _ = run.calibration
    return run


def _finished_together(trainer: Trainer) -> tuple[Run, RankingReport | None]:
    """Rank the test split on all processes; the run is then read from its folder, by shard."""
    assert trainer.folder is not None
    test = (
        trainer.validation.rank(trainer.best_model(), "test") if len(trainer.graph.test) else None
    )
    for part in ("executor", "optimizer", "sampler", "model", "best", "columns"):
        delattr(trainer, part)  # all of it is written, and rank 0 has more to do
    run = Run.load(trainer.folder.path, trainer.device, mapped=True)
    if test is not None:
        run.evaluations["test"] = test
    return run, test
