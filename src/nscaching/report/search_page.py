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
from nscaching.report.repeating import versions_line
from nscaching.training.progress import duration

if TYPE_CHECKING:
    from nscaching.tuning.importance import Effect, Importance
    from nscaching.tuning.result import SearchResult

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
        versions_line(),
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
        row([_effect(each, result) for each in _drawable(found)]),
    ]


def _drawable(found: Importance) -> list[Effect]:
    return [each for each in found.effects if len(each.score) > 1]


def _effect(effect: Effect, result: SearchResult) -> Chart:
    """Draw over the position in the range of an option: ranges are often logarithmic."""
    places = [place / (len(effect.score) - 1) for place in range(len(effect.score))]
    ends = f"{short(effect.values[0])} to {short(effect.values[-1])}"
    line = Series(effect.name, places, effect.score)
    title = f"{effect.name}, from {ends}"
    name = f"place in its range; y: predicted {result.measure.name}"
    return Chart(title, [line], x_name=name, whole=False, zero=False)


def _trials(result: SearchResult) -> list[Html]:
    names = list(result.best.config)
    columns = [Column("trial", "text"), Column(result.measure.name)]
    columns += [Column("epochs"), Column("best epoch", minor=True)]
    columns += [Column(name, minor=place > 1) for place, name in enumerate(names)]
    ordered = sorted(result.trials, key=lambda trial: -(trial.score or 0.0))
    shown = ordered[:_MOST_TRIALS]
    rows: list[list[object]] = []
    for trial in shown:
        score = "failed" if trial.score is None else bar(trial.score, share(trial.score))
        settings = [short(trial.config[name]) for name in names]
        rows.append([trial.number, score, trial.epochs, trial.best_epoch, *settings])
    caption = "All trials, the best first"
    if len(shown) < len(ordered):
        caption = f"The best {len(shown)} of {len(ordered)} trials; trials.csv has all"
    return [table(caption, columns, rows, chosen=0)]
