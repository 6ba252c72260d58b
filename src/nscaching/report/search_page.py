"""The page of a search: the best settings, how the search got there, and what mattered."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from nscaching.report.charts import row
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
from nscaching.report.page import FILE_NAME, Section, command_line, render, repeating, write
from nscaching.report.search_pictures import curves_chart, effect_charts
from nscaching.training.progress import duration

if TYPE_CHECKING:
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
        f"{plural(result.epochs, 'epoch')} in all. Trials are compared by {result.metric.name} "
        "on valid; test stays unseen."
    )
    head = tiles(
        [
            (f"Best {result.metric.name} on valid", share(result.best.score), ""),
            ("Found in trial", f"{result.best.number} of {len(result.trials)}", ""),
            ("Epochs trained", count(result.epochs), ""),
            ("Time of training", duration(result.curve[-1].seconds), ""),
        ]
    )
    return render(f"Search on {data}", lead, head, sections)


def _best(result: SearchResult) -> list[Html]:
    line = f"{result.objective.train_command} --config {shlex.quote(str(result.folder.best))}"
    pairs = [(name, short(value)) for name, value in result.best.config.items()]
    return [
        facts(pairs),
        paragraph("This trains it, with the options that were not searched as they were:"),
        command(line),
    ]


def _curve(result: SearchResult) -> list[Html]:
    """Return the best trial so far, against trials and against epochs."""
    curves = {result.method: result.curve}
    charts = [
        curves_chart(curves, over=over, metric=result.metric.name) for over in ("trials", "epochs")
    ]
    said = "top1 is the best trial so far, top3 the mean of the best three."
    return [paragraph(said, class_="quiet"), row(charts)]


def _importance(result: SearchResult) -> list[Html]:
    found = result.importance
    if found is None:
        return [paragraph(result.importance_note or "")]
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
            f"it explains a share of {found.fit:.2f} of the variance (cross-validated R²).",
            class_="quiet",
        ),
        tag("div", table("Share of the variance", columns, rows), class_="narrow"),
        row(effect_charts(found, result.metric.name)),
    ]


def _trials(result: SearchResult) -> list[Html]:
    names = result.searched
    columns = [Column("trial", "text"), Column(result.metric.name)]
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
        settings = [short(trial.config.get(name)) for name in names]
        rows.append([trial.number, score, trial.epochs, trial.best_epoch, *settings])
    caption = "All trials, the best first"
    if len(shown) < len(ordered):
        caption = f"The best {len(shown)} of {len(ordered)} trials; trials.csv has all"
    return [table(caption, columns, rows, chosen=0)]


def _repeat(result: SearchResult) -> list[Html]:
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
    return repeating(command_line(verb, given, kinds, own))
