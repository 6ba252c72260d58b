"""Reasons: paths, similar entities, contradictions."""

import json

import numpy as np
import pytest

from nscaching import KnowledgeGraph
from nscaching.runs import explain
from nscaching.runs.explain import Explainer

from .test_run import run_of


def slow_count(graph, relation, steps):
    """Count the pairs that a path joins, and those that have the relation, with loops and sets."""
    edges = {}
    for h, r, t in graph.train.tolist():
        edges.setdefault((r, "->"), set()).add((h, t))
        edges.setdefault((r, "<-"), set()).add((t, h))
    heads = {h for h, _ in edges[relation, "->"]}
    joined = edges[steps[0]]
    if len(steps) == 2:
        joined = {(a, d) for a, b in joined for c, d in edges[steps[1]] if b == c}
    joined = {(a, b) for a, b in joined if a in heads and a != b}
    return len(joined & edges[relation, "->"]), len(joined)


def test_paths_are_counted_as_loops_and_sets_count_them(towns):
    graph = towns.graph
    checked = 0
    for head, relation, tail in graph.test[:12].tolist():
        for path in towns.explain(head, relation, tail, k=9).paths:
            steps = [(graph.relation_id(name), way) for name, way in path.steps]
            assert (path.confirmed, path.support) == slow_count(graph, relation, steps)
            checked += len(steps)
    assert checked > 20


def test_a_path_leads_from_head_to_tail(towns):
    graph = towns.graph
    facts = {tuple(row) for row in graph.train.tolist()}
    for head, relation, tail in graph.test[:12].tolist():
        for path in towns.explain(head, relation, tail).paths:
            stops = [head, *([] if path.via is None else [graph.entity_id(path.via)]), tail]
            for (name, way), a, b in zip(path.steps, stops[:-1], stops[1:], strict=True):
                r = graph.relation_id(name)
                assert ((a, r, b) if way == "->" else (b, r, a)) in facts


def test_a_fact_is_no_reason_for_itself():
    facts = [(0, 0, 1), (2, 0, 3)]
    run = run_of(KnowledgeGraph(list("abcd"), ["r"], facts, [[0, 0, 3]]))
    assert run.explain("a", "r", "b").paths == ()
    twin = [(0, 0, 1), (0, 1, 1), (2, 0, 3), (2, 1, 3)]
    run = run_of(KnowledgeGraph(list("abcd"), ["r", "s"], twin, [[0, 0, 3]]))
    (path,) = run.explain("a", "r", "b").paths
    assert path.steps == (("s", "->"),)
    assert (path.confirmed, path.support) == (1, 1)  # that of c and d


def test_similar_entities_have_the_fact_in_their_place(towns):
    graph = towns.graph
    facts = {
        (graph.entities[h], graph.relations[r], graph.entities[t])
        for h, r, t in graph.train.tolist()
    }
    found = [towns.explain(*row.tolist()) for row in graph.test[:12]]
    assert sum(bool(reason.similar) for reason in found) >= 10
    for reason in found:
        values = [entity.similarity for entity in reason.similar]
        assert values == sorted(values, reverse=True)
        for entity in reason.similar:
            assert entity.fact in facts
            h, r, t = entity.fact
            kept = (r, t) if entity.side == "head" else (h, r)
            p = reason.prediction
            assert kept == ((p.relation, p.tail) if entity.side == "head" else (p.head, p.relation))


def test_sentences_for_and_against(towns):
    graph = towns.graph
    h, _, t = next(row for row in graph.train.tolist() if graph.relations[row[1]] == "in country")
    wrong = "land0" if graph.entities[t] != "land0" else "land1"
    reason = towns.explain(h, "in country", wrong)
    assert reason.contradicts == (graph.entities[h], "in country", graph.entities[t])
    assert any(line.startswith("Against: contradicts") for line in reason.sentences())
    nothing = towns.explain("language1", "near", "language2")
    assert "no path of one or two relations" in nothing.sentences()[-1]
    good = towns.explain("town1.1", "in country", "land1")
    assert any(
        line.startswith("For: ") and " have 'in country'" in line for line in good.sentences()
    )
    json.dumps(good.as_dict())
    assert "<li>" in good._repr_html_()


def test_a_fact_that_others_share_tells_whether_they_have_the_relation():
    """Districts of one kind have a parent; those of another kind never do."""
    facts = [(n, 0, 60 + n % 2) for n in range(60)]  # kinds
    facts += [(n, 1, 62) for n in range(0, 60, 2)]
    names = [f"district {n}" for n in range(60)] + ["county", "borough", "region"]
    run = run_of(KnowledgeGraph(names, ["is a", "part of"], facts[:-1], facts[-1:]))
    missing = run.explain("district 58", "part of", "region")
    (reason,) = [each for each in missing.shared if each.side == "head"]
    assert reason.fact == ("?", "is a", "county")
    assert (reason.others, reason.standing, reason.speaks_for) == (29, 29, True)
    assert (
        "For: of 29 others with '? · is a · county', 29 are heads of 'part of'; "
        "14 would be expected." in missing.sentences()
    )
    nonsense = run.explain("district 7", "part of", "region")
    assert (
        "Against: of 29 others with '? · is a · borough', none is a head of 'part of'; "
        "14 would be expected." in nonsense.sentences()
    )
    assert nonsense.as_dict()["shared"][0]["fact"] == ["?", "is a", "borough"]


@pytest.mark.parametrize("seed", range(3))
def test_hubs_and_strange_graphs_do_no_harm(seed):
    random = np.random.default_rng(seed)
    facts = np.stack(
        [random.integers(9, size=80), random.integers(3, size=80), random.integers(9, size=80)], 1
    )
    graph = KnowledgeGraph([f"e{i}" for i in range(9)], list("rst"), facts)
    explainer = Explainer(graph)
    run = run_of(graph)
    for head in range(9):
        for tail in range(9):
            reason = explainer.explain(run.judge(head, 0, tail), (head, 0, tail), 5)
            assert len(reason.paths) <= 5
            assert all(0 < path.confirmed <= path.support for path in reason.paths)


def test_few_matrices_are_kept_and_reasons_stay_the_same(towns, monkeypatch):
    asked = [row.tolist() for row in towns.graph.test]
    kept = [Explainer(towns.graph).explain(towns.judge(*ids), ids, 3) for ids in asked]
    monkeypatch.setattr(explain, "_KEPT_BYTES", 1)
    explainer = Explainer(towns.graph)
    assert [explainer.explain(towns.judge(*ids), ids, 3) for ids in asked] == kept
    assert len(explainer._matrices) <= 1
