"""What the cache gives: NSCaching against Bernoulli, per data set and scoring function.

Both cells of a pair have the same number of tries where ``--tries`` was given. Pairs that have no
such runs yet are shown with the runs of the package's settings, and marked so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nscaching.artefacts.files import read_json_lines, write_json_lines
from nscaching.evaluation.metrics import Interval, paired_difference
from nscaching.experiments.paper.definitions import TRY, TUNED, Cell, printed
from nscaching.experiments.paper.results import Results, Row, cell_of, is_smoke
from nscaching.models import SCORING
from nscaching.report.charts import WIDTH, Picture, marks
from nscaching.report.markup import Html, tag, tick_text, ticks
from nscaching.report.pictures import write_svg

_SAMPLERS = ("bernoulli", "nscaching")
_RANKS = "ranks"
_TITLE = "Gain in test MRR of NSCaching over Bernoulli"


@dataclass(frozen=True)
class Gain:
    """A pair of cells on test; MRR, means over the seeds that both have."""

    dataset: str
    scoring: str
    bernoulli: float
    nscaching: float
    seeds: int
    tries: int | None  #: of each cell; None: settings of the package, not equally tuned
    papers: tuple[float, float] | None  #: what the paper prints for Bernoulli and for NSCaching
    over_seeds: Interval | None = None  #: 95 %, Student's t
    over_facts: Interval | None = None  #: 95 %, paired bootstrap over the test facts
    earlier: float | None = None  #: the gain with the settings of the package, beside a tuned one
    #: Tries with the same settings: how many of NSCaching's are above on valid, of how many, and
    #: the mean difference.
    same: tuple[int, int, float] | None = None

    @property
    def model(self) -> str:
        """The scoring function as papers write it."""
        return SCORING[self.scoring].__name__

    @property
    def gain(self) -> float:
        """How much more NSCaching has."""
        return self.nscaching - self.bernoulli

    @property
    def paper(self) -> float | None:
        """The gain that the paper prints."""
        return None if self.papers is None else self.papers[1] - self.papers[0]

    @property
    def interval(self) -> Interval | None:
        """The wider of both intervals."""
        there = [each for each in (self.over_seeds, self.over_facts) if each is not None]
        return max(there, key=lambda ends: ends[1] - ends[0], default=None)


def rank_file(folder: Path, cell: Cell) -> Path:
    """Return where the reciprocal ranks of a cell are kept: one number per test fact."""
    return folder / _RANKS / f"{cell.folder}.npy"


def find_gains(results: Results) -> list[Gain]:
    """Return all pairs there are, and write them to ``gains.jsonl``.

    An interval over the test facts needs the ranks, which are large and may not be there any more;
    then it is read from that file.
    """
    file = results.folder / "gains.jsonl"
    keys = ("dataset", "scoring", "nscaching")
    before = {tuple(map(line.get, keys)): line for line in read_json_lines(file)}
    whole = [row for row in results.files.get("table-7", []) if not is_smoke(row)]
    tries = [row for row in results.tries if not is_smoke(row)]
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in whole:
        if row["mode"] == "scratch" and not row["error"]:
            key = row["dataset"], row["scoring"], row["kind"], row["sampler"]
            groups.setdefault(key, []).append(row)
    found = []
    for dataset, scoring in dict.fromkeys(key[:2] for key in groups):
        made = []
        for kind in (TUNED, "train"):
            both = [groups.get((dataset, scoring, kind, sampler), []) for sampler in _SAMPLERS]
            made += _gain(dataset, scoring, both, results.folder, before)
        if made:
            earlier = made[1].gain if len(made) > 1 else None
            same = _same_settings(tries, dataset, scoring)
            found.append(replace(made[0], earlier=earlier, same=same))
    lines = [{**asdict(each), "gain": each.gain, "paper": each.paper} for each in found]
    write_json_lines(file, lines)
    return found


def _gain(
    dataset: str,
    scoring: str,
    both: Sequence[Sequence[Row]],
    folder: Path,
    before: Mapping[Any, Mapping[str, Any]],
) -> list[Gain]:
    """Return the gain of a pair, if there is one: both samplers with at least one seed."""
    other, one = ({row["seed"]: row for row in rows} for rows in both)
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return []
    ours, theirs = ([by[seed]["test"]["mrr"] for seed in seeds] for by in (one, other))
    tries = {row["settings"].get("tries") for row in (*one.values(), *other.values())}
    values = [_values(folder, [by[seed] for seed in seeds]) for by in (one, other)]
    mean = statistics.fmean(ours)
    over_facts = before.get((dataset, scoring, mean), {}).get("over_facts")
    if values[0] is not None and values[1] is not None and len(values[0]) == len(values[1]):
        over_facts = paired_difference(values[0], values[1])[1]
    where = {"dataset": dataset, "scoring": scoring, "mode": "scratch"}
    of_paper = [printed("link_prediction", {**where, "sampler": name}) for name in _SAMPLERS]
    paper = [numbers["mrr"] for numbers in of_paper if "mrr" in numbers]
    gain = Gain(
        dataset,
        scoring,
        statistics.fmean(theirs),
        mean,
        len(seeds),
        min(tries) if None not in tries else None,
        (paper[0], paper[1]) if len(paper) == len(_SAMPLERS) else None,
        _over_seeds([a - b for a, b in zip(ours, theirs, strict=True)]),
        None if over_facts is None else (over_facts[0], over_facts[1]),
    )
    return [gain]


def _same_settings(
    tries: Sequence[Row], dataset: str, scoring: str
) -> tuple[int, int, float] | None:
    """Compare the tries of both samplers that have the same settings of the model."""
    of: dict[int, dict[str, float]] = {}
    for row in tries:
        mine = (row["dataset"], row["scoring"], row["mode"]) == (dataset, scoring, "scratch")
        if mine and row["kind"] == TRY and not row["options"] and row["valid"]:
            of.setdefault(row["seed"], {})[row["sampler"]] = row["valid"]["mrr"]
    both = [of_one for of_one in of.values() if of_one.keys() >= set(_SAMPLERS)]
    gains = [of_one["nscaching"] - of_one["bernoulli"] for of_one in both]
    return (sum(x > 0 for x in gains), len(gains), statistics.fmean(gains)) if gains else None


def _values(folder: Path, rows: Sequence[Row]) -> np.ndarray | None:
    """Return the mean reciprocal rank of every test fact; None where a file is lost or damaged."""
    try:
        ranks = np.stack([np.load(rank_file(folder, cell_of(row))) for row in rows])
    except (OSError, ValueError, EOFError):
        return None
    values: np.ndarray = ranks.mean(axis=0, dtype=np.float64)
    return values


def _over_seeds(gains: Sequence[float]) -> Interval | None:
    if len(gains) < 2:
        return None
    from scipy.stats import t as student

    half = student.ppf(0.975, len(gains) - 1) * statistics.stdev(gains) / math.sqrt(len(gains))
    mean = statistics.fmean(gains)
    return mean - half, mean + half


# The figure ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Intervals(Picture):
    """Numbers with their intervals, one below the other, and a line at zero."""

    title: str
    rows: Sequence[tuple[str, float, Interval | None, int]]  #: label, number, interval, style
    range: Interval
    styles: Sequence[str]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return WIDTH, 34 + 22 * len(self.rows)

    def _x(self, value: float) -> float:
        low, high = self.range
        return round(84 + (value - low) / (high - low) * (WIDTH - 150), 1)

    def parts(self) -> Iterator[Html]:
        """Return the axis, then a label, a line, a mark and the number of each row."""
        bottom, at = 10 + 22 * len(self.rows), ticks(*self.range, 5)
        inside = [tick for tick in at if self.range[0] <= tick <= self.range[1]]
        for tick in inside:
            x = self._x(tick)
            yield tag("line", x1=x, x2=x, y1=4, y2=bottom, class_="grid")
            said = tick_text(tick, at[1] - at[0])
            yield tag("text", said, x=x, y=bottom + 16, text_anchor="middle")
        yield tag("path", d=f"M{self._x(0.0)} 4V{bottom}", class_="line s7")
        for place, (label, value, ends, style) in enumerate(self.rows):
            y = 18 + 22 * place
            yield tag("text", label, x=76, y=y + 4, text_anchor="end")
            if ends is not None:
                low, high = (self._x(end) for end in ends)
                yield tag("path", d=f"M{low} {y}H{high}", class_=f"line s{style}")
            mark = marks(style, [(self._x(value), y)], 4)
            yield tag("path", d=mark, class_=f"mark s{style}")
            yield tag("text", f"{value:+.3f}", x=WIDTH - 4, y=y + 4, text_anchor="end")

    def legend(self) -> list[tuple[Html, str]]:
        """Return what the marks mean."""
        used = sorted({style for *_, style in self.rows})
        return [
            (tag("path", d=marks(at, [(16, 6)], 4), class_=f"mark s{at}"), self.styles[at])
            for at in used
        ]


def draw_gains(gains: Sequence[Gain], file: Path) -> Path:
    """Draw one panel per data set, each with its own axis."""
    styles = ("equally tuned, 95 % interval", "settings of the package, not equally tuned")
    panels = []
    for dataset in dict.fromkeys(each.dataset for each in gains):
        own = [each for each in gains if each.dataset == dataset]
        ends = [end for each in own for end in (each.gain, *(each.interval or ()))]
        low, high = min(0.0, *ends), max(0.0, *ends)
        room = 0.03 * (high - low or 1.0)
        rows = [(each.model, each.gain, each.interval, int(each.tries is None)) for each in own]
        panels.append(Intervals(dataset, rows, (low - room, high + room), styles))
    return write_svg(file, panels, title=_TITLE)
