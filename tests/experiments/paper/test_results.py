"""Rows, and our numbers beside the paper's."""

import pytest

from nscaching.errors import UserError
from nscaching.experiments.paper.definitions import Cell
from nscaching.experiments.paper.results import (
    Results,
    beside,
    blank_row,
    same_cell,
)


def row(mrr, seed=0, **changes):
    cell = Cell("WN18RR", "simple", "nscaching", seed=seed)
    found = {
        "test": {"mrr": mrr, "hits@10": 0.4},
        "valid": {"mrr": mrr, "hits@10": 0.4},
        "accuracy": 0.8,
        "seconds": 12.0,
        "version": "1.2.3",
        "hardware": {"gpu": "A GPU", "processor": "p", "cores": 2},
    }
    return {**blank_row(cell, {"epochs": 50}), **found, **changes}


def test_beside_gives_the_difference_and_whether_it_is_reached():
    mrr, hits = beside("link-table", [row(0.4478)])
    assert (mrr.paper, mrr.reached) == (0.4361, True)
    assert mrr.difference == pytest.approx(0.0117)
    assert (hits.paper, hits.reached) == (0.4767, False)


def test_equal_to_the_papers_digits_is_reached():
    assert beside("link-table", [row(0.43606)])[0].reached
    assert not beside("link-table", [row(0.43604)])[0].reached


def test_seeds_are_averaged_and_failed_ones_left_out():
    (group,) = same_cell([row(0.42), row(0.44, seed=1), row(0.0, seed=2, error="diverged")])
    mrr = beside("link-table", group)[0]
    assert mrr.ours == pytest.approx(0.43)
    assert mrr.spread == pytest.approx(0.01414, abs=1e-5)
    assert beside("link-table", [row(0.1, error="diverged")]) == []


def test_a_row_that_was_changed_is_refused_and_earlier_versions_had_no_digest(tmp_path):
    file = Results(tmp_path).keep("table-7", [row(0.4478), row(0.4, seed=1, version="0.1.0")])
    assert Results(tmp_path).rows == [row(0.4478), row(0.4, seed=1, version="0.1.0")]
    file.write_text(file.read_text().replace("0.4478", "0.4479", 1))
    with pytest.raises(UserError, match=r"table-7\.json .*row 1 was changed since it was written"):
        Results(tmp_path)
    for damage in (file.read_bytes() + b"\xff", b"[" * 50_000, b"{}", b'""'):
        file.write_bytes(damage)
        with pytest.raises(UserError, match=r"table-7\.json is not a list of results") as said:
            Results(tmp_path)
        assert len(str(said.value)) < 400 + len(str(tmp_path))


def test_a_failure_does_not_take_the_place_of_a_result(tmp_path):
    results = Results(tmp_path)
    results.keep("table-7", [row(0.4478)])
    failed = {**row(0.0, error="no data"), "settings": {"epochs": 60}}
    results.keep("table-7", [failed, row(0.0, seed=1, error="no data")])
    first, second = Results(tmp_path).rows
    assert first == row(0.4478)
    assert second["error"] == "no data"
    results.keep("table-7", [row(0.45, seed=1)])
    assert [each["error"] for each in Results(tmp_path).rows] == [None, None]
