"""Files to a graph on disk: the same triples as the loaders give, in bounded memory."""

import bz2
import gzip
import lzma
import shutil
import signal
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nscaching import UserError, ingest, load_graph
from nscaching.errors import CannotWrite, stop_signal
from nscaching.graph import files
from nscaching.graph import ingest as ingest_module
from nscaching.graph.ingest import memory_bytes
from nscaching.interrupt import terminate_as_interrupt

pytest.importorskip("duckdb")
FACTS = [("b", "likes", "a"), ("a", "likes", "c"), ("b", "is", "é"), ("a", "is", "b\u2028c")]
LINES = "".join("\t".join(fact) + "\n" for fact in FACTS).encode()


def named(graph, split="train"):
    """Return the triples of a split by name, sorted."""
    e, r = graph.entities, graph.relations
    return sorted((e[h], r[k], e[t]) for h, k, t in graph.split(split).tolist())


def random_lines(count, entities=60, relations=5, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, (entities, relations, entities), (count, 3)).tolist()
    return "".join(f"entity {h}\tr{r}\tentity {t}\n" for h, r, t in ids)


def files_of_every_kind(folder):
    csv = LINES.replace(b"\t", b",")
    nt = b"".join(
        b"<x:%s> <x:%s> <x:%s> .\n" % tuple(part.encode() for part in fact) for fact in FACTS[:3]
    )
    contents = {
        "x.tsv": LINES,
        "x.txt": LINES.replace(b"\n", b"\r\n"),
        "x.tsv.gz": gzip.compress(LINES, mtime=0),
        "x.txt.bz2": bz2.compress(LINES),
        "x.csv": b"head,relation,tail\n" + csv.replace(b"b,likes,a", b'"b",likes,"a"'),
        "y.csv": b"tail,weight,head,relation\n"
        + b"".join(f"{t},1,{h},{r}\n".encode() for h, r, t in FACTS),
        "x.csv.xz": lzma.compress(csv),
        "x.nt": nt + b'<x:a> <x:age> "5" .\n# a remark\n',
        "y.nt": nt + b'<x:a> <x:age> "5" .\n\n',
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    columns = dict(zip(("head", "relation", "tail"), zip(*FACTS, strict=True), strict=True))
    pq.write_table(pa.table({k: list(v) for k, v in columns.items()}), folder / "x.parquet")
    return [*contents, "x.parquet"]


def test_every_kind_of_file_gives_what_the_loader_gives(tmp_path):
    for number, name in enumerate(files_of_every_kind(tmp_path)):
        graph = ingest(tmp_path / name, tmp_path / f"store{number}")
        loaded = load_graph(tmp_path / name)
        assert named(graph) == named(loaded), name
        assert set(graph.entities) == set(loaded.entities)
        assert graph.notes == loaded.notes
        assert graph.name == loaded.name


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.txt"])
def test_remarks_on_names_and_first_lines_are_those_of_the_loader(tmp_path, name):
    lines = [f"a{i},knows,a{i + 1}" for i in range(25)]
    lines += ["5 york,is,a1", "5  york,is,a2", "a1, knows,a2\u00a0 "]
    text = "\n".join(["person,verb,friend", *lines, ""])
    (tmp_path / name).write_text(text.replace(",", "," if name == "x.csv" else "\t"))
    graph, loaded = ingest(tmp_path / name, tmp_path / "store"), load_graph(tmp_path / name)
    assert graph.notes == loaded.notes
    told = " ".join(graph.notes)
    assert f"The first line of {name} was read as head 'person'" in told
    assert "'5  york' and '5 york' are two entities" in told
    assert ("' knows' and 'knows' are two relations" in told) == (name != "x.csv")


def test_a_header_without_a_relation_is_refused(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("source,target,weight\na,b,1\n")
    said = []
    for read in (load_graph, lambda path: ingest(path, tmp_path / "store")):
        with pytest.raises(UserError, match="has the relation cannot be told") as raised:
            read(file)
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert not (tmp_path / "store").exists()


def test_many_files_and_blocks_give_one_graph(tmp_path, monkeypatch):
    text = random_lines(3000)
    lines = text.splitlines(keepends=True)
    (tmp_path / "all.tsv").write_text(text)
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(3):
        (parts / f"part-{number}.tsv").write_text("".join(lines[number::3]))
    monkeypatch.setattr(files, "BLOCK", 700)
    graph, loaded = ingest(parts, tmp_path / "store"), load_graph(tmp_path / "all.tsv")
    assert named(graph) == named(loaded)
    assert graph.duplicates == loaded.duplicates
    assert graph.duplicates["train"] > 0
    again = ingest(tmp_path / "all.tsv", tmp_path / "again", threads=1)
    assert again.fingerprint == graph.fingerprint  # whatever the files and threads


def test_splits_are_kept_and_remarked_upon(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.tsv").write_bytes(LINES + b"b\tlikes\ta\n")
    (folder / "valid.tsv").write_bytes(b"a\tlikes\tc\nz\tlikes\ta\n")
    (folder / "test.tsv").write_bytes(b"a\towns\tb\n")
    graph, loaded = ingest(folder, tmp_path / "store"), load_graph(folder)
    for split in ("train", "valid", "test"):
        assert named(graph, split) == named(loaded, split)
    assert sorted(graph.notes) == sorted(loaded.notes)
    assert len(graph.notes) == 4
    by_file = ingest(
        folder / "train.tsv",
        tmp_path / "other",
        valid=folder / "valid.tsv",
        test=[folder / "test.tsv"],
        name="mine",
    )
    assert by_file.fingerprint == graph.fingerprint
    assert by_file.name == "mine"


def table_of(facts):
    return pa.table(dict(zip("hrt", map(list, zip(*facts, strict=True)), strict=True)))


@pytest.mark.parametrize("held", ["valid", "validation", "val", "Dev"])
def test_parts_of_splits_are_never_trained_on(tmp_path, held):
    folder = tmp_path / "data"
    folder.mkdir()
    parts = {
        "train-00000-of-00002": FACTS[:1],
        "train-00001-of-00002": FACTS[1:2],
        f"{held}-00000-of-00001": FACTS[2:3],
        "test_0": FACTS[3:],
    }
    for name, facts in parts.items():
        pq.write_table(table_of(facts), folder / f"{name}.parquet")
    for graph in (ingest(folder, tmp_path / "store"), load_graph(folder)):
        assert named(graph) == sorted(FACTS[:2])
        assert named(graph, "valid") == FACTS[2:3]
        assert named(graph, "test") == FACTS[3:]


def test_a_part_that_is_missing_is_named(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number in (0, 2):
        pq.write_table(table_of(FACTS), folder / f"train-0000{number}-of-00003.parquet")
    for read in (load_graph, lambda given: ingest(given, tmp_path / "store")):
        with pytest.raises(UserError) as raised:
            read(folder)
        assert str(raised.value) == (
            f"{folder} has no train-00001-of-00003.parquet, and 2 of 3 such files; get what is "
            "missing, or rename the others if they are all that you want."
        )
    assert not (tmp_path / "store").exists()
    for file in list(folder.iterdir()):
        file.rename(folder / file.name.replace("train", "part"))
    with pytest.raises(UserError, match=r"has no part-00001-of-00003.parquet"):
        ingest(folder, tmp_path / "store")
    graph = ingest(sorted(folder.iterdir()), tmp_path / "store")  # these were chosen
    said = "part-00001-of-00003.parquet was not given, and 2 of 3 such files were."
    assert graph.notes[0] == said


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["x-0-of-2.tsv.gz"], ("x-1-of-2.tsv.gz", "1 of 2")),
        (["x-0-of-2.tsv", "x-1-of-2.tsv.gz"], None),
        (["x-1-of-2.tsv", "x-2-of-2.tsv"], None),  # counted from 1
        (["x-2-of-3.tsv", "x-3-of-3.tsv"], ("x-1-of-3.tsv", "2 of 3")),
        (["x-2-of-4.tsv", "x-3-of-4.tsv"], ("x-1-of-4.tsv", "2 of 4")),  # from 0 or from 1
        (["x-1-of-3.tsv", "x-2-of-3.tsv"], ("x-0-of-3.tsv or x-3-of-3.tsv", "2 of 3")),
        (["x-0-of-3.tsv", "x-1-of-3.tsv"], ("x-2-of-3.tsv", "2 of 3")),
        (["x-1-of-1.tsv"], None),
        (["x-00-of-02-1f3a.parquet"], ("x-01-of-02", "1 of 2")),
        (["x-0-of-99999999999999999999.tsv"], ("x-1-of-99999999999999999999.tsv", None)),
        (["x-0-of-1.tsv", "x-0-of-2.tsv"], ("x-1-of-2.tsv", "1 of 2")),
        (["x-0.tsv", "x-2.tsv", "x.tsv"], None),
    ],
)
def test_parts_are_counted_as_their_names_say(tmp_path, names, missing):
    found = files.missing_part(tmp_path / name for name in names)
    assert (found and found[0]) == (missing and missing[0])
    if missing and missing[1]:
        assert found[1] == missing[1]


def test_files_of_any_name_are_for_training_but_those_of_valid_and_test(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number, name in enumerate(("part-0", "trainer", "valid", "test")):
        (folder / f"{name}.tsv").write_bytes(LINES.splitlines(keepends=True)[number])
    graph = ingest(folder, tmp_path / "store")
    assert named(graph) == sorted(FACTS[:2])
    assert named(graph, "valid") == FACTS[2:3]
    assert named(graph, "test") == FACTS[3:]
    (folder / "part-0.tsv").unlink()
    (folder / "trainer.tsv").unlink()
    with pytest.raises(UserError, match="no training triples"):
        ingest(folder, tmp_path / "other")
    with pytest.raises(UserError, match="no training triples"):
        load_graph(folder)


def test_files_that_are_left_out_or_of_another_split_are_remarked_on(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.tsv").write_bytes(LINES)
    (folder / "valid.labeled.txt").write_bytes(b"a\tlikes\tb\t-1\n")
    (folder / "more.tsv").write_bytes(b"a\tlikes\tb\n")
    (folder / "test.txt").write_bytes(b"a\tlikes\tb\n")
    graph = ingest(folder, tmp_path / "store")
    assert graph.notes == [
        "valid.labeled.txt was left out: a graph on disk keeps no labelled triples.",
        "Files of data that are of no split were left out: more.tsv.",
    ]
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (4, 0, 1)
    graph = ingest([folder / "train.tsv", folder / "test.txt"], tmp_path / "all")
    assert graph.notes == [
        "test.txt was read as training triples; name it with --test if it is not for training."
    ]


def test_holding_out_is_fair_and_seeded(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text(random_lines(4000, entities=300, relations=7))
    whole = load_graph(path)
    graphs = [
        ingest(path, tmp_path / f"s{n}", split=0.1, seed=seed) for n, seed in enumerate([3, 3, 4])
    ]
    graph, same, other = graphs
    assert graph.fingerprint == same.fingerprint != other.fingerprint
    parts = [set(named(graph, split)) for split in ("train", "valid", "test")]
    assert set.union(*parts) == set(named(whole))
    assert sum(map(len, parts)) == len(whole.train)
    wanted = 0.1 * len(whole.train)
    assert all(0.97 * wanted <= len(part) <= wanted + 1 for part in parts[1:])
    assert {name for h, _, t in parts[0] for name in (h, t)} == set(whole.entities)
    assert {r for _, r, _ in parts[0]} == set(whole.relations)
    groups = [{frozenset((h, t)) for h, _, t in part} for part in parts]
    assert not groups[0] & groups[1]
    assert not groups[0] & groups[2]
    assert not groups[1] & groups[2]


def test_a_graph_that_can_spare_nothing_says_so(tmp_path):
    (tmp_path / "x.tsv").write_bytes(b"a\tr\tb\nc\tr\td\n")
    graph = ingest(tmp_path / "x.tsv", tmp_path / "s", split=0.3)
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (2, 0, 0)
    assert "0 triples were held out" in graph.notes[0]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.tsv", LINES + b"a\tb\n" + LINES, "Line 5 of {} has 2 columns; expected 3"),
        ("x.tsv", LINES * 200 + b"a\t\tb\n", "Line 801 of {} has an empty relation"),
        ("x.tsv", LINES * 200 + b"a\tr\t\xff\n", "Line 801 of {} is not UTF-8"),
        ("x.csv", b'a,b,"c\nd"\n', "has a line break inside the tail"),
        ("x.nt", b"<a> <b> <c> .\nfoo\n", "Line 2 of {} is not an N-Triples statement"),
        ("x.nt", b'<a> <b> "c" .\n', "{} holds no triples between entities"),
        ("x.tsv", b"\n\n", "{} is empty"),
        ("x.tsv.gz", gzip.compress(LINES * 100, mtime=0)[:-20], "{} is not a whole gzip file"),
        ("x.parquet", b"PAR1", "{} is not a whole Parquet file"),
        ("x.ttl", b"", "{} cannot be read in blocks"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(tmp_path, monkeypatch, name, content, said):
    monkeypatch.setattr(files, "BLOCK", 500)
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as raised:
        ingest(path, tmp_path / "out" / "store")
    assert said.format(path) in str(raised.value)
    assert not (tmp_path / "out" / "store").exists()


def test_a_missing_value_in_parquet_is_named_by_its_row(tmp_path, monkeypatch):
    rows = ["a"] * 9 + [None]
    pq.write_table(pa.table({"h": rows, "r": ["r"] * 10, "t": ["b"] * 10}), tmp_path / "x.parquet")
    original = pq.ParquetFile.iter_batches
    small = lambda self, rows, **given: original(self, 4, **given)  # noqa: E731
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", small)
    with pytest.raises(UserError, match=r"Row 10 of .* has no value in column 'h'"):
        ingest(tmp_path / "x.parquet", tmp_path / "s")


def test_folders_of_others_and_graphs_that_are_there_are_left_alone(tmp_path):
    (tmp_path / "x.tsv").write_bytes(LINES)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="is not a graph"):
        ingest(tmp_path / "x.tsv", other, overwrite=True)
    first = ingest(tmp_path / "x.tsv", tmp_path / "s").fingerprint
    (tmp_path / "y.tsv").write_bytes(LINES + b"x\ty\tz\n")
    with pytest.raises(UserError, match="holds a graph already"):
        ingest(tmp_path / "y.tsv", tmp_path / "s")
    (tmp_path / "bad.tsv").write_bytes(b"x\n")
    with pytest.raises(UserError, match="has 1 column"):
        ingest(tmp_path / "bad.tsv", tmp_path / "s", overwrite=True)
    assert load_graph(tmp_path / "s").fingerprint == first
    (tmp_path / "s" / "remark.txt").write_text("mine")
    assert ingest(tmp_path / "y.tsv", tmp_path / "s", overwrite=True).fingerprint != first
    assert (tmp_path / "s" / "remark.txt").read_text() == "mine"


def test_what_a_killed_ingest_leaves_is_not_opened_and_is_swept(tmp_path):
    (tmp_path / "x.tsv").write_bytes(LINES)
    whole = ingest(tmp_path / "x.tsv", tmp_path / "whole")
    half = tmp_path / "half"
    shutil.copytree(tmp_path / "whole", half / ".nscaching-new")
    (half / ".nscaching-new" / "nscaching.json").unlink()
    (half / ".nscaching-new" / "spill").mkdir()
    with pytest.raises(UserError, match="was not finished"):
        load_graph(half)
    assert ingest(tmp_path / "x.tsv", half).fingerprint == whole.fingerprint
    assert not (half / ".nscaching-new").exists()


def test_a_signal_that_duckdb_swallows_stops_the_ingest_as_itself(tmp_path, monkeypatch):
    import duckdb

    (tmp_path / "x.tsv").write_bytes(LINES)
    taken = duckdb.connect

    def interrupted(*given, **named):
        monkeypatch.setattr("nscaching.interrupt._raised", [signal.SIGTERM])
        taken(*given, **named).close()
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(duckdb, "connect", interrupted)
    with terminate_as_interrupt(), pytest.raises(KeyboardInterrupt) as raised:
        ingest(tmp_path / "x.tsv", tmp_path / "s")
    assert stop_signal(raised.value) == signal.SIGTERM
    assert not (tmp_path / "s").exists()


def test_options_are_checked(tmp_path):
    (tmp_path / "x.tsv").write_bytes(LINES)
    for given in ({"split": 0.5}, {"memory": "much"}, {"memory": "1MB"}):
        with pytest.raises(UserError):
            ingest(tmp_path / "x.tsv", tmp_path / "s", **given)
    with pytest.raises(UserError, match="use split 0"):
        ingest(tmp_path / "x.tsv", tmp_path / "s", valid=tmp_path / "x.tsv", split=0.1)
    with pytest.raises(UserError, match="There is no file"):
        ingest(tmp_path / "none.tsv", tmp_path / "s")
    assert memory_bytes("4GB") == 4 * 10**9
    assert memory_bytes("1.5 GiB") == 3 << 29


@pytest.mark.skipif(sys.platform != "linux", reason="counts blocks as Linux does")
def test_a_file_has_its_space_before_it_is_written_through_a_map(tmp_path, monkeypatch):
    mapped, load = [], np.load

    def watched(file, mmap_mode=None, **options):
        if mmap_mode == "r+":
            told = file.stat()
            mapped.append(told.st_size <= 512 * told.st_blocks)
        return load(file, mmap_mode=mmap_mode, **options)

    monkeypatch.setattr(np, "load", watched)
    (tmp_path / "x.tsv").write_text(random_lines(9000, entities=900))
    ingest(tmp_path / "x.tsv", tmp_path / "G")
    assert mapped == [True, True]  # one without ends the process where the disk is full


def test_a_disk_too_small_to_sort_on_is_not_called_too_little_memory(tmp_path, monkeypatch):
    import duckdb

    told = "Out of Memory Error: failed to offload data block of size 160.0 KiB (21.5 MiB used)."

    def full(*given):
        raise duckdb.OutOfMemoryException(told)

    (tmp_path / "x.tsv").write_bytes(LINES)
    monkeypatch.setattr(ingest_module._Ingestion, "_sort", full)
    with pytest.raises(CannotWrite, match=r"G: the disk is full: .* bytes that are free") as caught:
        ingest(tmp_path / "x.tsv", tmp_path / "G")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "G").exists()
