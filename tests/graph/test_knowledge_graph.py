import numpy as np
import pytest

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph

TRAIN = [("a", "likes", "b"), ("c", "knows", "d"), ("a", "likes", "b")]


def test_ids_follow_the_first_appearance_line_by_line():
    graph = KnowledgeGraph.from_triples(TRAIN, [("e", "likes", "a")], [("b", "hates", "f")])
    assert graph.entities == ["a", "b", "c", "d", "e", "f"]
    assert graph.relations == ["likes", "knows", "hates"]
    assert graph.train.tolist() == [[0, 0, 1], [2, 1, 3]]
    assert graph.valid.tolist() == [[4, 0, 0]]
    assert graph.test.tolist() == [[1, 2, 5]]
    assert graph.duplicates == {"train": 1, "valid": 0, "test": 0}
    for split in ("train", "valid", "test"):
        array = graph.split(split)
        assert array.dtype == np.int32
        assert array.flags.c_contiguous


def test_counts_and_repr():
    graph = KnowledgeGraph.from_triples(TRAIN, name="tiny")
    assert (graph.num_entities, graph.num_relations) == (4, 2)
    assert "tiny" in repr(graph)
    assert "4 entities" in repr(graph)
    assert "1 relation, " in repr(KnowledgeGraph(["a", "b"], ["r"], [[0, 0, 1]]))


def test_look_up_by_name_suggests_the_nearest():
    graph = KnowledgeGraph.from_triples([("France", "neighbour of", "Spain")])
    assert graph.entity_id("Spain") == 1
    assert graph.relation_id("neighbour of") == 0
    with pytest.raises(UserError, match="did you mean 'France'"):
        graph.entity_id("france")
    with pytest.raises(UserError, match="no relation 'zzz'"):
        graph.relation_id("zzz")
    with pytest.raises(UserError, match="train, valid or test"):
        graph.split("dev")


def test_ids_out_of_range_and_wrong_shapes_are_refused():
    with pytest.raises(UserError, match="entity id 2 in column 2"):
        KnowledgeGraph(["a", "b"], ["r"], [[0, 0, 2]])
    with pytest.raises(UserError, match="relation id -1"):
        KnowledgeGraph(["a", "b"], ["r"], [[0, -1, 1]])
    with pytest.raises(UserError, match="shape"):
        KnowledgeGraph(["a", "b"], ["r"], [[0, 0]])
    with pytest.raises(UserError, match="integer"):
        KnowledgeGraph(["a", "b"], ["r"], [[0.5, 0, 1]])
    with pytest.raises(UserError, match="1 or -1"):
        KnowledgeGraph(["a", "b"], ["r"], [[0, 0, 1]], labelled={"valid": [[0, 0, 1, 0]]})


@pytest.mark.parametrize("name", ["", "two\nlines", "a\r"])
def test_unusable_names_are_refused(name):
    with pytest.raises(UserError, match="cannot be used"):
        KnowledgeGraph([name], ["r"], [[0, 0, 0]])


def test_names_must_be_distinct_strings():
    with pytest.raises(UserError, match="twice"):
        KnowledgeGraph(["a", "a"], ["r"], [[0, 0, 1]])
    with pytest.raises(UserError, match="strings"):
        KnowledgeGraph.from_triples([("a", "r", 3)])
    with pytest.raises(UserError, match="expected"):
        KnowledgeGraph.from_triples([("a", "r")])
    with pytest.raises(UserError, match="Unicode"):
        KnowledgeGraph.from_triples([("a", "r", "\ud800")])


def test_an_empty_graph_is_a_graph():
    graph = KnowledgeGraph.from_triples([])
    assert graph.num_entities == 0
    assert len(graph.rows.head) == 0
    assert graph.statistics.cardinality == []


def test_fingerprint_changes_with_names_and_with_every_split():
    base = {"entities": ["a", "bc"], "relations": ["r"], "train": [[0, 0, 1]]}
    prints = {
        KnowledgeGraph(**base).fingerprint,
        KnowledgeGraph(**{**base, "entities": ["ab", "c"]}).fingerprint,
        KnowledgeGraph(**{**base, "relations": ["q"]}).fingerprint,
        KnowledgeGraph(**{**base, "train": [[1, 0, 0]]}).fingerprint,
        KnowledgeGraph(**base, valid=[[1, 0, 0]]).fingerprint,
        KnowledgeGraph(**base, test=[[1, 0, 0]]).fingerprint,
    }
    assert len(prints) == 6
    assert KnowledgeGraph(**base, name="other").fingerprint in prints


def test_duplicates_are_found_where_a_triple_key_would_not_fit_64_bits(monkeypatch):
    from nscaching.graph import knowledge_graph

    triples = np.array([[3, 1, 2], [0, 0, 0], [3, 1, 2], [2, 1, 3]], dtype=np.int32)
    huge = knowledge_graph.distinct(triples, 2**31 - 1, 2**20)
    assert huge.tolist() == [[3, 1, 2], [0, 0, 0], [2, 1, 3]]
