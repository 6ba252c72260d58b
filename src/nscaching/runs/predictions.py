"""What a run is asked about, by name or id, and what it answers, in forms for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np

from nscaching.artefacts.showing import frame, html_table, write_table
from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.graph.loading import Frame

Named = tuple[str, str, str]
#: An entity or relation, by name or by id.
Reference = str | int
#: Triples of names or ids, an array of ids, or a data frame of names.
Triples = Iterable[tuple[Reference, Reference, Reference]] | np.ndarray | Frame
#: What a flag says of an answer that its relation never had on that side.
NEVER_SEEN = "never seen with this relation"
#: Rows that a notebook and a short representation show.
_SHOWN, _SHORT = 50, 5


def percent(probability: float) -> str:
    """Return a probability for people; none that would round to 0 or 100 % is said to be that."""
    if probability > 0.9995:
        return ">99.9%"
    return "<0.1%" if probability < 0.0005 else f"{probability:.1%}"


@dataclass(frozen=True)
class Prediction:
    """One answer: the whole triple, its score and probability, and what the graph says of it."""

    head: str
    relation: str
    tail: str
    score: float
    split: str | None = None  #: "train", "valid" or "test" for a fact of the graph
    #: The chance that this is a fact that the graph lacks; None where there is no valid split.
    probability: float | None = None
    seen: bool = True  #: False: in training the answer never stands on this side of the relation
    contradicts: Named | None = None  #: a fact of the graph that cannot hold beside this one
    #: False: an entity stands there once as a rule, so that one never seen there is no surprise.
    recurs: bool = True
    rejected: bool = False  #: whether people rejected it; see :meth:`Run.update`

    @property
    def known(self) -> bool:
        """Whether the graph holds this triple already."""
        return self.split is not None

    @property
    def flags(self) -> list[str]:
        """What a reader should know before believing it."""
        found = ["rejected"] if self.rejected else []
        if self.recurs and not self.seen:
            found.append(NEVER_SEEN)
        if self.contradicts is not None:
            found.append(f"contradicts {' · '.join(self.contradicts)}")
        return found

    @property
    def triple(self) -> Named:
        """Head, relation and tail."""
        return self.head, self.relation, self.tail

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        against = None if self.contradicts is None else list(self.contradicts)
        return {**asdict(self), "contradicts": against, "known": self.known, "flags": self.flags}

    def __repr__(self) -> str:
        chance = f"score {self.score:.3f}"
        if self.probability is not None:
            chance = f"{percent(self.probability)}, {chance}"
        known = f" [{self.split}]" if self.split else ""
        notes = f" ({'; '.join(self.flags)})" if self.flags else ""
        return f"<{self.head} · {self.relation} · {self.tail}: {chance}{known}{notes}>"


@dataclass(frozen=True)
class Neighbour:
    """An entity and the cosine similarity of its embedding."""

    entity: str
    similarity: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


class Neighbours(list[Neighbour]):
    """A list of neighbours, the most similar first."""

    def to_frame(self) -> Any:
        """Return a pandas data frame, one row per neighbour."""
        return frame([neighbour.as_dict() for neighbour in self])


class Predictions(list[Prediction]):
    """A list of predictions, best first, that shows and writes itself."""

    def __init__(self, given: Iterable[Prediction] = ()) -> None:
        super().__init__(given)
        #: Questions of :meth:`Run.ask` that have no answer; None stands for what they ask for.
        self.unanswered: list[Sequence[Reference | None]] = []

    @overload
    def __getitem__(self, key: SupportsIndex) -> Prediction: ...

    @overload
    def __getitem__(self, key: slice) -> Predictions: ...

    def __getitem__(self, key: SupportsIndex | slice) -> Prediction | Predictions:
        """Return one prediction, or some of them."""
        found = super().__getitem__(key)
        return Predictions(found) if isinstance(found, list) else found

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return every prediction as plain values."""
        return [prediction.as_dict() for prediction in self]

    def to_frame(self) -> Any:
        """Return a pandas data frame, one row per prediction."""
        return frame(self.rows())

    def write(self, path: str | Path, evidence: Sequence[str] | None = None) -> Path:
        """Write a table; the suffix decides: .csv, .tsv, .parquet or .json.

        ``evidence`` is one more column, a text for each prediction.
        """
        rows, columns = self.rows(), [*_COLUMNS]
        if evidence is not None:
            columns.append("evidence")
            rows = [{**row, "evidence": text} for row, text in zip(rows, evidence, strict=True)]
        return write_table(Path(path), rows, columns)

    def rows(self) -> list[dict[str, Any]]:
        """Return what a table shows of each; flags are one text."""
        shown = [{name: getattr(each, name) for name in _COLUMNS} for each in self]
        return [{**row, "flags": "; ".join(row["flags"])} for row in shown]

    def __repr__(self) -> str:
        shown = ",\n ".join(repr(prediction) for prediction in self[:_SHORT])
        rest = f",\n ... {len(self) - _SHORT:,} more" if len(self) > _SHORT else ""
        return f"[{shown}{rest}]"

    def _repr_html_(self) -> str:
        return html_table(self.rows()[:_SHOWN], _COLUMNS, len(self) - _SHOWN)


_COLUMNS = ("head", "relation", "tail", "probability", "score", "split", "flags")


class History(list[dict[str, Any]]):
    """What a run wrote down while it trained: one line per epoch and one per evaluation."""

    def to_frame(self) -> Any:
        """Return a pandas data frame, one row per line."""
        return frame(self)

    def __repr__(self) -> str:
        epochs = sum(line.get("event") == "epoch" for line in self)
        ranked = [line["mrr"] for line in self if line.get("split") == "valid" and line.get("mrr")]
        best = f", best valid MRR {max(ranked):.4f}" if ranked else ""
        return f"<History: {epochs} epochs{best}>"

    def _repr_html_(self) -> str:
        columns = tuple(dict.fromkeys(key for line in self for key in line))
        return html_table(self[-_SHOWN:], columns, max(0, len(self) - _SHOWN))


def rows_of(given: Any) -> Iterable[Any]:
    """Return triples one by one: those of a data frame, of predictions, or of a list."""
    if hasattr(given, "__arrow_c_stream__"):
        from nscaching.interop.graphs import frame_rows  # it needs more than most questions do

        return frame_rows(given)
    return (row.triple if isinstance(row, Prediction) else row for row in given)


def triple_of(graph: KnowledgeGraph, triple: Sequence[Reference]) -> tuple[int, int, int]:
    """Return the ids of a triple."""
    if isinstance(triple, str) or not hasattr(triple, "__len__") or len(triple) != 3:
        raise UserError(f"Give a list of (head, relation, tail); {triple!r} is none.")
    head, relation, tail = triple
    return graph.entity_id(head), graph.relation_id(relation), graph.entity_id(tail)


def several(names: Any) -> list[Any]:
    """Return one name, or several, as a list."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [names]
    return list(names)
