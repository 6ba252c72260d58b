"""Names that are numbers, in another order than the ids: all answers as with other names."""

import json
import re

import numpy as np
import pytest

from nscaching import KnowledgeGraph, Run
from nscaching.models import Side
from nscaching.report.explorer import explorer_page
from nscaching.report.explorer_answers import ExplorerAnswers
from nscaching.report.run_page import run_page


@pytest.fixture(scope="module")
def numbered(towns):
    """The run on towns with its entities and relations renamed."""
    graph = towns.graph
    entities = np.random.default_rng(0).permutation(graph.num_entities).astype(str).tolist()
    relations = [str(graph.num_relations - 1 - number) for number in range(graph.num_relations)]
    splits = graph.train, graph.valid, graph.test
    renamed = KnowledgeGraph(entities, relations, *splits, name=graph.name)
    return Run(towns.config, renamed, towns.model)


@pytest.fixture(scope="module")
def number(towns, numbered):
    """Return what a value of the run on towns reads like with numbers for its names."""
    old, new = towns.graph, numbered.graph
    names = dict(zip(old.entities, new.entities, strict=True))
    names |= dict(zip(old.relations, new.relations, strict=True))
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    pattern = re.compile("|".join(longest_first))

    def translated(value):
        return json.loads(pattern.sub(lambda found: names[found[0]], json.dumps(value)))

    return translated


def test_answers_are_those_of_other_names(towns, numbered, number):
    fact, wrong = ("town1.1", "in country", "land1"), ("town1.2", "in country", "land3")
    for triple in (fact, wrong):
        same = number(triple)
        assert numbered.judge(*same).as_dict() == number(towns.judge(*triple).as_dict())
        assert numbered.explain(*same).as_dict() == number(towns.explain(*triple).as_dict())
        assert numbered.split_of(*same) == towns.split_of(*triple)
        for calls in ("score", "probabilities", "classify"):
            mine, theirs = (getattr(run, calls) for run in (numbered, towns))
            assert np.array_equal(mine([same]), theirs([triple]))
    town, near = number(["town1.1", "near"])
    tails = towns.predict_tails("town1.1", "near", unlikely=True)
    heads = towns.predict_heads("near", "town1.1", unlikely=True)
    assert numbered.predict_tails(town, near, unlikely=True).as_dicts() == number(tails.as_dicts())
    assert numbered.predict_heads(near, town, unlikely=True).as_dicts() == number(heads.as_dicts())
    asked = numbered.ask([(town, near, "?"), ("?", near, town)], unlikely=True)
    assert asked.as_dicts() == number([*tails.as_dicts(), *heads.as_dicts()])
    assert [each.entity for each in numbered.neighbours(town)] == number(
        [each.entity for each in towns.neighbours("town1.1")]
    )
    assert numbered.remark(Side.TAIL, *number(fact[:2])) == number(
        towns.remark(Side.TAIL, *fact[:2])
    )


def test_discovery_is_that_of_other_names(towns, numbered, number):
    some = {"heads": ["town1.1", "town2.2"], "relations": "near", "tails": towns.graph.entities}
    for given in ({}, some):
        found = towns.discover(20, **given)
        assert len(found) > 0
        assert numbered.discover(20, **number(given)).as_dicts() == number(found.as_dicts())


def test_explorer_and_report_are_those_of_other_names(towns, numbered, number):
    theirs, mine = ExplorerAnswers(towns), ExplorerAnswers(numbered)
    for fact in towns.discover(3):
        head, tail = (towns.graph.entity_id(name) for name in (fact.head, fact.tail))
        relation = towns.graph.relation_id(fact.relation)
        assert mine.explain(head, relation, tail) == number(theirs.explain(head, relation, tail))
        assert mine.ask("tail", head, relation) == number(theirs.ask("tail", head, relation))
        assert mine.ask("head", tail, relation) == number(theirs.ask("head", tail, relation))
        assert mine.entity(head) == number(theirs.entity(head))
        assert mine.fresh(head) == number(theirs.fresh(head))
    assert mine.queue(work=1e5) == number(theirs.queue(work=1e5))
    assert "Most probable new facts" in run_page(numbered)
    assert explorer_page(mine)
