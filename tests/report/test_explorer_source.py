"""Answers of the page's own scripts, run by Node.js: those of Python, and facts page by page."""

import json
import shutil
import subprocess

import numpy as np
import pytest

import nscaching as ns
from nscaching.evaluation.calibration import TAKEN_OUT, answer_logits
from nscaching.evaluation.regression import expit
from nscaching.graph import KnowledgeGraph
from nscaching.report.explorer import explorer_page
from nscaching.report.explorer_answers import PAGE, ExplorerAnswers
from nscaching.report.markup import asset
from nscaching.training import TrainConfig

from ..conftest import random_model
from .test_explorer import data_of, tangled

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
#: Elements without a browser: children, attributes, listeners.
ELEMENTS = """
class Element {
  constructor(tag) { Object.assign(this, { tag, children: [], listeners: {}, disabled: false }); }
  append(...more) { this.children.push(...more); }
  setAttribute(name, value) { this[name] = value; }
  addEventListener(name, work) { this.listeners[name] = work; }
  querySelector() { return this.children[0]; }
  remove() { this.removed = true; }
  focus() { globalThis.focused = this; }
}
const createElement = (tag) => new Element(tag);
globalThis.document = { createElement, getElementById: () => createElement("p") };
"""


def run(script, *names):
    """Return what a script logs as JSON, after some scripts of the page."""
    parts = [ELEMENTS, *(asset(f"explorer-{name}.js") for name in names)]
    parts.append(f"(async () => {{ {script} }})().then((x) => console.log(JSON.stringify(x)));")
    given = {"input": "\n".join(parts), "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run([NODE, "-"], **given)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("entities", [9, 30])
def test_the_file_gives_the_facts_that_the_server_gives(entities):
    answers = ExplorerAnswers(tangled(entities=entities))
    asked = [[s, e, r] for s in ("tail", "head") for e in range(entities) for r in range(3)]
    shown = run(
        f"const source = new EmbeddedSource({json.dumps(data_of(explorer_page(answers)))});"
        f"const made = {{ entities: [], known: [], moreKnown: [], moreFacts: [] }};"
        f"for (let e = 0; e < {entities}; e += 1) made.entities.push(await source.entity(e));"
        f"for (const [side, e, r] of {json.dumps(asked)}) {{"
        "  made.known.push((await source.ask(side, e, r)).known);"
        "  made.moreKnown.push(await source.moreKnown(side, e, r, 1));"
        "  made.moreFacts.push(await source.moreFacts(e, r, side === 'tail', 1));"
        "} return made;",
        *("base", "find", "model", "source"),
    )
    for number, entity in enumerate(shown["entities"]):
        expected = answers.entity(number)
        assert all(entity[name] == expected[name] for name in expected if name != "similar")
    for place, (side, number, relation) in enumerate(asked):
        assert shown["known"][place] == answers.known(side, number, relation)
        assert shown["moreKnown"][place] == answers.known(side, number, relation, 1)["facts"]
        expected = answers.facts(number, relation, side == "tail", 1)
        assert shown["moreFacts"][place] == expected


def test_a_button_shows_more_until_all_are_there():
    total, first = 450, 18
    shown = run(
        "const other = (id) => ({ id, name: `e${id}`, type: 0, degree: 1 }), steps = [], from = [];"
        f"const all = Array.from({{ length: {total} }}, (_, id) => other(id))"
        "  .map((each) => ({ other: each, split: 'train' }));"
        "const load = async (start) => {"
        "  from.push(start);"
        "  if (from.length === 2) throw new Error('gone');"
        f"  return all.slice(start, start + {PAGE});"
        "};"
        f"const [list, more] = chipList({{ total: {total}, facts: all.slice(0, {first}) }}, load);"
        "const look = () => steps.push("
        "  [list.children.length, more.textContent, Boolean(more.removed), more.disabled]);"
        "look();"
        "for (let turn = 0; turn < 4; turn += 1) { await more.listeners.click(); look(); }"
        "const few = chipList({ total: 2, facts: all.slice(0, 2) }, load).length;"
        "return { steps, from, few, focused: focused.href,"
        "  links: list.children.map((item) => item.children[0].href) };",
        *("base", "views"),
    )
    assert shown["steps"] == [
        [12, "Show more (438 left)", False, False],
        [218, "Show more (232 left)", False, False],
        [218, "Show more (232 left)", False, False],  # the server is gone: it may be tried again
        [418, "Show more (32 left)", False, False],
        [450, "Show more (0 left)", True, False],
    ]
    assert shown["from"] == [18, 218, 218, 418]
    assert shown["links"] == [f"#/entity/{number}" for number in range(total)]
    assert shown["focused"] == "#/entity/418"
    assert shown["few"] == 1  # no button


def test_probabilities_from_what_the_fit_gives_are_those_of_python():
    given = [-800.0, -40.0, -3.0, -0.5, 0.0, 0.5, 3.0, 40.0, 800.0]
    made = f"new Calibration({json.dumps({'taken_out': TAKEN_OUT, 'sides': {}})}, 0)"
    found = run(f"const fit = {made}; return {given}.map((x) => fit.chance(x))", "model")
    assert found == pytest.approx(expit(answer_logits(np.array(given))), rel=1e-9)


def parts_of(reasons):
    """Return the sign and the parts of reasons from shared facts, entities by id."""
    said = [
        (each["sign"], [part if isinstance(part, str) else part["id"] for part in each["parts"]])
        for each in reasons
    ]
    return [(sign, parts) for sign, parts in said if "would be expected" in parts[-1]]


def kinds_of_districts():
    """Districts of one kind have a parent; those of another kind never do."""
    facts = [(n, 0, 60 + n % 2) for n in range(60)] + [(n, 1, 62) for n in range(0, 60, 2)]
    names = [f"district {n}" for n in range(60)] + ["county", "borough", "region"]
    return KnowledgeGraph(names, ["is a", "part of"], facts[:-1], facts[-1:])


def alike(seed=0, entities=40):
    """Return a random graph in which a few hubs are shared by many."""
    rng = np.random.default_rng(seed)
    triples = rng.integers(0, (entities, 4, 6), (300, 3))
    triples[::3] = triples[::3, ::-1] * [1, 0, 1] + triples[::3] * [0, 1, 0]
    names = [f"e{i}" for i in range(entities)], [f"r{i}" for i in range(4)]
    triples = np.unique(triples, axis=0)
    order = rng.permutation(len(triples))
    return KnowledgeGraph(*names, triples[order[20:]], triples[order[:20]])


@pytest.mark.parametrize("graph", [kinds_of_districts(), alike()], ids=["districts", "alike"])
def test_facts_that_others_share_are_told_as_python_tells_them(graph):
    model = random_model("distmult", graph.num_entities, graph.num_relations, 4)
    answers = ExplorerAnswers(ns.Run(TrainConfig(scoring="distmult", dim=4), graph, model))
    rng = np.random.default_rng(0)
    sizes = graph.num_entities, graph.num_relations, graph.num_entities
    asked = [[58, 1, 62], [7, 1, 62]] if graph.num_relations == 2 else []
    asked += rng.integers(0, sizes, (200, 3)).tolist()
    shown = run(
        f"const source = new EmbeddedSource({json.dumps(data_of(explorer_page(answers)))});"
        f"const made = []; for (const fact of {json.dumps(asked)})"
        "  made.push(await source.explain(...fact));"
        "return made;",
        *("base", "find", "model", "source", "reasons"),
    )
    expected = [parts_of(answers.explain(*fact)) for fact in asked]
    assert [parts_of(reasons) for reasons in shown] == expected
    assert sum(map(len, expected)) > 20
    if graph.num_relations == 2:
        has_one = "”, 29 are heads of “part of”; 14 would be expected."
        has_none = "”, none is a head of “part of”; 14 would be expected."
        said = "Of 29 others with “", "? · is a · "
        assert expected[0][0] == (1, [*said, 60, has_one])
        assert (-1, [*said, 61, has_none]) in expected[1]
