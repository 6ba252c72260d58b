"""N-Triples files: ``<subject> <predicate> <object> .`` with literals left out."""

from __future__ import annotations

import re
from pathlib import Path

from nscaching.errors import UserError
from nscaching.graph.files import no_triples, read_bytes
from nscaching.graph.reading import Reading
from nscaching.graph.vocabulary import NamedTriples

IRI = r"<([^\x00-\x20<>]+)>"  # Wider than the standard: real files hold | and ^ and quotes.
NODE = r"(_:[^\s<>\"#]*[^\s<>\"#.])"
LITERAL = r'("(?:[^"\\\r\n]|\\.)*"(?:\^\^<[^>\s]*>|@[A-Za-z0-9-]+)?)'
LINE = re.compile(
    rf"[ \t]*(?:(?:{IRI}|{NODE})[ \t]*{IRI}[ \t]*(?:{IRI}|{NODE}|{LITERAL})[ \t]*\.[ \t]*)?"
    r"(?:#.*)?"
)
ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))")


def read_ntriples(path: Path) -> Reading:
    """Read IRIs and blank nodes; triples whose object is a literal are counted and dropped."""
    heads: list[str] = []
    relations: list[str] = []
    tails: list[str] = []
    literals = 0
    match = LINE.fullmatch
    for number, line in enumerate(_lines(path), 1):
        found = match(line)
        if found is None:
            raise UserError(
                f"Line {number} of {path} is not an N-Triples statement; expected "
                "'<subject> <predicate> <object> .'"
            )
        subject, subject_node, predicate, target, target_node, literal = found.groups()
        if predicate is None:
            continue
        if literal is not None:
            literals += 1
            continue
        if "\\" in line:
            place = f"Line {number} of {path}"
            subject, predicate = _unescape(subject, place), _unescape(predicate, place)
            target = _unescape(target, place)
        heads.append(subject or subject_node)
        relations.append(predicate)
        tails.append(target or target_node)
    notes = []
    if literals:
        counted = "1 triple" if literals == 1 else f"{literals:,} triples"
        verb = "was" if literals == 1 else "were"
        notes.append(f"{counted} of {path.name} with a literal as object {verb} dropped.")
    if not heads:
        if literals:
            raise UserError(
                f"{path} holds no triples between entities: the objects are all literals."
            )
        raise no_triples(path)
    return Reading(NamedTriples.from_columns(heads, relations, tails), notes=notes)


def _lines(path: Path) -> list[str]:
    """Return the lines as text; only CR and LF end a line."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"Line {number} of {path} is not UTF-8 text (byte 0x{data[error.start]:02x}); "
            "save the file as UTF-8."
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _unescape(name: str | None, place: str) -> str:
    """Decode the numeric escapes of an IRI."""

    def character(found: re.Match[str]) -> str:
        digits = found[1] or found[2]
        code = int(digits, 16) if digits else -1
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF or chr(code) in "\r\n":
            raise UserError(
                f"{place} has the escape {found[0]} in an IRI; expected \\uXXXX or \\UXXXXXXXX "
                "for a character other than a line break."
            )
        return chr(code)

    return ESCAPE.sub(character, name) if name else ""
