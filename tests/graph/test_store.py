"""A graph on disk behaves as one in memory, and one that is damaged is refused."""

import json

import numpy as np
import pytest

import nscaching as ns
from nscaching import KnowledgeGraph, UserError, ingest, load_graph
from nscaching.artefacts import FolderLock
from nscaching.graph import store
from nscaching.graph.pairs import pair_rows
from nscaching.graph.store import GraphStore
from nscaching.runs.checks import check_folder
from tests.cli.helpers import complaint
from tests.graph.test_ingest import named, random_lines

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Return a file, and the folder of its graph on disk."""
    folder = tmp_path_factory.mktemp("graphs")
    file = folder / "people.tsv"
    file.write_text(random_lines(2500, entities=120, relations=6) + "ünï\tr0\tentity 1\n")
    ingest(file, folder / "store", split=0.05)
    return file, folder / "store"


def in_memory(graph):
    """Return the same graph made from lists and arrays."""
    splits = (np.array(graph.split(split)) for split in ("train", "valid", "test"))
    return KnowledgeGraph(list(graph.entities), list(graph.relations), *splits, name=graph.name)


def test_it_is_the_graph_that_memory_would_hold(paths):
    graph, made = load_graph(paths[1]), in_memory(load_graph(paths[1]))
    assert graph.fingerprint == made.fingerprint
    assert graph.on_disk
    assert isinstance(graph.train.base, np.memmap)
    for side in ("head", "tail"):
        for part in ("of_triple", "anchor", "relation", "offsets", "answers"):
            mine, its = (getattr(getattr(each.rows, side), part) for each in (graph, made))
            assert mine.dtype == its.dtype
            np.testing.assert_array_equal(mine, its)
    np.testing.assert_array_equal(
        graph.statistics.head_probability, made.statistics.head_probability
    )
    assert repr(graph) == repr(made)
    for h, r, t in graph.train[:50].tolist():
        assert graph.answers("tail", h, r) == made.answers("tail", h, r)
        assert graph.answers("head", t, r) == made.answers("head", t, r)


def test_names_are_a_sequence_and_are_found(paths):
    names = load_graph(paths[1]).entities
    listed = list(names)
    assert listed == sorted(listed, key=str.encode)
    assert len(names) == len(listed) == len(set(listed))
    assert names[-1] == listed[-1] == "ünï"
    assert names[3:9] == listed[3:9]
    assert names[9:3] == []
    assert names[::50] == listed[::50]
    assert [names.index(name) for name in listed] == list(range(len(listed)))
    assert "entity 1" in names
    assert "entity" not in names
    assert names == listed
    assert names != listed[::-1]
    with pytest.raises(ValueError, match="is not a name"):
        names.index("nobody")
    with pytest.raises(IndexError):
        names[len(names)]
    graph = load_graph(paths[1])
    assert graph.entity_id("ünï") == len(names) - 1
    assert {"entity 1", "ünï"} <= graph.entity_ids.keys()
    assert graph.entity_ids.get("nobody") is None
    with pytest.raises(UserError, match="has no entity 'entty 1'; did you mean 'entity 1'"):
        graph.entity_id("entty 1")


@pytest.mark.slow
def test_a_run_trains_on_it_and_stands_alone(paths, tmp_path):
    options = {"epochs": 2, "dim": 8, "cache_size": 4, "candidates": 4, "progress": "none"}
    run = ns.train(paths[1], out=tmp_path / "disk", **options)
    same = ns.train(in_memory(load_graph(paths[1])), out=tmp_path / "memory", **options)
    assert run.summary["test"] == same.summary["test"]
    np.testing.assert_array_equal(run.embeddings(), same.embeddings())
    run.report()
    store = paths[1].rename(tmp_path / "moved")
    try:
        again = ns.load_run(tmp_path / "disk")
        assert again.graph.on_disk
        assert again.evaluate("test").overall()["mrr"] == run.summary["test"]["mrr"]
        head, relation, _ = named(again.graph)[0]
        predicted = again.predict_tails(head, relation, k=3)
        assert predicted == ns.load_run(tmp_path / "memory").predict_tails(head, relation, k=3)
        assert ns.train(out=tmp_path / "disk", resume=True, epochs=3, progress="none").summary
    finally:
        store.rename(paths[1])


@pytest.fixture
def copied(paths, tmp_path):
    """Return a store that may be damaged."""
    file, _ = paths
    ingest(file, tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize("name", ["train.npy", "entities.names", "head.offsets.npy"])
def test_a_file_that_is_cut_off_or_missing_is_refused(copied, name):
    file = copied / name
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(UserError, match=f"{name} has .* bytes, and .* were written"):
        load_graph(copied)
    file.unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        load_graph(copied)


def test_a_file_of_another_graph_and_a_damaged_marker_are_refused(copied):
    file = copied / "train.npy"
    content = bytearray(file.read_bytes())
    content[-4] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="has files of another graph"):
        load_graph(copied)
    marker = copied / "nscaching.json"
    marker.write_text(marker.read_text().replace('"kind": "graph"', '"kind": "run"'))
    with pytest.raises(UserError, match=r"is not a graph.* Resume it with:\s+nscaching train"):
        load_graph(copied)
    marker.write_text(marker.read_text().replace('"kind": "run"', '"kind": "\\u001b[31m"'))
    with pytest.raises(UserError, match="is not a graph") as refused:
        load_graph(copied)
    assert str(refused.value).isprintable()
    marker.write_text("{")
    with pytest.raises(UserError, match=r"not JSON.* Or run 'nscaching ingest' again"):
        load_graph(copied)


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, float("inf"), {"train": float("inf")}])
@pytest.mark.parametrize("part", ["counts", "duplicates", "notes", "files", "headers"])
def test_a_marker_with_values_of_other_kinds_is_refused(copied, part, value):
    marker = copied / "nscaching.json"
    told = json.loads(marker.read_text())
    if part == "files" and not isinstance(value, list | dict):
        value = told["files"] | {"train.npy": value}
    marker.write_text(json.dumps(told | {part: value}))
    if part == "notes" and value in ("x", [], {}, {"train": float("inf")}):
        load_graph(copied)  # remarks, that decide nothing
        return
    with pytest.raises(UserError, match="store"):
        load_graph(copied)


@pytest.mark.parametrize("side", ["head", "tail"])
def test_pairs_are_found_with_what_completes_them(side):
    rng = np.random.default_rng(0)
    triples = rng.integers(0, (40, 5, 40), (300, 3)).astype(np.int32)
    rows = pair_rows(triples, side, 40, 6)
    anchor, answer = (2, 0) if side == "head" else (0, 2)
    asked = rng.integers(0, (40, 6), (200, 2))
    pair, entity = rows.completions(asked[:, 0], asked[:, 1])
    for place, (a, r) in enumerate(asked.tolist()):
        mine = triples[(triples[:, anchor] == a) & (triples[:, 1] == r), answer]
        assert entity[pair == place].tolist() == sorted(set(mine.tolist()))
        assert (rows.find(asked[place : place + 1, 0], asked[place : place + 1, 1])[0] < 0) == (
            len(mine) == 0
        )
    assert rows.contains(triples[:, anchor], triples[:, 1], triples[:, answer]).all()
    other = (triples[:, answer] + 1) % 40
    expected = {tuple(t) for t in triples.tolist()}
    moved = triples.copy()
    moved[:, answer] = other
    assert rows.contains(triples[:, anchor], triples[:, 1], other).tolist() == [
        tuple(t) in expected for t in moved.tolist()
    ]


def changed(folder, name):
    """Change one byte in the middle of a file, which is not in what is always read of it."""
    file = folder / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2 + 3] ^= 0x40
    file.write_bytes(content)


@pytest.mark.parametrize("name", [name for name in GraphStore.own if "relations" not in name])
def test_a_changed_byte_of_any_file_is_refused(copied, monkeypatch, name):
    """Ids and rows that are out of range crash a kernel."""
    monkeypatch.setattr(GraphStore, "headers", staticmethod(lambda folder: None))
    marker = copied / "nscaching.json"
    told = json.loads(marker.read_text())
    marker.write_text(json.dumps(told | {"headers": None}))
    load_graph(copied)
    changed(copied, name)
    with pytest.raises(UserError, match=f"{name} was changed since it was written"):
        load_graph(copied)


@pytest.mark.parametrize("name", ["train.npy", "tail.of_triple.npy", "head.answers.npy"])
def test_what_is_only_mapped_is_read_before_a_training_and_by_check(
    copied, tmp_path, monkeypatch, name
):
    small = {"recipe": "paper", "dim": 4, "device": "cpu", "progress": "none"}
    ns.train(copied, out=tmp_path / "R", epochs=1, **small)
    monkeypatch.setattr(store, "_READ_WHOLE", 0)  # as if it were large
    assert check_folder(copied).whole
    assert (copied / name).stat().st_size > 2 * 4096  # its ends are always read
    changed(copied, name)
    assert (tmp_path / "R" / "graph" / name).samefile(copied / name)
    (part,) = check_folder(copied).parts
    assert part.state == "damaged"
    assert f"{name} was changed since it was written" in part.remark
    load_graph(copied)
    with pytest.raises(UserError, match=f"{name} was changed since it was written"):
        ns.train(copied, out=tmp_path / "N", epochs=1, **small)
    assert not (tmp_path / "N").exists()
    with pytest.raises(UserError, match=f"{name} was changed since it was written"):
        ns.train(copied, epochs=1, **small)
    for command in (("benchmark", copied), ("train", copied, "--dry-run", "--processes", 2)):
        assert f"{name} was changed since it was written" in complaint(*command, "--device", "cpu")
    with pytest.raises(UserError, match=f"{name} was changed since it was written"):
        ns.train(out=tmp_path / "R", resume=True, epochs=2, progress="none")


@pytest.mark.parametrize("stage", [".nscaching-whole", ".nscaching-moving"])
def test_a_graph_whose_replacement_was_killed_is_opened(copied, stage):
    expected = load_graph(copied).fingerprint
    (copied / stage).mkdir()
    for name in ("train.npy", "entities.names", "nscaching.json"):
        (copied / name).rename(copied / stage / name)
    if stage == ".nscaching-whole":  # no file has taken its place yet
        for file in [file for file in copied.iterdir() if file.is_file()]:
            file.rename(copied / stage / file.name)
    writer = FolderLock(copied)
    writer.acquire()
    writer.file.write_text("{}")  # of another process
    with pytest.raises(UserError, match="is being written, or was not finished"):
        load_graph(copied)
    writer.release()
    assert load_graph(copied).fingerprint == expected
    assert not list(copied.glob(".*"))
