"""The rows that are looked at where none is named."""

from nscaching.models import Side
from nscaching.training.tracing.examples import example_rows
from nscaching.training.tracing.names import find_row

from ...conftest import graph_of, random_graph
from ...training.helpers import ring, train


def test_each_of_the_frequent_relations_gives_the_row_with_most_held_out_answers():
    common = [(0, 0, t) for t in (1, 2, 3)] + [(4, 0, t) for t in (1, 2, 5, 6)]
    rare = [(1, 1, 2), (2, 1, 3)]
    once = [(5, 2, 6)]
    graph = graph_of(common + rare + once, valid=[(0, 0, 6)], test=[(0, 0, 5)])
    first, second = example_rows(graph, count=2)
    assert (first.text, first.side) == ("e0|r0|?", Side.TAIL)  # two held out; e4 has more in train
    assert second.relation == 1


def test_an_example_is_what_its_name_says():
    graph = random_graph()
    rows = example_rows(graph)
    assert len(rows) == 3
    assert rows == [find_row(graph, row.text) for row in rows]


def test_a_traced_run_without_rows_shows_examples_and_one_without_a_cache_does_not():
    seen = {
        sampler: [line["event"] for line in train(ring(), sampler=sampler, trace=True).trace]
        for sampler in ("nscaching", "uniform")
    }
    assert "row" in seen["nscaching"]
    assert set(seen["uniform"]) == {"epoch"}
