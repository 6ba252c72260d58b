"""The pages of experiments: a comparison of samplers, and a search for hyperparameters."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nscaching.errors import plural
from nscaching.models import SCORING
from nscaching.report import markup as html
from nscaching.report.charts import Chart, Series, row
from nscaching.report.markup import Html, Section, share, short
from nscaching.report.pictures import curves_chart, effect_charts
from nscaching.training import TrainConfig
from nscaching.training.diagnostics import training_seconds
from nscaching.training.progress import duration

if TYPE_CHECKING:
    from nscaching.experiments.comparison import Comparison
    from nscaching.experiments.tune import SearchResult

METRICS = {"mrr": "MRR on valid", "hits_at_10": "Hits@10 on valid"}
AXES = {"seconds": "seconds of training", "epochs": "epochs"}
_MINOR = ("95 % interval", "to the best", "accuracy", "extra", "best")
#: Trials in the table of a search, the best ones.
_MOST_TRIALS = 60


# A comparison ------------------------------------------------------------------------------------


#: Validations in order by ``epochs``, ``seconds`` of training until then (validations not counted),
#: ``mrr`` and ``hits_at_10``; shapes: (n,), or (runs, n) where several runs stand together.
Curve = dict[str, np.ndarray]


def read_curve(lines: Iterable[Mapping[str, Any]]) -> Curve:
    """Read the validations of a run from the lines of its ``metrics.jsonl``."""
    trained = dict(training_seconds(lines := list(lines)))
    points = [
        (line["epoch"], trained.get(line["epoch"], 0.0), line["mrr"], line["hits@10"])
        for line in lines
        if line.get("event") == "evaluation" and line.get("split") == "valid"
    ]
    columns = np.array(points, dtype=np.float64).reshape(-1, 4).T
    return dict(zip(("epochs", "seconds", "mrr", "hits_at_10"), columns, strict=True))


def together(curves: Sequence[Curve]) -> Curve | None:
    """Bring the runs of several seeds together, at the epochs that all of them validated."""
    curves = [curve for curve in curves if len(curve["epochs"])]
    common = [set(curve["epochs"].tolist()) for curve in curves]
    if not common or not (shared := sorted(set.intersection(*common))):
        return None
    return {
        name: np.stack([curve[name][np.isin(curve["epochs"], shared)] for curve in curves])
        for name in curves[0]
    }


def comparison_charts(curves: Mapping[str, Curve]) -> Iterator[Chart]:
    """Return each metric against seconds and against epochs: means, lowest and highest of runs."""
    for metric, name in METRICS.items():
        for axis, axis_name in AXES.items():
            lines = []
            for label, runs in curves.items():
                x, y = runs[axis], runs[metric]
                parts = x.mean(0), y.mean(0), y.min(0), y.max(0)
                lines.append(Series(label, *(part.tolist() for part in parts)))
            title, whole = f"{name}, against {axis_name}", axis == "epochs"
            yield Chart(title, lines, x_name=axis_name, whole=whole)


def comparison_page(comparison: Comparison, shown: Mapping[str, Curve]) -> str:
    """Return the page of a comparison as HTML; ``shown`` are validations by sampler."""
    rows = sorted(comparison.rows, key=lambda each: -(each["mrr"] or 0.0))
    curves = html.paragraph("No run validated, so there are no curves.")
    if shown:
        curves = html.tag("div", row(comparison_charts(shown)), class_="large")
    given = {name: value for name, value in comparison.options.items() if value is not None}
    own = {"data": comparison.data or "–", "scoring": comparison.scoring}
    options = [(name.replace("_", " "), short(value)) for name, value in {**own, **given}.items()]
    sections = [
        Section("result", "The result", _result(comparison, rows)),
        Section("curves", "Learning curves", [curves]),
        Section("same", "Common options", [html.facts(options)]),
        Section("repeat", "Repeat it", _repeat_comparison(comparison)),
    ]
    data = Path(comparison.data).name if comparison.data else "a graph"
    title = f"{plural(len(rows), 'sampler')} compared on {data}"
    runs = plural(sum(each["runs"] for each in rows), "finished run")
    lead = (
        f"{runs} of {SCORING[comparison.scoring].__name__}, all with the same options and the same "
        "budget. Every number is of test, with the model that did best on valid."
    )
    return html.render(title, lead, html.tiles(_headline(rows)), sections)


def _headline(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Return who is best at what."""
    titles = {"mrr": "Best MRR", "hits@10": "Best Hits@10", "accuracy": "Best accuracy"}
    for name, title in titles.items():
        if there := [each for each in rows if each[name] is not None]:
            best = max(there, key=lambda each: each[name])
            yield title, share(best[name]), best["sampler"]
    if there := [each for each in rows if each["seconds_per_epoch"] is not None]:
        fastest = min(there, key=lambda each: each["seconds_per_epoch"])
        yield "Fastest epoch", f"{fastest['seconds_per_epoch']:.2f} s", fastest["sampler"]


def _result(comparison: Comparison, rows: Sequence[dict[str, Any]]) -> Iterator[Html]:
    done = any(each["mrr"] is not None for each in rows)
    lines = []
    for each in rows:
        texts = comparison.texts(each)
        mrr = html.bar(each["mrr"] or 0.0, texts["MRR"])
        lines.append({"sampler": each["sampler"], **texts, "MRR": mrr})
    chosen = 0 if done else None
    yield html.table("On test, the best first", lines, minor=_MINOR, chosen=chosen)
    yield from map(html.note, comparison.notes)


def _repeat_comparison(comparison: Comparison) -> list[Html]:
    if comparison.data is None:
        return [
            html.paragraph("The graph was made in Python; call nscaching.compare with it again.")
        ]
    given = {**comparison.options, "scoring": comparison.scoring, "data": comparison.data}
    own = {"samplers": ",".join(comparison.samplers), "seeds": ",".join(map(str, comparison.seeds))}
    parts = html.repeating(html.command_line("compare", given, [TrainConfig], own))
    one = next((run.run for run in comparison.runs if run.error is None), None)
    if one is not None:
        line = shlex.join(["nscaching", "report", str(comparison.out / one)])
        parts += [html.paragraph("Every run has a folder of its own; this writes the page of one:")]
        parts += [html.command(line)]
    return parts


# A search ----------------------------------------------------------------------------------------


def search_page(result: SearchResult) -> str:
    """Return the page of a search as HTML."""
    line = f"{result.objective.train_command} --config {shlex.quote(str(result.folder.best))}"
    best = [
        html.facts([(name, short(value)) for name, value in result.best.config.items()]),
        html.paragraph("This trains it, with the options that were not searched as they were:"),
        html.command(line),
    ]
    curves, metric = {result.method: result.curve}, result.metric.name
    charts = [curves_chart(curves, over=over, metric=metric) for over in ("trials", "epochs")]
    said = "top1 is the best trial so far, top3 the mean of the best three."
    sections = [
        Section("best", "The best settings", best),
        Section("curve", "How the search went", [html.note(said), row(charts)]),
        Section("importance", "Importance of the hyperparameters", _importance(result)),
        Section("trials", "The trials", [_trials(result)]),
        Section("repeat", "Repeat it", _repeat_search(result)),
    ]
    lead = (
        f"{plural(len(result.trials), 'trial')} by {result.method} in the space {result.space}, "
        f"{plural(result.epochs, 'epoch')} in all. Trials are compared by {metric} on valid; test "
        "stays unseen."
    )
    head = html.tiles(
        [
            (f"Best {metric} on valid", share(result.best.score), ""),
            ("Found in trial", f"{result.best.number} of {len(result.trials)}", ""),
            ("Epochs trained", f"{result.epochs:,}", ""),
            ("Time of training", duration(result.curve[-1].seconds), ""),
        ]
    )
    return html.render(f"Search on {Path(result.base.data).name}", lead, head, sections)


def _importance(result: SearchResult) -> list[Html]:
    found = result.importance
    if found is None:
        return [html.paragraph(result.importance_note or "")]
    rows = [
        {
            "option": each.name,
            "total": html.bar(each.total, share(each.total)),
            "alone": html.bar(each.alone, share(each.alone)),
        }
        for each in found.effects
    ]
    return [
        html.note(
            f"A model of the {found.trials} longest trials was asked about thousands of settings. "
            "Alone is the share of its variance that an option explains by itself, total adds what "
            "it does together with others. Trust it as far as the model fits: on trials it had not "
            f"seen it explains a share of {found.fit:.2f} of the variance (cross-validated R²)."
        ),
        html.tag("div", html.table("Share of the variance", rows), class_="narrow"),
        row(effect_charts(found, result.metric.name)),
    ]


def _trials(result: SearchResult) -> Html:
    ordered = sorted(result.trials, key=lambda trial: -(trial.score or 0.0))
    most = result.best.score or 1.0
    rows: list[dict[str, object]] = []
    for trial in ordered[:_MOST_TRIALS]:
        score: object = "failed"
        if trial.score is not None:
            score = html.bar(trial.score / most, share(trial.score))
        rows.append({"trial": trial.number, result.metric.name: score, "epochs": trial.epochs})
        rows[-1]["best epoch"] = trial.best_epoch
        rows[-1] |= {name: short(trial.config.get(name)) for name in result.searched}
    caption = "All trials, the best first"
    if len(rows) < len(ordered):
        caption = f"The best {len(rows)} of {len(ordered)} trials; trials.csv has all"
    return html.table(caption, rows, minor=("best epoch", *result.searched), chosen=0)


def _repeat_search(result: SearchResult) -> list[Html]:
    """Return the command; options that all trials begin with are flags where that says the same."""
    settings, fixed, _ = result.folder.read()
    base, searched = result.base.as_dict(), result.searched
    kinds = (type(settings), type(result.base))
    verb = result.objective.train_command.removeprefix("nscaching ").replace("train", "tune")
    defaults = type(result.base)().as_dict()
    given = {**fixed, **settings.as_dict(), "data": base["data"]}
    own = {}
    if any(base[name] != defaults[name] for name in searched):  # where the first trial stands
        own["base"] = str(result.folder.base)
    else:
        given = {**{name: base[name] for name in base if name not in searched}, **given}
    return html.repeating(html.command_line(verb, given, kinds, own))
