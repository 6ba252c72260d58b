"""What a newcomer meets: the bare command, completion in the shell, and the doctor."""

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from nscaching import extras
from nscaching.cli.main import app

from .helpers import complaint, invoke


def shown_commands():
    text = invoke().stdout
    return [shlex.split(line) for line in re.findall(r"^  nscaching (.+)$", text, re.MULTILINE)]


def test_the_bare_command_shows_three_commands():
    outcome = invoke()
    assert outcome.code == 0
    assert outcome.stderr == ""
    assert len(shown_commands()) == 3
    assert all(len(line) <= 80 for line in outcome.stdout.splitlines())
    for word in ("--help", "doctor", "--install-completion"):
        assert word in outcome.stdout


@pytest.mark.slow
def test_the_commands_it_shows_work(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-graph.tsv").write_text((data / "train.txt").read_text())
    for command in shown_commands():
        command = [part if part != "20" else "1" for part in command]
        small = ["--dim", "4", "--epochs", "1", "--quiet"] if command[0] == "train" else []
        outcome = invoke(*command, *small)
        assert outcome.code == 0, (command, outcome.stderr)


def test_a_flag_alone_still_works():
    assert re.fullmatch(r"nscaching \d+\.\d+\.\d+\S*", invoke("--version").stdout.strip())
    assert "doctor" in invoke("--help").stdout


def completed(line):
    """Return what bash is told when a person presses TAB at the end of a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    environment = {"_NSCACHING_COMPLETE": "complete_bash", **words}
    result = CliRunner().invoke(app, [], env=environment, prog_name="nscaching")
    return result.stdout.split()


def test_the_shell_completes_commands_flags_and_values():
    assert completed("nscaching trai") == ["train"]
    assert sorted(completed("nscaching train --alpha")) == ["--alpha1", "--alpha2", "--alpha3"]
    assert completed("nscaching train --scoring trans") == ["transe", "transh", "transd"]
    assert completed("nscaching train --sampler ns") == ["nscaching"]


def test_completion_can_be_installed():
    assert "--install-completion" in invoke("--help").stdout


def test_doctor_prints_one_json_object():
    outcome = invoke("doctor", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.stdout)
    assert found["processor"]["cores"] >= 1
    assert found["extras"]["networkx"] in (True, False)
    assert "world" in found["datasets"]
    assert isinstance(found["advice"], list)


def test_doctor_speaks_to_a_person(monkeypatch):

    there = extras.is_installed
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "smac" and there(module))
    outcome = invoke("doctor")
    assert outcome.code == 0
    assert "pip install 'nscaching[tune]'" in outcome.stdout
    for word in ("processor", "kernels", "GPU", "data sets"):
        assert word in outcome.stdout


def test_a_run_that_was_cut_short_says_so(tmp_path, data):
    small = ["--dim", 4, "--valid-every", 1, "--patience", 1, "--quiet"]
    cut = invoke("train", data, *small, "--epochs", 1, "--out", tmp_path / "cut")
    assert "Still improving" in cut.stdout
    whole = invoke("train", data, *small, "--epochs", 200, "--out", tmp_path / "whole")
    assert re.search(r": (?!200)\d+ epochs in ", whole.stdout)  # it stopped by itself
    assert "Still improving" not in whole.stdout


def test_the_command_shown_after_a_training_can_be_pasted(tmp_path, data):
    out = tmp_path / "my run"
    said = invoke("train", data, "--dim", 4, "--epochs", 1, "--quiet", "--out", out).stdout
    (shown,) = re.findall(r"\(nscaching (predict .+)\)$", said, re.MULTILINE)
    assert shlex.split(shown) == ["predict", str(out), "--help"]


def test_a_validation_of_some_facts_is_told(tmp_path, data):
    small = ["--dim", 4, "--epochs", 1, "--valid-every", 1, "--quiet", "--overwrite"]
    some = invoke("train", data, *small, "--valid-facts", 3, "--out", tmp_path / "R")
    assert re.search(r"valid: 3 of its \d+ facts", some.stdout)
    every = invoke("train", data, *small, "--valid-facts", 10**6, "--out", tmp_path / "R")
    assert "of its" not in every.stdout


def test_a_graph_of_which_nothing_can_be_held_out_is_told_the_truth(tmp_path):
    (tmp_path / "three.tsv").write_text("a\tr\tb\nc\tr\td\ne\tr\tf\n")
    small = ("--dim", 4, "--epochs", 1, "--quiet", "--no-report", "--out", tmp_path / "R")
    said = " ".join(invoke("train", tmp_path / "three.tsv", *small).stdout.split())
    assert "best at" not in said
    assert "so there is no evaluation. Train on a folder with valid.txt and test.txt," in said
    for command in ("evaluate", "classify"):
        refused = complaint(command, tmp_path / "R")
        assert "Train on a folder with valid.txt and test.txt," in refused
        assert "above 0" not in refused


def test_data_that_is_not_there_points_to_the_list(tmp_path):
    assert "'nscaching datasets list' shows those there are." in complaint("train", "nothere.tsv")
