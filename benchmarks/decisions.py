"""From scores to decisions, measured: answers out of range, calibration, updates, rejections.

    python benchmarks/decisions.py answers --out benchmarks/results/decisions-world.json
    python benchmarks/decisions.py choose world      # settings of an update, on valid
    python benchmarks/decisions.py update world      # on test
    python benchmarks/decisions.py reject world

Without options runs are trained with the default recipe; ``--set epochs=30 --set dim=64`` changes
it. ``--run FOLDER`` measures answers and rejections of a run that is there. One JSON object on
stdout.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import nscaching as ns  # before torch: it sets up threads

# isort: split
import numpy as np
import yaml

from nscaching.evaluation.positions import Positions
from nscaching.graph import KnowledgeGraph
from nscaching.models import Side
from nscaching.training.benchmarking import describe_machine


def trained(graph, options):
    started, cpu = time.perf_counter(), time.process_time()
    run = ns.train(graph, progress="lines", **options)
    return run, time.perf_counter() - started, time.process_time() - cpu


# Answers ------------------------------------------------------------------------------------------


def answers(run, heads_per_relation=40):
    """Out of range, calibrated, contradicting, explained: on a run of ``world``."""
    started = time.perf_counter()
    assert run.calibration is not None
    return {
        "mrr": run.evaluate("test").mrr,
        "calibration_seconds": time.perf_counter() - started,
        "out_of_range": out_of_range(run, heads_per_relation),
        "calibration": {
            split: {
                key: value
                for key, value in run.calibration_report(split).as_dict().items()
                if "bins" not in key
            }
            for split in ("valid", "test")
        },
        "discovered": contradictions(run),
        "explanations": explanations(run),
    }


def out_of_range(run, heads_per_relation):
    """First new answers that name a tail which was never a tail of that relation in training."""
    graph, positions = run.graph, Positions.of(run.graph)
    kinds = {
        "probability": {},
        "probability_with_unlikely": {"unlikely": True},
        "probability_with_contradictions": {"contradictions": True, "unlikely": True},
        "score": {"by": "score"},
    }
    counts = {kind: {} for kind in kinds}
    answered = dict.fromkeys(kinds, 0)
    asked, once, true_out = 0, [], 0
    held_out = np.concatenate([graph.valid, graph.test])
    for relation in range(graph.num_relations):
        seen = positions.column(Side.TAIL, relation).seen
        true_out += int((~seen[held_out[held_out[:, 1] == relation, 2]]).sum())
        heads = np.flatnonzero(positions.column(Side.HEAD, relation).seen)
        heads = np.random.default_rng(relation).permutation(heads)[:heads_per_relation].tolist()
        asked += len(heads)
        name = graph.relations[relation]
        if positions.has_one_answer(Side.HEAD, relation):
            once.append(name)
        for kind, options in kinds.items():
            first = run.predict_tails(heads, relation, k=1, **options)
            counts[kind][name] = sum(not answer.seen for answer in first)
            answered[kind] += len(first)
    others = [name for name in graph.relations if name not in once]
    return {
        "questions": asked,
        "of_held_out_facts": true_out / len(held_out),
        # Where a tail has one head, every tail that was seen is taken: new ones are out of range.
        "relations_with_one_head_per_tail": once,
        **{
            kind: {
                "share_of_questions": sum(found.values()) / asked,
                "questions_with_an_answer": answered[kind],
                "share_of_answers": sum(found.values()) / max(1, answered[kind]),
                "without_relations_with_one_head_per_tail": sum(found[name] for name in others)
                / (heads_per_relation * max(1, len(others))),
                "by_relation": found,
            }
            for kind, found in counts.items()
        },
    }


def contradictions(run, count=100):
    """Among the first discovered: contradictions, flagged and not, found here by loops and sets."""
    graph, positions = run.graph, Positions.of(run.graph)
    known = np.concatenate([graph.train, graph.valid, graph.test])
    answers_of: dict = {}
    for h, r, t in known.tolist():
        answers_of.setdefault((Side.TAIL, h, r), set()).add(t)
        answers_of.setdefault((Side.HEAD, t, r), set()).add(h)
    result = {}
    for name, keep in (("contradictions_left_out", False), ("contradictions_kept", True)):
        started = time.perf_counter()
        facts = run.discover(count, contradictions=keep)
        seconds = time.perf_counter() - started
        flagged = silent = 0
        for fact in facts:
            h, t = (graph.entity_ids[name] for name in (fact.head, fact.tail))
            r = graph.relation_ids[fact.relation]
            against = any(
                positions.has_one_answer(side, r) and answers_of.get((side, anchor, r), set()) - {a}
                for side, anchor, a in ((Side.TAIL, h, t), (Side.HEAD, t, h))
            )
            flagged += against and fact.contradicts is not None
            silent += against and fact.contradicts is None
        result[name] = {"facts": len(facts), "flagged": flagged, "silent": silent, "s": seconds}
    return result


def explanations(run, count=200):
    random = np.random.default_rng(0)
    test = run.graph.test[random.permutation(len(run.graph.test))[:count]]
    seconds, explained, paths = [], 0, 0
    run.explain(*test[0].tolist())
    for row in test.tolist():
        started = time.perf_counter()
        reason = run.explain(*row)
        seconds.append(time.perf_counter() - started)
        explained += bool(reason.paths or reason.similar)
        paths += bool(reason.paths)
    return {
        "facts": len(test),
        "share_with_path_or_similar": explained / len(test),
        "share_with_path": paths / len(test),
        "median_ms": 1000 * statistics.median(seconds),
        "longest_ms": 1000 * max(seconds),
    }


# Updates ------------------------------------------------------------------------------------------


def named(graph, triples):
    e, r = graph.entities, graph.relations
    return [(e[h], r[q], e[t]) for h, q, t in triples.tolist()]


def held_back(graph, share=0.05, seed=0):
    """Return a graph without 5 % of the entities and 5 % of the other facts, and what it lacks.

    Also, for each split, which facts have one of those entities.
    """
    random = np.random.default_rng(seed)
    new = np.zeros(graph.num_entities, dtype=bool)
    new[random.permutation(graph.num_entities)[: round(share * graph.num_entities)]] = True
    touches = {
        s: new[graph.split(s)[:, 0]] | new[graph.split(s)[:, 2]] for s in ("train", "valid", "test")
    }
    late = touches["train"] | (random.random(len(graph.train)) < share)
    parts = {s: named(graph, graph.split(s)[~touches[s]]) for s in ("valid", "test")}
    old = KnowledgeGraph.from_triples(
        named(graph, graph.train[~late]), parts["valid"], parts["test"], name=graph.name
    )
    return old, named(graph, graph.train[late]), touches


def update(name, options):
    """Hold back entities and facts, then add them: quality on test, beside training anew."""
    graph = ns.load_graph(name)
    old, late, touches = held_back(graph)
    result = {"facts_added": len(late), "entities_added": graph.num_entities - old.num_entities}
    with tempfile.TemporaryDirectory() as folder:
        before, seconds, cpu = trained(old, {**options, "out": Path(folder) / "old"})
        result["old"] = {"training_seconds": seconds, "cpu_seconds": cpu}
        after, result["updated"] = updated(before, late, Path(folder) / "new")
        # What a recipe decides by the graph, such as N3, is the same in all three.
        anew, seconds, cpu = trained(graph, {"config": before.config})
        assert anew.config.n3 == before.config.n3
        result["anew"] = {"training_seconds": seconds, "cpu_seconds": cpu}
        for label, run in (("old", before), ("updated", after), ("anew", anew)):
            result[label]["epochs"] = run.summary["epochs"]
            result[label].update(quality(run, graph, touches, "test"))
    return result


def updated(before, late, out):
    started, cpu = time.perf_counter(), time.process_time()
    after = before.update(late, out=out, progress="lines")
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return after, {"training_seconds": seconds, "cpu_seconds": cpu}


def choose(name, options, settings):
    """Compare settings of an update on valid: epochs of new rows, of all, and kept squares."""
    from nscaching.runs import update as module

    graph = ns.load_graph(name)
    old, late, touches = held_back(graph)
    result = []
    with tempfile.TemporaryDirectory() as folder:
        before, _, cpu = trained(old, {**options, "out": Path(folder) / "old"})
        old_quality = quality(before, graph, touches, "valid")
        result.append({"old": True, "cpu_seconds": cpu, **old_quality})
        print(json.dumps(result[-1]), flush=True)
        for number in settings or range(len(SETTINGS)):
            new_rows, share, kept = SETTINGS[number]
            module._NEW_ROW_EPOCHS, module._SHARE_OF_EPOCHS = new_rows, share
            module._KEPT_SQUARES = kept
            after, cost = updated(before, late, Path(folder) / f"new{number}")
            result.append(
                {
                    "new_row_epochs": new_rows,
                    "share_of_epochs": share,
                    "kept_squares": kept,
                    "epochs": after.summary["epochs"],
                    **cost,
                    **quality(after, graph, touches, "valid"),
                }
            )
            print(json.dumps(result[-1]), flush=True)
    return result


#: Epochs of new rows alone, epochs of all as a share of the old run's, kept sums of squares.
SETTINGS = (
    (10, 0.2, 1.0),
    (10, 0.2, 0.1),
    (10, 0.5, 1.0),
    (10, 0.5, 0.1),
    (3, 0.5, 0.1),
    (10, 0.5, 0.01),
    (5, 0.2, 1.0),
    (20, 0.2, 1.0),
    (5, 0.35, 0.1),
    (10, 0.35, 0.03),
    (0, 0.5, 0.1),
    (0, 0.5, 0.01),
)


def quality(run, graph, touches, split):
    """MRR of a split's facts of old entities, and of those with a new one, filtered by all."""
    from nscaching.evaluation import rank_triples

    mine = run.graph
    e, r = mine.entity_ids, mine.relation_ids
    found = {}

    def renumbered(rows):
        known = [
            (e[h], r[q], e[t]) for h, q, t in named(graph, rows) if h in e and q in r and t in e
        ]
        return np.array(known, dtype=np.int32).reshape(-1, 3)

    whole = KnowledgeGraph(
        mine.entities,
        mine.relations,
        *(renumbered(graph.split(s)) for s in ("train", "valid", "test")),
    )
    held, new = graph.split(split), touches[split]
    for label, rows in (("old_entities", held[~new]), ("new_entities", held[new])):
        rows = rows[np.isin(rows[:, [0, 2]], graph.train[:, [0, 2]]).all(axis=1)]
        ids = renumbered(rows)
        if len(ids) < len(rows) or len(rows) == 0:
            found[label] = None  # it does not know them
            continue
        ranks = rank_triples(run.model, whole, ids)
        found[label] = float(np.mean([(1 / ranks[side].rank).mean() for side in Side]))
    return found


def reject(run, count=10, relation="speaks"):
    """Reject ten out-of-range answers of one relation; look at the answers of other heads."""
    graph = run.graph
    r = graph.relation_id(relation)
    tried = [h for h in graph.entities if graph.answers("tail", graph.entity_id(h), r)]
    wrong = [a for a in run.predict_tails(tried, relation, k=10, by="score") if not a.seen]
    # One for each of ten heads, the best scored first.
    firsts = {a.head: a for a in sorted(wrong, key=lambda a: a.score)}
    chosen = sorted(firsts.values(), key=lambda a: -a.score)[:count]
    others = [h for h in tried if h not in {a.head for a in chosen}]
    result = {"rejected": [list(a.triple) for a in chosen], "other_heads": len(others)}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        after = run.update(reject=chosen, out=Path(folder) / "new", progress="lines")
        result["seconds"] = time.perf_counter() - started
        again = run.update(
            [("Atlantis", "in country", "Iceland")], out=Path(folder) / "same", progress="lines"
        )
        for label, asked in (("before", run), ("after", after), ("trained_as_long", again)):
            found = {"mrr": asked.evaluate("test").mrr}
            for k in (1, 5, 10):
                for by in ("score", "probability"):
                    given = asked.predict_tails(others, relation, k=k, by=by, unlikely=True)
                    found[f"first_{k}_by_{by}"] = sum(not a.seen for a in given) / len(given)
            result[label] = found
        offered = {fact.triple for fact in after.discover(5000, per_question=None)}
        result["came_back"] = len(offered & after.rejected)
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["answers", "choose", "update", "reject"])
    parser.add_argument("data", nargs="*", default=["world"])
    parser.add_argument("--set", action="append", default=[], help="option=value of train")
    parser.add_argument(
        "--settings", type=int, nargs="*", help="some of those of choose, by number"
    )
    parser.add_argument("--run", help="a run folder, instead of training one")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    options = {}
    for pair in given.set:
        name, _, value = pair.partition("=")
        options[name] = yaml.safe_load(value)
    result = {"machine": describe_machine(), "options": options}
    for name in given.data:
        if given.what == "choose":
            result[name] = choose(name, options, given.settings)
            continue
        if given.what == "update":
            result[name] = update(name, options)
            continue
        if given.what == "reject":
            options = {"out": Path(tempfile.mkdtemp()) / "run", **options}
        run = ns.load_run(given.run) if given.run else trained(ns.load_graph(name), options)[0]
        result[name] = {"answers": answers, "reject": reject}[given.what](run)
    text = json.dumps(result, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
