"""The incumbent's curve, and importance against a function whose answer is known."""

import numpy as np
import pytest

from nscaching import TrainConfig
from nscaching.experiments.tune.optimiser import configuration_space
from nscaching.experiments.tune.result import FEWEST_TRIALS, SearchCurve, measure
from nscaching.experiments.tune.space import SearchSpace
from nscaching.experiments.tune.trials import Proposal, Trial, TrialResult
from nscaching.report.pictures import importance_picture


def test_curve_has_top1_and_top3_of_trials_not_of_answers():
    curve = SearchCurve()
    told = [(1, None, 2), (2, 0.3, 3), (3, 0.1, 3), (2, 0.5, 6), (4, 0.2, 3)]
    for number, mrr, trained in told:
        status = "success" if mrr is not None else "failed"
        curve.add(Proposal(number, {}, 9), TrialResult(status, score=mrr, seconds=2.0), trained)
    assert [point.trials for point in curve.points] == [2, 3, 3, 4]
    assert [point.epochs for point in curve.points] == [5, 8, 14, 17]
    assert [point.seconds for point in curve.points] == [4.0, 6.0, 8.0, 10.0]
    assert [point.top1 for point in curve.points] == [0.3, 0.3, 0.5, 0.5]
    assert [point.top3 for point in curve.points[:3]] == [None, None, None]
    assert curve.points[3].top3 == pytest.approx((0.5 + 0.2 + 0.1) / 3)


def made_up(count, function, epochs=10):
    space = SearchSpace.build("sampler+", TrainConfig(), {})
    trials = []
    points = configuration_space(space, 1).sample_configuration(count)
    for number, point in enumerate(points, 1):
        positions = {name: _plain(point[name]) for name in space.names()}
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
    assert "cannot be told" in said
    assert "cross-validated R² -" in said
    space, trials = made_up(20, lambda config: 0.25)
    assert "cannot be told" in measure(space, trials, seed=0)


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
