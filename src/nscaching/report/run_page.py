"""The page of a run: what was trained, how it went, how good it is, and what it believes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nscaching.artefacts.files import write_text
from nscaching.errors import HOLD_OUT, UserError, plural
from nscaching.evaluation.metrics import SELECTABLE
from nscaching.graph.datasets import known_dataset, named_folder
from nscaching.models import SCORING
from nscaching.report import markup as html
from nscaching.report.charts import Chart, Series, row
from nscaching.report.entity_map import Places, draw_map, entity_map
from nscaching.report.explorer import FILE_NAME as EXPLORER
from nscaching.report.explorer import too_large, write_explorer
from nscaching.report.explorer_answers import ExplorerAnswers
from nscaching.report.markup import (
    FILE_NAME,
    Html,
    Section,
    rank,
    share,
    short,
    thinned,
    try_to_write,
)
from nscaching.report.sections import calibration, inside_the_cache, new_facts, quality
from nscaching.runs.run import SAMPLER_TITLES, Run
from nscaching.training import Progress, TrainConfig
from nscaching.training.diagnostics import training_seconds
from nscaching.training.progress import duration

_TABLE_EPOCHS = 20
#: Scores that the explorer beside a page may cost; about a minute. It can be asked for beyond it.
_EXPLORER_SCORES = 1.2e9


def write_run_page(run: Run, path: Path | None = None, progress: Progress | None = None) -> Path:
    """Write the page of a run, into its folder unless a path is given.

    The evaluation of the test split is the one that the run has already made; where it has made
    none since it was loaded, one is made now. The explorer is written beside the page, unless it
    would be too large or take too long.
    """
    if path is None:
        if run.folder is None:
            raise UserError("This run is in no folder; name the file: run.report('report.html').")
        path = run.folder.path / FILE_NAME
    explorer = places = None
    scores = 4 * len(run.graph.valid) * run.graph.num_entities  # that its calibration computes
    if too_large(run) is None and scores <= _EXPLORER_SCORES:
        beside = explorer_beside(path)
        shown, answers = progress or Progress("none"), ExplorerAnswers(run)
        written = partial(write_explorer, run, beside, path.name, shown, answers)
        explorer = try_to_write(written, shown.say, "explorer")
        places = answers.places
    return write_text(path, run_page(run, progress, explorer, places))


def explorer_beside(page: Path) -> Path:
    """Return the file of the explorer beside a page."""
    return page.with_name(EXPLORER if page.name == FILE_NAME else f"{page.stem}-{EXPLORER}")


def run_page(
    run: Run,
    progress: Progress | None = None,
    explorer: Path | None = None,
    places: Places | None = None,
) -> str:
    """Return the page of a run as HTML; ``explorer`` lies beside it and is linked.

    ``places`` are those of all entities on its map, where they are known.
    """
    lines = run.folder.read_metrics() if run.folder is not None else []
    split = next((name for name in ("test", "valid") if len(run.graph.split(name))), None)
    headline = Html("")
    evaluated: Iterable[Html] = [
        html.paragraph(f"Nothing was held out, so there is no evaluation. {HOLD_OUT}")
    ]
    if split is not None:
        report = run.evaluations.get(split) or run.evaluate(split, progress=progress)
        evaluated = quality(report, run.graph)
        headline = html.tiles(
            [
                (f"MRR on {split}", share(report.mrr), ""),
                ("Hits@1", share(report.hits_at_1), ""),
                ("Hits@10", share(report.hits_at_10), ""),
                ("Mean rank", rank(report.mr), ""),
            ]
        )
    sections = [
        Section("trained", "What was trained", [html.facts(_settings(run, lines))]),
        Section("curves", "Learning curves", _curves(lines)),
        Section("quality", "How good it is", evaluated),
        Section("map", "Map of the entities", _map(run, places)),
        Section("calibration", "Probabilities", calibration(run)),
        Section("predictions", "New facts", new_facts(run)),
        Section("repeat", "Repeat it", _repeat(run)),
    ]
    if run.config.sampler == "nscaching" or run.trace:
        title = "Inside the cache" if run.config.sampler == "nscaching" else "The negatives"
        traced = inside_the_cache(run.trace, run.config.trace_window)
        sections.insert(4, Section("cache", title, traced))
    head = html.join([headline, _explore(run, explorer)])
    return html.render(run.title, _lead(run, lines), head, sections)


def _lead(run: Run, lines: Sequence[dict[str, Any]]) -> str:
    """Say how long it took and which model was kept."""
    epochs = [line for line in lines if line.get("event") == "epoch"]
    if not epochs:
        return "This run was not kept in a folder, so there is no record of its training."
    last = epochs[-1]
    where = f" on {run.summary['device']}" if run.summary.get("device") else ""
    said = f"Trained for {plural(last['epoch'], 'epoch')} in {duration(last['seconds'])}{where}."
    valid = _validations(lines)
    if valid:
        select = run.config.select
        ranked = [line for line in valid if select in line] or valid
        best = max(ranked, key=lambda line: (line.get(select, line["mrr"]), -line["epoch"]))
        said += (
            f" The model that was kept is that of epoch {best['epoch']}, which has the best "
            f"{SELECTABLE[select]} on valid, {share(best.get(select, best['mrr']))}."
        )
    return said


def _explore(run: Run, explorer: Path | None) -> Html:
    """Lead to the explorer: the file beside this page, or the command that serves it."""
    if explorer is not None:
        link = html.tag("a", "Open the explorer", href=quote(explorer.name))
        return html.tag(
            "p", link, "Find entities, ask, see the map, review new facts.", class_="explore"
        )
    if run.folder is None:
        return Html("")
    return html.tag(
        "p",
        "Explore it with ",
        html.tag("code", f"nscaching explore {shlex.quote(str(run.folder.path))}"),
        class_="explore",
    )


def _settings(run: Run, lines: Sequence[dict[str, Any]]) -> Iterator[tuple[str, object]]:
    config, graph, model = run.config, run.graph, run.model
    held_out = ", ".join(f"{len(graph.split(name)):,} {name}" for name in ("valid", "test"))
    parameters = model.entity.numel() + model.relation.numel()
    yield "Graph", graph.name
    yield "Size", f"{graph.num_entities:,} entities, {graph.num_relations:,} relations"
    yield "Facts", f"{len(graph.train):,} train, {held_out}"
    yield "Scoring", f"{SCORING[config.scoring].__name__}, d = {config.dim}"
    yield "Parameters", f"{parameters:,}"
    yield "Sampler", SAMPLER_TITLES.get(config.sampler, config.sampler)
    if config.sampler == "nscaching":
        temperatures = zip("₁₂₃", (config.alpha1, config.alpha2, config.alpha3), strict=True)
        alphas = ", ".join(f"α{mark}\u00a0=\u00a0{short(value)}" for mark, value in temperatures)
        yield "Cache", f"N₁ = {config.cache_size:,}, N₂ = {config.candidates:,}"
        yield "Temperatures", alphas
    usual = model.scoring.usual_loss
    loss = config.loss_name(usual)
    said = f"margin ranking, γ = {short(config.margin)}" if loss == "margin" else loss
    l2 = config.penalty(model.scoring.usual_l2, usual)
    if config.relation_prediction:
        said += f" and {short(config.relation_prediction)} × relation prediction"
    yield "Loss", f"{said}, l2 = {short(l2)}, n3 = {short(config.n3)}"
    yield "Optimiser", config.optimizer
    yield "Learning rate", f"{short(config.lr)}, {config.schedule}"
    yield "Batch", f"{config.batch(len(graph.train)):,} triples, seed {config.seed}"
    if ends := training_seconds(lines):
        epoch, seconds = ends[-1]
        yield "Time", f"{seconds / epoch:.2f} s per epoch, validation not counted"


def _curves(lines: Sequence[dict[str, Any]]) -> list[Html]:
    epochs = [line for line in lines if line.get("event") == "epoch"]
    if not epochs:
        return [html.paragraph("There is no record of the training.")]
    valid = _validations(lines)
    x = [line["epoch"] for line in epochs]
    charts = [Chart("Loss", [Series("loss", x, [line["loss"] for line in epochs])])]
    shown = {"MRR on valid": "mrr", "Hits@10 on valid": "hits@10"}
    if any("accuracy" in line for line in valid):
        shown["Accuracy on valid"] = "accuracy"
    for name, key in shown.items():
        found = [line for line in valid if key in line]
        at = [line["epoch"] for line in found]
        charts.append(Chart(name, [Series(name, at, [line[key] for line in found])]))
    parts = [row(charts), _numbers(epochs, valid)]
    if not valid:
        parts.insert(0, html.paragraph("The run did not validate, so the last model was kept."))
    return parts


def _numbers(epochs: Sequence[dict[str, Any]], valid: Sequence[dict[str, Any]]) -> Html:
    """Return the curves as a table, for those who cannot see them or want to copy numbers."""
    seen = {line["epoch"]: line for line in valid}
    rows = []
    for line in thinned(epochs, _TABLE_EPOCHS):
        found = seen.get(line["epoch"], {})
        rows.append(
            {
                "epoch": line["epoch"],
                "loss": f"{line['loss']:.4f}",
                "MRR on valid": share(found["mrr"]) if "mrr" in found else "",
                "Hits@10": share(found["hits@10"]) if "hits@10" in found else "",
                "time": duration(line["seconds"]),
            }
        )
    made = html.table("Learning curves in numbers", rows, minor=("time",))
    return html.tag("details", html.tag("summary", "The numbers"), made)


def _validations(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [x for x in lines if x.get("event") == "evaluation" and x.get("split") == "valid"]


def _map(run: Run, places: Places | None) -> list[Html]:
    found = entity_map(run, known_places=places)
    which = "All entities"
    if len(found.ids) < run.graph.num_entities:
        which = f"The {len(found.ids):,} entities with the most training facts"
        which += f" of {run.graph.num_entities:,}"
    return [
        html.note(
            f"{which}, placed by t-SNE so that entities with similar embeddings lie close "
            "together. The shape and colour of a dot say its type: entities that are heads and "
            "tails of the same relations have one. Point at a dot to see its name."
        ),
        draw_map(found, run.graph.entities),
    ]


def _repeat(run: Run) -> list[Html]:
    data = run.config.data
    own = {"out": "runs/again"}
    lines = [html.command_line("train", run.config.as_dict(), [TrainConfig], own)]
    if run.folder is not None:
        stored = {"config": str(run.folder.path / "config.yaml"), **own}
        lines.append(html.command_line("train", {}, [], stored))
    said = "Either command trains the same run again." if run.folder is not None else ""
    if known_dataset(data) is None and named_folder(data) is None and not _is_there(data):
        said = (
            f"There is no file or data set '{data}' where this page was written: the graph was "
            "made in Python, or it has moved. These commands need it under that name; in Python, "
            "give it to nscaching.train with the same options."
        )
    return [html.paragraph(said), *html.repeating(*lines)]


def _is_there(data: str) -> bool:
    try:
        return Path(data).expanduser().exists()
    except (OSError, RuntimeError):  # no such path can be
        return False
