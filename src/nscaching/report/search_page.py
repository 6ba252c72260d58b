"""The page of a search: the best settings, how the search got there, and what mattered."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.report.charts import Chart, Series, row
from nscaching.report.markup import (
    Column,
    Html,
    bar,
    command,
    facts,
    paragraph,
    table,
    tag,
    tiles,
)
from nscaching.report.numbers import count, plural, share, short
from nscaching.report.page import FILE_NAME, Section, render, write
from nscaching.report.repeating import command_line, repeating
from nscaching.training.progress import duration

if TYPE_CHECKING:
    from nscaching.experiments.tune.importance import Importance
    from nscaching.experiments.tune.result import SearchResult

#: Trials in the table, the best ones.
_MOST_TRIALS = 60


def write_search_page(result: SearchResult) -> Path:
    """Write the page into the folder of a search."""
    return write(result.folder.path / FILE_NAME, search_page(result))


def search_page(result: SearchResult) -> str:
    """Return the page of a search as HTML."""
    sections = [
        Section("best", "The best settings", _best(result)),
        Section("curve", "How the search went", _curve(result)),
        Section("importance", "What mattered", _importance(result)),
        Section("trials", "The trials", _trials(result)),
        Section("repeat", "Repeat it", _repeat(result)),
    ]
    data = Path(result.base.data).name
    lead = (
        f"{plural(len(result.trials), 'trial')} by {result.method} in the space {result.space}, "
        f"{plural(result.epochs, 'epoch')} in all. Trials are compared by {result.measure.name} "
        "on valid; test stays unseen."
    )
    head = tiles(
        [
            (f"Best {result.measure.name} on valid", share(result.best.score), ""),
            ("Found in trial", f"{result.best.number} of {len(result.trials)}", ""),
            ("Epochs trained", count(result.epochs), ""),
            ("Time of training", duration(result.curve[-1].seconds), ""),
        ]
    )
    return render(f"Search on {data}", lead, head, sections)


def _best(result: SearchResult) -> list[Html]:
    line = f"{result.subject.train_command} --config {shlex.quote(str(result.folder.best))}"
    pairs = [(name, short(value)) for name, value in result.best.config.items()]
    return [
        facts(pairs),
        paragraph("This trains it, with the options that were not searched as they were:"),
        command(line),
    ]


def _curve(result: SearchResult) -> list[Html]:
    name = f"{result.measure.name} on valid"
    three = [point for point in result.curve if point.top3 is not None]
    charts = []
    for over in ("trials", "epochs"):
        lines = [
            Series("best", *_columns(result.curve, over, "top1")),
            Series("mean of the best three", *_columns(three, over, "top3")),
        ]
        charts.append(Chart(f"{name}, against {over}", lines, x_name=over, steps=True, zero=False))
    return [row(charts)]


def _columns(points: Sequence[Any], *names: str) -> tuple[list[float], ...]:
    return tuple([getattr(point, name) for point in points] for name in names)


def _importance(result: SearchResult) -> list[Html]:
    found = result.importance
    if found is None:
        return [paragraph("There are too few finished trials to tell which options mattered.")]
    columns = [Column("option", "text"), Column("total"), Column("alone")]
    rows = [
        [each.name, bar(each.total, share(each.total)), bar(each.alone, share(each.alone))]
        for each in found.effects
    ]
    return [
        paragraph(
            f"A model of the {found.trials} longest trials was asked about thousands of settings. "
            "Alone is the share of its variance that an option explains by itself, total adds what "
            "it does together with others. Believe it as far as it fits: on trials it had not seen "
            f"its correlation with the truth is {found.fit:.2f}.",
            class_="quiet",
        ),
        tag("div", table("Share of the variance", columns, rows), class_="narrow"),
        row(_effects(found, result.measure.name)),
    ]


def _effects(found: Importance, measure: str) -> list[Chart]:
    """Draw each over its range, which is often logarithmic; all on one scale, to compare."""
    drawable = [each for each in found.effects if len(each.score) > 1]
    scores = [score for each in drawable for score in each.score]
    charts = []
    for each in drawable:
        places = [place / (len(each.score) - 1) for place in range(len(each.score))]
        title = f"Predicted {measure} over {each.name}"
        ends = f"from {short(each.values[0])} to {short(each.values[-1])}"
        charts.append(
            Chart(
                title,
                [Series(each.name, places, each.score)],
                x_name=ends,
                x_numbers=False,
                whole=False,
                zero=False,
                also=(min(scores), max(scores)),
            )
        )
    return charts


def _trials(result: SearchResult) -> list[Html]:
    names = list(result.best.config)
    columns = [Column("trial", "text"), Column(result.measure.name)]
    columns += [Column("epochs"), Column("best epoch", minor=True)]
    columns += [Column(name, minor=True) for name in names]
    ordered = sorted(result.trials, key=lambda trial: -(trial.score or 0.0))
    shown = ordered[:_MOST_TRIALS]
    most = result.best.score or 1.0
    rows: list[list[object]] = []
    for trial in shown:
        score: object = "failed"
        if trial.score is not None:
            score = bar(trial.score / most, share(trial.score))
        settings = [short(trial.config[name]) for name in names]
        rows.append([trial.number, score, trial.epochs, trial.best_epoch, *settings])
    caption = "All trials, the best first"
    if len(shown) < len(ordered):
        caption = f"The best {len(shown)} of {len(ordered)} trials; trials.csv has all"
    return [table(caption, columns, rows, chosen=0)]


def _repeat(result: SearchResult) -> list[Html]:
    """Return the command; options that all trials begin with are flags where that says the same."""
    settings, fixed, _ = result.folder.read()
    base, searched = result.base.as_dict(), result.best.config
    kinds = (type(settings), type(result.base))
    verb = result.subject.train_command.removeprefix("nscaching ").replace("train", "tune")
    defaults = type(result.base)().as_dict()
    given = {**fixed, **settings.as_dict(), "data": base["data"]}
    own = {}
    if any(base[name] != defaults[name] for name in searched):  # where the first trial stands
        own["base"] = str(result.folder.base)
    else:
        given = {**{name: base[name] for name in base if name not in searched}, **given}
    return repeating(command_line(verb, given, kinds, own))
