"""Models in shards: read as one table, or asked where they lie, with the same answers."""

import json
import shutil

import numpy as np
import pytest
import torch

import nscaching as ns
from nscaching.artefacts.files import read_tensors, write_tensors
from nscaching.errors import UserError
from nscaching.models import Side
from nscaching.models.sharded import INDEX, ShardedModel, write_shards
from nscaching.processes import ALONE
from nscaching.runs.checks import check_folder
from nscaching.runs.run import Run
from nscaching.training import RunFolder

STRATA = 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    options = {"scoring": "transd", "sampler": "uniform", "recipe": "paper", "dim": 6}
    return ns.train("world", out=out, epochs=1, device="cpu", progress="none", **options)


@pytest.fixture
def sharded(whole, tmp_path):
    """Return a copy of the run with its model in shards."""
    path = tmp_path / "run"
    shutil.copytree(whole.folder.path, path)
    order = torch.randperm(whole.graph.num_entities, generator=torch.Generator().manual_seed(1))
    blocks = {
        stratum: (ids, whole.model.entity[ids]) for stratum, ids in enumerate(order.chunk(STRATA))
    }
    write_shards(path, blocks, whole.model.relation, STRATA, ALONE)
    return path


def test_the_folder_holds_shards_and_an_index(sharded):
    assert not (sharded / "model.safetensors").exists()
    told = json.loads((sharded / INDEX).read_text())
    assert told["metadata"]["strata"] == STRATA
    assert told["weight_map"]["stratum.2.entity"] == "model-00003-of-00004.safetensors"
    assert told["weight_map"]["relation"] == "model-00001-of-00004.safetensors"
    assert {part.state for part in check_folder(sharded).parts} == {"whole"}


def test_shards_are_read_as_the_table_they_were(whole, sharded):
    model = Run.load(sharded).model
    assert not isinstance(model, ShardedModel)
    assert torch.equal(model.entity, whole.model.entity)
    assert torch.equal(model.relation, whole.model.relation)


def test_a_model_on_disk_gives_the_same_answers(whole, sharded, tmp_path):
    run = Run.load(sharded, mapped=True)
    assert isinstance(run.model, ShardedModel)
    assert np.allclose(run.score(whole.graph.test), whole.score(whole.graph.test), atol=1e-6)
    mine, other = run.evaluate("test"), whole.evaluate("test")
    assert mine.mrr == pytest.approx(other.mrr, abs=1e-4)
    head, relation = "Uruguay", "neighbour of"
    asked = [r.predict_tails(head, relation, k=5) for r in (run, whole)]
    assert [p.tail for p in asked[0]] == [p.tail for p in asked[1]]
    near = [[n.entity for n in r.neighbours(head, k=4)] for r in (run, whole)]
    assert near[0] == near[1]
    fact = whole.graph.named(whole.graph.test[0].tolist())
    norms = [r.gradient_ccdf(fact).ccdf() for r in (run, whole)]
    assert np.allclose(norms[0], norms[1], atol=1e-5)
    assert torch.equal(run.model.entity[-1], whole.model.entity[-1])
    run.export(tmp_path / "rows.npy")
    assert np.array_equal(np.load(tmp_path / "rows.npy"), whole.embeddings())
    assert np.array_equal(run.embeddings(), whole.embeddings())


@pytest.mark.slow
def test_decisions_from_a_model_on_disk(tmp_path):
    out = tmp_path / "run"
    options = {"scoring": "complex", "recipe": "paper", "dim": 8, "device": "cpu"}
    ns.train("world", out=out, epochs=1, strata=4, progress="none", **options)
    on_disk, in_memory = ns.load_run(out, "cpu", mapped=True), ns.load_run(out, "cpu")
    found = [[p.triple for p in run.discover(20)] for run in (on_disk, in_memory)]
    assert found[0] == found[1]
    claims = [("France", "speaks", "French"), ("France", "speaks", "Dutch")]
    margins = [run.classify(claims)[1] for run in (on_disk, in_memory)]
    assert np.allclose(margins[0], margins[1], atol=1e-5)
    assert on_disk.report(tmp_path / "report.html").stat().st_size > 10_000


def test_padding_and_pools_of_a_model_on_disk(whole, sharded):
    on_disk = Run.load(sharded, mapped=True).model
    anchor, relation = torch.tensor([3, 4]), torch.tensor([0, 1])
    ids = torch.tensor([[5, -1, 7], [0, 2, -1]])
    mine, other = (
        m.score_ids(m.query(Side.TAIL, anchor, relation), ids) for m in (on_disk, whole.model)
    )
    assert torch.equal(mine.isinf(), ids < 0)
    assert torch.allclose(mine, other, atol=1e-6)
    mine, other = (
        m.score_pool(m.query(Side.TAIL, anchor, relation), ids[0, ::2])
        for m in (on_disk, whole.model)
    )
    assert torch.allclose(mine, other, atol=1e-6)


def test_without_the_index_there_is_no_model(sharded):
    (sharded / INDEX).unlink()
    assert not RunFolder(sharded).has_model()
    with pytest.raises(UserError, match=r"model\.safetensors is missing\. Write it again"):
        Run.load(sharded)


@pytest.mark.parametrize("mapped", [False, True])
def test_shards_that_do_not_belong_are_refused(sharded, mapped):
    first, second = (sharded / f"model-0000{n}-of-00004.safetensors" for n in (1, 2))
    kept = second.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(UserError, match="another stratum"):
        Run.load(sharded, mapped=mapped)
    second.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(UserError, match="not a whole safetensors file"):
        Run.load(sharded, mapped=mapped)
    second.unlink()
    with pytest.raises(UserError, match="missing"):
        Run.load(sharded, mapped=mapped)
    assert not check_folder(sharded).whole


@pytest.mark.parametrize("name", ["9" * 5000, "../model-00001-of-00004.safetensors", "a\0b", 7])
def test_an_index_that_names_no_shard_is_refused(sharded, name):
    told = json.loads((sharded / INDEX).read_text())
    told["weight_map"]["stratum.1.entity"] = name
    (sharded / INDEX).write_text(json.dumps(told))
    with pytest.raises(UserError, match=f"{INDEX} (names no shard|lacks)") as refused:
        Run.load(sharded)
    assert len(str(refused.value)) < 400


def test_a_shard_of_a_byte_that_flipped_is_damaged(sharded):
    file = sharded / "model-00004-of-00004.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(bytes(content))
    with pytest.raises(UserError, match="digest"):
        Run.load(sharded)
    damaged = [part.name for part in check_folder(sharded).parts if part.state == "damaged"]
    assert damaged == [file.name, INDEX]


@pytest.mark.parametrize("stratum", range(STRATA))
def test_a_shard_of_another_run_is_refused(sharded, stratum):
    """Of the same size, and whole in itself: nothing but the id of its run tells."""
    file = sharded / f"model-{stratum + 1:05}-of-{STRATA:05}.safetensors"
    tensors, _ = read_tensors(file, "shard")
    others = {
        name: tensor * 2 if tensor.is_floating_point() else tensor
        for name, tensor in tensors.items()
    }
    write_tensors(file, others, {"run": "another"})
    for mapped in (False, True):
        with pytest.raises(UserError, match=f"{file.name} is a shard of another run"):
            Run.load(sharded, mapped=mapped)
    assert not check_folder(sharded).whole
