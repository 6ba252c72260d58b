import tracemalloc
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscaching.graph import pairs
from nscaching.graph.pairs import blocks_of, fact_keys, pair_keys, pair_rows, triple_keys

ENTITIES, RELATIONS = 6, 3
TRIPLES = st.lists(
    st.tuples(
        st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1)
    ),
    max_size=40,
)

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


@given(TRIPLES, st.sampled_from(["head", "tail"]), st.booleans())
def test_rows_agree_with_dictionaries(triples, side, huge):
    """With repeated triples too, and with ranges whose product does not fit in 64 bits."""
    array = np.array(triples, dtype=np.int32).reshape(-1, 3)
    rows = pair_rows(array, side, *((2**31 - 1, 2**20) if huge else (ENTITIES, RELATIONS)))
    answers = defaultdict(set)
    for h, r, t in triples:
        answers[(r, t) if side == "head" else (r, h)].add(h if side == "head" else t)
    assert len(rows) == len(answers)
    assert list(zip(rows.relation.tolist(), rows.anchor.tolist(), strict=True)) == sorted(answers)
    for row, pair in enumerate(sorted(answers)):
        mine = rows.answers[rows.offsets[row] : rows.offsets[row + 1]].tolist()
        assert mine == sorted(answers[pair])
    for number, (h, r, t) in enumerate(triples):
        row = rows.of_triple[number]
        assert rows.relation[row] == r
        assert rows.anchor[row] == (t if side == "head" else h)
    assert rows.offsets[-1] == len(rows.answers)
    assert [a.dtype for a in (rows.of_triple, rows.anchor, rows.relation, rows.answers)] == [
        np.int32
    ] * 4
    assert rows.offsets.dtype == np.int64


def test_pairs_of_sorted_facts_on_disk_take_little_memory(tmp_path, monkeypatch):
    """Beside the facts of some relations nothing grows with the number of facts."""
    rng = np.random.default_rng(0)
    triples = rng.integers(0, 1000, (400_000, 3)).astype(np.int32)
    np.save(tmp_path / "x.npy", triples[np.argsort(triples[:, 1])])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = np.zeros(len(mapped), dtype=np.int32)
    monkeypatch.setattr(pairs, "_PART", 1 << 12)
    monkeypatch.setattr(pairs, "_PARTS", 1 << 14)
    small = lambda given: blocks_of(given, 1 << 12)  # noqa: E731
    monkeypatch.setattr(pairs, "blocks_of", small)
    tracemalloc.start()
    for _ in pairs.pair_parts(mapped, "head", 1000, 1000, rows):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(mapped)
    assert (rows == pair_rows(np.array(mapped), "head", 1000, 1000).of_triple).all()


def test_a_large_relation_is_sorted_alone(monkeypatch):
    monkeypatch.setattr(pairs, "_PART", 10)
    monkeypatch.setattr(pairs, "_PARTS", 40)
    held, most, sort = 0, 0, pairs._sorted_part

    def counted(triples, index, *given):
        nonlocal held, most
        held += index.stop - index.start
        most = max(most, held)
        return sort(triples, index, *given)

    monkeypatch.setattr(pairs, "_sorted_part", counted)
    relations = np.repeat(np.arange(9), [8, 8, 8, 100, 8, 100, 100, 8, 8])
    triples = np.stack([np.arange(len(relations)), relations, relations], axis=1).astype(np.int32)
    rows = np.zeros(len(triples), dtype=np.int32)
    for part in pairs.pair_parts(triples, "head", len(triples), 9, rows):
        held -= len(part.answers)
    assert most <= 108
    assert held == 0


def test_side_is_checked():
    with pytest.raises(ValueError, match="head"):
        pair_rows(np.zeros((0, 3), dtype=np.int32), "left", 1, 1)  # type: ignore[arg-type]
