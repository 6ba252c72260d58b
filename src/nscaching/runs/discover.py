"""The most probable new facts of a whole graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from nscaching.evaluation.calibration import answer_logits
from nscaching.graph.names import Floats, Integers
from nscaching.models import Side
from nscaching.runs.asking import Asker
from nscaching.runs.decisions import check_count
from nscaching.runs.learning import Learning
from nscaching.runs.predictions import Predictions, Reference, several
from nscaching.training import Progress

#: Answers of a question that are looked at, at least, where the number per answer is limited.
_MORE_PER_QUESTION = 100
#: Candidates kept while questions are asked, as a multiple of what is wanted, and the fewest, where
#: the number per answer is limited: of the best some are left out in the end.
_KEPT, _FEWEST_KEPT = 4, 10_000
#: Scores from which on a user is told that it takes long.
_MANY_SCORES = 1e11


class Best:
    """The best facts so far, in bounded memory."""

    def __init__(self, limit: int) -> None:
        self._limit, self._held = limit, 0
        self._triples: list[Integers] = [np.zeros((0, 3), dtype=np.int64)]
        self._numbers: list[Floats] = [np.zeros((0, 2))]
        self.least = -np.inf  #: a fact below has no chance

    def add(self, triples: Integers, logits: Floats, scores: Floats) -> None:
        """Take facts into account. Shapes: (n, 3), (n,), (n,)."""
        good = logits >= self.least
        self._triples.append(triples[good])
        self._numbers.append(np.column_stack([logits[good], scores[good]]))
        self._held += int(good.sum())
        if self._held > 2 * self._limit:
            self._shrink()

    def _shrink(self) -> None:
        triples, numbers = np.concatenate(self._triples), np.concatenate(self._numbers)
        # Of equal facts the order does not depend on when they were found.
        best = np.lexsort((*triples.T, -numbers[:, 0]))[: self._limit]
        self._triples, self._numbers = [triples[best]], [numbers[best]]
        self._held = len(best)
        if len(best) == self._limit:
            self.least = float(numbers[best[-1], 0])

    def ordered(self) -> tuple[Integers, Floats]:
        """Return facts (n, 3) with log-odds and score (n, 2), the best first."""
        self._shrink()
        return self._triples[0], self._numbers[0]


class Discovery(Learning):
    """The part of :class:`nscaching.Run` that looks for new facts in the whole graph."""

    def discover(
        self,
        n: int = 100,
        *,
        relations: Reference | Iterable[Reference] | None = None,
        heads: Reference | Iterable[Reference] | None = None,
        tails: Reference | Iterable[Reference] | None = None,
        per_question: int | None = 3,
        per_answer: int | None = None,
        per_relation: int | None = None,
        contradictions: bool = False,
        unlikely: bool = False,
        memory_mb: int | None = None,
        progress: Progress | None = None,
    ) -> Predictions:
        """Return the n most probable facts that the graph lacks.

        Asks (h, r, ?) of every relation for every head that was seen with it, or that stands in
        the same positions as those that were; all entities are candidates.

        Args:
            n: Facts wanted; fewer where the graph has no more.
            relations: Only facts of these relations.
            heads: Only facts with these heads.
            tails: Only facts with these tails.
            per_question: At most so many answers to one question; None does not limit them.
            per_answer: At most so many facts with the same relation and tail.
            per_relation: At most so many facts of one relation.
            contradictions: Whether facts that contradict the graph are kept, flagged: a second
                answer where the relation has one.
            unlikely: Whether facts are kept whose tail was never seen with the relation and that
                are less probable than 1 %.
            memory_mb: Bound of the memory for scores.
            progress: Where progress is shown.

        Returns:
            Facts with probability and flags, the most probable first.

        Examples:
            >>> facts = run.discover(20, relations=["speaks", "near"])

        """
        asker, shown = self._asker, progress or Progress("none")
        limits = per_question, per_answer, per_relation
        names = ("n", "per_question", "per_answer", "per_relation")
        for name, value in zip(names, (n, *limits), strict=True):
            if value is not None:
                check_count(value, name)
        wanted = set(range(self.graph.num_relations))
        if relations is not None:
            wanted = {self.graph.relation_id(name) for name in several(relations)}
        some = None if heads is None else np.unique(self._entities(heads))
        # Where answers are limited too, the best one of a question may be left out for the next.
        k = n if per_question is None else per_question
        k = k if per_answer is None else max(k, _MORE_PER_QUESTION)
        how: dict[str, Any] = {"contradictions": contradictions, "unlikely": unlikely}
        if tails is not None:
            among = torch.zeros(self.graph.num_entities, dtype=torch.bool)
            among[torch.from_numpy(self._entities(tails))] = True
            how["among"] = among.to(self.model.device)
        each = n if per_relation is None else min(n, per_relation)
        each = each if per_answer is None else max(_KEPT * each, _FEWEST_KEPT)
        # The best of all relations, or of each.
        best = {0 if per_relation is None else relation: Best(each) for relation in wanted}
        asker.evidence.memory_mb = memory_mb or self.config.eval_memory
        try:
            with shown.work("looking for questions", len(wanted)) as advance:
                blocks = _blocks(asker, sorted(wanted), some, contradictions, advance)
            _ask(asker, blocks, best, min(k, self.graph.num_entities), how, shown)
        finally:
            asker.evidence.memory_mb = self.config.eval_memory
        parts = [each.ordered() for each in best.values()] or [Best(1).ordered()]
        triples, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(-numbers[:, 0], kind="stable")
        return _chosen(asker, triples[order], numbers[order], n, limits)


_Block = tuple[int, Integers, Floats]


def _ask(
    asker: Asker,
    blocks: list[_Block],
    best: Mapping[int, Best],
    k: int,
    how: Mapping[str, Any],
    shown: Progress,
) -> None:
    """Ask blocks of questions in turn; the best of their answers are kept."""
    questions, entities = sum(len(block) for _, block, _ in blocks), asker.graph.num_entities
    if questions * entities > _MANY_SCORES:
        shown.say(
            f"{questions:,} questions with {entities:,} candidates each: this may take long. Fewer "
            "--relation or --head are quicker."
        )
    with shown.work("asking", questions) as advance:
        for relation, block, bounds in blocks:
            advance(len(block))
            kept = best[relation if relation in best else 0]
            block = block[bounds >= kept.least]
            if len(block) == 0:
                continue
            found = asker.ask(Side.TAIL, relation, block, k, least=kept.least, **how)
            kept.add(found.triples, found.logit, found.score)


def _blocks(
    asker: Asker,
    relations: Iterable[int],
    heads: Integers | None,
    contradictions: bool,
    advance: Callable[[int], None],
) -> list[_Block]:
    """Return what is asked at once: a relation, some of its heads, and bounds of their log-odds.

    Asked are heads that were seen with the relation and those that fit; where the relation has one
    answer, and contradictions are not wanted, those without an answer. The most promising come
    first: most of the others have no answer as good as what has been found by then.
    """
    positions, chunk, found = asker.evidence.positions, asker.evidence.chunk(), []
    for relation in relations:
        advance(1)
        asked: Integers
        if heads is None:
            asked = np.flatnonzero(positions.column(Side.HEAD, relation).plausible)
        else:
            asked = heads[positions.rows(Side.HEAD, relation, heads).plausible]
        if not contradictions and positions.has_one_answer(Side.TAIL, relation):
            asked = asked[~asker.whole.seen(Side.HEAD, relation, asked)]
        if len(asked) == 0:
            continue
        bounds = np.full(len(asked), np.inf)
        if asker.calibration is not None:
            bounds = asker.highest(Side.TAIL, relation, asked).double().cpu().numpy()
        order = np.argsort(-bounds, kind="stable")
        asked, bounds = asked[order], bounds[order]
        for start in range(0, len(asked), chunk):
            part = slice(start, start + chunk)
            found.append((relation, asked[part], bounds[part]))
    return sorted(found, key=lambda block: -block[2][0])


def _chosen(
    asker: Asker, triples: Integers, numbers: Floats, count: int, limits: tuple[int | None, ...]
) -> Predictions:
    """Take the best facts in turn, unless there are enough of their question, answer, relation."""
    taken = Predictions()
    counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in limits]
    block = max(1000, count)
    for start in range(0, len(triples), block):
        part = slice(start, start + block)
        logits, scores = answer_logits(numbers[part, 0]), numbers[part, 1].tolist()
        made = asker.predictions(triples[part], scores, logits, Side.TAIL)
        for (head, relation, tail), prediction in zip(triples[part].tolist(), made, strict=True):
            kinds = (head, relation), (relation, tail), (relation,)
            mine = list(zip(counts, kinds, limits, strict=True))
            if any(most is not None and seen[kind] >= most for seen, kind, most in mine):
                continue
            for seen, kind, _ in mine:
                seen[kind] += 1
            taken.append(prediction)
            if len(taken) == count:
                return taken
    return taken
