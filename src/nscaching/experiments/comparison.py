"""What is compared, and what was found: one result per run, one row per sampler, what is noise.

A variant is a sampler, with options of its own where it has some. In text it is ``sampler`` or
``sampler:option=value:option=value``, so that one sampler can stand in several rows of a table:
``nscaching``, ``nscaching:alpha3=5``, ``nscaching:preset=igan``.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from nscaching.artefacts import ArtefactFolder
from nscaching.errors import UserError, nearest_names
from nscaching.evaluation.metrics import (
    METRICS,
    fact_values,
    metric_intervals,
    paired_difference,
    within_noise,
)
from nscaching.experiments.runner import RunResult
from nscaching.sampling import SAMPLERS

#: The numbers of a row: the mean over seeds, and under ``NAME_spread`` the standard deviation.
MEASURES = ("mrr", "hits@10", "accuracy", "seconds_per_epoch")
#: What the columns of the table are, where their titles do not say it.
_COLUMNS = (
    "accuracy: of triplet classification; s/epoch: seconds per epoch; extra: parameters trained "
    "besides the model; best: epoch of the best model."
)
#: What a comparison was asked to do.
GIVEN = ("data", "scoring", "samplers", "seeds", "options")

#: What all variants share: the graph and the seeds.
_COMMON = ("data", "split", "seed")

Ranks = npt.NDArray[np.floating]
#: Which facts a run has ranked: its seed and the digest of its graph.
_Facts = tuple[int, str | None]


@dataclass(frozen=True)
class Variant:
    """One row of the comparison."""

    label: str
    options: dict[str, Any]  #: the sampler, and what differs from the common options

    def folder(self, seed: int) -> str:
        """Return the name of the run folder of one seed."""
        return f"{re.sub(r'[^A-Za-z0-9=.+_-]+', '-', self.label)}-seed{seed}"


def read_variants(given: str | Sequence[str | Mapping[str, Any]]) -> list[Variant]:
    """Read variants from text with commas between them, or from a list of texts or mappings.

    A mapping names its ``sampler`` and the options of its own.
    """
    variants = []
    for item in [given] if isinstance(given, str) else given:
        parts = filter(None, item.split(",")) if isinstance(item, str) else [item]
        variants += [_variant(part) for part in parts]
    if not variants:
        raise UserError(f"Name at least one sampler to compare; there are: {', '.join(SAMPLERS)}.")
    folders = [variant.folder(0) for variant in variants]
    for variant in variants:
        if folders.count(variant.folder(0)) > 1:
            raise UserError(f"samplers: '{variant.label}' is named twice; drop one.")
    return variants


def _variant(given: str | Mapping[str, Any]) -> Variant:
    if isinstance(given, Mapping):
        options = dict(given)
        name = str(options.pop("sampler", ""))
    else:
        name, *texts = (part.strip() for part in given.split(":"))
        options = dict(_option(given, text) for text in texts)
    if name not in SAMPLERS:
        hint = nearest_names(name, SAMPLERS) or f". The samplers are: {', '.join(SAMPLERS)}."
        raise UserError(f"samplers: unknown sampler '{name}'{hint}")
    for option in (*_COMMON, "sampler"):
        if option in options:
            raise UserError(
                f"samplers: {option} is the same for all that are compared; take it out of "
                f"'{name}:{option}={options[option]}'."
            )
    label = ":".join([name, *(f"{option}={value}" for option, value in options.items())])
    return Variant(label, {"sampler": name, **options})


def _option(whole: str, part: str) -> tuple[str, Any]:
    name, equals, value = part.partition("=")
    if not (name and equals and value):
        raise UserError(
            f"samplers: '{part}' in '{whole}' is not option=value; write "
            "sampler:option=value:option=value."
        )
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        read = value
    return name.strip().replace("-", "_"), read


class CompareFolder(ArtefactFolder):
    """The files of one comparison; the run folders in it are artefacts of their own."""

    kind = "comparison"
    what = "a comparison"
    otherwise = "holds no comparison"
    own = (
        *("compare.json", "trials.jsonl", "compare.svg", "report.html", "ranks/*.npy"),
        "compare.png",  # of earlier versions
    )

    def looks_like_one(self) -> bool:
        """Tell whether a comparison was begun here; the marker says so where its file is lost."""
        if (self.path / "compare.json").is_file():
            return True
        try:
            return self.read_marker().get("kind") == self.kind
        except UserError:
            return False


@dataclass
class Comparison:
    """The outcome of :func:`nscaching.compare`."""

    out: Path
    data: str | None  #: a name, a folder or a file; None for a graph made in Python
    scoring: str
    samplers: list[str]  #: labels of the rows, in order
    seeds: list[int]
    options: dict[str, Any]  #: those given for all
    runs: list[RunResult]
    picture: str | None = None  #: file name, where one was drawn
    report: str | None = None  #: file name of the page
    #: By sampler: ``mrr_interval``, ``hits@10_interval`` and ``difference`` to the best.
    intervals: dict[str, dict[str, Any]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  #: on the graph, for whoever reads the table

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return one row per sampler: means over its finished runs, and why others failed."""
        return [self._row(label) for label in self.samplers]

    def _row(self, label: str) -> dict[str, Any]:
        mine = [result for result in self.runs if result.sampler == label]
        done = [result for result in mine if result.error is None]
        row: dict[str, Any] = {"sampler": label, "runs": len(done)}
        for name in MEASURES:
            found = [{**vars(result), **(result.test or {})}.get(name) for result in done]
            values = [value for value in found if value is not None]
            row[name] = statistics.fmean(values) if values else None
            row[f"{name}_spread"] = statistics.stdev(values) if len(values) > 1 else None
        row["mrr_interval"] = row["hits@10_interval"] = row["difference"] = None
        row |= self.intervals.get(label, {})
        row["extra_parameters"] = done[0].extra_parameters if done else None
        row["best_epoch"] = [result.best_epoch for result in done]
        row["epochs"] = [result.epochs for result in done]
        row["errors"] = [f"seed {r.seed}: {r.error}" for r in mine if r.error is not None]
        return row

    @property
    def notes(self) -> list[str]:
        """What to know of the table: why runs failed, and what its numbers are."""
        notes = [
            f"{row['sampler']} failed, {error}" for row in self.rows for error in row["errors"]
        ]
        if len(self.seeds) > 1:
            seeds = ", ".join(map(str, self.seeds))
            notes.append(f"Mean ± standard deviation over seeds {seeds}.")
        return [*notes, _COLUMNS, *self.remarks]

    def texts(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Return a row as text by the titles of columns, for the terminal and for the page."""
        interval = told = "–"
        if row["mrr_interval"] is not None:
            interval = "{:.4f} to {:.4f}".format(*row["mrr_interval"])
            best = max(each["mrr"] for each in self.rows if each["mrr_interval"] is not None)
            told = "best" if row["mrr"] == best else "–"
            if (difference := row["difference"]) is not None:
                noise = ", within noise" if difference["within_noise"] else ""
                told = f"{difference['mrr']:+.4f}{noise}"
        seconds, extra = row["seconds_per_epoch"], row["extra_parameters"]
        return {
            "MRR": _mean(row, "mrr", "{:.4f}") if row["runs"] else "failed",
            "95 % interval": interval,
            "to the best": told,
            "Hits@10": _mean(row, "hits@10", "{:.4f}"),
            "accuracy": _mean(row, "accuracy", "{:.1%}"),
            "s/epoch": "–" if seconds is None else f"{seconds:.3f}",
            "extra": "–" if extra is None else f"{extra:,}",
            "best": ", ".join(map(str, row["best_epoch"])) or "–",
        }

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, as ``compare.json`` holds it."""
        return {
            "out": str(self.out),
            **{name: getattr(self, name) for name in GIVEN},
            "picture": self.picture,
            "report": self.report,
            "remarks": self.remarks,
            "rows": self.rows,
            "runs": [asdict(result) for result in self.runs],
        }


def _mean(row: Mapping[str, Any], name: str, form: str) -> str:
    mean, spread = row[name], row[f"{name}_spread"]
    if mean is None:
        return "–"
    return form.format(mean) + ("" if spread is None else f" ± {form.format(spread)}")


def intervals_of(comparison: Comparison, ranks: Mapping[str, Ranks]) -> dict[str, dict[str, Any]]:
    """Return the intervals of each sampler, and its difference to the one with the best MRR.

    ``ranks`` are those of the test facts, by the folder of the run; shape: (2, n). Where all seeds
    rank the same facts, the mean over seeds counts for a fact; where each seed has a split of its
    own, the facts of all splits are taken together. A difference is of runs on the same graph.
    """
    done = [run for run in comparison.runs if run.error is None and run.run in ranks]
    by_label: dict[str, dict[_Facts, np.ndarray]] = {}
    for run in done:
        by_label.setdefault(run.sampler, {})[run.seed, run.graph] = fact_values(ranks[run.run])
    if not by_label:
        return {}
    graphs = {run.graph for run in done}
    same = len(graphs) == 1 and None not in graphs
    means = {row["sampler"]: row["mrr"] for row in comparison.rows}
    best = max(by_label, key=lambda label: means[label])
    found: dict[str, dict[str, Any]] = {}
    for label, mine in by_label.items():
        ends = metric_intervals(_joined(mine, list(mine), same))
        found[label] = {f"{name}_interval": list(ends[name]) for name in ("mrr", "hits@10")}
        found[label]["difference"] = None
        if label != best and not mine.keys().isdisjoint(by_label[best]):
            difference = _difference(mine, by_label[best], same)
            found[label]["difference"] = {"to": best, **difference}
    return found


def _difference(
    mine: Mapping[_Facts, np.ndarray], other: Mapping[_Facts, np.ndarray], same: bool
) -> dict[str, Any]:
    """Compare a sampler with another one, on the facts that both have."""
    both = [facts for facts in mine if facts in other]
    at = METRICS.index("mrr")
    pair = [_joined(each, both, same)[:, at] for each in (mine, other)]
    gap, ends = paired_difference(*pair)
    by_seed = [float((mine[facts] - other[facts])[:, at].mean()) for facts in both]
    return {"mrr": gap, "interval": list(ends), "within_noise": within_noise(ends, by_seed)}


def _joined(found: Mapping[_Facts, np.ndarray], chosen: Sequence[_Facts], same: bool) -> np.ndarray:
    values = [found[facts] for facts in chosen]
    return np.mean(values, axis=0) if same else np.concatenate(values)
