import numpy as np
import pytest

from nscaching.graph.pairs import fact_keys, pair_keys, triple_keys

#: Sizes for which a key of all three ranges fits in 64 bits, and for which it does not.
SIZES = [(50, 7), (2**31 - 1, 2**20)]


def spread(triples, entities, relations):
    """Move small ids to the upper end of their ranges, where a product overflows first."""
    return (np.array([entities, relations, entities]) - 1 - triples).astype(np.int32)


@pytest.mark.parametrize(("entities", "relations"), SIZES)
def test_keys_are_equal_for_equal_facts_and_sort_by_pair_then_answer(entities, relations):
    small = np.random.default_rng(0).integers(0, [6, 3, 6], size=(200, 3))
    triples = spread(small, entities, relations)
    keys = triple_keys(triples, entities, relations)
    assert (keys >= 0).all()
    assert len(np.unique(keys)) == len(np.unique(triples, axis=0))
    by_columns = np.lexsort((triples[:, 2], triples[:, 1], triples[:, 0]))
    assert (np.diff(keys[by_columns]) >= 0).all()


@pytest.mark.parametrize(("entities", "relations"), SIZES)
def test_a_pair_is_never_mixed_up(entities, relations):
    anchors, kinds = np.array([0, entities - 1, 0]), np.array([0, relations - 1, relations - 1])
    pairs = pair_keys(anchors.astype(np.int32), kinds.astype(np.int32), relations)
    assert len(set(pairs.tolist())) == 3
    assert (pairs >= 0).all()
    facts = fact_keys(pairs, np.array([entities - 1] * 3), entities, relations)
    assert len(set(facts.tolist())) == 3
