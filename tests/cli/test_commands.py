"""The commands as processes and in this process: what they print, and where."""

import json
import sys

import numpy as np
import pytest
import torch
import yaml

import nscaching as ns
from nscaching.cli.main import main
from nscaching.training import TrainConfig

from ..training.helpers import kept_bits, ring, run_command, write_folder
from .helpers import complaint, invoke

METRICS = {"mrr", "mr", "hits@1", "hits@3", "hits@10"}
SMALL = ["--epochs", 3, "--dim", 4, "--device", "cpu"]


def only_json(outcome):
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.count("\n") == 1
    value = json.loads(outcome.stdout)
    assert isinstance(value, dict)
    return value


# As processes -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_train_evaluate_and_repeat_as_processes(tmp_path, data):
    first, second = tmp_path / "A", tmp_path / "B"
    code, stdout, stderr = run_command("train", data, *SMALL, "--out", first, "--json")
    assert code == 0, stderr
    summary = json.loads(stdout)
    assert stdout.count("\n") == 1
    assert "epoch 3/3" in stderr
    assert summary["run"] == str(first)
    assert summary["epochs"] == 3
    assert set(summary) >= {"best_epoch", "seconds", "seconds_per_epoch"}
    for split in ("valid", "test"):
        assert set(summary[split]) >= METRICS

    config = first / "config.yaml"
    code, stdout, stderr = run_command("train", "--config", config, "--out", second, "--quiet")
    assert code == 0, stderr
    assert stderr == ""
    assert "Filtered link prediction" in stdout
    assert kept_bits(second) == kept_bits(first)

    code, stdout, stderr = run_command("evaluate", second, "--json")
    assert code == 0, stderr
    assert json.loads(stdout)["mrr"] == summary["test"]["mrr"]


def test_debug_alone_shows_a_traceback(tmp_path):
    said = invoke("evaluate", tmp_path)
    assert (said.code, said.stdout) == (2, "")
    assert "Traceback" not in said.stderr
    assert str(tmp_path) in said.stderr
    code, stdout, stderr = run_command("evaluate", tmp_path, "--debug")
    assert code != 0
    assert stdout == ""
    assert "Traceback" in stderr
    assert "UserError" in stderr


def test_the_version(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["nscaching", "--version"])
    main()
    assert capsys.readouterr().out == f"nscaching {ns.__version__}\n"


# JSON ---------------------------------------------------------------------------------------------


def test_evaluate_json_has_the_parts(run):
    for split in ("train", "valid", "test"):
        report = only_json(invoke("evaluate", run, "--split", split, "--json"))
        assert report["split"] == split
        assert report["seconds"] >= 0
        assert set(report) >= METRICS
        for part in ("head", "tail"):
            assert set(report[part]) >= METRICS
        assert set(report["per_relation"]) == {"r0", "r1", "r2"}
        assert set(report["per_cardinality"]) == {"1-1"}
        for rows in (report["per_relation"], report["per_cardinality"]):
            for metrics in rows.values():
                assert set(metrics) >= METRICS


def test_evaluate_options_reach_the_evaluation(run):
    values = [
        only_json(invoke("evaluate", run, "--json", "--ties", ties, "--memory", 1))["mrr"]
        for ties in ("optimistic", "mean", "pessimistic")
    ]
    assert values == sorted(values, reverse=True)


def test_predict_json(run):
    loaded = ns.load_run(run)
    asked = ["predict", run, "--relation", "r0", "--json"]
    tails = only_json(invoke(*asked, "--head", "e3", "-k", 4))["predictions"]
    assert tails == [p.as_dict() for p in loaded.predict_tails("e3", "r0", k=4)]
    heads = only_json(invoke(*asked, "--tail", "e3", "-k", 30, "--known"))["predictions"]
    assert heads == [p.as_dict() for p in loaded.predict_heads("r0", "e3", k=30, known=True)]
    assert [p["head"] for p in heads if p["known"]] == ["e2"]
    (one,) = only_json(invoke(*asked, "--head", "e2", "--tail", "e3"))["predictions"]
    assert one["known"]
    assert one["score"] == pytest.approx(float(loaded.score([("e2", "r0", "e3")])[0]))
    near = only_json(invoke("predict", run, "--neighbours", "e3", "-k", 2, "--json"))
    assert [n["entity"] for n in near["neighbours"]] == [
        n.entity for n in loaded.neighbours("e3", k=2)
    ]


def test_datasets_json(data):
    listed = only_json(invoke("datasets", "list", "--json"))["datasets"]
    named = {info["name"]: info for info in listed}
    assert {"world", "WN18", "WN18RR", "FB15K", "FB15K-237", "YAGO3-10", "FB13"} <= set(named)
    assert named["world"]["here"] is True
    info = only_json(invoke("datasets", "info", data, "--json"))
    assert (info["entities"], info["relations"], info["train"]) == (30, 3, 70)
    assert [row["relation"] for row in info["per_relation"]] == ns.load_graph(data).relations
    assert only_json(invoke("datasets", "fetch", "world", "--json"))["path"] == "bundled"


def test_export_json(run, tmp_path):
    files = only_json(invoke("export", run, tmp_path / "e.npy", "--json"))["files"]
    assert files == [str(tmp_path / "e.npy"), str(tmp_path / "e.names.txt")]
    assert np.array_equal(np.load(files[0]), ns.load_run(run).embeddings())


def test_train_json_with_nothing_held_out(tmp_path):
    file = tmp_path / "t.tsv"
    file.write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
    summary = only_json(
        invoke("train", file, "--split", 0, *SMALL, "--out", tmp_path / "R", "--json", "--quiet")
    )
    assert (summary["valid"], summary["test"]) == (None, None)
    for flags in ([], ["--json"]):
        assert "test split is empty" in complaint("evaluate", tmp_path / "R", *flags)


# Text ---------------------------------------------------------------------------------------------


def test_tables_for_people(run, data, tmp_path):
    shown = invoke("evaluate", run).stdout
    for word in ("MRR", "Hits@10", "heads", "tails", "r0", "1-1"):
        assert word in shown
    asked = ("predict", run, "--head", "e2", "--relation", "r0", "--known", "-k", 30)
    shown = invoke(*asked, "--contradictions").stdout
    assert "fact, seen" in shown
    assert "new" in shown
    assert "e7" in invoke("predict", run, "--neighbours", "e2", "-k", 29).stdout
    assert "world" in invoke("datasets", "list").stdout
    assert "30 entities" in invoke("datasets", "info", data).stdout
    assert str(tmp_path / "e.vec") in invoke("export", run, tmp_path / "e.vec").stdout


def test_names_are_printed_as_they_are(tmp_path):
    names = ["a [bold]", "b [/x]", "c :smile:", "Zürich 🏔", "with  spaces", "d"]
    file = tmp_path / "t.tsv"
    file.write_text(
        "".join(f"{h}\tin [red] ☃\t{t}\n" for h in names for t in names[:3]), encoding="utf-8"
    )
    out = tmp_path / "R"
    assert invoke("train", file, "--split", 0, *SMALL, "--out", out, "--quiet").code == 0
    shown = invoke("predict", out, "--head", "Zürich 🏔", "--relation", "in [red] ☃", "--known")
    for name in (*names, "in [red] ☃"):
        assert name in shown.stdout
    assert "with  spaces" in invoke("predict", out, "--neighbours", "Zürich 🏔").stdout
    assert "in [red] ☃" in invoke("datasets", "info", file).stdout


def test_every_option_has_its_flag_and_sentence(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    shown = invoke("train", "--help").stdout
    for name in TrainConfig.names():
        assert name == "data" or f"--{name.replace('_', '-')}" in shown
    for flag in ("--out", "--config", "--resume", "--overwrite", "--quiet", "--json"):
        assert flag in shown


@pytest.mark.parametrize(
    "command",
    ["train", "evaluate", "classify", "predict", "export", "datasets list", "datasets info"],
)
def test_every_command_explains_itself_and_speaks_json(command):
    shown = invoke(*command.split(), "--help")
    assert shown.code == 0
    assert "--json" in shown.stdout


def test_help_shows_the_commands():
    shown = invoke("--help")
    for command in ("train", "evaluate", "classify", "predict", "export", "datasets"):
        assert command in shown.stdout + shown.stderr


# Files, flags and folders -------------------------------------------------------------------------


def test_flags_win_over_the_file(tmp_path, data):
    config = tmp_path / "c.yaml"
    config.write_text(f"data: {data}\ndim: 4\nepochs: 2\nlr: 0.5\n")
    out = tmp_path / "R"
    outcome = invoke("train", "--config", config, "--lr", 0.25, "--out", out, "--quiet")
    assert outcome.code == 0, outcome
    written = yaml.safe_load((out / "config.yaml").read_text())
    assert (written["lr"], written["dim"], written["data"]) == (0.25, 4, str(data))


def test_without_out_the_folder_is_named_after_the_run(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    outcome = invoke("train", data, *SMALL, "--scoring", "transe", "--quiet", "--json")
    assert json.loads(outcome.stdout)["run"] == "runs/ring-transe-nscaching"
    assert ns.load_run(tmp_path / "runs" / "ring-transe-nscaching").config.scoring == "transe"


def test_overwrite_replaces_and_resume_goes_on(tmp_path, data):
    out = tmp_path / "R"
    common = ["--out", out, "--quiet", "--json"]
    assert only_json(invoke("train", data, *SMALL, *common))["epochs"] == 3
    longer = ["train", "--resume", "--epochs", 5, *common]
    assert only_json(invoke(*longer))["epochs"] == 5
    again = only_json(invoke("train", data, "--epochs", 1, "--dim", 2, "--overwrite", *common))
    assert again["epochs"] == 1
    assert ns.load_run(out).embeddings().shape == (30, 4)  # SimplE keeps two parts of dim 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("crlf.tsv", b"a\tr\tb\r\nb\tr\tc\r\n"),
        ("bom.txt", b"\xef\xbb\xbfa\tr\tb\nb\tr\tc\n"),
        ("one.txt", "Zürich 🏔\tin\tSwitzerland, the\n".encode()),
        ("x.csv", b'"a, b",r,c\n'),
    ],
)
def test_these_files_are_fine(tmp_path, name, content):
    file = tmp_path / name
    file.write_bytes(content)
    outcome = invoke("train", file, "--split", 0, *SMALL, "--out", tmp_path / "R", "--quiet")
    assert outcome.code == 0, outcome.stderr
    names = (tmp_path / "R" / "entities.txt").read_text(encoding="utf-8")
    assert "\r" not in names
    assert "\ufeff" not in names


def test_a_folder_without_valid_is_fine(tmp_path):
    folder = write_folder(ring(held_out=0), tmp_path / "g")
    assert sorted(f.name for f in folder.iterdir()) == ["train.txt"]
    outcome = invoke("train", folder, *SMALL, "--out", tmp_path / "R", "--quiet")
    assert outcome.code == 0, outcome.stderr


def test_a_single_file_is_split_and_the_run_remembers_how(tmp_path):
    write_folder(ring(entities=60, held_out=0), tmp_path / "g")
    out = tmp_path / "R"
    arguments = [tmp_path / "g" / "train.txt", "--split", 0.1, *SMALL, "--out", out, "--quiet"]
    summary = only_json(invoke("train", *arguments, "--json"))
    assert summary["test"]["count"] == 36
    resumed = only_json(invoke("train", *arguments, "--resume", "--json"))
    assert resumed["test"] == summary["test"]


def test_a_dry_run_tells_sizes_and_memory_and_makes_nothing(tmp_path, data):
    out = tmp_path / "R"
    plan = only_json(invoke("train", data, *SMALL, "--out", out, "--dry-run", "--json"))
    graph = ns.load_graph(data)
    assert plan["entities"] == graph.num_entities
    assert plan["head_rows"] == len(graph.rows.head.anchor)
    parts = plan["bytes"]
    in_turn = [parts[name] for name in ("batch", "evaluation", "probabilities")]
    assert plan["total_bytes"] == sum(parts.values()) - sum(in_turn) + max(in_turn)
    assert plan["bytes"]["parameters"] == 4 * 8 * (graph.num_entities + graph.num_relations)
    assert not out.exists()
    assert "at its peak" in invoke("train", data, *SMALL, "--dry-run").stdout


def test_hosts_belong_to_a_dry_run_and_share_the_processes_evenly(tmp_path, data):
    uneven = ("train", data, *SMALL, "--dry-run", "--processes", 2, "--hosts", 3)
    assert "2 cannot be spread evenly over 3; give a multiple of --hosts" in complaint(*uneven)
    for ignored in (("--hosts", 2), ("--bandwidth", 10)):
        said = complaint("train", data, *SMALL, "--out", tmp_path / "R", *ignored)
        assert "--hosts and --bandwidth are for --dry-run" in said
    assert not (tmp_path / "R").exists()


def test_a_dry_run_for_a_gpu_tells_what_the_host_needs(data, monkeypatch):
    assert "host_bytes" not in only_json(invoke("train", data, *SMALL, "--dry-run", "--json"))
    monkeypatch.setattr("nscaching.cli.train.pick_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr("nscaching.cli.train.free_bytes", lambda _: None)
    plan = only_json(invoke("train", data, *SMALL, "--dry-run", "--json"))
    assert plan["host_bytes"] > plan["bytes"]["program"] + plan["bytes"]["graph"]
    assert "on the host" in invoke("train", data, *SMALL, "--dry-run").stdout


@pytest.mark.parametrize(("flag", "there"), [("--int8", True), ("--no-int8", False)])
def test_an_option_that_is_on_can_be_turned_off(flag, there, data):
    plan = only_json(invoke("train", data, "--dim", 4, flag, "--dry-run", "--json"))
    assert (plan["bytes"]["copy"] > 0) is there


def test_benchmark_tells_a_step_an_epoch_and_an_evaluation(data):
    timing = only_json(
        invoke("benchmark", data, "--dim", 4, "--margin", 2, "--epochs", 1, "--json")
    )
    assert timing["options"]["margin"] == 2
    assert timing["step_seconds"] > 0
    assert timing["epoch_seconds"] >= timing["step_seconds"]
    assert timing["evaluation_seconds"] > 0
    assert timing["machine"]["cores"]


def test_an_option_without_effect_is_remarked_on_unless_quiet(tmp_path, data):
    given = [data, *SMALL, "--margin", 2, "--overwrite", "--out", tmp_path / "R"]
    said = invoke("train", *given, "--json")
    only_json(said)
    assert "--margin has no effect with the logistic loss.\n" in said.stderr
    assert invoke("train", *given, "--quiet").stderr == ""
