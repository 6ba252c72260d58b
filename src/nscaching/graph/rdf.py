"""RDF through pyoxigraph: Turtle, RDF/XML and their kin, and SPARQL over them.

An embedding knows entities and relations: a statement whose object is a literal, or another
statement, is dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nscaching.errors import UserError
from nscaching.extras import need
from nscaching.graph.files import kind_of, no_triples, read_bytes
from nscaching.graph.reading import Reading
from nscaching.graph.vocabulary import NamedTriples

#: Extensions read here, with the name pyoxigraph has for the format.
RDF_KINDS = {
    ".ttl": "TURTLE",
    ".turtle": "TURTLE",
    ".rdf": "RDF_XML",
    ".owl": "RDF_XML",
    ".xml": "RDF_XML",
    ".nq": "N_QUADS",
    ".trig": "TRIG",
    ".jsonld": "JSON_LD",
}
#: N-Triples has a reader of its own, and comes here only for a query.
_QUERY_KINDS = {**RDF_KINDS, ".nt": "N_TRIPLES"}
#: What pyoxigraph calls a node without a label: other digits each time it reads a file.
_ANONYMOUS = re.compile("[0-9a-f]{20,32}")


def read_rdf(path: Path) -> Reading:
    """Read the triples between entities of one file; named graphs are read as one."""
    oxigraph = need("pyoxigraph", "rdf", f"Reading {kind_of(path)}")
    return _reading((quad.triple for quad in _statements(oxigraph, path)), path)


def query_rdf(source: Any, query: str) -> Reading:
    """Read what a SPARQL query makes of a file, or of a pyoxigraph store.

    A CONSTRUCT query gives triples; a SELECT query of three variables gives head, relation, tail.
    """
    oxigraph = need("pyoxigraph", "rdf", "SPARQL")
    store: Any = source
    what: object = "The store"
    if isinstance(source, Path):
        store, what = oxigraph.Store(), source
        store.bulk_extend(_statements(oxigraph, source))
    try:
        answer = store.query(query, use_default_graph_as_union=True)
    except SyntaxError as error:
        raise UserError(f"The query is not SPARQL: {error}.") from error
    if isinstance(answer, oxigraph.QueryTriples):
        return _reading(answer, what)
    if not isinstance(answer, oxigraph.QuerySolutions) or len(answer.variables) != 3:
        raise UserError(
            "The query gives no triples; write CONSTRUCT, or SELECT with three variables "
            "(head, relation, tail)."
        )
    return _reading(answer, what)


def rdf_format(path: Path) -> str:
    """Return what pyoxigraph calls the format of a file, by its extension."""
    kind = kind_of(path)
    if kind not in _QUERY_KINDS:
        raise UserError(f"{path} is no RDF file; expected one of {', '.join(_QUERY_KINDS)}.")
    return _QUERY_KINDS[kind]


def _statements(oxigraph: Any, path: Path) -> Iterator[Any]:
    """Yield the quads of a file."""
    kind = getattr(oxigraph.RdfFormat, rdf_format(path))
    try:
        yield from oxigraph.parse(input=read_bytes(path), format=kind)
    except SyntaxError as error:
        place = f"Line {error.lineno} of {path}" if error.lineno else f"{path}"
        raise UserError(f"{place} is not well-formed: {error.msg}.") from error


def _reading(statements: Iterable[Any], what: object) -> Reading:
    """Take (subject, predicate, object) in any form; keep those between entities."""
    names = _Names()
    columns: tuple[list[str], list[str], list[str]] = ([], [], [])
    dropped = 0
    for subject, predicate, target in statements:
        parts = names.of(subject), names.of(predicate), names.of(target)
        if None in parts:
            dropped += 1
            continue
        for column, name in zip(columns, parts, strict=True):
            column.append(str(name))
    if not columns[0]:
        if dropped:
            raise UserError(
                f"{what} holds no triples between entities: the objects are all literals."
            )
        raise no_triples(what) if isinstance(what, Path) else UserError(f"{what} gave no triples.")
    notes = []
    if dropped:
        counted = "1 triple" if dropped == 1 else f"{dropped:,} triples"
        file = what.name if isinstance(what, Path) else "the store"
        verb = "was" if dropped == 1 else "were"
        notes.append(f"{counted} of {file} with a literal as object {verb} dropped.")
    return Reading(NamedTriples.from_columns(*columns), notes=notes)


class _Names:
    """Names of nodes; those without a label are numbered, so that a file reads alike each time."""

    def __init__(self) -> None:
        self._anonymous: dict[str, str] = {}

    def of(self, node: Any) -> str | None:
        """Return the name of an IRI or a blank node, and None for everything else."""
        kind = type(node).__name__
        if kind == "NamedNode":
            return str(node.value)
        if kind != "BlankNode":
            return None
        label = str(node.value)
        if _ANONYMOUS.fullmatch(label):
            label = self._anonymous.setdefault(label, f"anonymous{len(self._anonymous) + 1}")
        return f"_:{label}"
