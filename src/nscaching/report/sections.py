"""Sections of the page of a run: quality, probabilities, new facts, and inside the cache."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nscaching.errors import UserError
from nscaching.evaluation import RankingMetrics, RankingReport
from nscaching.graph import KnowledgeGraph
from nscaching.report import markup as html
from nscaching.report.charts import Chart, Series, row
from nscaching.report.markup import Html, percent, rank, share, thinned
from nscaching.report.pictures import counter_charts
from nscaching.runs.run import Run
from nscaching.training.tracing.counters import LEAST_LOSS
from nscaching.training.tracing.snapshots import Line

#: Relations shown at each end, and how many are shown whole.
_AT_EACH_END, _ALL = 6, 14
#: A relation with fewer ranks than this says little; it is shown only where there are no others.
_FEWEST_RANKS = 20
#: Snapshots of a row, rows, and entities of a row that are shown.
_SNAPSHOTS, _ROWS, _NAMES = 5, 3, 5
#: New facts on a page, and the scores that finding them may take, on a CPU and on a GPU.
_NEW_FACTS, _MOST_SCORES, _MOST_SCORES_GPU = 10, 2e8, 5e10


# Quality -----------------------------------------------------------------------------------------


def quality(report: RankingReport, graph: KnowledgeGraph) -> Iterator[Html]:
    """Return the tables of an evaluation."""
    sides = {"both sides": report, "heads": report.head, "tails": report.tail}
    yield html.note(
        f"Every fact of {report.split} was asked twice, once for its head and once for its tail; "
        "the true entity was ranked among all entities, filtered: without those that make another "
        "known fact. MRR is the mean of 1/rank, Hits@k the share of ranks up to k."
    )
    yield _metrics("By side", "asked for", sides)
    yield _metrics("By cardinality, heads to tails", "class", report.per_cardinality)
    yield from _relations(report, graph)


def _metrics(caption: object, what: str, rows: Mapping[Any, RankingMetrics]) -> Html:
    cells = [
        {
            what: name,
            "MRR": html.bar(part.mrr, share(part.mrr)),
            "Hits@1": share(part.hits_at_1),
            "Hits@3": share(part.hits_at_3),
            "Hits@10": share(part.hits_at_10),
            "mean rank": rank(part.mr),
            "ranks": f"{part.count:,}",
        }
        for name, part in rows.items()
    ]
    minor = ("Hits@1", "Hits@3", "mean rank", "ranks")
    return html.tag("div", html.table(caption, cells, minor=minor), class_="metrics")


def _relations(report: RankingReport, graph: KnowledgeGraph) -> list[Html]:
    cardinality = dict(zip(graph.relations, graph.statistics.cardinality, strict=True))

    def made(caption: str, chosen: list[tuple[str, RankingMetrics]], remark: str = "") -> Html:
        said = html.join([caption, html.tag("span", remark, class_="quiet")])
        named = {
            html.join(
                [html.breakable(name), " ", html.tag("span", cardinality[name], class_="quiet")]
            ): part
            for name, part in chosen
        }
        return _metrics(said, "relation", named)

    ordered = sorted(report.per_relation.items(), key=lambda item: -item[1].mrr)
    if len(ordered) <= _ALL:
        return [made("By relation, the best first", ordered)]
    enough = [item for item in ordered if item[1].count >= _FEWEST_RANKS]
    remark = f" of the {len(enough)} with at least {_FEWEST_RANKS} ranks"
    if len(enough) < 2 * _AT_EACH_END:
        enough, remark = ordered, f" of {len(ordered)}"
    return [
        made("The relations that do best", enough[:_AT_EACH_END], remark),
        made("The relations that do worst", enough[-_AT_EACH_END:], remark),
    ]


# Probabilities and new facts ---------------------------------------------------------------------


def calibration(run: Run) -> list[Html]:
    """Return the reliability diagram of the probabilities, or why there is none."""
    split = next((name for name in ("test", "valid") if len(run.graph.split(name))), None)
    if split is None or len(run.graph.valid) == 0:
        return [
            html.paragraph("Probabilities are fitted on valid, and this graph has no valid split.")
        ]
    if not _affordable(run):
        return [html.paragraph("Fitting probabilities on this graph takes a while."), _later(run)]
    try:
        report = run.calibration_report(split)
    except UserError as error:
        return [html.paragraph(str(error))]
    lines = []
    for label, bins in (("calibrated", report.bins), ("raw score", report.bins_before)):
        there = [each for each in bins if each.count]
        x, y = [each.predicted for each in there], [each.true for each in there]
        lines.append(Series(label, x, y))
    lines.append(Series("ideal", [0.0, 1.0], [0.0, 1.0]))
    chart = Chart(
        f"Share of true claims on {split}",
        lines,
        x_name="probability",
        say=percent,
        whole=False,
        percent=True,
    )
    return [
        html.note(
            f"Of claims with a probability of p a share of p should be true. The expected "
            f"calibration error is {share(report.ece)} ({share(report.ece_before)} for the "
            f"logistic function of the raw score), over {report.count:,} claims of {split}: "
            "each fact beside a negative of the right type and one of any type."
        ),
        row([chart]),
    ]


def new_facts(run: Run) -> list[Html]:
    """Return the most probable facts that the graph lacks."""
    if not _affordable(run):
        return [
            html.paragraph("Asking all questions of a graph of this size takes a while."),
            _later(run),
        ]
    degree = np.bincount(run.graph.train[:, [0, 2]].ravel(), minlength=run.graph.num_entities)
    per_head = run.graph.num_entities * run.graph.num_relations
    heads = np.argsort(-degree, kind="stable")[: max(64, int(_limit(run) / 2 // per_head))]
    names = [run.graph.entities[head] for head in heads.tolist()]  # an id could be a name too
    found = run.discover(_NEW_FACTS, heads=names, per_question=1, per_answer=2)
    if not found:
        return [html.paragraph("The model offers no fact that the graph lacks.")]
    rows = [
        {
            "head": html.breakable(each.head),
            "relation": html.breakable(each.relation),
            "tail": html.tag("b", html.breakable(each.tail)),
            "probability": "–" if each.probability is None else percent(each.probability),
            "score": f"{each.score:.2f}",
            "note": "; ".join(each.flags),
        }
        for each in found
    ]
    made = html.table(
        "Most probable new facts", rows, names=("relation", "tail", "note"), minor=("score",)
    )
    asked = "all heads" if len(heads) == run.graph.num_entities else f"{len(heads):,} heads"
    return [
        html.note(
            "The most probable facts that the graph does not contain, of "
            f"{asked} with the most facts: one tail per question, each at most twice. They are "
            f"predictions, not facts. {run.assumption or ''} More of them:"
        ),
        _later(run),
        html.tag("div", made, class_="triples"),
    ]


def _affordable(run: Run) -> bool:
    """Tell whether calibration, which ranks the facts of valid, is quick enough for a page."""
    kept = run.folder is not None and run.folder.calibration.is_file()
    return kept or 4 * len(run.graph.valid) * run.graph.num_entities <= _limit(run)


def _limit(run: Run) -> float:
    return _MOST_SCORES_GPU if run.model.device.type == "cuda" else _MOST_SCORES


def _later(run: Run) -> Html:
    folder = "RUN" if run.folder is None else str(run.folder.path)
    return html.command(shlex.join(["nscaching", "discover", folder]))


# Inside the cache --------------------------------------------------------------------------------


def inside_the_cache(trace: Sequence[Line], window: int) -> Iterator[Html]:
    """Return what a trace saw, or how to get one."""
    if not any(line["event"] == "epoch" for line in trace):
        yield html.paragraph(
            "This run was not traced; train it with ",
            html.tag("code", "--trace"),
            " to see here what its negatives are worth, and cache rows by name.",
        )
        return
    snapshots: dict[str, list[Line]] = {}
    for line in trace:
        if line["event"] == "row":
            snapshots.setdefault(line["row"], []).append(line)
    yield html.note(
        f"A negative has a gradient only while its loss is not zero (above {LEAST_LOSS} for losses "
        "that never reach zero). It is repeated if its triple had it in the "
        f"{window} epochs before, and a false negative if it is a fact of valid or test, which "
        "training cannot know. The recall is the share of a cache row that is among the "
        "highest-scoring entities of all: whether the cache keeps up with the model."
    )
    yield row(counter_charts(trace))
    if snapshots:
        yield html.tag("h3", "Rows of the cache over the epochs")
        yield html.note(
            "The entities of a row that score highest as an answer to its question, the hardest "
            "first. ",
            html.tag("span", "These", class_="fact"),
            " are facts of valid or test.",
        )
    for name, seen in list(snapshots.items())[:_ROWS]:
        yield _row(name, seen)


def _row(name: str, snapshots: Sequence[Line]) -> Html:
    rows = [
        {
            "epoch": line["epoch"],
            "the hardest": html.join([_entity(each) for each in line["hardest"][:_NAMES]], ", "),
            "at random": html.join(
                [html.breakable(name) for name in line["random"][:_NAMES]], ", "
            ),
        }
        for line in thinned(snapshots, _SNAPSHOTS)
    ]
    question = " – ".join(part.strip() for part in name.replace("\t", "|").split("|"))
    made = html.table(
        html.breakable(question), rows, names=("the hardest", "at random"), minor=("at random",)
    )
    return html.tag("div", made, class_="rows")


def _entity(each: Mapping[str, Any]) -> Html:
    held_out = each["split"] in ("valid", "test")
    title = f"score {each['score']:.2f}"
    if held_out:
        title = f"a fact of {each['split']}, {title}"
    return html.tag(
        "span", html.breakable(each["entity"]), class_="fact" if held_out else None, title=title
    )
