"""Asking and telling: reproducible, replayable, nothing asked twice; importance by the forest."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from nscaching import TrainConfig
from nscaching.experiments.tune.optimiser import (
    FEWEST_TRIALS,
    Optimiser,
    configuration_space,
    hyperband_rungs,
    measure,
)
from nscaching.experiments.tune.space import SearchSpace
from nscaching.experiments.tune.trials import Proposal, SearchLog, Trial, TrialResult
from nscaching.report.pictures import importance_picture


def make(folder, method="smac", trials=8, epochs=9, fixed=None):
    space = SearchSpace.build("sampler", TrainConfig(), fixed or {})
    made = {"method": method, "trials": trials, "epochs": epochs, "seed": 0, "folder": folder}
    return Optimiser(space, **made)


def answer(optimiser, question):
    """Make an MRR up that has its best at alpha3 = 1."""
    alpha3 = optimiser.space.options(question.positions).get("alpha3", 0.0)
    mrr = 0.4 - 0.05 * abs(alpha3 - 1) / (1 + alpha3) + 0.001 * question.epochs
    return TrialResult("success", score=mrr, epochs=question.epochs)


def go(optimiser, steps):
    """Ask and tell; return the events."""
    events = []
    for _ in range(steps):
        question = optimiser.ask()
        events.append((question, None))
        told = answer(optimiser, question)
        optimiser.tell(question, told)
        events.append((question, told))
    return events


if __name__ == "__main__":  # run by the test below, in processes with other hashes
    from pathlib import Path

    for question, told in go(make(Path(sys.argv[1]), trials=6), 5):
        print(question, told)


@pytest.mark.slow
def test_the_same_seed_asks_the_same_in_every_process(tmp_path):
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    command = [sys.executable, "-m", __spec__.name, str(tmp_path / "there")]
    environment = {**os.environ, "PYTHONHASHSEED": other}
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    here = go(make(tmp_path / "here", trials=6), 5)
    assert there.stdout.splitlines() == [f"{question} {told}" for question, told in here]


@pytest.mark.parametrize("method", ["smac", "random", "smac-mf"])
def test_the_first_proposal_is_the_configuration_that_is_tuned(tmp_path, method):
    first = {"alpha1": 0, "alpha2": 0, "alpha3": 1.0, "cache_size": 50, "candidates": 50}
    optimiser = make(tmp_path, method)
    assert optimiser.space.options(optimiser.ask().positions) == first


@pytest.mark.parametrize("method", ["smac", "random", "smac-mf"])
def test_a_replayed_optimiser_goes_on_as_the_first_would_have(tmp_path, method):
    first = make(tmp_path / "a", method)
    events = go(first, 5)
    second = make(tmp_path / "b", method)
    assert second.replay(events)
    assert second.ask() == first.ask()


def test_questions_that_differ_are_learnt_from_all_the_same(tmp_path):
    first = make(tmp_path / "a", "random")
    events = go(first, 3)
    waiting = first.ask()
    second = make(tmp_path / "b", "smac")
    assert not second.replay([*events, (waiting, None)])
    second.tell(waiting, answer(second, waiting))
    assert second.configurations == 4
    asked = {second.ask().trial, second.ask().trial}
    assert asked == {5, 6}


def test_a_setting_that_is_known_is_not_asked_again(tmp_path):
    fixed = {"alpha1": 0.0, "cache_size": 10, "candidates": 10, "alpha3": 0.0}
    optimiser = make(tmp_path, "random", fixed=fixed)
    asked = [question for question, told in go(optimiser, 20) if told is None]
    values = [optimiser.space.options(question.positions)["alpha2"] for question in asked]
    assert len(set(values)) == 20
    assert values.count(0.0) == 1


def test_multi_fidelity_gives_the_better_ones_more_epochs(tmp_path):
    optimiser = make(tmp_path, "smac-mf", trials=17, epochs=9)
    events = go(optimiser, 13)  # the first bracket: nine, three of them, one of those
    asked = [question.epochs for question, told in events if told is None]
    assert asked == [1] * 9 + [3] * 3 + [9]
    early = {q.trial: told.score for q, told in events if told is not None and q.epochs == 1}
    promoted = {q.trial for q, _ in events if q.epochs == 3}
    assert promoted == set(sorted(early, key=early.get)[-3:])


@pytest.mark.parametrize(
    ("trials", "epochs", "rungs"),
    [(4, 100, 0), (5, 100, 1), (16, 100, 1), (50, 150, 3), (50, 8, 1)],
)
def test_rungs_fit_the_trials_and_the_epochs(trials, epochs, rungs):
    assert hyperband_rungs(trials, epochs) == rungs


def test_fewer_rungs_keep_the_shortest_trials_longer():
    assert hyperband_rungs(50, 150, min_epochs=5) == 3
    assert hyperband_rungs(50, 150, min_epochs=6) == 2


def test_a_log_that_calls_the_score_mrr_is_read(tmp_path):
    log = SearchLog(tmp_path / "trials.jsonl")
    log.asked(Proposal(1, {"alpha1": 0.0}, 9))
    log.answered(Proposal(1, {"alpha1": 0.0}, 9), TrialResult("success", score=0.25), 1.0)
    first = re.sub(r', "check": "\w+"', "", log.path.read_text())  # its lines had no digest
    log.path.write_text(first.replace('"score"', '"mrr"'))
    assert log.events()[0][1][1].score == 0.25


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xfe\n",
        b"[" * 50_000 + b"\n",
        b'{"event": 3}\n',
        b"{}\n",
        b'{"event": "asked"}\n',
        b"7\n",
    ],
    ids=range(6),
)
def test_a_damaged_log_is_believed_up_to_the_damage(tmp_path, damage):
    log = SearchLog(tmp_path / "trials.jsonl")
    for number in (1, 2):
        log.asked(Proposal(number, {"alpha1": 0.5}, 9))
    first, second = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(first + damage + b"\n" + second)
    proposal = Proposal(1, {"alpha1": 0.5}, 9)
    assert log.events() == ([(proposal, None)], [proposal])
    log.repair()
    assert log.path.read_bytes() == first


def test_a_question_knows_its_key():
    assert Proposal(3, {}, 9).key == (3, 9)


# What mattered ------------------------------------------------------------------------------------


def made_up(count, function, epochs=10):
    space = SearchSpace.build("sampler+", TrainConfig(), {})
    trials = []
    points = configuration_space(space, 1).sample_configuration(count)
    for number, point in enumerate(points, 1):
        positions = {name: _plain(point[name]) for name in space}
        config = space.options(positions)
        trial = Trial(number, config, positions, "")
        result = TrialResult("success", score=function(config))
        trial.add(Proposal(number, positions, epochs), result)
        trials.append(trial)
    return space, trials


def test_what_decides_the_mrr_is_found_and_the_rest_is_not():
    def function(config):
        worse = 0.1 if config["rescale"] == "none" else 0.0
        return 0.4 - 0.2 * config["alpha1"] - worse

    space, trials = made_up(60, function)
    importance = measure(space, trials, seed=0)
    effects = {effect.name: effect for effect in importance.effects}
    assert [effect.name for effect in importance.effects][:2] in (
        ["alpha1", "rescale"],
        ["rescale", "alpha1"],
    )
    assert effects["alpha1"].alone > 0.25
    assert effects["rescale"].alone > 0.25
    for name in ("alpha2", "alpha3", "cache_size", "candidates", "known_positives"):
        assert effects[name].total < 0.1
    assert importance.fit > 0.6
    assert effects["alpha1"].score[0] > effects["alpha1"].score[-1] + 0.1
    assert effects["alpha1"].values[0] == 0
    by_value = dict(zip(effects["rescale"].values, effects["rescale"].score, strict=True))
    assert by_value["quantile"] > by_value["none"] + 0.05


def test_two_options_that_matter_only_together_have_a_total_and_little_alone():
    def function(config):
        same = (config["rescale"] == "none") == (config["known_positives"] == "allow")
        return 0.4 if same else 0.2

    space, trials = made_up(80, function)
    effects = {effect.name: effect for effect in measure(space, trials, seed=0).effects}
    for name in ("rescale", "known_positives"):
        assert effects[name].total > 0.2
        assert effects[name].alone < 0.05


def test_what_the_fit_does_not_support_is_not_shown():
    rng = np.random.default_rng(0)
    space, trials = made_up(40, lambda config: float(rng.random()))
    said = measure(space, trials, seed=0)
    assert "There is no importance" in said
    assert "cross-validated R² -" in said
    space, trials = made_up(20, lambda config: 0.25)
    assert "There is no importance" in measure(space, trials, seed=0)


def test_too_few_trials_say_nothing():
    space, trials = made_up(FEWEST_TRIALS - 1, lambda config: config["alpha1"])
    assert f"fewer than {FEWEST_TRIALS} finished trials" in measure(space, trials, seed=0)


def test_only_trials_of_about_equal_length_are_compared():
    space, trials = made_up(20, lambda config: config["alpha1"], epochs=3)
    _, longer = made_up(10, lambda config: 1 - config["alpha1"], epochs=9)
    importance = measure(space, [*trials, *longer], seed=0)
    assert (importance.trials, importance.epochs) == (10, 9)


def test_importance_is_drawn_and_said_by_the_name_of_the_metric(tmp_path):
    space, trials = made_up(30, lambda config: 0.4 - 0.2 * config["alpha1"])
    importance = measure(space, trials, seed=0)
    path = importance_picture(importance, tmp_path / "i.svg", metric="Hits@10")
    assert path.read_text().startswith("<svg")
    assert "hits@10" in importance.as_dict("hits@10")["options"]["alpha1"]


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value
