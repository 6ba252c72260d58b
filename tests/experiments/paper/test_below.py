"""Why numbers are below the paper's: each reason from what the runs show."""

from nscaching.experiments.paper.below import why_below
from nscaching.experiments.paper.definitions import TUNED
from nscaching.experiments.paper.results import Beside

CURVE = {"epochs": [10.0, 20.0, 30.0], "mrr": [0.1, 0.3, 0.2], "hits_at_10": [0.4, 0.40, 0.41]}


def runs(best=20, epochs=30, sampler="nscaching", kind=TUNED, seeds=3, curve=CURVE):
    made = {"sampler": sampler, "kind": kind, "error": None, "curve": curve}
    made |= {"epochs": epochs, "best_epoch": best, "settings": {"epochs": 30}}
    return [made | ({"tried": {"count": 8}} if kind == TUNED else {}) for _ in range(seeds)]


def measured(ours, paper, name="mrr", spread=None):
    return {name: Beside(name, ours, spread, paper)}


def test_what_is_reached_needs_no_reason():
    assert why_below(runs(), measured(0.4, 0.4) | measured(0.3, None, "hits@10"), {}) == ""


def test_a_curve_that_still_rises_and_one_that_stopped():
    short = measured(0.3, 0.4)
    assert why_below(runs(best=30), short, {}) == "still improving after 30 epochs"
    assert why_below(runs(best=20), short, {}) == "best of 8 tries, best after 20 epochs"
    stopped = runs(best=20, epochs=20)  # early stopping: its last epoch is not the last of all
    assert why_below(stopped, short, {}) == "best of 8 tries, best after 20 epochs"


def test_another_measure_would_have_chosen_another_epoch():
    short = measured(0.3, 0.4, "hits@10")
    assert why_below(runs(), short, {}) == ".010 of it by the choice of the epoch"
    assert "choice" not in why_below(runs(), measured(0.3, 0.4), {})


def test_accuracies_of_models_that_were_chosen_by_another_measure():
    short = measured(0.8, 0.9, "accuracy")
    assert why_below(runs(best=30, kind="train"), short, {}) == "chosen by MRR"
    assert why_below(runs(best=30), short, {}) == "still improving after 30 epochs"


def test_settings_that_were_found_in_another_way_are_named_where_they_are_better():
    short = measured(0.3, 0.4)
    said = why_below(runs(), short, measured(0.41, 0.4))
    assert said == "the package's settings have 0.4100"
    said = why_below(runs(best=30, kind="train"), short, measured(0.35, 0.4))
    assert said == "still improving after 30 epochs, equally tuned 0.3500"
    assert "0.2000" not in why_below(runs(), short, measured(0.2, 0.4))


def test_noise_is_called_that_and_samplers_without_tries_too():
    assert why_below(runs(), measured(0.395, 0.4, spread=0.006), {}) == (
        "within the spread of the seeds"
    )
    said = why_below(runs(kind="train", sampler="kbgan"), measured(0.3, 0.4), {})
    assert said == "no settings were tried for this sampler, best after 20 epochs"


def test_measures_with_different_reasons_are_told_apart():
    both = measured(0.395, 0.4, spread=0.006) | measured(0.3, 0.4, "hits@10")
    assert why_below(runs(), both, {}) == (
        "mrr: within the spread of the seeds; hits@10: .010 of it by the choice of the epoch"
    )
    alike = measured(0.3, 0.4) | measured(0.3, 0.4, "hits@10")
    assert why_below(runs(best=30), alike, {}) == "still improving after 30 epochs"


def test_a_run_without_a_curve_or_a_best_epoch_has_a_reason_too():
    bare = [
        {"sampler": "LINE", "kind": TUNED, "error": None, "settings": {}, "tried": {"count": 8}}
    ]
    assert why_below(bare, measured(0.3, 0.4, "50% micro_f1"), {}) == "best of 8 tries"
