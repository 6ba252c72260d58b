"""Relations that most heads rightly lack: which heads ``discover`` and ``predict`` believe in.

    python benchmarks/partial_relations.py --seeds 0 1 --out partial-relations.json

Made graphs, so that the truth is known: people, of whom only some professions have a team, a genre,
a rank or an adviser, and districts, of which only some kinds (a fifth, half, nine tenths) have a
parent region. The tail follows from other facts, so that a model is as sure of it for heads that
rightly have none. A twentieth of the facts is hidden, the rest is split and trained by the default
recipe (``--set epochs=5`` changes it), and ``discover`` is asked for as many facts as are hidden.
*Nonsense* is a fact whose head rightly has none of the relation; the error (expected calibration
error) and the Brier score of ``discover`` are those of its list. With ``--runs`` a trained run is
kept in a folder and used again. One JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import nscaching as ns  # before torch: it sets up threads

# isort: split
import numpy as np
import yaml

from hide_and_find import errors, trained
from nscaching.training.benchmarking import describe_machine


def people(random, count=2000, professions=20, towns=40):
    """Return facts about people, and the questions (head, relation) that rightly have no answer."""
    facts, none = [], set()
    for number in range(count):
        me, job = f"person {number}", int(random.integers(professions))
        born, club = int(random.integers(towns)), int(random.integers(3))
        lives = born if random.random() < 0.6 else int(random.integers(towns))
        facts += [(me, "has profession", f"profession {job}"), (me, "born in", f"town {born}")]
        facts += [(me, "lives in", f"town {lives}"), (me, "member of", f"club {born}.{club}")]
        for relation, kind, jobs in (
            ("plays for", "team", range(4)),
            ("writes in genre", "genre", range(4, 6)),
            ("has adviser", "adviser", range(6, 8)),
            ("holds rank", "rank", range(8, 9)),
        ):
            if job in jobs:
                facts.append((me, relation, f"{kind} {born // 2}.{job % 2}"))
            else:
                none.add((me, relation))
    return facts, none


def districts(random, share, count=1500, states=30, kinds=10):
    """Return facts about districts, of which a share of the kinds has a parent region."""
    facts, none = [], set()
    for number in range(count):
        me, state, kind = f"district {number}", int(random.integers(states)), number % kinds
        office = kind // 2 if random.random() < 0.8 else int(random.integers(kinds // 2))
        facts += [(me, "in state", f"state {state}"), (me, "has kind", f"kind {kind}")]
        facts.append((me, "run by", f"office {state}.{office}"))
        if kind < share * kinds:
            facts.append((me, "parent region", f"region {state // 2}"))
        else:
            none.add((me, "parent region"))
    return facts + [(f"state {n}", "in country", f"country {n % 10}") for n in range(states)], none


GRAPHS = {
    "people": people,
    "districts, a fifth": lambda random: districts(random, 0.2),
    "districts, half": lambda random: districts(random, 0.5),
    "districts, nine tenths": lambda random: districts(random, 0.9),
}


def measure(name, seed, options, runs):
    """Return how many of the facts that a run believes in are true, hidden, or nonsense."""
    random = np.random.default_rng(seed)
    facts, none = GRAPHS[name](random)
    out = random.random(len(facts)) < 0.05
    visible = [fact for fact, hide in zip(facts, out, strict=True) if not hide]
    known = {name for head, _, tail in visible for name in (head, tail)}
    hidden = {f for f, hide in zip(facts, out, strict=True) if hide and {f[0], f[2]} <= known}
    graph = ns.KnowledgeGraph.from_triples(*split(visible, random), name=name)
    run, _ = trained(graph, f"{name} {seed}", {"seed": seed, **options}, runs)
    found = run.discover(len(hidden), unlikely=True)
    result = {
        "mrr": run.evaluate("test").mrr,
        "hidden": len(hidden),
        "claims_ece": run.calibration_report("test").ece,
        "discover": {
            "found": share_of(found, lambda fact: fact.triple in hidden),
            "first_100": share_of(found[:100], lambda fact: fact.triple in hidden),
            "nonsense": share_of(found, lambda fact: (fact.head, fact.relation) in none),
            **errors([f.probability for f in found], [f.triple in hidden for f in found]),
        },
    }
    # The best answer of each question that rightly has none, and of those whose fact is hidden.
    partial = {relation for _, relation in none}
    asked = {
        "rightly_none": sorted(pair for pair in none if pair[0] in known),
        "hidden": sorted({fact[:2] for fact in hidden if fact[1] in partial}),
    }
    chances, true = [], []
    for label, pairs in asked.items():
        best = run.ask([(*pair, None) for pair in pairs], k=1, unlikely=True)
        chances += [fact.probability for fact in best]
        true += [fact.triple in hidden for fact in best]
        result[label] = {
            "questions": len(pairs),
            "mean_probability": share_of(best, lambda fact: fact.probability),
            "above_a_fifth": share_of(best, lambda fact: fact.probability > 0.2),
            "true": share_of(best, lambda fact: fact.triple in hidden),
        }
    of_both = errors(chances, true)
    return {**result, "ece": of_both["error"], "brier": of_both["brier"]}


def split(facts, random):
    """Return train, valid and test: a twentieth each; every entity keeps a training fact."""
    order = random.permutation(len(facts))
    parts, kept = {"valid": [], "test": []}, {}
    for head, _, tail in facts:
        kept[head], kept[tail] = kept.get(head, 0) + 1, kept.get(tail, 0) + 1
    train, wanted = [], len(facts) // 20
    for head, relation, tail in (facts[number] for number in order):
        name = next((name for name, part in parts.items() if len(part) < wanted), None)
        if name is None or min(kept[head], kept[tail]) < 2:
            train.append((head, relation, tail))
            continue
        parts[name].append((head, relation, tail))
        kept[head], kept[tail] = kept[head] - 1, kept[tail] - 1
    return train, parts["valid"], parts["test"]


def share_of(facts, value):
    """Return the mean of a number of each fact."""
    return round(float(np.mean([value(fact) for fact in facts])), 4) if len(facts) else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="*", default=[*GRAPHS])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--set", action="append", default=[], help="option=value of train")
    parser.add_argument("--runs", type=Path, help="where trained runs are kept and looked for")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    options = {}
    for pair in given.set:
        name, _, value = pair.partition("=")
        options[name] = yaml.safe_load(value)
    result = {"machine": describe_machine(), "options": options}
    for name in given.graphs:
        for seed in given.seeds:
            result[f"{name}, seed {seed}"] = measure(name, seed, options, given.runs)
            if given.out:
                given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
