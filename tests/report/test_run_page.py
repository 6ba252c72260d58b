"""The page of a run: what it says, that nothing in it can bite, what it costs."""

import json

import pytest

import nscaching as ns
from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.report.markup import try_to_write
from nscaching.report.run_page import run_page

from ..conftest import counting_steps, random_graph
from ..training.helpers import ring, train
from .conftest import NASTY
from .reading import read


@pytest.fixture(scope="module")
def page(nasty_run):
    return run_page(nasty_run)


def test_it_is_whole_small_and_leads_nowhere_else(page):
    found = read(page)
    assert len(page.encode()) < 200_000
    assert found.count("svg") >= 6
    for title in ("Learning curves", "Map of the entities", "Inside the cache", "Repeat it"):
        assert title in found.words


def test_names_that_bite_are_only_text(page, nasty_run):
    found = read(page)
    assert found.count("img") == found.count("i") - page.count('<i style="--share') == 0
    for name in NASTY:
        assert name in found.words  # as text, in a cache row
        assert "<" not in name or name not in page
    (figure,) = [a for tag, a in found.tags if a.get("class") == "map"]
    assert set(NASTY) <= set(json.loads(figure["data-points"])["names"])
    assert '<b>rel</b> & "more" </script>' in found.words


def test_numbers_are_those_of_the_evaluation(page, nasty_run):
    report, words = nasty_run.evaluations["test"], read(page).words
    numbers = (report, report.head, report.tail, *report.per_relation.values())
    for part in numbers:
        assert f"{part.mrr:.3f}" in words
        assert f"{part.hits_at_10:.3f}" in words
    best = max(line["mrr"] for line in nasty_run.folder.read_metrics() if line.get("split"))
    assert f"{best:.3f}" in words


def test_the_trace_is_shown_and_held_out_facts_are_marked(page, nasty_run):
    words = read(page).words
    assert "Negatives with non-zero loss" in words
    assert "False negatives" in words
    rows = [line for line in nasty_run.trace if line["event"] == "row"]
    for line in rows[-3:]:
        shown = (*(each["entity"] for each in line["hardest"][:5]), *line["random"])
        assert all(name in words for name in shown)
    assert page.count('class="fact" title="a fact of test') == len(NASTY)
    assert "e20 – r1 – ?" in words


def test_a_run_without_a_trace_says_how_to_get_one():
    words = read(run_page(train(ring()))).words
    assert "not traced; train it with --trace" in words


def test_other_samplers_have_no_cache_and_traced_ones_show_their_negatives():
    assert "Inside the cache" not in run_page(train(ring(), sampler="uniform"))
    words = read(run_page(train(ring(), sampler="uniform", trace=True))).words
    assert "The negatives" in words
    assert "in the cache" not in words


def test_the_evaluation_of_the_run_is_not_made_again(nasty_run, monkeypatch):
    run = train(ring())
    assert run.evaluate("test", ties="pessimistic") is not run.evaluations["test"]
    monkeypatch.setattr("nscaching.evaluation.metrics.rank_triples", pytest.fail)
    assert f"{run.summary['test']['mrr']:.3f}" in run_page(run)


def test_a_loaded_run_is_evaluated_and_gives_the_same_page(nasty_run, page):
    loaded = run_page(ns.load_run(nasty_run.folder.path, "cpu"))

    def body(text):
        return text[text.index('<section id="curves"') : text.index("<footer>")]

    assert body(loaded) == body(page)


def test_without_test_valid_is_shown_and_without_either_it_is_said():
    triples = [(f"e{n}", "r", f"e{n + 1}") for n in range(8)]
    graph = KnowledgeGraph.from_triples(triples, [("e0", "r", "e2")])
    assert "MRR on valid" in read(run_page(train(graph))).words
    alone = read(run_page(train(KnowledgeGraph.from_triples(triples)))).words
    assert "Nothing was held out" in alone
    assert "this graph has no valid split" in alone


def test_a_run_that_never_validated_and_one_in_no_folder(tmp_path):
    run = train(ring(), out=tmp_path / "R", valid_every=0)
    assert "did not validate" in read(run_page(run)).words
    loose = train(ring())
    assert "There is no record of the training" in read(run_page(loose)).words
    with pytest.raises(UserError, match="in no folder; name the file"):
        loose.report()
    assert loose.report(tmp_path / "page.html") == tmp_path / "page.html"


def test_many_relations_are_shown_at_both_ends():
    graph = random_graph(entities=20, relations=30, train=500, held_out=150)
    run = train(graph)
    words = read(run_page(run)).words
    assert "The relations that do best of 30" in words
    ordered = sorted(run.evaluations["test"].per_relation.items(), key=lambda item: -item[1].mrr)
    shown = words[words.index("The relations that do best") : words.rindex("Map of the entities")]
    for name, _ in (*ordered[:6], *ordered[-6:]):
        assert f"{name} " in shown


def test_a_graph_that_is_not_there_is_said_and_one_that_is_is_not(data):
    assert "There is no file or data set 'ring'" in read(run_page(train(ring()))).words
    words = read(run_page(train(str(data)))).words
    assert "There is no file" not in words
    assert f"nscaching train {data} --out runs/again --dim 8" in words


@pytest.mark.parametrize("scoring", ["transe", "transh", "complex", "rotate"])
def test_every_kind_of_table_has_a_map(scoring):
    read(run_page(train(ring(), scoring=scoring, dim=4, epochs=1)))


def test_a_page_that_fails_is_said_and_nothing_else(tmp_path):
    said = []
    assert try_to_write(lambda: 1 / 0, said.append) is None
    assert said == ["No report: division by zero"]
    assert try_to_write(lambda: next(iter(())), said.append) is None  # an error without words
    assert said.pop() == "No report: StopIteration"
    run = train(ring(), out=tmp_path / "R")
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert try_to_write(lambda: run.report(blocked / "x.html"), said.append) is None
    assert "Cannot write" in said[1]


@pytest.mark.slow
def test_the_page_of_the_bundled_graph_is_small_and_made_without_a_loop_over_its_facts():
    run = train(ns.load_graph("world"), dim=100, epochs=1, batch_size=4096, valid_every=0)
    found, report = run.discover(10, per_question=1), run.calibration_report("test")
    run.discover = lambda *_, **__: found  # what the page adds to what it shows is counted
    run.calibration_report = lambda *_: report
    page, steps = counting_steps(lambda: run_page(run))
    assert steps < 350 * 2000  # some 200 a dot of the map
    assert len(page.encode()) < 500_000
    assert "The 2,000 entities with the most training facts of 7,134" in read(page).words


def test_new_facts_are_those_of_discover_with_their_probability():
    plain = random_graph(entities=20, relations=3, train=150, held_out=30)
    entities = [*NASTY, *plain.entities[len(NASTY) :]]
    splits = (plain.train, plain.valid, plain.test)
    run = train(KnowledgeGraph(entities, plain.relations, *splits))
    words = read(run_page(run)).words
    shown = words[words.index("Most probable new facts") :]
    found = run.discover(10, per_question=1, per_answer=2)
    assert found
    assert run.assumption in words
    for fact in found:
        assert all(" ".join(name.split()) in shown for name in fact.triple)
        assert run.split_of(*fact.triple) is None


def test_a_graph_whose_questions_are_all_answered_says_so(page):
    assert "The model offers no fact that the graph lacks" in read(page).words


def test_the_reliability_diagram_says_its_error(nasty_run, page):
    report = nasty_run.calibration_report("test")
    assert f"calibration error is {report.ece:.3f}" in read(page).words
    assert "Share of true claims on test" in read(page).words


def test_what_would_take_too_long_is_a_command(monkeypatch, tmp_path):
    monkeypatch.setattr("nscaching.report.sections._MOST_SCORES", 1)
    kept = train(ring(), out=tmp_path / "R")
    assert read(run_page(kept)).words.count(f"nscaching discover {tmp_path / 'R'}") == 2
    words = read(run_page(train(ring()))).words
    assert words.count("nscaching discover RUN") == 2
    assert "Most probable new facts" not in words
