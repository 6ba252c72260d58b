"""Running a comparison: every contender with every seed, one budget for all, one run after another.

The runs are ordinary run folders, trained by :func:`nscaching.train`. ``compare.json`` is written
anew after each, so that a comparison that was stopped knows what is finished.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nscaching.errors import CHOOSE_ANOTHER, GO_ON_OR_REPLACE, TrainingInterrupted, UserError
from nscaching.experiments.compare.contenders import Contender, read_contenders
from nscaching.experiments.compare.curves import band, read_curve
from nscaching.experiments.compare.results import Comparison, RunResult, read_comparison
from nscaching.experiments.compare.single import changes, finished, make_run
from nscaching.files import explained_writes, write_text
from nscaching.graph import GraphSource, KnowledgeGraph
from nscaching.report.comparison_page import Band, draw_comparison, write_comparison_page
from nscaching.report.page import try_to_write
from nscaching.runs.api import make_config, merged_options, refuse_both, resumed_config
from nscaching.sampling import SAMPLERS
from nscaching.sampling.presets import with_preset
from nscaching.training import Progress, RunFolder, TrainConfig
from nscaching.training.opening import named_or_graph
from nscaching.training.progress import duration

#: Epochs where only seconds limit a run.
_NO_LIMIT = 1_000_000


def compare(
    graph: GraphSource | None = None,
    samplers: str | Sequence[str | Mapping[str, Any]] | None = None,
    *,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    config: TrainConfig | str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | str = "auto",
    **options: Any,
) -> Comparison:
    """Train samplers with the same options and budget, and say how each did.

    ``samplers`` are names, names with options of their own (``"nscaching:alpha3=5"``), or mappings
    (``{"sampler": "nscaching", "alpha3": 5}``); left out, all there are. The budget is ``epochs``,
    or ``max_seconds`` of training. The other options are those of :func:`nscaching.train`. With
    ``resume``, runs that are finished stay as they are and one that was stopped goes on; what is
    left out is taken from ``compare.json``.
    """
    shown = progress if isinstance(progress, Progress) else Progress(progress)
    refuse_both(resume, overwrite)
    graph = named_or_graph(graph)
    before = _earlier(out) if resume else None
    common = merged_options(config, options)
    if before is not None:
        if graph is None and not common.get("data"):
            graph = before.data
        samplers = samplers or before.samplers
        seeds = seeds or before.seeds
        common = {**before.options, **common}
    seeds = list(seeds) if seeds else [common.get("seed", 0)]
    contenders = read_contenders(samplers or list(SAMPLERS))
    for shared in ("sampler", "seed"):
        common.pop(shared, None)
    if common.get("max_seconds") is not None:
        common.setdefault("epochs", _NO_LIMIT)
    named = common.pop("data", None)
    source = graph if graph is not None else named
    entries = [
        _Entry(contender, seed, given, make_config(source, given))
        for seed in seeds  # so that one round of all is there early
        for contender in contenders
        for given in [{**common, **with_preset(contender.options), "seed": seed}]
    ]
    scoring = entries[0].settings.scoring
    if out is None:
        out = Path("runs") / f"compare-{_stem(entries[0].settings.data)}-{scoring}"
    comparison = Comparison(
        Path(out),
        None if isinstance(source, KnowledgeGraph) else str(source),
        scoring,
        [contender.label for contender in contenders],
        seeds,
        {
            name: _plain(value)
            for name, value in common.items()
            if (name, value) != ("epochs", _NO_LIMIT)
        },
        [],
    )
    if before is not None and before.data == comparison.data:
        comparison = replace(comparison, runs=before.runs)
    return _Work(comparison, source, entries, resume, overwrite, shown).do()


@dataclass(frozen=True)
class _Entry:
    """One run to be made."""

    contender: Contender
    seed: int
    options: dict[str, Any]
    settings: TrainConfig

    @property
    def folder(self) -> str:
        return self.contender.folder(self.seed)


class _Work:
    """The runs of one comparison, and how far they are."""

    def __init__(
        self,
        comparison: Comparison,
        source: KnowledgeGraph | str | Path | None,
        entries: list[_Entry],
        resume: bool,
        overwrite: bool,
        progress: Progress,
    ) -> None:
        self.comparison, self.source, self.entries = comparison, source, entries
        self.resume, self.overwrite, self.progress = resume, overwrite, progress
        self.known = {result.run: result for result in comparison.runs}
        self.took: dict[str, float] = {}  #: seconds of a run of each contender

    def do(self) -> Comparison:
        """Make all runs; return what they found."""
        out = self.comparison.out
        self._refuse_occupied()
        with explained_writes(out):
            out.mkdir(parents=True, exist_ok=True)
        results: dict[str, RunResult] = {}
        try:
            self._keep(results)
            for place, entry in enumerate(self.entries):
                results[entry.folder] = self._result(place, entry)
                self._keep(results)
        except (TrainingInterrupted, KeyboardInterrupt) as error:
            done = sum(result.error is None for result in results.values())
            raise TrainingInterrupted(
                f"Stopped with {done} of {len(self.entries)} runs finished; everything is kept. "
                f"Go on with:\n  nscaching compare --resume --out {out}"
            ) from error
        bands = self._bands()
        self._draw(bands)
        page = try_to_write(
            lambda: write_comparison_page(self.comparison, bands), self.progress.say
        )
        self.comparison = replace(self.comparison, report=None if page is None else page.name)
        self._keep(results)
        return self.comparison

    def _refuse_occupied(self) -> None:
        """Look at what is there before anything is trained."""
        out = self.comparison.out
        folders = [RunFolder(out / entry.folder) for entry in self.entries]
        for folder, entry in zip(folders, self.entries, strict=True):
            if folder.exists() and not folder.is_run():
                raise UserError(f"{folder.path} exists and is not a run folder; {CHOOSE_ANOTHER}")
            if not folder.is_run() or self.overwrite:
                continue
            if not self.resume:
                raise UserError(f"{out} holds a comparison already. {GO_ON_OR_REPLACE}")
            resumed_config(folder, changes(folder, entry.settings))

    def _result(self, place: int, entry: _Entry) -> RunResult:
        """Return the result of a run: one that is known, or one made now."""
        folder = RunFolder(self.comparison.out / entry.folder)
        if self.resume and (
            known := finished(folder, entry.settings, self.known.get(entry.folder))
        ):
            self.took.setdefault(entry.contender.label, known.seconds)
            return known
        blank = RunResult(entry.contender.label, entry.seed, entry.folder, "")
        self.progress.say(
            f"Run {place + 1} of {len(self.entries)}: {blank.sampler}, seed {entry.seed}"
            f"{self._time_left(place)}"
        )
        started = time.monotonic()
        result = make_run(
            self.source,
            folder,
            entry.settings,
            entry.options,
            blank=blank,
            resume=self.resume,
            overwrite=self.overwrite,
            progress=self.progress,
        )
        if result.error is None:
            self.took[blank.sampler] = time.monotonic() - started
        return result

    def _time_left(self, place: int) -> str:
        if not self.took:
            return ""
        usual = sum(self.took.values()) / len(self.took)
        left = (self.took.get(e.contender.label, usual) for e in self.entries[place:])
        return f" (about {duration(sum(left))} left for all)"

    def _keep(self, results: dict[str, RunResult]) -> None:
        """Write ``compare.json``: what is finished, and what was known of the others."""
        names = {entry.folder for entry in self.entries}
        current = {**{name: r for name, r in self.known.items() if name in names}, **results}
        ordered = [current[entry.folder] for entry in self.entries if entry.folder in current]
        self.comparison = replace(self.comparison, runs=ordered)
        text = json.dumps(self.comparison.as_dict(), ensure_ascii=False, indent=1, allow_nan=False)
        write_text(self.comparison.out / "compare.json", text + "\n")

    def _bands(self) -> list[Band]:
        """Return the validations of each contender's finished runs as one line."""
        bands = []
        for label in self.comparison.samplers:
            curves = [
                read_curve(RunFolder(self.comparison.out / result.run).read_metrics())
                for result in self.comparison.runs
                if result.sampler == label and result.error is None
            ]
            if (line := band(label, curves)) is not None:
                bands.append(line)
        return bands

    def _draw(self, bands: list[Band]) -> None:
        """Write the picture, where a run validated."""
        if not bands:
            return
        title = f"{_stem(self.entries[0].settings.data)}, {self.comparison.scoring}"
        draw_comparison(self.comparison.out / "compare.svg", title, bands)
        self.comparison = replace(self.comparison, picture="compare.svg")


def _earlier(out: str | Path | None) -> Comparison | None:
    file = Path(out) / "compare.json" if out is not None else None
    return read_comparison(file) if file is not None and file.is_file() else None


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold; an infinite number as text, which options take."""
    if isinstance(value, Path) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


def _stem(data: str) -> str:
    return Path(data).name.split(".")[0] or "graph"
