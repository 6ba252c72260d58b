"""The answers that triples give to questions, looked up for many questions at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nscaching.graph.pairs import pair_keys
from nscaching.models import Side

Ids = npt.NDArray[np.integer]


class Answers:
    """For every question (h, r, ?), or (?, r, t) for the side HEAD, the entities that answer it."""

    def __init__(self, triples: Ids, side: Side, num_relations: int) -> None:
        anchor, answer = (2, 0) if side is Side.HEAD else (0, 2)
        self._num_relations = num_relations
        keys = pair_keys(triples[:, anchor], triples[:, 1], num_relations)
        order = np.argsort(keys, kind="stable")
        self._keys, self._answers = keys[order], triples[order, answer].astype(np.int64)

    def of(
        self, anchors: Ids, relations: Ids
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the answers of questions as (question, entity) lists. Shapes: (b,), (b,)."""
        keys = pair_keys(np.asarray(anchors), np.asarray(relations), self._num_relations)
        start = np.searchsorted(self._keys, keys, side="left")
        count = np.searchsorted(self._keys, keys, side="right") - start
        question = np.repeat(np.arange(len(keys)), count)
        first = np.repeat(start - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
        return question, self._answers[first + np.arange(len(question))]


class AnswersBySide(dict[Side, Answers]):
    """The answers that triples give to the questions of either side, sorted when first needed."""

    def __init__(self, triples: Ids, num_relations: int) -> None:
        super().__init__()
        self._made_of = triples, num_relations

    def __missing__(self, side: Side) -> Answers:
        """Sort the triples for one side."""
        triples, num_relations = self._made_of
        self[side] = Answers(triples, side, num_relations)
        return self[side]
