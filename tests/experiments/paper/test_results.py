"""Our numbers beside the paper's, on the page and in a table."""

import pytest

from nscaching.errors import UserError
from nscaching.experiments.paper.definitions import Cell
from nscaching.experiments.paper.results import (
    Results,
    beside,
    blank_row,
    same_cell,
    write_report,
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


def test_the_page_shows_cells_marks_settings_and_failures(tmp_path):
    results = tmp_path / "results"
    missing = {"dataset": "YAGO3-10", "error": "not at hand", "missing": True}
    Results(results).keep("table-7", [row(0.4478), row(0.4, **missing)])
    (results / "figure-4.png").write_bytes(b"")  # of an earlier version
    (results / "figure-4.svg").write_bytes(b"")
    Results(results).keep("figure-4", [row(0.4478)])
    page = write_report(results, tmp_path / "docs" / "page.md").read_text()
    assert "0.4361, **0.4478**, +0.0117 🟢" in page
    assert "0.4767, **0.4000**, -0.0767 |" in page
    assert "At least the paper's: 1 of 2 numbers." in page
    assert "YAGO3-10 simple: nscaching: not at hand" in page
    assert " tried; by valid MRR" in page
    assert "A GPU" in page
    assert "](images/figure-4.svg)" in page
    assert (tmp_path / "docs" / "images" / "figure-4.svg").exists()


def test_smoke_runs_are_not_on_the_page(tmp_path):
    Results(tmp_path).keep("table-7", [row(0.9, budget=1), row(0.9, on="world")])
    assert "There are no results yet." in write_report(tmp_path, tmp_path / "p.md").read_text()


def test_no_folder_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="no folder of results"):
        write_report(tmp_path / "none", tmp_path / "p.md")


def test_the_page_lists_what_a_search_found_and_what_the_papers_found(tmp_path):
    best = {"alpha1": 0.5, "alpha2": 0, "alpha3": 6.2, "cache_size": 10, "candidates": 90}
    search = {"method": "smac", "trials": 7, "best": best, "valid_mrr": 0.44, "curve": []}
    Results(tmp_path).keep("table-9", [row(0.4, mode="smac", kind="search", search=search)])
    page = write_report(tmp_path, tmp_path / "page.md").read_text()
    assert "| WN18RR, ours | 7 | 0.5 | 0 | 6.2 | 10 | 90 | 0.4400 |" in page
    assert "| WN18RR, paper | 50 | 0.013 | 0 | 2.759 | 90 | 50 | – |" in page


def test_figures_without_numbers_of_the_paper_are_not_tallied(tmp_path):
    plain = row(0.4, options={"lazy": 3})
    Results(tmp_path).keep("figure-9", [plain])
    assert "At least the paper's" not in write_report(tmp_path, tmp_path / "page.md").read_text()


def test_a_row_that_was_changed_is_refused_and_earlier_versions_had_no_digest(tmp_path):
    file = Results(tmp_path).keep("table-7", [row(0.4478), row(0.4, seed=1, version="0.1.0")])
    assert Results(tmp_path).rows == [row(0.4478), row(0.4, seed=1, version="0.1.0")]
    file.write_text(file.read_text().replace("0.4478", "0.4479", 1))
    with pytest.raises(UserError, match=r"table-7\.json .*row 1 was changed since it was written"):
        Results(tmp_path)
