"""What belongs together is tied together: files that are not of one run are refused."""

import json
import re

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import nscaching as ns
from nscaching import UserError
from nscaching.artefacts import MARKER
from nscaching.training import RunFolder

from .helpers import bits, go_on, ring, train

SETTINGS = {"epochs": 2, "dim": 4, "scoring": "simple"}


@pytest.fixture
def folder(tmp_path):
    train(ring(), out=tmp_path / "R", **SETTINGS)
    return tmp_path / "R"


def refused(folder, *words):
    with pytest.raises(UserError) as caught:
        ns.load_run(folder)
    said = str(caught.value)
    for word in words:
        assert re.search(word, said), said
    return said


@pytest.mark.parametrize("name", ["entities.txt", "relations.txt"])
def test_names_in_another_order_are_refused(folder, name):
    lines = (folder / name).read_text().splitlines()
    (folder / name).write_text("\n".join(reversed(lines)) + "\n")
    refused(folder, name, "digest", "Restore it")


@pytest.mark.parametrize("name", ["model.safetensors", "graph.safetensors"])
def test_a_file_of_another_seed_is_refused(folder, tmp_path, name):
    train(ring(seed=1), out=tmp_path / "other", **SETTINGS, seed=1)
    (tmp_path / "other" / name).replace(folder / name)
    refused(folder, name, "another run|not the file")


def test_a_checkpoint_of_another_seed_is_not_resumed(folder, tmp_path):
    train(ring(), out=tmp_path / "other", **SETTINGS, seed=1)
    name = "checkpoint/state.safetensors"
    (tmp_path / "other" / name).replace(folder / name)
    with pytest.raises(UserError, match="checkpoint of another run"):
        go_on(folder, epochs=4)
    assert ns.load_run(folder).summary["epochs"] == 2  # the model does not need it


def test_another_scoring_function_of_the_same_shape_is_refused(folder):
    change(folder, scoring="complex")
    refused(folder, "config.yaml", "scoring: complex", "trained with scoring: simple")


def test_harmless_changes_of_the_configuration_are_allowed(folder):
    before = bits(ns.load_run(folder))
    change(folder, eval_memory=7, device="cpu", data="elsewhere")
    run = ns.load_run(folder)
    assert bits(run) == before
    assert run.config.eval_memory == 7


def change(folder, **values):
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | values))


def rewritten(folder, change):
    """Rewrite the model as another program would, with the id of the run but no digest."""
    tensors = load_file(folder / "model.safetensors")
    details = json.dumps({"run": json.loads((folder / MARKER).read_text())["id"]})
    save_file(change(tensors), folder / "model.safetensors", metadata={"details": details})


def test_a_row_that_is_no_number_is_refused_by_name(folder):
    def spoil(tensors):
        tensors["entity"][3, 1] = torch.nan
        tensors["entity"][4] = torch.inf
        return tensors

    rewritten(folder, spoil)
    name = ns.load_graph(ring()).entities[3]
    refused(folder, "model.safetensors", rf"entity '{name}' \(row 3\) and 1 more", "not finite")


def test_a_model_of_whole_numbers_is_refused(folder):
    rewritten(folder, lambda tensors: {name: t.to(torch.int8) for name, t in tensors.items()})
    refused(folder, "model.safetensors", "int8", "float32")


def test_changed_parameters_are_refused(folder):
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-10] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, "model.safetensors", "digest")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "[" * 100_000, '{"kind": 3}', '{"kind": "run", "format": 1}', "\x00"]
)
def test_a_damaged_marker_is_named_with_the_remedy(folder, content):
    (folder / MARKER).write_text(content)
    refused(folder, MARKER, "[Rr]estore it", "delete it")
    (folder / MARKER).unlink()
    ns.load_run(folder)


def test_a_run_of_the_first_version_loads_resumes_and_is_tied_from_then_on(folder):
    """0.1.0 wrote no marker, no digests and no ids, and had other names for some options."""
    (folder / MARKER).unlink()
    config = folder / "config.yaml"
    older = re.sub("^int8:", "compact:", config.read_text(), flags=re.MULTILINE)
    older = re.sub("^pool: 0$", "pool: false", older, flags=re.MULTILINE)
    assert "compact" in older
    assert "pool: false" in older
    config.write_text(older)
    for name in ("model.safetensors", "graph.safetensors", "checkpoint/state.safetensors"):
        found, details = {}, {}
        found, details = ns.artefacts.files.read_tensors(folder / name, "file")
        details.pop("run", None)
        save_file(found, folder / name, metadata={"details": json.dumps(details)})
    before = bits(ns.load_run(folder))
    assert bits(go_on(folder)) == before
    assert RunFolder(folder).read_marker()["adopted"] is True
    go_on(folder, epochs=3)
    lines = (folder / "entities.txt").read_text().splitlines()
    (folder / "entities.txt").write_text("\n".join(reversed(lines)) + "\n")
    refused(folder, "entities.txt")


def test_a_kill_between_model_and_checkpoint_leaves_a_run_that_loads_and_resumes(
    tmp_path, monkeypatch
):
    """The two are written one after the other: each combination of old and new must work."""
    from nscaching.training import checkpoint

    whole = train(ring(), out=tmp_path / "whole", **{**SETTINGS, "epochs": 4})
    original, saves = checkpoint.save, []

    class Killed(BaseException):
        pass

    def dying(*args):
        saves.append(1)
        if len(saves) == 3:
            raise Killed
        original(*args)

    monkeypatch.setattr(checkpoint, "save", dying)
    with pytest.raises(Killed):
        train(ring(), out=tmp_path / "R", checkpoint_seconds=0, **{**SETTINGS, "epochs": 4})
    monkeypatch.undo()
    assert ns.load_run(tmp_path / "R").evaluate("test").count == 20
    assert bits(go_on(tmp_path / "R")) == bits(whole)
