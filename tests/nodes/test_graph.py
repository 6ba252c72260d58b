import networkx as nx
import numpy as np
import pytest
import torch

from nscaching.errors import UserError
from nscaching.nodes import from_edge_index, from_networkx, load_node_graph

from .helpers import graph_from, random_edges


def rows(graph):
    return [graph.neighbours[a:b].tolist() for a, b in zip(graph.offsets, graph.offsets[1:])]  # noqa: B905


def test_an_undirected_edge_stands_in_both_rows_once():
    graph = graph_from([(0, 1), (1, 0), (2, 1), (3, 3)])
    assert rows(graph) == [[1], [0, 2], [1], []]
    assert graph.num_edges == 2
    assert graph.isolated.tolist() == [False, False, False, True]
    assert any("Self-loop" in note for note in graph.notes)


def test_a_directed_edge_stands_in_the_row_of_its_source():
    graph = graph_from([(0, 1), (1, 0), (2, 1)], directed=True)
    assert rows(graph) == [[1], [0], [1]]
    assert graph.num_edges == 3
    assert not graph.isolated.any()


def test_weights_of_repeated_edges_add_up():
    graph = graph_from([(0, 1), (1, 0), (1, 2)], weights=[1.0, 2.5, 4.0])
    assert rows(graph) == [[1], [0, 2], [1]]
    assert graph.weights.tolist() == [3.5, 3.5, 4.0, 4.0]


def test_rows_are_those_of_networkx():
    edges, weights = random_edges()
    theirs = nx.Graph()
    theirs.add_weighted_edges_from(
        [(int(a), int(b), w) for (a, b), w in zip(edges, weights, strict=True)]
    )
    ours = from_networkx(theirs)
    for at, name in enumerate(ours.nodes):
        found = {ours.nodes[n] for n in ours.neighbours[ours.offsets[at] : ours.offsets[at + 1]]}
        assert found == {str(n) for n in theirs.neighbors(int(name))}
    assert ours.weights.sum() == pytest.approx(2 * weights.sum(), rel=1e-5)


def test_a_direction_that_the_graph_does_not_have_is_refused():
    undirected = nx.path_graph(3)
    for source in (undirected, load_node_graph(undirected)):
        with pytest.raises(UserError, match="no direction"):
            load_node_graph(source, directed=True)
    for directed in (False, True):
        assert load_node_graph(nx.path_graph(3, nx.DiGraph), directed=directed).directed


def test_edge_index_and_networkx_are_recognised():
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    assert load_node_graph(index).num_edges == 3
    assert load_node_graph(nx.path_graph(4)).num_edges == 3
    assert load_node_graph(nx.DiGraph([(0, 1)])).directed
    assert len(from_edge_index(index, num_nodes=5)) == 5


def test_pyg_data_brings_its_classes():
    class Data:
        edge_index = torch.tensor([[0, 1], [1, 2]])
        num_nodes = 3
        y = torch.tensor([5, 5, 7])

    graph = load_node_graph(Data())
    assert graph.labels.classes == ["5", "7"]
    assert graph.labels.of_node.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (np.zeros((3, 4), dtype=np.int64), "shape"),
        (torch.tensor([[0.5], [1.0]]), "whole numbers"),
        (np.array([[0], [-1]]), "outside"),
        ([1, 2], "list is no graph"),
        ("no-such-file.txt", "no file"),
        ("coral", "did you mean 'cora'"),
    ],
)
def test_what_is_no_graph_is_refused(source, says):
    with pytest.raises(UserError, match=says):
        load_node_graph(source)


@pytest.mark.parametrize("name", ["", "two\nlines", "a\r"])
def test_names_that_a_folder_cannot_give_back_are_refused(name):
    with pytest.raises(UserError, match=r"The node name .* cannot be used"):
        from_networkx(nx.Graph([("a", name)]))
    with pytest.raises(UserError, match=r"The node name .* cannot be used"):
        graph_from([(0, 1)]).with_labels([name], ["a"], "labels.txt")


def test_labels_add_nodes_without_an_edge():
    graph = graph_from([(0, 1)]).with_labels(["n1", "n7"], ["a", "b"], "labels.txt")
    assert graph.nodes == ["n0", "n1", "n7"]
    assert graph.labels.of_node.tolist() == [-1, 0, 1]
    assert graph.isolated.tolist() == [False, False, True]
    assert graph.labels.known.tolist() == [1, 2]


def test_two_classes_of_a_node_are_refused():
    with pytest.raises(UserError, match="two classes, 'a' and 'b'"):
        graph_from([(0, 1)]).with_labels(["n1", "n1"], ["a", "b"], "labels.txt")


def test_a_subgraph_keeps_nodes_weights_and_direction():
    edges, weights = random_edges()
    for directed in (False, True):
        graph = graph_from(edges, nodes=30, weights=weights, directed=directed)
        keep = np.arange(graph.num_edges) % 3 > 0
        part = graph.without_edges(keep)
        assert part.nodes == graph.nodes
        assert np.array_equal(part.edges(), graph.edges()[keep])
        assert part.directed == directed
        assert part.weights.sum() < graph.weights.sum()


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "classes", "isolated"),
    [("cora", 2708, 5278, 7, 0), ("citeseer", 3312, 4536, 6, 48)],
)
def test_named_graphs(name, nodes, edges, classes, isolated, need_data):
    need_data(name)
    graph = load_node_graph(name)
    assert (len(graph), graph.num_edges) == (nodes, edges)
    assert len(graph.labels.classes) == classes
    assert len(graph.labels.known) == nodes
    assert graph.isolated.sum() == isolated
