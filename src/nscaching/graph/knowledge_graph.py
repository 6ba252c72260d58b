"""A knowledge graph: names, ids, and the three splits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nscaching.errors import UserError, nearest_names, plural, shown
from nscaching.graph.names import (
    SPLITS,
    Bools,
    Ids,
    NamedTriples,
    checked_id,
    checked_names,
    encode,
)
from nscaching.graph.pairs import (
    PairRows,
    RelationStatistics,
    SideName,
    TrainingRows,
    distinct,
    pair_rows,
    relation_statistics,
)

#: Names whose lengths are hashed at once.
_BLOCK = 1 << 20


class KnowledgeGraph:
    """Entities, relations and the triples between them, as ids; not changed after it is made.

    ``train``, ``valid`` and ``test`` are C-contiguous int32 arrays of shape (n, 3) with the columns
    head, relation, tail. A triple occurs once in a split: ``duplicates`` says how many copies were
    dropped from each. ``labelled`` holds (n, 4) arrays whose last column is 1 or -1, for data sets
    that come with negatives; ``notes`` holds remarks on the data for the user.
    """

    #: Whether arrays and names are mapped from disk, and may be larger than memory.
    on_disk: ClassVar[bool] = False

    def __init__(
        self,
        entities: Sequence[str],
        relations: Sequence[str],
        train: npt.ArrayLike,
        valid: npt.ArrayLike | None = None,
        test: npt.ArrayLike | None = None,
        *,
        name: str = "graph",
        labelled: Mapping[str, npt.ArrayLike] | None = None,
        duplicates: Mapping[str, int] | None = None,
        notes: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.entities: Sequence[str] = checked_names(entities, "entity")
        self.relations: Sequence[str] = checked_names(relations, "relation")
        self.duplicates: dict[str, int] = {}
        arrays: dict[str, Ids] = {}
        for split, given in zip(SPLITS, (train, valid, test), strict=True):
            ids = self._checked(given, split, 3)
            arrays[split] = distinct(ids, len(self.entities), len(self.relations))
            already = int((duplicates or {}).get(split, 0))
            self.duplicates[split] = already + len(ids) - len(arrays[split])
        self.train, self.valid, self.test = (arrays[split] for split in SPLITS)
        self.labelled: dict[str, Ids] = {
            split: self._checked(given, f"labelled {split}", 4)
            for split, given in (labelled or {}).items()
        }
        self.notes: list[str] = list(notes or [])

    @classmethod
    def from_triples(
        cls,
        train: Sequence[Sequence[str]],
        valid: Sequence[Sequence[str]] = (),
        test: Sequence[Sequence[str]] = (),
        *,
        name: str = "graph",
    ) -> KnowledgeGraph:
        """Make a graph from (head, relation, tail) names; ids follow the first appearance.

        Args:
            train: Triples that are learnt from.
            valid: Triples that choose the model.
            test: Triples that judge it.
            name: What the graph is called in reports.

        Returns:
            The graph.

        Examples:
            >>> graph = ns.KnowledgeGraph.from_triples([("a", "likes", "b"), ("b", "likes", "a")])

        """
        named = [
            NamedTriples.from_tuples(triples, split)
            for split, triples in zip(SPLITS, (train, valid, test), strict=True)
        ]
        entities, relations, ids = encode(named)
        return cls(entities, relations, *ids, name=name)

    # Other libraries: ``nscaching.interop`` is imported when one of these is called --------------

    @classmethod
    def from_dataframe(
        cls,
        train: Any,
        valid: Any = None,
        test: Any = None,
        *,
        columns: Sequence[str] | None = None,
        name: str = "graph",
    ) -> KnowledgeGraph:
        """Make a graph of frames of pandas, polars or pyarrow.

        Args:
            train: Frame of the triples that are learnt from.
            valid: Frame of those that choose the model.
            test: Frame of those that judge it.
            columns: Names of the columns of heads, relations and tails; by default they are found
                by usual names.
            name: What the graph is called in reports.

        Returns:
            The graph.

        """
        from nscaching.interop.graphs import from_dataframe

        return from_dataframe((train, valid, test), columns, name)

    @classmethod
    def from_networkx(
        cls, graph: Any, *, relation: str = "relation", name: str | None = None
    ) -> KnowledgeGraph:
        """Make a graph of a NetworkX graph.

        Args:
            graph: A directed graph, with several edges between two nodes or not.
            relation: The edge attribute that holds the relation.
            name: What the graph is called in reports.

        Returns:
            The graph; all edges are for training, unless they have a ``split``.

        Examples:
            >>> import networkx
            >>> given = networkx.DiGraph()
            >>> given.add_edge("Paris", "France", relation="capital of")
            >>> graph = ns.KnowledgeGraph.from_networkx(given)

        """
        from nscaching.interop.graphs import from_networkx

        return from_networkx(graph, relation, name)

    def to_networkx(self) -> Any:
        """Return a NetworkX graph.

        Returns:
            A ``MultiDiGraph`` whose edges have a ``relation`` and a ``split``.

        Examples:
            >>> degree = run.graph.to_networkx().degree("France")

        """
        from nscaching.interop.graphs import to_networkx

        return to_networkx(self)

    def to_pyg(self, split: str = "train") -> Any:
        """Return one split for PyTorch Geometric.

        Args:
            split: ``"train"``, ``"valid"`` or ``"test"``.

        Returns:
            ``Data`` with ``edge_index`` and ``edge_type``.

        Examples:
            >>> data = run.graph.to_pyg()  # doctest: +SKIP

        """
        from nscaching.interop.graphs import to_pyg

        return to_pyg(self, split)

    @classmethod
    def from_rdf(cls, source: Any, query: str | None = None, *, name: str = "") -> KnowledgeGraph:
        """Make a graph of an RDF file or a pyoxigraph store; literals are dropped and counted.

        Args:
            source: A file, or a store.
            query: SPARQL that says what is taken: CONSTRUCT, or SELECT of head, relation, tail.
            name: What the graph is called in reports.

        Returns:
            The graph; all triples are for training.

        Examples:
            >>> graph = ns.KnowledgeGraph.from_rdf("facts.ttl")  # doctest: +SKIP

        """
        from nscaching.interop.graphs import from_rdf

        return from_rdf(source, query, name)

    @classmethod
    def from_pykeen(cls, source: Any, *, name: str | None = None) -> KnowledgeGraph:
        """Make a graph of a PyKEEN data set or triples factory; ids stay as they are.

        Args:
            source: A data set, or a factory, whose triples are then for training.
            name: What the graph is called in reports.

        Returns:
            The graph.

        Examples:
            >>> again = ns.KnowledgeGraph.from_pykeen(run.graph.to_pykeen())

        """
        from nscaching.interop.pykeen import from_pykeen

        return from_pykeen(source, name)

    def to_pykeen(self) -> Any:
        """Return a PyKEEN data set; ids stay as they are.

        Returns:
            A data set with training, validation and testing triples.

        """
        from nscaching.interop.pykeen import to_pykeen

        return to_pykeen(self)

    @property
    def num_entities(self) -> int:
        """How many entities there are."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """How many relations there are."""
        return len(self.relations)

    def split(self, name: str) -> Ids:
        """Return the triples of ``'train'``, ``'valid'`` or ``'test'``."""
        if name not in SPLITS:
            raise UserError(f"There is no split '{name}'; choose train, valid or test.")
        triples: Ids = getattr(self, name)
        return triples

    def entity_id(self, entity: str | int) -> int:
        """Return the id of an entity by its exact name; one that is given is checked."""
        return self._look_up(entity, self.entity_ids, self.entities, "entity")

    def relation_id(self, relation: str | int) -> int:
        """Return the id of a relation by its exact name; one that is given is checked."""
        return self._look_up(relation, self.relation_ids, self.relations, "relation")

    def named(self, triple: Sequence[int]) -> tuple[str, str, str]:
        """Return the names of a triple of ids."""
        head, relation, tail = triple
        return self.entities[head], self.relations[relation], self.entities[tail]

    def answers(self, side: SideName, anchor: int, relation: int) -> dict[int, str]:
        """Return what answers (anchor, relation, ?), or (?, relation, anchor) for the side "head".

        Each with the split that holds the triple, train before valid before test.
        """
        anchor_column, answer_column = (2, 0) if side == "head" else (0, 2)
        answers: dict[int, str] = {}
        for split in ("test", "valid"):
            triples = self.split(split)
            found = (triples[:, anchor_column] == anchor) & (triples[:, 1] == relation)
            answers.update(dict.fromkeys(triples[found, answer_column].tolist(), split))
        rows: PairRows = getattr(self.rows, side)
        known = rows.completions(np.array([anchor]), np.array([relation]))[1]
        answers.update(dict.fromkeys(known.tolist(), "train"))
        return answers

    @cached_property
    def rows(self) -> TrainingRows:
        """The numbered pairs (r, t) and (h, r) of the training triples."""
        sizes = (self.num_entities, self.num_relations)
        return TrainingRows(
            head=pair_rows(self.train, "head", *sizes), tail=pair_rows(self.train, "tail", *sizes)
        )

    @cached_property
    def statistics(self) -> RelationStatistics:
        """Tails per head and heads per tail of each relation, over the training triples."""
        return relation_statistics(self.rows, self.num_relations)

    @cached_property
    def relations_with_loops(self) -> frozenset[int]:
        """Relations that hold between an entity and itself somewhere in the graph."""
        splits = [self.split(name) for name in SPLITS]
        loops = [triples[triples[:, 0] == triples[:, 2], 1] for triples in splits]
        return frozenset(np.concatenate(loops).tolist())

    @cached_property
    def irreflexive(self) -> Bools:
        """Which relations never hold between an entity and itself in training; (relations,)."""
        marks = np.ones(self.num_relations, dtype=bool)
        marks[self.train[self.train[:, 0] == self.train[:, 2], 1]] = False
        return marks

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 over names and splits: equal for equal graphs, whatever they are called."""
        parts = []
        for names in (self.entities, self.relations):
            _, ends, text = pa.array(names, pa.large_string()).buffers()
            parts.append((np.frombuffer(ends, dtype="<i8")[: len(names) + 1], text or b""))
        return fingerprint_of(parts, [self.split(split) for split in SPLITS])

    @cached_property
    def entity_ids(self) -> Mapping[str, int]:
        """The id of each entity, by its name."""
        return {name: number for number, name in enumerate(self.entities)}

    @cached_property
    def relation_ids(self) -> Mapping[str, int]:
        """The id of each relation, by its name."""
        return {name: number for number, name in enumerate(self.relations)}

    def _look_up(
        self, name: str | int, ids: Mapping[str, int], names: Sequence[str], kind: str
    ) -> int:
        if not isinstance(name, str):
            return checked_id(name, names, ids, kind)
        found = ids.get(name)
        if found is None:
            near = nearest_names(name, self._near(name, names)) or "."
            raise UserError(f"The graph '{self.name}' has no {kind} '{shown(name)}'{near}")
        return found

    def _near(self, name: str, names: Sequence[str]) -> Sequence[str]:
        """Return the names among which one like this is looked for."""
        return names

    def _checked(self, given: npt.ArrayLike | None, what: str, width: int) -> Ids:
        """Return ids as a C-contiguous int32 array, each within its range."""
        raw: npt.NDArray[Any] = np.asarray([] if given is None else given)
        if raw.size == 0:
            return np.zeros((0, width), dtype=np.int32)
        if raw.ndim != 2 or raw.shape[1] != width or raw.dtype.kind not in "iu":
            raise UserError(
                f"{what} must be an integer array of shape (n, {width}), "
                f"not {raw.dtype} of shape {raw.shape}."
            )
        limits = (len(self.entities), len(self.relations), len(self.entities))
        for column, limit in enumerate(limits):
            low, high = int(raw[:, column].min()), int(raw[:, column].max())
            if low < 0 or high >= limit:
                kind = "relation" if column == 1 else "entity"
                raise UserError(
                    f"{what} has {kind} id {low if low < 0 else high} in column {column}; "
                    f"ids go from 0 to {limit - 1}."
                )
        if width == 4 and not np.isin(raw[:, 3], (-1, 1)).all():
            raise UserError(f"The last column of {what} must hold 1 or -1 only.")
        return np.ascontiguousarray(raw, dtype=np.int32)

    def __repr__(self) -> str:
        return (
            f"KnowledgeGraph('{self.name}': {plural(self.num_entities, 'entity', 'entities')}, "
            f"{plural(self.num_relations, 'relation')}, {len(self.train):,} train, "
            f"{len(self.valid):,} valid, {len(self.test):,} test)"
        )


def fingerprint_of(
    names: Iterable[tuple[npt.NDArray[np.int64], Any]], splits: Iterable[Ids]
) -> str:
    """Return a SHA-256 over lists of names, each by where they end and their bytes, and splits."""
    digest = hashlib.sha256()
    for ends, text in names:
        # The count and the lengths go in too, so that no two lists of names read alike.
        digest.update(np.array([len(ends) - 1], dtype="<i8").data)
        for start in range(0, len(ends) - 1, _BLOCK):
            digest.update(np.diff(ends[start : start + _BLOCK + 1]).astype("<i8").data)
        digest.update(text)
    for triples in splits:
        digest.update(np.array([len(triples)], dtype="<i8").data)
        digest.update(np.ascontiguousarray(triples, dtype="<i4").data)
    return digest.hexdigest()
