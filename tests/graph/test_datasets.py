import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nscaching.errors import UserError
from nscaching.graph import (
    DatasetInfo,
    dataset_info,
    datasets,
    fetch_dataset,
    find_dataset,
    list_datasets,
    load_graph,
    verify_dataset,
)
from nscaching.graph.datasets import Mirror

from .server import serving

FILES = {"train.txt": b"a\tr\tb\n", "valid.txt": b"b\tr\ta\n", "test.txt": b"a\tq\ta\n"}
PACKAGE = Path(datasets.__file__).parents[1]
REAL = [info.name for info in list_datasets() if not info.bundled]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("NSCACHING_DATA", raising=False)
    monkeypatch.setenv("NSCACHING_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "datasets"


@pytest.fixture
def server(monkeypatch, cache):
    """Two mirrors of one data set called tiny-1."""
    with serving() as running:
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
        mirrors = (Mirror(running.url("/one")), Mirror(running.url("/two")))
        tiny = DatasetInfo("Tiny-1", "A test.", 2, 2, 1, 1, 1, files=sums, mirrors=mirrors)
        monkeypatch.setattr(datasets, "REGISTRY", (tiny,))
        for name, data in FILES.items():
            running.files[f"/one/{name}"] = running.files[f"/two/{name}"] = data
        yield running


@pytest.mark.parametrize("name", ["FB15K237", "fb15k-237", "Fb15K_237"])
def test_names_are_forgiving(name):
    assert dataset_info(name).name == "FB15K-237"


def test_unknown_names():
    with pytest.raises(UserError, match="did you mean 'YAGO3-10'"):
        dataset_info("yago310x")
    with pytest.raises(UserError, match="there are world"):
        dataset_info("????")


def test_a_download_comes_from_the_first_mirror_once(server, cache):
    assert find_dataset("tiny1") is None
    graph = load_graph("tiny-1")
    assert graph.name == "Tiny-1"
    assert len(graph.train) == len(graph.valid) == len(graph.test) == 1
    assert find_dataset("TINY-1") == cache / "Tiny-1"
    assert {path for path, _ in server.asked} == {f"/one/{name}" for name in FILES}
    assert fetch_dataset("tiny-1") == cache / "Tiny-1"
    assert len(server.asked) == 3
    fetch_dataset("tiny-1", force=True)
    assert len(server.asked) == 6


@pytest.mark.parametrize("wrong", [None, b"wrong bytes"])
def test_the_second_mirror_serves_what_the_first_cannot(server, cache, wrong):
    del server.files["/one/valid.txt"]
    if wrong is not None:
        server.files["/one/valid.txt"] = wrong
    folder = fetch_dataset("tiny-1")
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == FILES
    assert ("/two/valid.txt", None) in server.asked
    assert ("/two/train.txt", None) not in server.asked
    assert verify_dataset("tiny-1") == []
    (folder / "test.txt").write_text("changed")
    assert verify_dataset("tiny-1") == ["test.txt"]


def test_when_all_mirrors_fail_each_is_named_with_the_way_out(server, cache):
    del server.files["/one/valid.txt"]
    server.files["/two/valid.txt"] = b"wrong"
    with pytest.raises(UserError) as caught:
        load_graph("tiny-1")
    said = str(caught.value)
    assert server.url("/one") in said
    assert server.url("/two") in said
    assert "404" in said
    assert "checksum" in said
    assert "NSCACHING_DATA" in said
    assert find_dataset("tiny-1") is None
    server.files["/two/valid.txt"] = FILES["valid.txt"]
    assert load_graph("tiny-1").num_entities == 2


def test_a_graph_of_the_users_own_is_found_by_name(tmp_path, monkeypatch):
    (tmp_path / "My-Graph").mkdir()
    (tmp_path / "My-Graph" / "train.txt").write_text("own\tr\ttriples\n")
    (tmp_path / "notes").mkdir()
    monkeypatch.setenv("NSCACHING_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    assert load_graph("My-Graph").name == "My-Graph"
    with pytest.raises(UserError, match="no data set so named"):
        load_graph("notes")


def test_the_users_folders_come_first(server, cache, tmp_path, monkeypatch):
    lacking, full = tmp_path / "one", tmp_path / "two"
    (lacking / "tiny-1").mkdir(parents=True)
    (lacking / "tiny-1" / "valid.txt").write_bytes(FILES["valid.txt"])
    (full / "TINY-1").mkdir(parents=True)
    (full / "TINY-1" / "train.txt").write_text("own\tr\ttriples\n")
    folders = [str(tmp_path / "absent"), "", str(lacking), str(full)]
    monkeypatch.setenv("NSCACHING_DATA", os.pathsep.join(folders))
    assert find_dataset("tiny-1") == full / "TINY-1"
    assert load_graph("tiny-1").entities == ["own", "triples"]
    assert server.asked == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_name_means_the_data_set_and_a_path_the_file(server, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    here = Path("tiny-1")
    if kind == "folder":
        here.mkdir()
    (here if kind == "file" else here / "train.txt").write_text("x\tr\ty\n")
    graph = load_graph("tiny-1")
    assert graph.entities == ["a", "b"]
    remark = f"'tiny-1' is the data set, not the {kind} of that name here; write ./tiny-1 for that."
    assert graph.notes.count(remark) == 1
    for path in ("./tiny-1", here, tmp_path / "tiny-1", str(tmp_path / "tiny-1")):
        graph = load_graph(path)
        assert graph.entities == ["x", "y"]
        assert graph.notes == []


def test_a_folder_called_world_does_not_hide_the_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_graph("world").notes == []
    Path("world").mkdir()
    graph = load_graph("world")
    assert graph.num_entities == dataset_info("world").entities
    assert "./world" in graph.notes[0]


def test_a_cache_that_cannot_be_made(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NSCACHING_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="NSCACHING_CACHE"):
        fetch_dataset("tiny-1")


@pytest.mark.skipif(sys.platform != "linux", reason="the cache folder is the platform's")
def test_the_cache_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.delenv("NSCACHING_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert datasets.cache_folder() == tmp_path / "nscaching" / "datasets"


def test_every_real_data_set_has_pinned_files_and_mirrors():
    for name in REAL:
        info = dataset_info(name)
        assert {"train.txt", "valid.txt", "test.txt"} <= info.files.keys()
        assert all(len(sum_) == 64 for sum_ in info.files.values())
        assert info.mirrors
        for mirror in info.mirrors:
            assert mirror.address.startswith("https://")


def test_world_comes_with_the_package(cache):
    graph = load_graph("World")
    check_counts(graph, dataset_info("world"))
    assert graph.name == "world"
    assert fetch_dataset("world", force=True) == find_dataset("world")
    with pytest.raises(UserError, match="of its own"):
        load_graph("world", split=0.1)


def check_counts(graph, info):
    assert (graph.num_entities, graph.num_relations) == (info.entities, info.relations)
    splits = (len(graph.train), len(graph.valid), len(graph.test))
    assert splits == (info.train, info.valid, info.test)


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_the_real_data_sets_have_the_registered_counts(name):
    if not os.environ.get("NSCACHING_DATA"):
        pytest.skip("NSCACHING_DATA is not set")
    if find_dataset(name) is None:
        pytest.skip(f"{name} is not in NSCACHING_DATA")
    graph = load_graph(name)
    check_counts(graph, dataset_info(name))
    assert verify_dataset(name) == []
    assert sum(graph.duplicates.values()) == 0
    if name == "FB13":
        assert {split: len(rows) for split, rows in graph.labelled.items()} == {
            "valid": 2 * 5_908,
            "test": 2 * 23_733,
        }
        assert graph.labelled["test"][:, 3].sum() == 0


def test_reading_needs_no_torch_and_no_pandas():
    """Reading a graph must stay light: the package is imported with both modules forbidden."""
    code = (
        "import sys, types\n"
        "sys.modules['torch'] = sys.modules['pandas'] = None\n"
        "package = types.ModuleType('nscaching')\n"
        f"package.__path__ = [{str(PACKAGE)!r}]\n"
        "sys.modules['nscaching'] = package\n"
        "import nscaching.graph\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
