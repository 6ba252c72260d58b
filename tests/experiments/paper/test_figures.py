"""What figures show: time without compiling, names that differ, cells that panels share."""

import pytest

from nscaching.experiments.paper.definitions import Cell, definition
from nscaching.experiments.paper.figures import _named, _steady_seconds, panels_of
from nscaching.experiments.paper.results import blank_row


def test_a_first_stretch_that_compiled_runs_at_the_usual_speed():
    curve = {"epochs": [10, 20, 30, 40], "seconds": [9.0, 10.0, 11.0, 12.5]}
    assert _steady_seconds(curve) == pytest.approx([1.0, 2.0, 3.0, 4.5])
    for seconds in ([2.0, 4.0, 6.0], [1.0, 2.0, 9.0]):  # the last one: another sampler took over
        assert _steady_seconds({"epochs": [5, 10, 15], "seconds": seconds}) == pytest.approx(
            seconds
        )
    assert _steady_seconds({"epochs": [5], "seconds": [3.0]}) == [3.0]
    assert _steady_seconds({"epochs": [], "seconds": []}) == []


def named(*options):
    cells = [Cell("WN18RR", "simple", "nscaching", options=each) for each in options]
    return [name for name, _ in _named([(cell, {}) for cell in cells])]


def test_lines_are_called_by_what_sets_them_apart():
    assert named({"alpha3": 1, "nu": 0}, {"alpha3": 1, "nu": 10}) == ["nu=0", "nu=10"]
    assert named({}, {"lazy": 1}) == ["nscaching", "lazy=1"]
    assert named({"lazy": 1}) == ["nscaching, lazy=1"]


def test_panels_share_the_rows_of_the_cells_they_share():
    cells = definition("figure-6").cells()
    rows = [blank_row(cell, {}) for cell in {cell.identity: cell for cell in cells}.values()]
    panels = panels_of(cells, rows)
    assert [len(pairs) for pairs in panels.values()] == [15, 15, 15]
    assert len(rows) < 45
