import numpy as np
import pytest
import torch
from scipy.stats import gumbel_r, kstest

from nscaching.kernels import hashing
from nscaching.kernels.hashing import hashed_bits, hashed_entities, hashed_gumbel, new_seed
from tests.conftest import UNLIKELY, assert_follows, seeded

MASK = (1 << 64) - 1


def split_mix(state):
    """SplitMix64's output function, on Python's whole numbers."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def slow_bits(seed, row, position):
    golden = 0x9E3779B97F4A7C15
    stream = split_mix((seed + row * golden) & MASK)
    return split_mix((stream + (position + 1) * golden) & MASK)


@pytest.mark.parametrize("seed", [0, 1, -1, (1 << 63) - 1, -(1 << 63), 123456789])
def test_bits_are_those_of_splitmix(seed):
    rows = torch.tensor([0, 1, 7, 1 << 30])
    bits = hashed_bits(torch.tensor([seed]), rows, 5, 4)
    expected = [[slow_bits(seed, row, 5 + j) for j in range(4)] for row in rows.tolist()]
    assert [[value & MASK for value in row] for row in bits.tolist()] == expected


def test_the_noise_of_a_row_does_not_depend_on_the_other_rows_asked_for():
    seed = new_seed(seeded(0))
    together = hashed_gumbel(seed, torch.tensor([4, 9, 4]), 6)
    alone = hashed_gumbel(seed, torch.tensor([4]), 6)
    assert torch.equal(together[0], alone[0])
    assert torch.equal(together[2], alone[0])
    assert not torch.equal(together[1], alone[0])


def test_seeds_differ_and_come_from_the_generator():
    generator = seeded(0)
    first, second = new_seed(generator), new_seed(generator)
    assert first != second
    assert first == new_seed(seeded(0))


@pytest.mark.parametrize("num_entities", [1, 2, 7, 20])
def test_entities_are_uniform(num_entities):
    drawn = hashed_entities(new_seed(seeded(1)), torch.arange(2000), 5, num_entities)
    assert_follows(drawn, np.ones(num_entities))


def test_entities_of_neighbouring_rows_and_positions_are_independent():
    drawn = hashed_entities(new_seed(seeded(2)), torch.arange(4000), 2, 5)
    assert_follows(5 * drawn[:, 0] + drawn[:, 1], np.ones(25))
    assert_follows(5 * drawn[0::2, 0] + drawn[1::2, 0], np.ones(25))


def test_entities_of_a_large_graph_reach_both_ends():
    drawn = hashed_entities(new_seed(seeded(3)), torch.arange(20_000), 50, 200_000)
    assert 0 <= drawn.min() < 100
    assert 199_900 <= drawn.max() < 200_000


def test_noise_is_gumbel():
    noise = hashed_gumbel(new_seed(seeded(4)), torch.arange(3000), 10)
    assert kstest(noise.flatten().numpy(), gumbel_r.cdf).pvalue > UNLIKELY


def test_noise_is_independent_of_the_entities_of_the_same_seed():
    seed, rows = new_seed(seeded(5)), torch.arange(6000)
    entities = hashed_entities(seed, rows, 1, 5).squeeze(1)
    high = (hashed_gumbel(seed, rows, 1).squeeze(1) > gumbel_r.median()).long()
    assert_follows(2 * entities + high, np.ones(10))


@pytest.mark.parametrize("bits", [0, -1], ids=["all bits 0", "all bits 1"])
def test_noise_is_finite_for_every_pattern_of_bits(monkeypatch, bits):
    """Infinite noise on a masked candidate is not a number, and that is kept before all others."""
    monkeypatch.setattr(hashing, "hashed_bits", lambda *_: torch.tensor([[bits]]))
    assert hashed_gumbel(torch.tensor([0]), torch.tensor([0]), 1).isfinite().all()
