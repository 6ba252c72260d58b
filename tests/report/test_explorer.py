"""The explorer as a file: what is in it, what cannot break out of it, and when it is refused."""

import base64
import json
import re
from functools import partial

import numpy as np
import pytest

import nscaching as ns
import nscaching.report.explorer as explorer
from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.report import explorer_answers
from nscaching.report.entity_map import entity_degrees, entity_places, entity_types
from nscaching.report.explorer import (
    embedded_json,
    estimated_bytes,
    explorer_page,
    write_explorer,
)
from nscaching.report.explorer_answers import ExplorerAnswers, find_names, fold, single_answers
from nscaching.training import TrainConfig

from ..conftest import random_model
from .conftest import NASTY, clubs


def data_of(page):
    """Return the data inside a page, found as a browser finds it."""
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert len(found) == 1
    return json.loads(found[0])


def test_a_page_holds_names_facts_and_the_model(clubs_run):
    data = data_of(explorer_page(ExplorerAnswers(clubs_run), "report.html"))
    graph = clubs_run.graph
    assert data["entities"] == graph.entities
    facts = np.frombuffer(base64.b64decode(data["facts"]), "<i4").reshape(-1, 3)
    assert np.array_equal(facts, np.concatenate([graph.train, graph.valid, graph.test]))
    values = np.frombuffer(base64.b64decode(data["model"]["values"]), "i1")
    assert len(values) == clubs_run.model.entity.numel()
    assert data["report"] == "report.html"
    known = {tuple(fact) for fact in facts.tolist()}
    assert data["queue"]
    assert not {tuple(fact[:3]) for fact in data["queue"]} & known
    chances = [fact[3] for fact in data["queue"]]
    assert chances == sorted(chances, reverse=True)


def test_no_name_ends_the_element_that_holds_it(nasty_run):
    page = explorer_page(ExplorerAnswers(nasty_run))
    assert page.count("<script") == page.count("</script>") == 2
    assert "<img" not in page
    assert set(NASTY) <= set(data_of(page)["entities"])


@pytest.mark.parametrize("name", [*NASTY, "<!--", "\u2028", "]]>", "\\", '"'])
def test_embedded_json_is_json_without_markup(name):
    packed = embedded_json({name: [name]})
    assert json.loads(packed) == {name: [name]}
    assert not set("<>&\u2028\u2029") & set(packed)


def test_a_graph_that_is_too_large_is_sent_to_the_server(clubs_run, monkeypatch, tmp_path):
    monkeypatch.setattr(explorer, "MOST_BYTES", 10_000)
    with pytest.raises(UserError, match="nscaching explore"):
        write_explorer(clubs_run, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_estimate_is_about_the_size(clubs_run, tmp_path):
    written = write_explorer(clubs_run, tmp_path / "page.html").stat().st_size
    assert 0.5 * written < estimated_bytes(clubs_run) < 2.5 * written


def test_int8_rows_are_close(clubs_run):
    rows = clubs_run.embeddings()
    packed = data_of(explorer_page(ExplorerAnswers(clubs_run)))["model"]
    values, scale = (
        np.frombuffer(base64.b64decode(packed[name]), kind)
        for name, kind in (("values", "i1"), ("scale", "<f4"))
    )
    gaps = np.abs(values.reshape(rows.shape) * scale[:, None] - rows)
    assert gaps.max() <= scale.max() / 2 + 1e-6


# Finding ------------------------------------------------------------------------------------------


def test_names_are_found_in_order_of_fit():
    names = ["Newark", "New York", "York", "South New", "renew", "São Paulo", "new"]
    those = list(map(fold, names)), np.array([1, 5, 9, 3, 2, 4, 0])
    found = [names[i] for i in find_names("NEW", *those)[0]]
    assert found == ["new", "New York", "Newark", "South New", "renew"]
    assert [names[i] for i in find_names("sao", *those)[0]] == ["São Paulo"]
    for nothing in ("  ", "zzz", "\n"):
        assert find_names(nothing, *those) == ([], 0)
    assert fold("ÉCOLE") == "ecole"


def test_every_name_is_found_by_itself():
    names = [f"{word} {i}" for i, word in enumerate([*NASTY, "a.b", "(x", "[", "*"])]
    those = list(map(fold, names)), np.zeros(len(names), dtype=int)
    for number, name in enumerate(names):
        assert find_names(name, *those)[0][0] == number


# The map ------------------------------------------------------------------------------------------


def test_places_keep_similar_entities_together_and_are_the_same_again():
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(4, 12))
    group = np.arange(240) % 4
    table = centres[group] + 0.1 * rng.normal(size=(240, 12))
    degree = rng.integers(1, 9, 240)
    places = entity_places(table, degree).astype(float)
    assert np.array_equal(places, entity_places(table, degree))
    middles = np.stack([places[group == each].mean(0) for each in range(4)])
    apart = np.linalg.norm(places[:, None] - middles, axis=2)
    assert (apart.argmin(1) == group).mean() > 0.95


@pytest.mark.parametrize("count", [1, 2, 5, 80])
def test_small_graphs_have_places_too(count):
    places = entity_places(np.random.default_rng(0).normal(size=(count, 3)), np.ones(count))
    assert places.shape == (count, 2)


def test_types_tell_what_stands_where():
    graph = clubs()
    types, names = entity_types(graph, np.arange(graph.num_entities))
    of_club = {int(types[graph.entity_ids[f"club {i}"]]) for i in range(4)}
    assert len(of_club) == 1
    assert names[of_club.pop()] == "tail of member of"
    people = {int(types[i]) for i, name in enumerate(graph.entities) if name.startswith("p")}
    assert len({names[each] for each in people}) == len(people)
    assert entity_degrees(graph).sum() == 2 * (
        len(graph.train) + len(graph.valid) + len(graph.test)
    )


# Answers ------------------------------------------------------------------------------------------


def test_new_facts_of_an_entity_are_new_and_about_it(clubs_run):
    answers = ExplorerAnswers(clubs_run)
    number = clubs_run.graph.entity_ids["p3"]
    fresh = answers.fresh(number)
    assert fresh
    for fact in fresh:
        assert number in (fact["head"]["id"], fact["tail"]["id"])
        names = (
            fact["head"]["name"],
            clubs_run.graph.relations[fact["relation"]],
            fact["tail"]["name"],
        )
        assert clubs_run.split_of(*names) is None
    chances = [fact["probability"] for fact in fresh]
    assert chances == sorted(chances, reverse=True)


def tangled(seed=0, entities=9, relations=3):
    """Return a run on a graph with loops, with facts in two splits, and with a lonely entity."""
    rng = np.random.default_rng(seed)
    limits = (entities - 1, relations, entities - 1)
    train, valid, test = (rng.integers(0, limits, (n, 3)) for n in (60, 12, 12))
    names = [f"e{i}" for i in range(entities)], [f"r{i}" for i in range(relations)]
    graph = KnowledgeGraph(*names, train, valid, np.concatenate([test, train[:6], valid[:3]]))
    model = random_model("distmult", entities, relations, 4)
    return ns.Run(TrainConfig(scoring="distmult", dim=4), graph, model)


def defined(graph, number, loops):
    """Return what links an entity, from the definition: {(relation, out): {other: split}}."""
    found = {}
    for split in ("test", "valid", "train"):
        for head, relation, tail in graph.split(split).tolist():
            if head == number:
                found.setdefault((relation, True), {})[tail] = split
            if tail == number and (loops or head != number):
                found.setdefault((relation, False), {})[head] = split
    return found


def pages(ask, size):
    """Return all facts of a group, page by page, and check how long pages are."""
    held = []
    while page := ask(len(held)):
        assert len(page) == size or not ask(len(held) + len(page))
        held += page
    return held


@pytest.mark.parametrize("seed", range(4))
def test_pages_of_facts_are_those_of_the_entity(monkeypatch, seed):
    monkeypatch.setattr(explorer_answers, "PAGE", 2)
    run = tangled(seed)
    answers, degree = ExplorerAnswers(run), entity_degrees(run.graph)
    for number in range(run.graph.num_entities):
        expected = defined(run.graph, number, loops=False)
        shown = answers.entity(number)
        keys = [(group["relation"], group["out"]) for group in shown["groups"]]
        assert keys == sorted(expected, key=lambda key: (not key[1], key[0]))
        others = {other for each in expected.values() for other in each} - {number}
        assert shown["neighbours"] == len(others)
        for group in shown["groups"]:
            of = group["relation"], group["out"]
            facts = pages(partial(answers.facts, number, *of), 2)
            assert {f["other"]["id"]: f["split"] for f in facts} == expected[of]
            assert group["total"] == len(facts) == len(expected[of])
            assert group["facts"] == facts  # few enough to come at once
            ids = [fact["other"]["id"] for fact in facts]
            assert ids == sorted(ids, key=lambda each: (-degree[each], each))
        for (relation, out), known in defined(run.graph, number, loops=True).items():
            side = "tail" if out else "head"
            asked = partial(answers.known, side, number, relation)
            held = pages(lambda start, asked=asked: asked(start)["facts"], 2)
            assert {f["other"]["id"]: f["split"] for f in held} == known
            assert known == run.graph.answers(side, number, relation)
            assert answers.known(side, number, relation)["total"] == len(known)


def test_a_hub_comes_with_its_first_facts_only():
    n = 30_000
    facts = np.column_stack([np.arange(1, n), np.zeros(n - 1, int), np.zeros(n - 1, int)])
    facts[:, 1] = facts[:, 0] % 3
    names = [f"e{i}" for i in range(n)]
    run = ns.Run(
        TrainConfig(scoring="distmult", dim=4),
        KnowledgeGraph(names, ["a", "b", "c"], facts),
        random_model("distmult", n, 3, 4),
    )
    answers = ExplorerAnswers(run)
    shown = answers.entity(0)
    assert [(group["total"], len(group["facts"])) for group in shown["groups"]] == [
        (9999, 18),
        (10_000, 18),
        (10_000, 18),
    ]
    assert shown["neighbours"] == n - 1
    assert len(json.dumps(shown)) < 10_000
    assert len(answers.facts(0, 1, False, 9_900)) == 100
    known = answers.known("head", 0, 2)
    assert (known["total"], len(known["facts"])) == (10_000, 200)


def test_more_questions_than_32_bits_count_are_told_apart():
    n = 60_000
    names = [f"e{i}" for i in range(n)], [f"r{i}" for i in range(n)]
    graph = KnowledgeGraph(*names, np.array([[1, n - 1, n - 2], [n - 2, n - 2, 1], [1, 0, n - 1]]))
    run = ns.Run(TrainConfig(scoring="distmult", dim=2), graph, random_model("distmult", n, n, 2))
    shown = ExplorerAnswers(run).entity(1)["groups"]
    found = [(g["relation"], g["out"], [f["other"]["id"] for f in g["facts"]]) for g in shown]
    assert found == [(0, True, [n - 1]), (n - 1, True, [n - 2]), (n - 2, False, [n - 2])]


def test_many_groups_share_what_an_entity_comes_with(monkeypatch):
    monkeypatch.setattr(explorer_answers, "MOST_OF_ENTITY", 10)
    answers = ExplorerAnswers(tangled())
    shown = answers.entity(0)["groups"]
    assert [len(group["facts"]) for group in shown] == [
        min(group["total"], 10 // len(shown)) for group in shown
    ]


def test_links_are_facts_between_the_given_entities(clubs_run):
    answers, graph = ExplorerAnswers(clubs_run), clubs_run.graph
    ids = [graph.entity_ids[name] for name in ("p0", "p4", "p8", "p1")]
    held = np.concatenate([graph.train, graph.valid, graph.test])
    expected = {(h, t) for h, _, t in held.tolist() if h in ids and t in ids and h != t}
    assert set(answers.links(ids)) == expected


def test_a_bound_of_work_asks_the_most_frequent(clubs_run):
    answers = ExplorerAnswers(clubs_run)
    graph = clubs_run.graph
    few = answers.queue(work=3 * graph.num_entities * graph.num_relations)
    frequent = np.argsort(-answers.degree, kind="stable")[:3].tolist()
    assert {fact["head"]["id"] for fact in few} <= set(frequent)


def test_an_entity_is_doubted_only_where_entities_recur(clubs_run):
    answers, graph = ExplorerAnswers(clubs_run), clubs_run.graph
    member, knows = graph.relation_ids["member of"], graph.relation_ids["knows"]
    club = graph.entity_ids["club 1"]
    members = graph.train[graph.train[:, 1] == member, 0]
    new = next(i for i in range(graph.num_entities) if i not in members and i != club)

    def doubts(*fact):
        said = [each["parts"][-1] for each in answers.explain(*fact) if each["sign"] < 0]
        return [text for text in said if "never the" in text]

    assert doubts(new, member, club) == []  # everyone is a member once
    assert len(doubts(graph.entity_ids["p1"], knows, club)) == 1


def test_relations_with_one_answer_are_known():
    graph = clubs()
    member, knows = graph.relation_ids["member of"], graph.relation_ids["knows"]
    found = single_answers(graph)
    assert member in found["tail"]
    assert member not in found["head"]
    assert knows not in found["tail"] + found["head"]
