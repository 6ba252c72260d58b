"""What the tests of other libraries share."""

from nscaching.graph.names import SPLITS


def named(graph, split="train"):
    """Return the triples of a split by name."""
    e, r = graph.entities, graph.relations
    return [(e[h], r[k], e[t]) for h, k, t in graph.split(split).tolist()]


def assert_same_facts(one, other):
    """Check that two graphs hold the same entities, relations and triples, in any order."""
    assert set(one.entities) == set(other.entities)
    assert set(one.relations) == set(other.relations)
    for split in SPLITS:
        assert sorted(named(one, split)) == sorted(named(other, split))
