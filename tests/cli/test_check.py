"""``nscaching check``: whole, damaged, absent, unverified."""

import json
import shutil

import pytest

import nscaching as ns
from nscaching.artefacts import MARKER

from .helpers import complaint, invoke


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    return tmp_path / "copy"


def states(folder, code):
    outcome = invoke("check", folder, "--json")
    assert outcome.code == code, outcome
    found = json.loads(outcome.stdout)
    assert found["whole"] is (code == 0)
    return {part["name"]: part["state"] for part in found["parts"]}


def test_a_run_is_whole(copy):
    found = states(copy, 0)
    assert set(found.values()) == {"whole"}
    assert set(found) >= {MARKER, "model.safetensors", "state.safetensors", "metrics.jsonl"}
    assert "Everything is whole." in invoke("check", copy).stdout


@pytest.mark.parametrize(
    "name", ["model.safetensors", "graph.safetensors", "checkpoint/state.safetensors"]
)
def test_a_changed_byte_is_found_and_named(copy, name):
    content = bytearray((copy / name).read_bytes())
    content[-9] ^= 4
    (copy / name).write_bytes(content)
    assert states(copy, 1)[name.rpartition("/")[2]] == "damaged"
    assert "Something is damaged." in invoke("check", copy).stdout


def test_lines_that_cannot_be_read_are_counted(copy):
    with (copy / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\xfe\n")
    assert states(copy, 1)["metrics.jsonl"] == "damaged"
    assert invoke("evaluate", copy).code == 0


def test_without_a_marker_nothing_is_verified(copy):
    (copy / MARKER).unlink()
    found = states(copy, 0)
    assert found.pop(MARKER) == "absent"
    assert set(found.values()) == {"unverified"}


def test_what_is_not_ours_is_refused(tmp_path):
    assert "nothing that nscaching wrote" in complaint("check", tmp_path)
    assert "not a folder" in complaint("check", tmp_path / "none")


def test_a_run_that_was_killed_while_it_was_written_is_no_damage(copy, tmp_path):
    shutil.copytree(copy, tmp_path / "many" / "R")
    shutil.copytree(copy, tmp_path / "many" / "S" / ".nscaching-new")
    (tmp_path / "many" / "S" / ".nscaching-new" / "config.yaml").unlink()
    assert states(tmp_path / "many", 0)["R"] == "whole"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("compare.json", '"data"', "data"),
        ("trials.jsonl", '"epochs": 1', '"epochs": 2'),
        (MARKER, '"kind"', "kind"),
    ],
)
def test_a_damaged_file_of_a_comparison_is_found(data, tmp_path, name, old, new):
    options = {"epochs": 1, "dim": 4, "device": "cpu", "progress": "none"}
    ns.compare(data, "uniform", seeds=[0], out=tmp_path / "C", **options)
    assert set(states(tmp_path / "C", 0)) >= {"compare.json", "trials.jsonl", MARKER}
    file = tmp_path / "C" / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    assert states(tmp_path / "C", 1)[name] == "damaged"


def test_a_search_with_a_damaged_marker_is_not_whole(run, tmp_path):
    shutil.copytree(run, tmp_path / "S" / "trials" / "001")
    (tmp_path / "S" / MARKER).write_text('{"kind": "search", "for')
    (tmp_path / "S" / "search.yaml").write_text("trials: [")
    found = states(tmp_path / "S", 1)
    assert (found[MARKER], found["search.yaml"]) == ("damaged", "damaged")


def test_a_graph_with_a_damaged_marker_is_damaged(tmp_path):
    pytest.importorskip("duckdb")
    (tmp_path / "facts.tsv").write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
    ns.ingest(tmp_path / "facts.tsv", tmp_path / "store")
    assert states(tmp_path / "store", 0) == {"store": "whole"}
    (tmp_path / "store" / MARKER).write_text('{"kind')
    assert states(tmp_path / "store", 1) == {"store": "damaged"}


def test_runs_on_a_graph_on_disk_are_checked_with_the_others(tmp_path):
    pytest.importorskip("duckdb")
    facts = "".join(f"a{i}\tr\ta{(i + 1) % 20}\n" for i in range(20))
    (tmp_path / "facts.tsv").write_text(facts)
    graph = ns.ingest(tmp_path / "facts.tsv", tmp_path / "store")
    options = {"dim": 4, "epochs": 1, "device": "cpu", "progress": "none"}
    ns.train(graph, out=tmp_path / "many" / "R", recipe="paper", **options)
    assert states(tmp_path / "many", 0) == {"R": "whole"}
    assert "many: folder of runs\n" in invoke("check", tmp_path / "many").stdout
    model = tmp_path / "many" / "R" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-9])
    assert states(tmp_path / "many", 1)["R"] == "damaged"


def test_a_model_that_was_deleted_is_missing_and_written_again(copy):
    (copy / "model.safetensors").unlink()
    assert states(copy, 1)["model.safetensors"] == "damaged"
    assert "it is missing; 'nscaching train --resume" in invoke("check", copy).stdout
    ns.train(out=copy, resume=True, progress="none")
    assert states(copy, 0)["model.safetensors"] == "whole"


def test_a_marker_that_cannot_be_read_does_not_say_who_wrote_the_run(copy):
    assert ", written by nscaching " in " ".join(invoke("check", copy).stdout.split())
    (copy / MARKER).write_text("{")
    assert "written by" not in " ".join(invoke("check", copy).stdout.split())
