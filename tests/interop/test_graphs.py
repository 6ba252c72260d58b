"""Graphs go to NetworkX, data frames and PyTorch Geometric, and come back whole."""

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import nscaching as ns
from nscaching import KnowledgeGraph, UserError, load_graph
from nscaching.extras import need
from nscaching.interop.graphs import edge_tensors

from ..conftest import random_graph
from ..training.helpers import ring
from .helpers import assert_same_facts, named

ROWS = [("a", "likes", "b"), ("b", "likes", "c"), ("a", "knows", "c")]


def test_networkx_and_back():
    graph = ring()
    there = graph.to_networkx()
    assert isinstance(there, nx.MultiDiGraph)
    assert there.number_of_edges() == sum(map(len, (graph.train, graph.valid, graph.test)))
    back = KnowledgeGraph.from_networkx(there)
    assert_same_facts(graph, back)
    assert back.name == "ring"
    assert back.entities == graph.entities


def test_networkx_keeps_nodes_without_edges_and_names_them_by_str():
    source = nx.DiGraph()
    source.add_nodes_from([7, "alone"])
    source.add_edge(7, 8, kind="next")
    graph = KnowledgeGraph.from_networkx(source, relation="kind")
    assert graph.entities == ["7", "alone", "8"]
    assert named(graph) == [("7", "next", "8")]


def test_networkx_reads_keys_and_undirected_edges():
    source = nx.MultiGraph()
    source.add_edge("a", "b", key="near")
    source.add_edge("a", "a", key="near")
    graph = KnowledgeGraph.from_networkx(source)
    assert sorted(named(graph)) == [("a", "near", "a"), ("a", "near", "b"), ("b", "near", "a")]
    assert "two triples" in graph.notes[0]


def test_a_triple_of_two_splits_goes_to_networkx_as_a_training_triple():
    graph = KnowledgeGraph.from_triples(ROWS, test=ROWS[:1])
    edge = graph.to_networkx().edges["a", "b", "likes"]
    assert edge["split"] == "train"


@pytest.mark.parametrize(
    ("attributes", "words"),
    [({}, ["'a'", "'b'", "relation="]), ({"relation": "r", "split": "dev"}, ["'dev'", "train"])],
)
def test_bad_edges_are_named(attributes, words):
    source = nx.DiGraph()
    source.add_edge("a", "b", **attributes)
    with pytest.raises(UserError) as error:
        KnowledgeGraph.from_networkx(source)
    assert all(word in str(error.value) for word in words)


def frames():
    columns = {"t": [t for _, _, t in ROWS], "h": [h for h, _, _ in ROWS], "n": [1, 2, 3]}
    columns["r"] = [r for _, r, _ in ROWS]
    yield "pyarrow", lambda: pa.table(columns)
    yield "pandas", lambda: pytest.importorskip("pandas").DataFrame(columns, index=[5, 6, 7])
    yield "polars", lambda: pytest.importorskip("polars").DataFrame(columns)


@pytest.mark.parametrize("make", [make for _, make in frames()], ids=[kind for kind, _ in frames()])
def test_data_frames(make):
    graph = KnowledgeGraph.from_dataframe(make(), test=make(), name="mine")
    assert named(graph) == named(graph, "test") == ROWS
    assert graph.name == "mine"
    assert any("also in train" in note for note in graph.notes)
    chosen = KnowledgeGraph.from_dataframe(make(), columns=("h", "n", "t"))
    assert named(chosen) == [("a", "1", "b"), ("b", "2", "c"), ("a", "3", "c")]


@pytest.mark.parametrize("make", [make for _, make in frames()], ids=[kind for kind, _ in frames()])
def test_a_frame_stands_where_a_graph_does(make):
    assert named(load_graph(make())) == ROWS
    small = {"dim": 2, "epochs": 1, "device": "cpu", "progress": "none"}
    assert ns.train(make(), split=0, **small).graph.num_entities == 3


@pytest.mark.parametrize("rows", [ROWS, [list(row) for row in ROWS], np.array(ROWS)])
def test_triples_stand_where_a_graph_does(rows):
    assert named(load_graph(rows)) == ROWS
    run = ns.train(rows, split=0, dim=2, epochs=1, device="cpu", progress="none")
    assert named(run.graph) == ROWS


def test_whole_numbers_are_names():
    assert named(load_graph(np.array([[5, 0, 7]]))) == [("5", "0", "7")]
    assert named(load_graph([(5, "r", 7)])) == [("5", "r", "7")]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"a": 1}, ["dict is no graph", "from_dataframe", "from_triples"]),
        (7, ["int is no graph"]),
        ([1, 2], ["Entry 0", "(head, relation, tail)"]),
        (np.zeros((2, 3)), ["Entry 0", "strings"]),
    ],
)
def test_what_is_no_graph_is_said(source, words):
    for door in (load_graph, ns.train, ns.compare, ns.tune):
        with pytest.raises(UserError) as error:
            door(source)
        assert all(word in str(error.value) for word in words)


def test_categories_of_pandas_are_names():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(ROWS, columns=["head", "relation", "tail"]).astype("category")
    assert named(KnowledgeGraph.from_dataframe(frame)) == ROWS


@pytest.mark.parametrize(
    ("frame", "columns", "words"),
    [
        (ROWS, None, ["train frame", "list", "pandas"]),
        (pa.table({"a": ["x"], "b": ["y"]}), None, ["columns a, b", "exactly three"]),
        (pa.table({"a": ["x"], "b": ["y"]}), ("a", "b", "c"), ["'c'", "a, b"]),
        (pa.table({"a": ["x"]}), "a", ["columns must name"]),
        (pa.table({"h": ["x"], "r": [0.5], "t": ["y"]}), None, ["'r'", "double"]),
        (pa.table({"h": ["x"], "r": [None], "t": ["y"]}), None, ["the train frame", "'r'"]),
    ],
)
def test_bad_frames_are_explained(frame, columns, words):
    with pytest.raises(UserError) as error:
        KnowledgeGraph.from_dataframe(frame, columns=columns)
    assert all(word in str(error.value) for word in words)


def test_pyg_data():
    pytest.importorskip("torch_geometric")
    graph = random_graph()
    for split in ("train", "test"):
        data = graph.to_pyg(split)
        data.validate(raise_on_error=True)
        assert data.num_nodes == graph.num_entities
        edges = np.column_stack([data.edge_index[0], data.edge_type, data.edge_index[1]])
        assert (edges == graph.split(split)).all()


def test_edges_need_no_pyg():
    graph = random_graph()
    index, kind = edge_tensors(graph)
    assert index.shape == (2, len(graph.train))
    assert kind.shape == (len(graph.train),)


def test_a_missing_package_is_asked_for():
    with pytest.raises(
        UserError, match=r"SPARQL needs no_such_package: pip install 'nscaching\[rdf"
    ):
        need("no_such_package", "rdf", "SPARQL")
