"""Every mistake: exit code 2, one or two sentences, nothing half made, nothing overwritten."""

import errno
import os
import pickle
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import nscaching as ns
from nscaching.artefacts import files

from ..training.helpers import run_command, start
from .helpers import complaint, invoke

SMALL = ["--epochs", 1, "--dim", 4, "--device", "cpu", "--quiet"]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs" / "R"


@pytest.fixture
def copy(run, tmp_path):
    """A run of its own, to be spoiled."""
    return shutil.copytree(run, tmp_path / "copy")


def assert_words(said, *words):
    for word in words:
        assert str(word) in said, said
    print(said)


# Data ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty"]),
        (b"a\tr\tb\na\tr\n", ["Line 2", "2 columns", "expected 3"]),
        (b"a\tr\tb\nb\tr\tc\nc\tr\td\te\tf\n", ["Line 3", "5 columns", "expected 3"]),
        (b"a\tr\tb\nc\xff\tr\td\n", ["Line 2", "UTF-8"]),
    ],
)
def test_a_bad_file(tmp_path, out, content, words):
    file = tmp_path / "t.tsv"
    file.write_bytes(content)
    assert_words(complaint("train", file, *SMALL, "--out", out), file, *words)
    assert not out.parent.exists()


def test_a_missing_file(tmp_path, out):
    missing = tmp_path / "none.tsv"
    assert_words(complaint("train", missing, *SMALL, "--out", out), missing)
    assert not out.parent.exists()


def test_an_unknown_data_set_offers_the_nearest(out):
    said = complaint("train", "WN18R", *SMALL, "--out", out)
    assert_words(said, "WN18R", "did you mean", "'WN18RR'")
    assert_words(complaint("datasets", "info", "wrld"), "'world'")
    assert_words(complaint("datasets", "fetch", "wrld"), "'world'")


def test_a_folder_without_train(tmp_path, out):
    folder = tmp_path / "g"
    folder.mkdir()
    (folder / "test.txt").write_text("a\tr\tb\n")
    said = complaint("train", folder, *SMALL, "--out", out)
    assert_words(said, folder, "test.txt", "Expected train.txt")
    assert not out.parent.exists()


def test_a_bad_file_as_a_process(tmp_path, out):
    file = tmp_path / "t.tsv"
    file.write_text("a\tr\n")
    code, stdout, stderr = run_command("train", file, "--out", out)
    assert (code, stdout) == (2, "")
    assert stderr.count("\n") == 1
    assert str(file) in stderr
    assert "Traceback" not in stderr
    assert not out.parent.exists()


# Options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dim", 0], ["dim", "at least 1"]),
        (["--alpha1", -1], ["alpha1", "at least 0", "-1"]),
        (["--alpha3", "nan"], ["alpha3", "finite", "nan"]),
        (["--lr", "nan"], ["lr", "finite", "nan"]),
        (["--cache-size", 0], ["cache_size", "at least 1"]),
        (["--scoring", "trans"], ["scoring", "'trans'", "did you mean"]),
        (["--seed", 10**30], ["seed", "at most"]),
    ],
)
def test_an_option_out_of_range(data, out, arguments, words):
    assert_words(complaint("train", data, *SMALL, *arguments, "--out", out), *words)
    assert not out.parent.exists()


def test_words_where_numbers_belong(data, out):
    outcome = invoke("train", data, "--dim", "ten", "--out", out)
    assert outcome.code == 2
    assert "--dim" in outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dimm: 3\n", ["unknown option 'dimm'", "'dim'"]),
        ("dim: 0\n", ["dim must be at least 1"]),
        ("alpha2: -1\n", ["alpha2 must be at least 0"]),
        ("cache_size: 0\n", ["cache_size must be at least 1"]),
        ("lr: .nan\n", ["lr must be a finite number"]),
        ("dim: 3\nlr: [1\n", ["line 3"]),
    ],
)
def test_a_bad_configuration_file(tmp_path, monkeypatch, data, text, words, named):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "c.yaml"
    config.write_text(text)
    where = ["--out", tmp_path / "runs" / "R"] if named else []
    assert_words(complaint("train", data, "--config", config, *where), config, *words)
    assert not (tmp_path / "runs").exists()


def test_a_missing_configuration_file(tmp_path, data):
    said = complaint("train", data, "--config", tmp_path / "none.yaml")
    assert_words(said, tmp_path / "none.yaml")


def test_nothing_to_train_on():
    assert_words(complaint("train"), "data set", "folder", "file")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_where_there_is_none(data, run, out):
    said = complaint("train", data, "--out", out, "--device", "cuda")
    assert_words(said, "cuda", "not available", "auto", "cpu")
    assert not out.parent.exists()
    assert_words(complaint("evaluate", run, "--device", "cuda"), "cuda")
    assert_words(complaint("evaluate", run, "--device", "gpu"), "gpu", "cpu")


# Where it goes ------------------------------------------------------------------------------------


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_an_existing_run_is_not_overwritten(data, copy):
    before = contents(copy)
    said = complaint("train", data, *SMALL, "--out", copy)
    assert_words(said, copy, "--resume", "--overwrite", "--out")
    assert contents(copy) == before


@pytest.mark.parametrize("flag", [[], ["--overwrite"], ["--resume"]])
@pytest.mark.parametrize("name", ["thesis.tex", "config.yaml", "model.safetensors"])
def test_a_folder_that_is_no_run_is_left_alone(data, out, flag, name):
    out.mkdir(parents=True)
    (out / name).write_text("mine")
    said = complaint("train", data, *SMALL, "--out", out, *flag)
    assert_words(said, out, "not a run folder", "--out")
    assert [(f.name, f.read_text()) for f in out.iterdir()] == [(name, "mine")]


def test_a_file_where_the_folder_should_be(data, tmp_path):
    file = tmp_path / "R"
    file.write_text("mine")
    for flag in ([], ["--overwrite"], ["--resume"]):
        assert_words(complaint("train", data, *SMALL, "--out", file, *flag), file)
    assert_words(complaint("train", data, *SMALL, "--out", file / "below"), file / "below", "file")
    assert file.read_text() == "mine"


@pytest.mark.parametrize("place", ["/proc/nscaching", "/dev/null/R", "/tmp/" + 300 * "x"])
def test_a_folder_that_cannot_be(data, place):
    assert_words(complaint("train", data, *SMALL, "--out", place), place, "Cannot write")


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EROFS, "read-only"), (errno.EACCES, "may not write"), (errno.ENOSPC, "disk is full")],
)
@pytest.mark.parametrize("method", ["mkdir", "write_bytes", "replace"])
def test_a_read_only_or_full_disk(data, copy, out, monkeypatch, number, words, method):
    def refuse(*args, **options):
        raise OSError(number, os.strerror(number))

    before = contents(copy)
    monkeypatch.setattr(Path, method, refuse)
    assert_words(complaint("train", data, *SMALL, "--out", out), out, words)
    complaint("train", data, *SMALL, "--out", copy, "--overwrite")
    monkeypatch.undo()
    assert not out.exists()
    assert contents(copy) == before


def test_a_full_disk_under_the_tensors(data, out, monkeypatch):
    """Tensors are written by another library, whose errors are its own."""

    def refuse(*args, **options):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(files, "save_file", refuse)
    assert_words(complaint("train", data, *SMALL, "--out", out), out, "disk is full")
    assert not out.exists()


@pytest.mark.slow
def test_stdout_that_is_closed_is_no_traceback(run):
    process = start("evaluate", run)
    process.stdout.close()
    process.stdout = None
    _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr


# Resuming -----------------------------------------------------------------------------------------


def test_resume_with_another_graph_or_configuration(tmp_path, data, copy):
    before = contents(copy)
    other = tmp_path / "other.tsv"
    other.write_text("a\tr\tb\nb\tr\tc\n")
    common = ["--out", copy, "--resume", "--quiet"]
    assert_words(complaint("train", other, *common), copy, "another graph", "--out")
    said = complaint("train", data, "--dim", 5, *common)
    assert_words(said, copy, "was started with dim 4, not 5", "--out")
    config = tmp_path / "c.yaml"
    config.write_text("lr: 0.7\n")
    assert_words(complaint("train", "--config", config, *common), copy, "lr 0.001, not 0.7")
    assert contents(copy) == before


def test_resume_without_a_run(out, data, copy):
    said = complaint("train", "--resume", "--out", out)
    assert_words(said, f"no run in {out} to resume")
    assert_words(complaint("train", "--resume"), "--out")
    said = complaint("train", data, "--resume", "--overwrite", "--out", copy)
    assert_words(said, "resume", "overwrite", "one of the two")


# Using a run --------------------------------------------------------------------------------------


def uses(folder, tmp_path):
    yield ["evaluate", folder]
    yield ["predict", folder, "--head", "e1", "--relation", "r0"]
    yield ["export", folder, tmp_path / "e.npy"]


def test_a_folder_that_is_no_run(tmp_path):
    folder = tmp_path / "other"
    for use in uses(folder, tmp_path):
        assert_words(complaint(*use), folder, "is not there", "nscaching train")
    folder.mkdir()
    for use in uses(folder, tmp_path):
        assert_words(complaint(*use), folder, "not a run folder", "nscaching train")
    (folder / "config.yaml").write_text("dim: 3\n")
    for use in uses(folder, tmp_path):
        assert_words(complaint(*use), folder, "not a run folder", "nscaching train")
    assert not (tmp_path / "e.npy").exists()


def test_a_run_without_a_model_yet(copy, tmp_path):
    (copy / "model.safetensors").unlink()
    (copy / "checkpoint" / "state.safetensors").unlink()
    for use in uses(copy, tmp_path):
        assert_words(
            complaint(*use), copy, "no model yet", f"nscaching train --resume --out {copy}"
        )


def test_the_model_of_a_finished_run_is_written_again(copy, tmp_path):
    model = copy / "model.safetensors"
    before = load_file(model)
    model.unlink()
    for use in uses(copy, tmp_path):
        assert_words(
            complaint(*use), f"{model} is missing", f"nscaching train --resume --out {copy}"
        )
    resumed = invoke("train", "--resume", "--out", copy)
    assert resumed.code == 0, resumed.stderr
    assert "The model is missing; it is written again from the checkpoint." in resumed.stderr
    assert "Nothing to do" not in resumed.stderr
    assert all(torch.equal(table, before[name]) for name, table in load_file(model).items())


def foreign(file):
    """Yield ways in which a model is not what it should be."""
    whole = file.read_bytes()
    yield whole[: len(whole) // 2], "truncated"
    yield whole[:5], "truncated"
    yield b"", "not a whole safetensors file"
    yield b"only text\n" * 50, "not a whole safetensors file"
    yield pickle.dumps({"entity": [1.0]}), "not a whole safetensors file"
    for tensors in (
        {"entity": torch.zeros(3, 4), "relation": torch.zeros(3, 8)},
        {"weight": torch.zeros(3, 4)},
        {"entity": torch.zeros(30, 8), "relation": torch.zeros(3)},
    ):
        save_file(tensors, file)
        yield file.read_bytes(), "model of another run"


def test_a_truncated_or_foreign_model(copy, tmp_path):
    file = copy / "model.safetensors"
    for content, words in list(foreign(file)):
        file.write_bytes(content)
        for use in uses(copy, tmp_path):
            assert_words(complaint(*use), file, words)
        assert file.read_bytes() == content


def test_a_damaged_model_is_written_again_from_the_checkpoint_as_its_error_says(copy):
    file = copy / "model.safetensors"
    whole = file.read_bytes()
    tables = {name: table.clone() for name, table in load_file(file).items()}
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    said = complaint("evaluate", copy)
    (again,) = re.findall(r"Or delete it; 'nscaching ([^']+)' then writes it again", said)
    file.unlink()
    assert invoke(*shlex.split(again), "--no-report").code == 0
    assert all(torch.equal(table, tables[name]) for name, table in load_file(file).items())
    shutil.rmtree(copy / "checkpoint")
    file.write_bytes(whole[:-1])
    assert "delete it" not in complaint("evaluate", copy)


@pytest.mark.parametrize("name", ["graph.safetensors", "entities.txt", "config.yaml"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x\n"])
def test_other_spoiled_files_of_a_run(copy, tmp_path, name, content):
    (copy / name).write_bytes(content)
    if (name, content) == ("config.yaml", b""):
        pytest.skip("an empty configuration is all defaults: the model does not fit them")
    for use in uses(copy, tmp_path):
        assert_words(complaint(*use), copy)


def test_a_missing_names_file(copy, tmp_path):
    (copy / "relations.txt").unlink()
    for use in uses(copy, tmp_path):
        said = complaint(*use)
        assert_words(said, copy / "relations.txt", "No such file")
        assert said.count(str(copy)) == 1


def test_an_embedding_of_nodes_is_no_run(tmp_path):
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    ns.embed_nodes(edges, out=tmp_path / "E", dim=2, epochs=1, progress="none")
    for use in uses(tmp_path / "E", tmp_path):
        assert_words(complaint(*use), tmp_path / "E", "embedding of nodes", "nscaching nodes")


def test_unknown_names_offer_the_nearest(run):
    ask = ["predict", run]
    said = complaint(*ask, "--head", "e10x", "--relation", "r0")
    assert_words(said, "no entity 'e10x'", "did you mean", "'e10'")
    said = complaint(*ask, "--head", "e1", "--relation", "R0 ")
    assert_words(said, "no relation 'R0 '", "'r0'")
    assert_words(complaint(*ask, "--neighbours", "qqqq"), "no entity 'qqqq'")


def test_questions_that_are_none(run):
    for question in ([], ["--head", "e1"], ["--relation", "r0"], ["--head", "e1", "--tail", "e2"]):
        said = complaint("predict", run, *question)
        assert_words(said, "--head", "--relation", "--tail", "--neighbours")
    assert invoke("predict", run, "--head", "e1", "--relation", "r0", "-k", 0).code == 2
    assert_words(complaint("predict", run, "--head", "e1", "--neighbours", "e2"), "--neighbours")


@pytest.mark.parametrize("flag", ["explain", "known", "contradictions", "unlikely", "out"])
def test_neighbours_have_no_flags_of_answers(run, out, flag):
    value = [out.with_suffix(".csv")] if flag == "out" else []
    said = complaint("predict", run, "--neighbours", "e2", f"--{flag}", *value)
    assert_words(said, "--neighbours asks no question", f"drop --{flag}.")


def test_other_values_that_are_none(run, tmp_path):
    assert_words(complaint("evaluate", run, "--split", "dev"), "'dev'", "train, valid or test")
    assert_words(complaint("evaluate", run, "--ties", "best"), "'best'", "optimistic")
    said = complaint("export", run, tmp_path / "e.xyz")
    assert_words(said, tmp_path / "e.xyz", ".npy")
    assert_words(complaint("export", run, tmp_path / "no" / "e.npy"), tmp_path / "no")
    said = complaint("export", run, tmp_path / "e.npy", "--what", "edges")
    assert_words(said, "'edges'", "relation")
    assert not list(tmp_path.iterdir())


def test_diverged_training_exits_with_1(data, out):
    outcome = invoke(
        "train", data, *SMALL, "--epochs", 5, "--lr", 1e30, "--scoring", "distmult", "--out", out
    )
    assert outcome.code == 1
    assert_words(outcome.stderr, "diverged", "smaller lr")
    assert "Traceback" not in outcome.stderr


def test_too_little_memory_exits_with_1(data, out):
    outcome = invoke("train", data, "--dim", 10**12, "--out", out)
    assert outcome.code == 1
    assert_words(outcome.stderr, "not enough memory", "--eval-memory of train")
    assert not out.exists()
