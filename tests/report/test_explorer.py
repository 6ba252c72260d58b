"""The explorer as a file: what is in it, what cannot break out of it, and when it is refused."""

import base64
import json
import re

import numpy as np
import pytest

import nscaching.report.explorer as explorer
from nscaching.errors import UserError
from nscaching.report.entity_map import entity_degrees, entity_places, entity_types
from nscaching.report.explorer import (
    embedded_json,
    estimated_bytes,
    explorer_page,
    write_explorer,
)
from nscaching.report.explorer_answers import ExplorerAnswers, find_names, fold, single_answers

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
