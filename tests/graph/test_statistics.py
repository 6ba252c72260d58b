import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscaching.graph import KnowledgeGraph

ENTITIES, RELATIONS = 6, 3
TRIPLES = st.lists(
    st.tuples(
        st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)
    ),
    max_size=40,
)


def graph_of(triples):
    names = [f"e{i}" for i in range(ENTITIES)]
    return KnowledgeGraph(names, [f"r{i}" for i in range(RELATIONS)], triples)


@given(TRIPLES)
def test_statistics_agree_with_counting(triples):
    statistics = graph_of(triples).statistics
    for relation in range(RELATIONS):
        own = {(h, t) for h, r, t in triples if r == relation}
        if not own:
            assert statistics.tails_per_head[relation] == 0
            assert statistics.heads_per_tail[relation] == 0
            assert statistics.head_probability[relation] == 0.5
            assert statistics.cardinality[relation] == "no training fact"
            continue
        tph = len(own) / len({h for h, _ in own})
        hpt = len(own) / len({t for _, t in own})
        assert statistics.tails_per_head[relation] == pytest.approx(tph)
        assert statistics.heads_per_tail[relation] == pytest.approx(hpt)
        assert statistics.head_probability[relation] == pytest.approx(tph / (tph + hpt), rel=1e-6)
        expected = ("N" if hpt >= 1.5 else "1") + "-" + ("N" if tph >= 1.5 else "1")
        assert statistics.cardinality[relation] == expected


def test_one_head_with_many_tails_is_1_n_and_replaces_the_head_more_often():
    statistics = graph_of([(0, 0, 1), (0, 0, 2), (0, 0, 3)]).statistics
    assert statistics.cardinality[0] == "1-N"
    assert statistics.head_probability[0] == pytest.approx(0.75)
    assert statistics.head_probability.dtype == np.float32
