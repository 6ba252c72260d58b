"""Inside the cache: what a trace saw of the negatives, and example rows by name over epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nscaching.report.charts import row
from nscaching.report.markup import Column, Html, breakable, join, paragraph, table, tag
from nscaching.report.numbers import thinned
from nscaching.training.tracing.counters import LEAST_LOSS
from nscaching.training.tracing.pictures import counter_charts
from nscaching.training.tracing.snapshots import Line

#: Snapshots of a row, rows, and entities of a row that are shown.
_SNAPSHOTS, _ROWS, _NAMES = 5, 3, 5


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
    snapshots: dict[str, list[Line]] = {}
    for line in trace:
        if line["event"] == "row":
            snapshots.setdefault(line["row"], []).append(line)
    parts = [
        paragraph(
            "A negative teaches something only while it has a loss (one that is never zero counts "
            f"from {LEAST_LOSS} on). It was seen before if its triple had it in the {window} "
            "epochs before, and is false if valid or test hold it as a fact, which training cannot "
            "know. The recall is the share of a cache row that is among the entities which score "
            "highest of all; it tells whether the cache keeps up with the model.",
            class_="quiet",
        ),
        row(counter_charts(trace)),
    ]
    if snapshots:
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
    return [*parts, *(_row(name, seen) for name, seen in list(snapshots.items())[:_ROWS])]


def _row(name: str, snapshots: Sequence[Line]) -> Html:
    columns = [Column("epoch", "text"), Column("the hardest", "text")]
    columns.append(Column("at random", "text", minor=True))
    rows = [
        [
            line["epoch"],
            join([_entity(each) for each in line["hardest"][:_NAMES]], ", "),
            join([breakable(name) for name in line["random"][:_NAMES]], ", "),
        ]
        for line in thinned(snapshots, _SNAPSHOTS)
    ]
    question = " – ".join(part.strip() for part in name.replace("\t", "|").split("|"))
    return tag("div", table(breakable(question), columns, rows), class_="rows")


def _entity(each: Mapping[str, Any]) -> Html:
    held_out = each["split"] in ("valid", "test")
    title = f"score {each['score']:.2f}"
    if held_out:
        title = f"a fact of {each['split']}, {title}"
    return tag("span", breakable(each["entity"]), class_="fact" if held_out else None, title=title)
