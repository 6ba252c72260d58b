"""File, Python and command line are the same thing, and every value is checked."""

import math

import pytest
import yaml

from nscaching import KnowledgeGraph, TrainConfig, UserError
from nscaching.runs.api import make_config
from nscaching.training.config import plain_options

from .helpers import ring, train


def test_yaml_and_back_changes_nothing(tmp_path):
    config = TrainConfig(
        data="a folder/gräph ☃.tsv",
        lr=1e-5,
        alpha3=math.inf,
        l2=0.1,
        seed=7,
        init_from="runs/x",
        sampler="uniform",
    )
    file = tmp_path / "config.yaml"
    file.write_text(config.as_yaml(), encoding="utf-8")
    assert TrainConfig.from_file(file) == config


def test_the_file_has_every_option_once():
    assert list(yaml.safe_load(TrainConfig().as_yaml())) == TrainConfig.names()


def test_yaml_may_write_numbers_its_own_way(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("lr: 1e-3\nalpha3: .inf\nl2: 1\ndim: 32.0\ninit_from: null\n")
    config = TrainConfig.from_file(file)
    assert (config.lr, config.alpha3, config.dim) == (1e-3, math.inf, 32)
    assert isinstance(config.l2, float)
    assert isinstance(config.dim, int)


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\ufeffdim: 9\n"])
def test_empty_files_and_a_bom_are_fine(tmp_path, text):
    file = tmp_path / "c.yaml"
    file.write_text(text, encoding="utf-8")
    assert TrainConfig.from_file(file).dim in (9, TrainConfig().dim)


def test_keywords_win_over_the_file_and_the_file_over_defaults(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("dim: 6\nlr: 0.5\nseed: 3\n")
    run = train(ring(), config=file, dim=4, epochs=1, lr=0.25)
    assert (run.config.dim, run.config.lr, run.config.seed) == (4, 0.25, 3)
    assert run.config.margin == TrainConfig().margin


def test_a_configuration_object_is_taken_as_it_is():
    config = TrainConfig(dim=4, epochs=1, device="cpu", scoring="distmult")
    run = train(ring(), config=config, dim=4, epochs=1)
    assert run.config.scoring == "distmult"
    assert run.embeddings().shape == (30, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": 0}, ["dim", "at least 1", "0"]),
        ({"dim": 2.5}, ["dim", "whole number", "2.5"]),
        ({"dim": True}, ["dim", "whole number"]),
        ({"dim": "ten"}, ["dim", "whole number", "'ten'"]),
        ({"alpha1": -1}, ["alpha1", "at least 0", "-1"]),
        ({"alpha2": -1.0}, ["alpha2", "at least 0"]),
        ({"alpha3": math.nan}, ["alpha3", "finite", "nan"]),
        ({"alpha1": math.inf}, ["alpha1", "finite", "inf"]),
        ({"cache_size": 0}, ["cache_size", "at least 1"]),
        ({"candidates": -1}, ["candidates", "at least 0"]),
        ({"lr": 0}, ["lr", "above 0"]),
        ({"lr": math.nan}, ["lr", "finite"]),
        ({"lr": None}, ["lr", "a number"]),
        ({"l2": -0.1}, ["l2", "at least 0"]),
        ({"margin": 0}, ["margin", "above 0"]),
        ({"epochs": 0}, ["epochs", "at least 1"]),
        ({"batch_size": 0}, ["batch_size", "at least 1"]),
        ({"negatives": 0}, ["negatives", "at least 1"]),
        ({"norm": 3}, ["norm", "at most 2"]),
        ({"split": 0.5}, ["split", "below 0.5"]),
        ({"seed": -1}, ["seed", "at least 0"]),
        ({"seed": 2**64}, ["seed", "at most"]),
        ({"scoring": "transse"}, ["scoring", "'transse'", "did you mean 'transe'"]),
        (
            {"sampler": "gan"},
            ["sampler", "uniform, bernoulli, self-adversarial, kbgan, igan, nscaching", "'gan'"],
        ),
        ({"device": "tpu"}, ["device", "auto, cpu, cuda, mps"]),
        ({"dimm": 5}, ["unknown option 'dimm'", "did you mean 'dim'"]),
        ({"qqqq": 5}, ["unknown option 'qqqq'", "The options are: "]),
    ],
)
def test_bad_values_are_refused_with_a_sentence(options, words):
    with pytest.raises(UserError) as caught:
        make_config("world", options)
    for word in words:
        assert word in str(caught.value)


def test_a_schedule_begins_at_the_learning_rate_and_falls_to_zero():
    points = (0, 2.5, 5, 7.5, 10)
    factors = {
        name: [TrainConfig(schedule=name, epochs=10).lr_factor(point) for point in points]
        for name in ("constant", "linear", "cosine")
    }
    assert factors["constant"] == [1.0] * 5
    assert factors["linear"] == [1.0, 0.75, 0.5, 0.25, 0.0]
    half = math.sqrt(0.5)
    expected = [1.0, (1 + half) / 2, 0.5, (1 - half) / 2, 0.0]
    assert factors["cosine"] == pytest.approx(expected)
    with pytest.raises(UserError, match="schedule must be one of constant, linear, cosine"):
        make_config("world", {"schedule": "step"})


@pytest.mark.parametrize("sampler", ["self-adversarial", "kbgan", "igan"])
def test_a_sampler_of_one_side_is_refused_with_the_softmax_loss(sampler):
    with pytest.raises(UserError, match=f"{sampler} .*all, uniform, bernoulli, nscaching"):
        make_config("world", {"sampler": sampler, "loss": "softmax"})


@pytest.mark.parametrize(
    "options", [{"nu": 0.5, "alpha2": 1.0}, {"preset": "bernoulli"}, {"preset": "kbgan", "nu": 1.0}]
)
def test_how_single_negatives_are_drawn_is_refused_with_the_softmax_loss(options):
    name = "preset" if "preset" in options else "nu"
    with pytest.raises(UserError, match=f"{name} decides .* drop {name}"):
        make_config("world", {**options, "loss": "softmax"})
    with pytest.raises(UserError, match=f"drop {name}"):
        make_config("world", {**options, "recipe": "cached"})
    assert make_config("world", {"alpha2": 1.0, **options}).loss == "auto"


def test_what_goes_together_is_decided_with_the_recipe():
    config = make_config("world", {"recipe": "all-entities", "sampler": "all"})
    assert (config.sampler, config.loss, config.scoring) == ("all", "softmax", "complex")
    assert make_config("world", {"recipe": "cached", "scoring": "rotate"}).scoring == "rotate"
    with pytest.raises(UserError, match="There is no recipe 'cachd'"):
        make_config("world", {"recipe": "cachd"})


@pytest.mark.parametrize("loss", ["auto", "margin", "logistic"])
def test_all_entities_need_the_softmax_loss(loss):
    with pytest.raises(UserError, match="set loss to softmax"):
        make_config("world", {"sampler": "all", "loss": loss})
    assert make_config("world", {"sampler": "all", "loss": "softmax"}).sampler == "all"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dimm: 3\n", ["unknown option 'dimm'"]),
        ("dim: 0\n", ["dim must be at least 1"]),
        ("dim 3\n", ["'option: value'"]),
        ("- dim\n", ["'option: value'"]),
        ("dim: 3\nlr: [1\n", ["line 3"]),
        ("!!python/object:os.system {}\n", ["'option: value'"]),
    ],
)
def test_bad_files_are_named(tmp_path, text, words):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        plain_options(file, TrainConfig)
    for word in (str(file), *words):
        assert word in str(caught.value)


def test_a_missing_or_binary_file_is_named(tmp_path):
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "none.yaml", binary, tmp_path):
        with pytest.raises(UserError, match=str(path)):
            TrainConfig.from_file(path)


def test_training_needs_a_graph():
    with pytest.raises(UserError, match="Name a data set"):
        train(None)


@pytest.mark.parametrize(
    ("triples", "size"),
    [(1, 64), (900, 64), (2048, 128), (8191, 256), (8192, 512), (16384, 1024), (10**7, 1024)],
)
def test_small_graphs_have_small_batches(triples, size):
    assert TrainConfig().batch(triples) == size
    assert TrainConfig(batch_size=5).batch(triples) == 5


def test_the_batch_size_of_a_run_is_written_down(tmp_path):
    graph = KnowledgeGraph.from_triples([("a", "r", str(i)) for i in range(100)])
    run = train(graph, epochs=1, out=tmp_path, batch_size=None)
    assert run.config.batch_size == 64
    assert "batch_size: 64" in (tmp_path / "config.yaml").read_text()


@pytest.mark.parametrize(("scoring", "l2"), [("simple", 0.1), ("complex", 0.1), ("transe", 0.0)])
def test_the_penalty_of_a_run_is_that_of_its_scoring_function_unless_given(scoring, l2):
    assert train(ring(), scoring=scoring, epochs=1).config.l2 == l2
    assert train(ring(), scoring=scoring, epochs=1, l2=0.03).config.l2 == 0.03


def test_a_run_that_goes_on_keeps_what_it_decided(tmp_path):
    train(ring(), epochs=1, out=tmp_path, batch_size=None)
    left_out = TrainConfig(data="ring", dim=8, epochs=2, device="cpu")
    run = train(ring(), config=left_out, epochs=2, out=tmp_path, resume=True, batch_size=None)
    assert (run.config.l2, run.config.batch_size) == (0.1, 64)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epochs: !!int abc", "line 2"),
        ("epochs: !!bool maybe", "line 2"),
        ("epochs: !!timestamp soon", "line 2"),
        ("epochs: " + "9" * 5_000, "line 2"),
        ("epochs: 0x" + "f" * 5_000, "epochs"),
        ("lr: 0x" + "f" * 5_000, "lr is too large"),
        ("scoring: 0x" + "f" * 5_000, "scoring must be text"),
        ("dim: " + "[" * 5_000, "train.yaml"),
        ("dim: {a: [b, c]}", "dim must be a whole number"),
        ("scoring: " + "x" * 10_000, "scoring must be one of"),
        ("epochs: \x07", "train.yaml"),
    ],
)
def test_values_that_cannot_be_read_are_named_with_file_and_place(tmp_path, text, words):
    file = tmp_path / "train.yaml"
    file.write_text(f"seed: 1\n{text}\n")
    with pytest.raises(UserError, match=words) as caught:
        TrainConfig.from_file(file)
    assert str(file) in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_configuration_that_is_no_text_is_named(tmp_path):
    (tmp_path / "train.yaml").write_bytes(b"epochs: 3\xff\n")
    with pytest.raises(UserError, match=r"train\.yaml cannot be read as text"):
        TrainConfig.from_file(tmp_path / "train.yaml")
