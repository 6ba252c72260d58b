"""Gains of NSCaching over Bernoulli: pairs, intervals over seeds and test facts, the figure."""

import numpy as np
import pytest

from nscaching.experiments.paper.gains import draw_gains, find_gains, rank_file
from nscaching.experiments.paper.results import Results, cell_of

from .test_results import row


def tuned(mrr, seed=0, **changes):
    own = {"kind": "tuned", "settings": {"tries": 8}, "chosen": {"lr": 0.001, "seed": seed}}
    return row(mrr, seed, **own, tried={"count": 8}, **changes)


def pair(bernoulli, nscaching, make=row):
    return [
        make(mrr, seed, sampler=sampler)
        for sampler, numbers in (("bernoulli", bernoulli), ("nscaching", nscaching))
        for seed, mrr in enumerate(numbers)
    ]


def test_earlier_pairs_are_marked_and_give_way_to_equally_tuned_ones(tmp_path):
    results = Results(tmp_path)
    results.keep("table-7", pair([0.43], [0.45]))
    (gain,) = find_gains(results)
    assert (gain.tries, gain.seeds, gain.interval) == (None, 1, None)
    assert gain.gain == pytest.approx(0.02)
    assert gain.paper == pytest.approx(0.4361 - 0.4256)
    results.keep("table-7", pair([0.44, 0.442], [0.45, 0.450], tuned))
    (gain,) = find_gains(results)
    assert (gain.tries, gain.seeds, gain.model) == (8, 2, "SimplE")
    assert gain.gain == pytest.approx(0.009)


def test_the_interval_over_seeds_is_students(tmp_path):
    results = Results(tmp_path)
    results.keep("table-7", pair([0.40, 0.40, 0.40], [0.41, 0.42, 0.43], tuned))
    (gain,) = find_gains(results)
    half = 4.302653 * 0.01 / 3**0.5
    assert gain.over_seeds == pytest.approx((0.02 - half, 0.02 + half), abs=1e-6)


def test_the_interval_over_facts_is_kept_when_the_ranks_are_gone(tmp_path):
    results = Results(tmp_path)
    rows = pair([0.40], [0.50], tuned)
    results.keep("table-7", rows)
    rng = np.random.default_rng(0)
    base = rng.random(4000)
    for each, shift in zip(rows, (0.0, 0.1), strict=True):
        file = rank_file(tmp_path, cell_of(each))
        file.parent.mkdir(exist_ok=True)
        np.save(file, (base + shift + 0.1 * rng.normal(size=4000)).astype(np.float32))
    (gain,) = find_gains(results)
    low, high = gain.over_facts
    assert low < 0.1 < high
    assert high - low == pytest.approx(2 * 1.96 * 0.1 * 2**0.5 / 4000**0.5, rel=0.2)
    for each in rows:
        rank_file(tmp_path, cell_of(each)).unlink()
    assert find_gains(Results(tmp_path)) == [gain]


def test_damaged_ranks_and_lines_do_not_count(tmp_path):
    results = Results(tmp_path)
    rows = pair([0.40, 0.41], [0.50, 0.51], tuned)
    results.keep("table-7", rows)
    for each in rows:
        file = rank_file(tmp_path, cell_of(each))
        file.parent.mkdir(exist_ok=True)
        np.save(file, np.ones(400, dtype=np.float32))
    file.write_bytes(file.read_bytes()[:-9])
    (tmp_path / "gains.jsonl").write_text('{"dataset": "WN18RR"}\n')
    (gain,) = find_gains(results)
    assert gain.over_facts is None
    assert gain.gain == pytest.approx(0.1)


def test_tries_with_the_same_settings_are_compared(tmp_path):
    results = Results(tmp_path)
    results.keep("table-7", pair([0.40], [0.41], tuned))
    for number, (bernoulli, nscaching) in enumerate([(0.3, 0.5), (0.4, 0.3), (0.2, None)]):
        for sampler, mrr in (("bernoulli", bernoulli), ("nscaching", nscaching)):
            valid = None if mrr is None else {"mrr": mrr}
            results.keep_try(row(0.0, number, kind="try", sampler=sampler, valid=valid))
    (gain,) = find_gains(Results(tmp_path))
    assert gain.same == (1, 2, pytest.approx(0.05))


def test_a_pair_needs_both_samplers_and_no_smoke_run(tmp_path):
    results = Results(tmp_path)
    smoke = pair([0.4], [0.5], lambda *given, **named: row(*given, **named, budget=1))
    results.keep("table-7", [*pair([], [0.45]), *smoke])
    assert find_gains(results) == []


def test_the_figure_names_models_and_what_is_equally_tuned(tmp_path):
    results = Results(tmp_path)
    results.keep("table-7", pair([0.40, 0.41], [0.42, 0.44], tuned))
    drawn = draw_gains(find_gains(results), tmp_path / "gains.svg").read_text()
    assert "SimplE" in drawn
    assert "equally tuned, 95 % interval" in drawn
    assert "not equally tuned" not in drawn
