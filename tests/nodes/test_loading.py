import gzip

import pytest

from nscaching.errors import UserError
from nscaching.nodes import load_node_graph


def read(tmp_path, text, name="edges.txt", **how):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_node_graph(path, **how)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "a\tb\nb\tc\n"),
        ("a.txt", "a b\r\nb c\r\n"),
        ("a.edges", "# from somewhere\n# FromNodeId ToNodeId\n a  b \n b   c"),
        ("a.csv", "source,target\na,b\nb,c\n"),
        ("a.csv", '"a","b"\n"b","c"\n'),
        ("a.tsv", "\n\na\tb\n\nb\tc\n\n"),
        ("a.txt.gz", gzip.compress(b"a b\nb c\n", mtime=0)),
    ],
)
def test_edge_lists_of_all_kinds(tmp_path, name, text):
    graph = read(tmp_path, text, name)
    assert graph.nodes == ["a", "b", "c"]
    assert graph.edges().tolist() == [[0, 1], [1, 2]]
    assert graph.weights is None
    assert graph.name == "a"


def test_a_third_column_is_the_weight(tmp_path):
    graph = read(tmp_path, "a b 0.5\nb c 2e1\n")
    assert graph.weights.tolist() == [0.5, 0.5, 20.0, 20.0]


def test_names_may_hold_spaces_where_tabs_separate(tmp_path):
    assert read(tmp_path, "New York\tLos Angeles\n").nodes == ["New York", "Los Angeles"]


def test_direction_is_kept_when_asked_for(tmp_path):
    assert read(tmp_path, "a b\n", directed=True).neighbours.tolist() == [1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("lonely\n", "1 column in its first line; expected 2 or 3"),
        ("a\tb\tc\td\n", "4 columns"),
        ("a\tb\n\nb\tc\td\n", "Line 3 of .* has 3 columns; expected 2"),
        ("# one\na b\nc\n", "Line 3 of .* has 1 columns"),
        ("a b 1\nb c heavy\n", "Edge 2 of .* the weight 'heavy'"),
        ("a b 1\nb c -2\n", "weight '-2'"),
        ("a b 1\nb c nan\n", "weight 'nan'"),
        (b"a\tb\n\xff\xfe\tc\n", "Line 2 of .* is not UTF-8"),
        ("source,target\n", "no edge"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, says):
    with pytest.raises(UserError, match=says):
        read(tmp_path, text)


def test_labels_come_from_a_file(tmp_path):
    labels = tmp_path / "labels.tsv"
    labels.write_text("b\tsecond class\na\tfirst\n")
    graph = read(tmp_path, "a b\n", labels=labels)
    assert graph.labels.classes == ["second class", "first"]
    assert graph.labels.of_node.tolist() == [1, 0]
