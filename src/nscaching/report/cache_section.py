"""Inside the cache: what a trace saw of the negatives, and example rows by name over epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nscaching.report.charts import Chart, Series, row
from nscaching.report.markup import Column, Html, breakable, join, paragraph, table, tag
from nscaching.report.numbers import percent, thinned
from nscaching.training.tracing.counters import LEAST_LOGISTIC_LOSS
from nscaching.training.tracing.looks import Line

#: Title of a chart, and the counters in it with their labels.
_CHARTS: dict[str, dict[str, str]] = {
    "Negatives that have a loss": {"nonzero_loss": "share"},
    "Negatives seen before": {"repeated": "share"},
    "False negatives": {"false_cached": "in the cache", "false_sampled": "sampled"},
}
_LOOKS, _ROWS, _NAMES = 5, 3, 5


def inside_the_cache(trace: Sequence[Line], window: int) -> list[Html]:
    """Return what a trace saw, or how to get one."""
    epochs = [line for line in trace if line["event"] == "epoch"]
    if not epochs:
        return [
            paragraph(
                "This run was not traced; train it with ",
                tag("code", "--trace"),
                " to see here what its negatives are worth, and cache rows by name.",
            )
        ]
    looks: dict[str, list[Line]] = {}
    for line in trace:
        if line["event"] == "row":
            looks.setdefault(line["row"], []).append(line)
    parts = [
        paragraph(
            "A negative teaches something only while it has a loss (a logistic one counts from "
            f"{LEAST_LOGISTIC_LOSS} on). It was seen before if its triple had it in the {window} "
            "epochs before, and is false if valid or test hold it as a fact, which training cannot "
            "know.",
            class_="quiet",
        ),
        row([_chart(title, counters, epochs) for title, counters in _CHARTS.items()]),
    ]
    if looks:
        parts.append(tag("h3", "Rows of the cache over the epochs"))
        parts.append(
            paragraph(
                "The entities of a row that score highest as an answer to its question, the "
                "hardest first. ",
                tag("span", "These", class_="fact"),
                " are facts of valid or test.",
                class_="quiet",
            )
        )
    return [*parts, *(_row(name, seen) for name, seen in list(looks.items())[:_ROWS])]


def _chart(title: str, counters: Mapping[str, str], epochs: Sequence[Line]) -> Chart:
    lines = []
    for name, label in counters.items():
        there = [line for line in epochs if line.get(name) is not None]
        x, y = ([line[key] for line in there] for key in ("epoch", name))
        lines.append(Series(label, x, y))
    return Chart(title, lines, say=percent, percent=True)


def _row(name: str, looks: Sequence[Line]) -> Html:
    columns = [Column("epoch", "text"), Column("the hardest", "text")]
    columns.append(Column("at random", "text", minor=True))
    rows = [
        [
            look["epoch"],
            join([_entity(each) for each in look["hardest"][:_NAMES]], ", "),
            join([breakable(name) for name in look["random"][:_NAMES]], ", "),
        ]
        for look in thinned(looks, _LOOKS)
    ]
    question = " – ".join(part.strip() for part in name.replace("\t", "|").split("|"))
    return tag("div", table(breakable(question), columns, rows), class_="rows")


def _entity(each: Mapping[str, Any]) -> Html:
    held_out = each["split"] in ("valid", "test")
    title = f"score {each['score']:.2f}"
    if held_out:
        title = f"a fact of {each['split']}, {title}"
    return tag("span", breakable(each["entity"]), class_="fact" if held_out else None, title=title)
