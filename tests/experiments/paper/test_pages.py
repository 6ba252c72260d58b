"""The pages: a short one with gains and tallies, the tables and the figures."""

import pytest

from nscaching.errors import UserError
from nscaching.experiments.paper.pages import write_report
from nscaching.experiments.paper.results import Results

from .test_gains import pair, tuned
from .test_results import row


def test_the_page_shows_cells_marks_settings_and_failures(tmp_path):
    results = tmp_path / "results"
    missing = {"dataset": "YAGO3-10", "error": "not at hand", "missing": True}
    Results(results).keep("table-7", [row(0.4478), row(0.4, **missing)])
    (results / "figure-4.png").write_bytes(b"")  # of an earlier version
    (results / "figure-4.svg").write_bytes(b"")
    Results(results).keep("figure-4", [row(0.4478)])
    short = write_report(results, tmp_path / "docs" / "page.md")
    assert "(page-tables.md#table-7-link-prediction" in short.read_text()
    assert "1 of 2" in short.read_text()
    page = (tmp_path / "docs" / "page-tables.md").read_text()
    assert "0.4361, **0.4478**, +0.0117 🟢" in page
    assert "0.4767, **0.4000**, -0.0767 |" in page
    assert "At least the paper's: 1 of 2 numbers." in page
    assert "YAGO3-10 SimplE: nscaching: not at hand" in page
    assert " tried; by valid MRR" in page
    assert "A GPU" in page
    assert "tb-perf" not in page + short.read_text()
    figures = (tmp_path / "docs" / "page-figures.md").read_text()
    assert "](images/figure-4.svg)" in figures
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
    write_report(tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page-tables.md").read_text()
    assert "| WN18RR, ours | 7 | 0.5 | 0 | 6.2 | 10 | 90 | 0.4400 |" in page
    assert "| WN18RR, paper | 50 | 0.013 | 0 | 2.759 | 90 | 50 | – |" in page


def test_figures_without_numbers_of_the_paper_are_not_tallied(tmp_path):
    plain = row(0.4, options={"lazy": 3})
    Results(tmp_path).keep("figure-9", [plain])
    write_report(tmp_path, tmp_path / "page.md")
    for name in ("page.md", "page-figures.md"):
        assert "At least the paper's" not in (tmp_path / name).read_text()


def test_tuned_rows_stand_beside_those_of_the_package_and_remarks_are_kept(tmp_path):
    results = Results(tmp_path)
    results.keep("table-7", [row(0.4478), row(0.3, mode="pretrain"), tuned(0.45)])
    (tmp_path / "remarks.md").write_text("## What holds\n\nNearly all.\n")
    (tmp_path / "remarks-tables.md").write_text("\nNot all losses.\n")
    short = write_report(tmp_path, tmp_path / "page.md").read_text()
    assert short.endswith("## What holds\n\nNearly all.\n")
    assert "| 1 of 4 | 1 of 2 |" in short
    page = (tmp_path / "page-tables.md").read_text()
    assert page.endswith("\nNot all losses.\n")
    lines = [line for line in page.splitlines() if line.startswith("| WN18RR SimplE")]
    assert [line.split(" | ")[3] for line in lines] == ["package", "package", "8"]
    assert page.index("### Equally tuned") < page.index("**0.4500**")
    assert "- WN18RR SimplE: nscaching: lr 0.001." in page


def test_gains_stand_beside_the_papers_and_those_of_the_package(tmp_path):
    rows = [*pair([0.43], [0.45]), *pair([0.41, 0.411], [0.44, 0.442], tuned)]
    Results(tmp_path).keep("table-7", rows)
    page = write_report(tmp_path, tmp_path / "page.md").read_text()
    assert "| 0.4105 (0.4256) | 0.4410 (0.4361) | **+0.0305** (+0.0105) |" in page
    assert "| +0.0200 | 8 tries | 2 |" in page
    assert "Bernoulli is within 0.01 of the paper's MRR, or above it, in 0 of 1 cells" in page
    assert "NSCaching is at least the paper's in 1." in page
