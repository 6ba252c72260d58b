"""A checkpoint is checked before anything takes its ids and counts as they are."""

import json

import pytest
import torch
from safetensors.torch import save_file

from nscaching import UserError
from nscaching.artefacts.files import read_tensors
from nscaching.training import checkpoint

from .helpers import ALL_STATE, go_on, ring, train


@pytest.fixture
def folder(tmp_path):
    train(ring(), out=tmp_path / "R", **{**ALL_STATE, "epochs": 2})
    return tmp_path / "R"


def rewritten(folder, change=lambda tensors, details: None):
    """Rewrite the checkpoint as a program without our digests would."""
    state = folder / "checkpoint" / "state.safetensors"
    tensors, details = read_tensors(state, "checkpoint")
    change(tensors, details)
    save_file(tensors, state, metadata={"details": json.dumps(details)})
    return state


def refused(folder, change, words):
    state = rewritten(folder, change)
    with pytest.raises(UserError, match=words) as caught:
        go_on(folder, epochs=3)
    assert str(state) in str(caught.value)


def test_one_without_digest_resumes(folder):
    rewritten(folder)
    assert go_on(folder, epochs=3).summary["epochs"] == 3


@pytest.mark.parametrize("value", [30, 2**31 - 1, -2])
def test_cache_ids_out_of_range_are_refused(folder, value):
    def spoil(tensors, details):
        names = [name for name in tensors if name.startswith("sampler/") and name.endswith("ids")]
        assert names
        tensors[names[0]].view(-1)[0] = value

    refused(folder, spoil, "not one of the 30 entities")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["model/entity", "best/relation"])
def test_parameters_that_are_not_finite_are_refused(folder, name, value):
    def spoil(tensors, details):
        tensors[name].view(-1)[1] = value

    refused(folder, spoil, f"'{name}' holds numbers that are not finite")


def test_moments_that_are_no_numbers_are_refused(folder):
    def spoil(tensors, details):
        (name,) = [name for name in tensors if name.endswith("entity.mean")]
        tensors[name].view(-1)[0] = torch.nan

    refused(folder, spoil, "NaN")


def test_a_count_that_is_none_is_refused(folder):
    def spoil(tensors, details):
        (name,) = [name for name in tensors if name.endswith("/count")]
        tensors[name] = torch.full_like(tensors[name].float(), torch.nan)

    refused(folder, spoil, "count")


@pytest.mark.parametrize("place", [-1, 70, 10**9])
def test_an_order_that_leaves_the_triples_is_refused(folder, place):
    def spoil(tensors, details):
        tensors["epoch/order"] = torch.arange(70)
        tensors["epoch/order"][3] = place
        details["steps_into_epoch"] = 1

    refused(folder, spoil, "place of a triple that is not there")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch", "2"),
        ("epoch", -1),
        ("epoch", True),
        ("epoch", 1.5),
        ("seconds", None),
        ("seconds", "x"),
        ("finished", 1),
        ("fingerprint", 3),
        ("best_valid", [1]),
        ("best_valid", {"mrr": "high"}),
        ("best_valid", {}),
    ],
)
def test_counters_of_the_wrong_type_are_refused(folder, name, value):
    def spoil(tensors, details):
        details[name] = value

    refused(folder, spoil, f"'{name}'")


def test_details_nested_too_deeply_are_refused(folder):
    state = folder / "checkpoint" / "state.safetensors"
    tensors, _ = read_tensors(state, "checkpoint")
    save_file(tensors, state, metadata={"details": "[" * 200_000})
    with pytest.raises(UserError, match="not a whole safetensors file"):
        checkpoint.load(state)
