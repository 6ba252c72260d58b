"""Folders of ours: nothing of others is deleted, and a run is replaced whole or not at all."""

import json
import os

import pytest

import nscaching as ns
from nscaching import UserError
from nscaching.artefacts import MARKER
from nscaching.nodes.embedding import NodeFolder
from nscaching.runs.checks import check_folder
from nscaching.training import RunFolder

from ..training.helpers import bits, go_on, kept_bits, ring, train

SETTINGS = {"epochs": 2, "dim": 4}


@pytest.fixture
def folder(tmp_path):
    train(ring(), out=tmp_path / "R", **SETTINGS)
    return tmp_path / "R"


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_marker_says_what_and_by_whom(folder):
    told = json.loads((folder / MARKER).read_text())
    assert (told["kind"], told["format"], told["version"]) == ("run", 1, ns.__version__)


def test_a_linked_checkpoint_folder_refuses_before_anything_is_lost(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder / "checkpoint").rename(tmp_path / "elsewhere" / "checkpoint")
    (folder / "checkpoint").symlink_to(tmp_path / "elsewhere" / "checkpoint")
    before, bits_before = listing(folder), kept_bits(folder)
    with pytest.raises(UserError, match=r"checkpoint is a link, so .* is left as it is"):
        train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert listing(folder) == before
    assert kept_bits(folder) == bits_before
    assert ns.load_run(folder).graph.num_entities == 30


@pytest.mark.parametrize("name", ["model.safetensors", "report.html", "nscaching.json"])
def test_a_folder_in_the_place_of_a_file_refuses_before_anything_is_lost(folder, name):
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    (folder / name / "mine").write_text("mine")
    before = listing(folder)
    with pytest.raises(UserError, match=name):
        train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert listing(folder) == before


def test_files_of_others_in_the_checkpoint_folder_stay(folder):
    (folder / "checkpoint" / "thesis.tex").write_text("mine")
    (folder / "checkpoint" / "more").mkdir()
    train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert (folder / "checkpoint" / "thesis.tex").read_text() == "mine"
    assert (folder / "checkpoint" / "more").is_dir()


def test_what_a_linked_file_leads_to_stays(folder, tmp_path):
    (folder / "model.safetensors").rename(tmp_path / "precious")
    (folder / "model.safetensors").symlink_to(tmp_path / "precious")
    before = (tmp_path / "precious").read_bytes()
    train(ring(), out=folder, overwrite=True, **{**SETTINGS, "seed": 3})
    assert (tmp_path / "precious").read_bytes() == before
    assert not (folder / "model.safetensors").is_symlink()


def test_folders_of_others_named_like_temporary_ones_stay(folder):
    (folder / ".cache.tmp").mkdir()
    train(ring(), out=folder, resume=True, dim=4, epochs=3)
    assert (folder / ".cache.tmp").is_dir()


def test_another_kind_of_folder_is_not_taken_for_a_run(folder):
    told = json.loads((folder / MARKER).read_text())
    (folder / MARKER).write_text(json.dumps(told | {"kind": "search"}))
    with pytest.raises(UserError, match="something else"):
        ns.load_run(folder)
    with pytest.raises(UserError, match="is not a run folder"):
        train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert (folder / "model.safetensors").exists()


def test_a_newer_format_is_refused_by_its_version(folder):
    told = json.loads((folder / MARKER).read_text())
    (folder / MARKER).write_text(json.dumps(told | {"format": 99, "version": "9.0.0"}))
    with pytest.raises(UserError, match=r"nscaching 9\.0\.0, a newer version"):
        ns.load_run(folder)
    (folder / MARKER).write_text(json.dumps(told | {"format": 99, "version": "\x1b" + "9" * 5000}))
    with pytest.raises(UserError, match="a newer version") as refused:
        ns.load_run(folder)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("changed", [{"nor\ufeffmalize": True}, {"dim": "\x1b" + "9" * 5000}])
def test_odd_names_and_values_of_a_marker_are_not_shown_as_they_are(folder, changed):
    told = json.loads((folder / MARKER).read_text())
    told["model"] |= changed
    (folder / MARKER).write_text(json.dumps(told))
    with pytest.raises(UserError, match=r"is damaged|Put that back") as refused:
        ns.load_run(folder)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


def test_a_folder_without_marker_is_one_of_the_first_version(folder):
    run = ns.load_run(folder)
    (folder / MARKER).unlink()
    assert bits(ns.load_run(folder)) == bits(run)
    train(ring(), out=folder, resume=True, dim=4, epochs=3)
    train(ring(), out=folder, overwrite=True, **SETTINGS)


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("moment", range(1, 40))
def test_a_replacement_killed_at_any_moment_leaves_the_old_run_or_the_new_one(
    tmp_path, monkeypatch, moment
):
    """Die before every call that changes the file system, and look without writing anything."""
    folder = tmp_path / "R"
    train(ring(entities=31), out=folder, **SETTINGS)
    calls = [0]

    def dying(original):
        def call(*args, **options):
            calls[0] += 1
            if calls[0] >= moment:
                raise Killed
            return original(*args, **options)

        return call

    for name in ("rename", "replace", "unlink", "mkdir", "rmdir"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))
    new = ns.TrainConfig(data="ring", **SETTINGS)
    try:
        RunFolder(folder).create(new, ring())
    except Killed:
        pass
    else:
        assert moment > 15
    monkeypatch.undo()
    (tmp_path / MARKER).write_text(json.dumps({"kind": "search", "format": 1}))
    assert check_folder(folder).whole
    assert check_folder(tmp_path).whole  # with the run as one of its trials
    found = RunFolder(folder)
    assert found.is_run()
    entities = found.read_graph().num_entities
    assert entities in (30, 31)
    if entities == 31:
        assert ns.load_run(folder).evaluate("test").count == 20
    resumed = go_on(folder)
    assert resumed.summary["epochs"] == 2
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("stage", [".nscaching-whole", ".nscaching-moving"])
@pytest.mark.parametrize("old", [True, False])
def test_a_replacement_by_another_kind_is_left_to_those_who_know_its_files(folder, stage, old):
    """A wrong command would take some of the old files away and leave others."""
    (folder / stage).mkdir()
    for file in [file for file in folder.iterdir() if file.is_file()]:
        if file.name in ("model.safetensors", MARKER):
            file.rename(folder / stage / file.name)
        elif not old:
            file.unlink()
    if not old:
        (folder / "checkpoint").rename(folder / stage / "checkpoint")
    told = json.loads((folder / stage / MARKER).read_text())
    (folder / stage / MARKER).write_text(json.dumps(told | {"kind": "nodes"}))
    before = listing(folder)
    with pytest.raises(UserError):
        ns.load_run(folder)
    assert listing(folder) == before
    with pytest.raises(UserError, match="is not a run folder"):
        train(ring(), out=folder, overwrite=True, **SETTINGS)
    assert listing(folder) == before
    NodeFolder(folder).recover()
    assert (folder / "model.safetensors").is_file()
    assert not (folder / stage).exists()
