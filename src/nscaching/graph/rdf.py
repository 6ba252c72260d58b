"""RDF: N-Triples line by line; Turtle, RDF/XML and others, and SPARQL, through pyoxigraph.

An embedding knows entities and relations: a statement whose object is a literal, or another
statement, is dropped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nscaching.errors import UserError, plural, shown
from nscaching.extras import need
from nscaching.graph.files import Source, kind_of, no_triples, read_bytes, stem_of
from nscaching.graph.names import ColumnBuilder, NamedTriples, Reading
from nscaching.graph.tables import text_lines

#: Extensions read through pyoxigraph, with its name for the format.
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
#: N-Triples has a reader of its own, and needs pyoxigraph only for a query.
_QUERY_KINDS = {**RDF_KINDS, ".nt": "N_TRIPLES"}
#: What pyoxigraph calls a node without a label: other digits each time it reads a file.
_ANONYMOUS = re.compile("[0-9a-f]{20,32}")

_IRI = r"<([^\x00-\x20<>]+)>"  # Wider than the standard: real files hold | and ^ and quotes.
_NODE = r"(_:[^\s<>\"#]*[^\s<>\"#.])"
_LITERAL = r'("(?:[^"\\\r\n]|\\.)*"(?:\^\^<[^>\s]*>|@[A-Za-z0-9-]+)?)'
_LINE = re.compile(
    rf"[ \t]*(?:(?:{_IRI}|{_NODE})[ \t]*{_IRI}[ \t]*(?:{_IRI}|{_NODE}|{_LITERAL})[ \t]*\.[ \t]*)?"
    r"(?:#.*)?"
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))")

#: The same for Arrow, without escapes: blocks with those are read line by line.
_ARROW_ENTITY = r"<[^\x00-\x20<>\\]+>|_:[^\s<>\"#\\]*[^\s<>\"#.\\]"
_ARROW_START = rf"^[ \t]*(?P<s>{_ARROW_ENTITY})[ \t]*(?P<p><[^\x00-\x20<>\\]+>)[ \t]*"
_ARROW_STATEMENT = rf"{_ARROW_START}(?P<o>{_ARROW_ENTITY})[ \t]*\.[ \t]*\r?$"
_ARROW_LITERAL = rf"{_ARROW_START}{_LITERAL}[ \t]*\.[ \t]*\r?$"

#: Names of subject, predicate and object; None for what is no entity.
_Statement = tuple[str | None, str | None, str | None]


def ntriples_block(source: Source) -> tuple[NamedTriples, int]:
    """Read some lines of N-Triples with Arrow; return the triples and how many had a literal.

    A block with lines that need a closer look, those with escapes say, is read line by line.
    """
    try:
        lines = pa.array(source.read().split(b"\n")).cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        return _kept(_ntriples(source))
    found = pc.extract_regex(lines, _ARROW_STATEMENT)
    others = lines.filter(pc.is_null(found))
    empty = pc.match_substring_regex(others, r"^\s*$")
    literal = pc.match_substring_regex(others, _ARROW_LITERAL)
    if not pc.all(pc.or_(empty, literal)).as_py():
        return _kept(_ntriples(source))
    columns = [
        column.combine_chunks() for column in pa.chunked_array([found.drop_null()]).flatten()
    ]
    columns = [pc.replace_substring_regex(column, "^<(.*)>$", r"\1") for column in columns]
    return NamedTriples(*columns), pc.sum(literal).as_py() or 0


def read_rdf(path: Path) -> Reading:
    """Read the triples between entities of one file; named graphs are read as one."""
    oxigraph = need("pyoxigraph", "rdf", f"Reading {kind_of(path)}")
    return _reading((quad.triple for quad in _quads(oxigraph, path)), path)


def query_rdf(source: Any, query: str) -> Reading:
    """Read what a SPARQL query makes of a file, or of a pyoxigraph store.

    A CONSTRUCT query gives triples; a SELECT query of three variables gives head, relation, tail.
    """
    oxigraph = need("pyoxigraph", "rdf", "SPARQL")
    store: Any = source
    what: object = "The store"
    if isinstance(source, Path):
        store, what = oxigraph.Store(), source
        store.bulk_extend(_quads(oxigraph, source))
    try:
        result = store.query(query, use_default_graph_as_union=True)
    except SyntaxError as error:
        raise UserError(f"The query is not SPARQL: {error}.") from error
    solutions = isinstance(result, oxigraph.QuerySolutions) and len(result.variables) == 3
    if not solutions and not isinstance(result, oxigraph.QueryTriples):
        raise UserError(
            "The query gives no triples; write CONSTRUCT, or SELECT with three variables "
            "(head, relation, tail)."
        )
    return _reading(result, what)


def rdf_format(path: Path) -> str:
    """Return what pyoxigraph calls the format of a file, by its extension."""
    kind = kind_of(path)
    if kind not in _QUERY_KINDS:
        raise UserError(f"{path} is no RDF file; expected one of {', '.join(_QUERY_KINDS)}.")
    return _QUERY_KINDS[kind]


def _reading(statements: Iterable[Any], what: object) -> Reading:
    """Keep the statements of pyoxigraph that are between entities, and count the others."""
    triples, dropped = _kept(_named(statements, what))
    if len(triples) == 0 and dropped:
        raise only_literals(what)
    if len(triples) == 0:
        raise no_triples(what) if isinstance(what, Path) else UserError(f"{what} gave no triples.")
    file = what.name if isinstance(what, Path) else "the store"
    return Reading(triples, notes=[literals_dropped(dropped, file)] if dropped else [])


def _kept(statements: Iterable[_Statement]) -> tuple[NamedTriples, int]:
    """Return the statements between entities, and how many others there are."""
    built = ColumnBuilder()
    dropped = 0
    for head, relation, tail in statements:
        if head is None or relation is None or tail is None:
            dropped += 1
        else:
            built.append((head, relation, tail))
    return NamedTriples(*built.columns()), dropped


def only_literals(what: object) -> UserError:
    """Say that nothing is left of a file."""
    return UserError(f"{what} holds no triples between entities: the objects are all literals.")


def literals_dropped(count: int, file: str) -> str:
    """Say how many triples had a literal."""
    verb = "was" if count == 1 else "were"
    return f"{plural(count, 'triple')} of {file} with a literal as object {verb} dropped."


def _ntriples(source: Source) -> Iterator[_Statement]:
    """Yield the statements of an N-Triples file; a literal is None."""
    for number, line in text_lines(source):
        found = _LINE.fullmatch(line)
        if found is None:
            raise UserError(
                f"Line {number} of {source.path} is not an N-Triples statement; expected "
                "'<subject> <predicate> <object> .'"
            )
        subject, subject_node, predicate, target, target_node, literal = found.groups()
        if predicate is None:
            continue
        if "\\" in line and literal is None:
            place = f"Line {number} of {source.path}"
            subject, predicate = _unescape(subject, place), _unescape(predicate, place)
            target = _unescape(target, place)
        yield subject or subject_node, predicate, target or target_node


def _unescape(name: str | None, place: str) -> str:
    """Decode the numeric escapes of an IRI."""

    def character(found: re.Match[str]) -> str:
        digits = found[1] or found[2]
        code = int(digits, 16) if digits else -1
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF or chr(code) in "\r\n":
            raise UserError(
                f"{place} has the escape {shown(found[0])} in an IRI; expected \\uXXXX or "
                "\\UXXXXXXXX for a character other than a line break."
            )
        return chr(code)

    return _ESCAPE.sub(character, name) if name else ""


def _quads(oxigraph: Any, path: Path) -> Iterator[Any]:
    """Yield the quads of a file."""
    kind = getattr(oxigraph.RdfFormat, rdf_format(path))
    try:
        yield from oxigraph.parse(input=read_bytes(path), format=kind)
    except SyntaxError as error:
        place = f"Line {error.lineno} of {path}" if error.lineno else f"{path}"
        raise UserError(f"{place} is not well-formed: {shown(error.msg, 200)}.") from error


def _named(statements: Iterable[Any], what: object) -> Iterator[_Statement]:
    """Yield the names of IRIs and blank nodes, and None for everything else.

    Nodes without a label are numbered within their file, so that it gives the same names each time
    it is read, and no other file gives them.
    """
    anonymous: dict[str, str] = {}
    file = f"{stem_of(what)}." if isinstance(what, Path) else ""

    def name(node: Any) -> str | None:
        kind = type(node).__name__
        if kind == "NamedNode":
            return str(node.value)
        if kind != "BlankNode":
            return None
        label = str(node.value)
        if _ANONYMOUS.fullmatch(label):
            label = anonymous.setdefault(label, f"{file}anonymous{len(anonymous) + 1}")
        return f"_:{label}"

    for subject, predicate, target in statements:
        yield name(subject), name(predicate), name(target)
