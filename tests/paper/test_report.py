"""Our numbers beside the paper's, on the page and in a table."""

import pytest

from nscaching.errors import UserError
from nscaching.paper.cells import Cell
from nscaching.paper.report import write_report
from nscaching.paper.rows import Book, blank_row
from nscaching.paper.tables import beside, same_cell


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


def test_the_page_shows_cells_marks_settings_and_failures(tmp_path):
    results = tmp_path / "results"
    missing = {"dataset": "YAGO3-10", "error": "not at hand", "missing": True}
    Book(results).keep("table-7", [row(0.4478), row(0.4, **missing)])
    (results / "figure-4.png").write_bytes(b"")
    Book(results).keep("figure-4", [row(0.4478)])
    page = write_report(results, tmp_path / "docs" / "page.md").read_text()
    assert "0.4361, **0.4478**, +0.0117 🟢" in page
    assert "0.4767, **0.4000**, -0.0767 |" in page
    assert "At least the paper's: 1 of 2 numbers." in page
    assert "YAGO3-10 simple: nscaching: not at hand" in page
    assert " tried; by valid MRR" in page
    assert "A GPU" in page
    assert "](images/figure-4.png)" in page
    assert (tmp_path / "docs" / "images" / "figure-4.png").exists()


def test_smoke_runs_are_not_on_the_page(tmp_path):
    Book(tmp_path).keep("table-7", [row(0.9, budget=1), row(0.9, on="world")])
    assert "There are no results yet." in write_report(tmp_path, tmp_path / "p.md").read_text()


def test_no_folder_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="no folder of results"):
        write_report(tmp_path / "none", tmp_path / "p.md")
