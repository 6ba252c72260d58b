import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nscaching.sampling.softmax import draw_at, rescale
from tests.conftest import assert_follows, seeded
from tests.sampling.helpers import keep, masked_sigma, sequential_pairs, slow_rescale

INF = float("inf")
SCORES = [0.3, -1.2, 2.0, 0.1, 0.9, -0.4]
MASKS = {"all": [1, 1, 1, 1, 1, 1], "some": [0, 1, 1, 0, 1, 1], "one": [0, 0, 0, 1, 0, 0]}
rescalings = pytest.mark.parametrize("rescaling", ["quantile", "none"])
masks = pytest.mark.parametrize("valid", MASKS.values(), ids=MASKS)


def row(scores, valid, copies=1):
    scores = torch.tensor(scores, dtype=torch.float32).expand(copies, -1)
    return scores, torch.tensor(valid, dtype=torch.bool).expand(copies, -1)


def draw(scores, valid, alpha, rescaling, count, generator):
    uniform = torch.rand(len(scores), count, generator=generator)
    return draw_at(uniform, scores, valid, alpha, rescaling)


# Rescaling


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.integers(-8, 8), st.booleans()), min_size=1, max_size=12),
    st.floats(0.01, 100),
)
def test_rescale_equals_numpy_percentiles_of_the_valid_entries(entries, unit):
    scores, valid = row([value * unit for value, _ in entries], [ok for _, ok in entries])
    expected = np.zeros(len(entries))
    if valid.any():
        expected[valid[0].numpy()] = slow_rescale(scores[valid].double().numpy())
    ours = rescale(scores, valid)[0].numpy()
    np.testing.assert_allclose(ours, expected, atol=1e-4)


def test_rescale_takes_each_row_by_itself():
    rng = np.random.default_rng(0)
    scores, valid = rng.normal(size=(50, 23)), rng.random((50, 23)) < 0.7
    ours = rescale(torch.from_numpy(scores).float(), torch.from_numpy(valid)).numpy()
    for i in range(50):
        np.testing.assert_allclose(ours[i, valid[i]], slow_rescale(scores[i, valid[i]]), atol=1e-5)
        assert (ours[i, ~valid[i]] == 0).all()


@pytest.mark.parametrize(
    ("scores", "valid", "expected"),
    [
        ([5.0, -3.0], [True, False], [0, 0]),
        ([2.0, 2.0, 2.0], [True] * 3, [0, 0, 0]),
        ([2.0, 7.0, 1.0], [False] * 3, [0, 0, 0]),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0], [True] * 7, [0, 0, 0, 0, 0, 0, 1]),
    ],
    ids=["one valid", "constant", "none valid", "one above equal percentiles"],
)
def test_rescale_of_degenerate_rows(scores, valid, expected):
    assert rescale(*row(scores, valid)).tolist() == [expected]


def test_rescale_does_not_change_under_shift_and_scale():
    scores, valid = row(SCORES, MASKS["some"])
    torch.testing.assert_close(rescale(3 * scores + 5, valid), rescale(scores, valid))


# Drawing with replacement


@rescalings
@masks
@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
def test_draw_follows_sigma(alpha, rescaling, valid, generator):
    drawn = draw(*row(SCORES, valid, 1500), alpha, rescaling, 8, generator)
    assert drawn.shape == (1500, 8)
    assert_follows(drawn, masked_sigma(SCORES, np.array(valid, bool), alpha, rescaling))


@rescalings
@masks
def test_draw_at_infinite_temperature_takes_the_hardest(rescaling, valid, generator):
    drawn = draw(*row(SCORES, valid, 3), INF, rescaling, 4, generator)
    hardest = max(np.flatnonzero(valid), key=lambda i: SCORES[i])
    assert (drawn == hardest).all()
    assert drawn.shape == (3, 4)


@rescalings
@pytest.mark.parametrize("alpha", [0.0, 2.0, INF])
def test_draw_from_a_row_without_valid_entries_gives_position_zero(alpha, rescaling, generator):
    assert (draw(*row(SCORES, [0] * 6), alpha, rescaling, 5, generator) == 0).all()


@rescalings
@pytest.mark.parametrize("alpha", [0.0, 1.0, 100.0])
def test_draw_never_takes_an_invalid_entry(alpha, rescaling):
    rng = np.random.default_rng(1)
    scores = torch.from_numpy(rng.normal(scale=50, size=(300, 9))).float()
    valid = torch.from_numpy(rng.random((300, 9)) < 0.4)
    valid[torch.arange(300), torch.from_numpy(rng.integers(9, size=300))] = True
    drawn = draw(scores, valid, alpha, rescaling, 30, seeded(1))
    assert valid.gather(1, drawn).all()


def test_draws_of_different_rows_do_not_mix(generator):
    scores = torch.tensor([[0.0, 9.0, 9.0], [9.0, 9.0, 0.0]]).repeat(500, 1)
    drawn = draw(scores, torch.ones_like(scores, dtype=torch.bool), 20.0, "none", 1, generator)
    assert (drawn[0::2] != 0).all()
    assert (drawn[1::2] != 2).all()


# Keeping without replacement


@rescalings
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("valid", [[1, 1, 1, 1, 1], [1, 0, 1, 1, 1]], ids=["all", "masked"])
def test_kept_pairs_follow_two_draws_without_replacement(alpha, rescaling, valid, generator):
    scores, copies = SCORES[:5], 12_000
    place, exists = keep(*row(scores, valid, copies), alpha, rescaling, 2, generator)
    assert exists.all()
    chances = sequential_pairs(masked_sigma(scores, np.array(valid, bool), alpha, rescaling))
    cells = np.zeros(25)
    for (i, j), chance in chances.items():
        cells[5 * min(i, j) + max(i, j)] += chance
    place = place.sort(dim=1).values
    assert_follows(5 * place[:, 0] + place[:, 1], cells)


@rescalings
def test_infinite_temperature_keeps_the_true_top_by_raw_score(rescaling):
    """Rescaling clips the highest fifth to 1, so the order within it must come from the scores."""
    rng = np.random.default_rng(2)
    scores = torch.from_numpy(rng.normal(size=(40, 30))).float()
    valid = torch.from_numpy(rng.random((40, 30)) < 0.8)
    place, exists = keep(scores, valid, INF, rescaling, 4, seeded(0))
    assert exists.all()
    for i in range(40):
        usable = np.flatnonzero(valid[i])
        top = usable[np.argsort(-scores[i].numpy()[usable])[:4]]
        assert sorted(place[i].tolist()) == sorted(top.tolist())


@rescalings
@pytest.mark.parametrize("alpha", [0.0, 1.0, INF])
def test_kept_positions_are_distinct_and_the_invalid_ones_come_last(alpha, rescaling):
    rng = np.random.default_rng(3)
    scores = torch.from_numpy(rng.normal(size=(200, 7))).float()
    valid = torch.from_numpy(rng.random((200, 7)) < rng.random((200, 1)))
    place, exists = keep(scores, valid, alpha, rescaling, 5, seeded(0))
    for i in range(200):
        kept = place[i][exists[i]].tolist()
        assert len(set(kept)) == len(kept)
        assert valid[i][kept].all()
    assert torch.equal(exists.sum(1), valid.sum(1).clamp_max(5))
    assert (exists[:, 1:] <= exists[:, :-1]).all()


def test_asking_for_more_than_there_is_keeps_everything(generator):
    place, exists = keep(*row([1.0, 2.0], [1, 1]), 1.0, "quantile", 6, generator)
    assert sorted(place[0].tolist()) == [0, 1]
    assert exists.all()
