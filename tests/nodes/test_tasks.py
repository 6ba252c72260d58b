import numpy as np
import pytest

from nscaching.errors import UserError
from nscaching.nodes.graph import Labels
from nscaching.nodes.tasks import (
    _non_edges,
    classification_scores,
    classify_nodes,
    hold_out_edges,
    link_prediction,
)

from .helpers import graph_from, random_edges


def labelled_vectors(nodes=200, classes=3, spread=0.05, seed=0):
    rng = np.random.default_rng(seed)
    of_node = rng.integers(classes, size=nodes).astype(np.int32)
    vectors = 3 * np.eye(classes)[of_node] + spread * rng.standard_normal((nodes, classes))
    return vectors.astype(np.float32), Labels([f"c{at}" for at in range(classes)], of_node)


def test_classes_that_lie_apart_are_told_apart():
    found = classify_nodes(*labelled_vectors())
    assert list(found) == ["30%", "50%", "70%"]
    for scores in found.values():
        assert scores == {name: {"mean": 1.0, "std": 0.0} for name in ("micro_f1", "macro_f1")}


def test_noise_is_classified_by_chance():
    vectors, labels = labelled_vectors(nodes=600, spread=1.0)
    vectors = np.random.default_rng(1).standard_normal(vectors.shape)
    score = classify_nodes(vectors, labels)["50%"]["micro_f1"]
    assert 0.2 < score["mean"] < 0.47
    assert score["std"] > 0


def test_nodes_without_a_class_are_not_asked():
    vectors, labels = labelled_vectors()
    hidden = labels.of_node.copy()
    hidden[::2] = -1
    vectors[::2] = 100  # would ruin the classifier
    assert classify_nodes(vectors, Labels(labels.classes, hidden))["50%"]["micro_f1"]["mean"] == 1


def test_validation_never_asks_a_test_node():
    vectors, labels = labelled_vectors(nodes=100)
    asked = []
    for draw in range(5):
        order = np.random.default_rng([0, draw, 500]).permutation(100)
        asked.append(set(order[50:].tolist()))
        poisoned = vectors.copy()
        poisoned[order[50:]] = np.nan  # scikit-learn refuses to look at it
        if draw == 0:
            classification_scores(poisoned, labels, shares=(0.5,), draws=1, validate=True)
    with pytest.raises(ValueError, match="NaN"):
        classification_scores(poisoned, labels, shares=(0.5,), draws=5)
    assert len(asked) == 5


def test_one_class_is_refused():
    vectors, _ = labelled_vectors()
    with pytest.raises(UserError, match="at least two classes"):
        classify_nodes(vectors, Labels(["a"], np.zeros(200, dtype=np.int32)))


@pytest.mark.parametrize("directed", [False, True])
def test_held_out_edges_leave_every_node_an_edge(directed):
    edges, _ = random_edges(nodes=40, edges=150)
    graph = graph_from(edges, nodes=40, directed=directed)
    listed, keep = hold_out_edges(graph, 0.2, seed=0)
    assert np.array_equal(listed, graph.edges())
    assert (~keep).sum() == round(0.2 * len(listed))
    assert np.array_equal(graph.without_edges(keep).isolated, graph.isolated)
    assert not np.array_equal(keep, hold_out_edges(graph, 0.2, seed=1)[1])


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_an_edge_and_its_reverse_are_held_out_together(share):
    edges, _ = random_edges(nodes=40, edges=150)
    graph = graph_from([*edges, *edges[:80, ::-1]], nodes=40, directed=True)
    listed, keep = hold_out_edges(graph, share, seed=0)
    trained, held = ({tuple(edge) for edge in listed[part].tolist()} for part in (keep, ~keep))
    assert not trained & {edge[::-1] for edge in held}
    assert any(edge[::-1] in held for edge in held)
    assert np.array_equal(graph.without_edges(keep).isolated, graph.isolated)
    if share < 0.5:  # else there are not so many that can be missed
        assert round(share * len(listed)) - 1 <= len(held) <= round(share * len(listed))


def test_pairs_without_an_edge_have_none_in_the_other_direction_either():
    edges, _ = random_edges(nodes=12, edges=40)
    graph = graph_from(edges, nodes=12, directed=True)
    pairs = _non_edges(graph, edges[:20].astype(np.int64), seed=0)
    known = {tuple(edge) for edge in [*edges.tolist(), *edges[:, ::-1].tolist()]}
    assert not known & {tuple(pair) for pair in pairs.tolist()}


def test_no_more_edges_are_held_out_than_can_be_missed():
    graph = graph_from([(0, 1), (2, 3), (0, 4)])
    assert hold_out_edges(graph, 0.9, seed=0)[1].all()


def test_link_prediction_ranks_by_cosine():
    edges, _ = random_edges(nodes=40, edges=150)
    graph = graph_from(edges, nodes=40)
    listed, keep = hold_out_edges(graph, 0.2, seed=0)
    part, held = graph.without_edges(keep), listed[~keep]
    adjacency = np.eye(40) * 0.1
    for a, b in graph.edges():
        adjacency[a, b] = adjacency[b, a] = 1
    values, vectors = np.linalg.eigh(adjacency)
    good = (vectors[:, values > 0] * np.sqrt(values[values > 0])).astype(np.float32)
    found = link_prediction(good, part, held)
    assert found["edges"] == len(held)
    assert found["auc"] > 0.9
    noise = np.random.default_rng(0).standard_normal((40, 5))
    assert 0.3 < link_prediction(noise, part, held)["auc"] < 0.7
