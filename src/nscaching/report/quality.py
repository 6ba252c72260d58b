"""How good the final model is: overall, by side, by cardinality, by relation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nscaching.evaluation import RankingMetrics, RankingReport
from nscaching.graph import KnowledgeGraph
from nscaching.report.markup import Column, Html, bar, breakable, join, paragraph, table, tag
from nscaching.report.numbers import count, rank, share

#: Relations shown at each end, and how many are shown whole.
_AT_EACH_END, _ALL = 6, 14
#: A relation with fewer ranks than this says little; it is shown only where there are no others.
_FEWEST_RANKS = 20
_COLUMNS = (
    Column("MRR"),
    Column("Hits@1", minor=True),
    Column("Hits@3", minor=True),
    Column("Hits@10"),
    Column("mean rank", minor=True),
    Column("ranks", minor=True),
)


def quality(report: RankingReport, graph: KnowledgeGraph) -> list[Html]:
    """Return the tables of an evaluation."""
    sides = {"both sides": report, "heads": report.head, "tails": report.tail}
    parts = [
        paragraph(
            f"Every fact of {report.split} was asked twice, once for its head and once for its "
            "tail; the true entity was ranked among all entities that do not make another fact of "
            "the graph. MRR is the mean of 1/rank, Hits@k the share of ranks up to k.",
            class_="quiet",
        ),
        _metrics("By side", "asked for", sides),
        _metrics("By cardinality, heads to tails", "class", report.per_cardinality),
    ]
    return [*parts, *_relations(report, graph)]


def _metrics(caption: object, what: str, rows: Mapping[Any, RankingMetrics]) -> Html:
    columns = [Column(what, "text"), *_COLUMNS]
    made = table(caption, columns, [[name, *_cells(part)] for name, part in rows.items()])
    return tag("div", made, class_="metrics")


def _cells(part: RankingMetrics) -> list[object]:
    return [
        bar(part.mrr, share(part.mrr)),
        share(part.hits_at_1),
        share(part.hits_at_3),
        share(part.hits_at_10),
        rank(part.mr),
        count(part.count),
    ]


def _relations(report: RankingReport, graph: KnowledgeGraph) -> list[Html]:
    cardinality = dict(zip(graph.relations, graph.statistics.cardinality, strict=True))

    def made(caption: str, chosen: list[tuple[str, RankingMetrics]], remark: str = "") -> Html:
        said = join([caption, tag("span", remark, class_="quiet")])
        named = {
            join([breakable(name), " ", tag("span", cardinality[name], class_="quiet")]): part
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
