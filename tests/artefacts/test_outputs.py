"""A file of the user's own is not written over; an older one of ours is."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from nscaching import Prediction, Predictions, UserError
from nscaching.artefacts.outputs import check_embeddings, check_page, check_picture, check_table
from nscaching.artefacts.showing import export_embeddings
from nscaching.experiments.paper.pages import write_report
from nscaching.report.charts import Chart, Series
from nscaching.report.markup import Html, render
from nscaching.report.pictures import write_svg

SUFFIXES = (".csv", ".tsv", ".json", ".parquet")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows", [[], [Prediction("a", "r", "b", 0.5)]], ids=["none", "one"])
def test_an_older_table_is_replaced(tmp_path, suffix, rows):
    path = tmp_path / f"facts{suffix}"
    check_table(path)
    Predictions(rows).write(path)
    check_table(path)
    path.write_bytes(b"")
    check_table(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_graph_is_no_table_of_answers(tmp_path, suffix):
    path = tmp_path / f"graph{suffix}"
    path.write_text("head,relation,tail\na,r,b\n")
    with pytest.raises(UserError, match="exists and is not a table of answers; choose another"):
        check_table(path)
    if suffix == ".parquet":
        pq.write_table(pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"]}), path)
        with pytest.raises(UserError, match="is not a table of answers"):
            check_table(path)


def test_a_table_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    with pytest.raises(UserError, match="Cannot tell the format"):
        check_table(tmp_path / "facts.xls")
    with pytest.raises(UserError, match="There is no folder"):
        check_table(tmp_path / "nowhere" / "facts.csv")


@pytest.mark.parametrize("name", ["e.npy", "e.txt", "e.vec", "e.parquet"])
def test_embeddings_replace_embeddings_alone(tmp_path, name):
    path = tmp_path / name
    check_embeddings(path)
    export_embeddings(path, ["a", "b"], torch.ones(2, 3))
    check_embeddings(path)
    path.write_text("a\tr\tb\n")
    with pytest.raises(UserError, match="exists and is not a file of embeddings"):
        check_embeddings(path)


def test_an_array_and_a_list_of_names_of_the_users_own_stay(tmp_path):
    path, names = tmp_path / "e.npy", tmp_path / "e.names.txt"
    names.write_text("my list\n")
    with pytest.raises(UserError, match=r"e\.names\.txt exists and has no e\.npy beside it"):
        check_embeddings(path)
    check_embeddings(path, "word2vec")
    check_embeddings(tmp_path / "e.vec")
    with pytest.raises(UserError, match=r"e\.names\.txt exists"):
        check_embeddings(tmp_path / "e.vec", "npy")
    names.unlink()
    np.save(path, np.ones(3))
    with pytest.raises(UserError, match=r"e\.npy exists and has no e\.names\.txt beside it"):
        check_embeddings(path)


def test_a_page_replaces_a_page_alone(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render("title", "lead", Html("body"), []))
    check_page(path)
    for own in ("my notes", "<!doctype html>\n<html><title>mine</title></html>"):
        path.write_text(own)
        with pytest.raises(UserError, match="exists and is not a page of nscaching"):
            check_page(path)
    check_page(tmp_path)  # a folder: writing says so


def test_a_picture_replaces_a_picture_of_ours_alone(tmp_path):
    path = tmp_path / "p.svg"
    write_svg(path, [Chart("a < b", [Series("loss", [0, 1], [1.0, 0.5])])])
    check_picture(path)
    for own in ("notes", '<svg xmlns="http://www.w3.org/2000/svg"><rect/></svg>'):
        path.write_text(own)
        with pytest.raises(UserError, match="exists and is not a picture of nscaching"):
            check_picture(path)


def test_the_pages_of_a_reproduction_replace_their_own_alone(tmp_path):
    page = write_report(tmp_path, tmp_path / "results.md")
    before = page.read_bytes()
    assert write_report(tmp_path, page).read_bytes() == before
    for name in ("results.md", "results-tables.md"):
        (tmp_path / name).write_text("# My results")
        with pytest.raises(UserError, match=f"{name} exists and is not a page of 'nscaching rep"):
            write_report(tmp_path, page)
        assert (tmp_path / name).read_text() == "# My results"
        (tmp_path / name).unlink()
