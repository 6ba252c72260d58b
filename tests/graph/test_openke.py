import pytest

from nscaching.graph import load_graph

from .test_bad_input import complaint
from .test_loading import named


def openke(folder, **changes):
    files = {
        "entity2id": "3\nParis\t1\nNew York\t0\nRome\t2\n",
        "relation2id": "2\nnear\t0\nfar\t1\n",
        "train2id": "2\n0 1 1\n1\t2\t0\n",
        "valid2id": "1\n2 0 1\n",
    }
    for name, text in {**files, **changes}.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def test_openke(tmp_path):
    graph = load_graph(openke(tmp_path))
    assert graph.entities == ["New York", "Paris", "Rome"]
    assert named(graph) == [("New York", "far", "Paris"), ("Paris", "near", "Rome")]
    assert named(graph, "valid") == [("Rome", "far", "New York")]
    assert len(graph.test) == 0


def test_openke_with_spaces_all_over(tmp_path):
    graph = load_graph(openke(tmp_path, train2id="2\r\n0  1 1 \r\n1\t 2\t0\r\n\r\n"))
    assert named(graph) == [("New York", "far", "Paris"), ("Paris", "near", "Rome")]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entity2id": "3\nParis\t1\nRome\t2\n"}, ["entity2id.txt", "promises 3", "2 follow"]),
        ({"entity2id": "many\n"}, ["Line 1", "number of lines"]),
        ({"entity2id": "2\nParis\t0\nRome\t5\n"}, ["Line 3", "id 5"]),
        ({"entity2id": "2\nParis\t0\nRome\t0\n"}, ["Line 3", "'Paris' has"]),
        ({"entity2id": "2\nParis\t0\nRome\n"}, ["Line 3", "expected a name"]),
        ({"train2id": "1\n0 1 1\n1 2 0\n"}, ["train2id.txt", "promises 1", "2 follow"]),
        ({"train2id": "2\n0 1 1\n1 2 2\n"}, ["Line 3", "relation id 2"]),
        ({"train2id": "2\n0 1 1\n1 -2 0\n"}, ["Line 3", "tail id -2"]),
        ({"train2id": "2\n0 1 1\n1 2\n"}, ["Line 3", "three ids"]),
        ({"train2id": "2\n0 1 1\nRome 2 1\n"}, ["Line 3", "three ids"]),
        ({"train2id": "0\n"}, ["train2id.txt", "no triples"]),
    ],
)
def test_bad_openke(tmp_path, changes, words):
    said = complaint(openke(tmp_path, **changes))
    for word in words:
        assert word in said


def test_openke_without_names(tmp_path):
    openke(tmp_path)
    (tmp_path / "relation2id.txt").unlink()
    assert "relation2id.txt" in complaint(tmp_path)
