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
