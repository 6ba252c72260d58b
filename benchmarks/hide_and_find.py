"""Hide and find: a tenth of the facts of a graph is hidden; ``discover`` looks for them.

    python benchmarks/hide_and_find.py world FB15K-237 WN18RR --runs runs/hidden --pykeen \
        --out benchmarks/results/hide-and-find.json

For each data set: 10 % of all facts are hidden (``--share 0.05``: as many as valid holds), the rest
is split anew and trained (with the default recipe; ``--set epochs=5 --set dim=64`` changes it), and
``discover`` is asked for as many facts as are hidden, at most 10,000. Beside it: the raw score over
the same questions, and PyKEEN's ``predict_all`` of the same model over all triples (``--pykeen``;
``--pykeen world`` for some data sets only; stopped after ``--pykeen-seconds``). Found is the share
of a list that are hidden facts; the error (expected calibration error) and the Brier score are
those of the probabilities of the list. Training stops by valid and probabilities are fitted on
valid; hidden facts are looked at only to count. With ``--runs`` a trained run is kept in a folder
and used again. One JSON object on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"  # of PyKEEN, before anything imports it

import nscaching as ns  # before torch: it sets up threads

# isort: split
import numpy as np
import psutil
import torch
import yaml

from nscaching.evaluation.calibration import expected_calibration_error, reliability_bins
from nscaching.graph import KnowledgeGraph, split_triples
from nscaching.graph.pairs import triple_keys
from nscaching.models import EmbeddingModel, Side
from nscaching.training.benchmarking import describe_machine


class Cost:
    """Seconds and the highest memory of this process while a ``with`` block runs."""

    def __init__(self):
        self.seconds = self.peak_mb = self.gpu_mb = 0.0

    def as_dict(self):
        """Return plain values."""
        found = {"seconds": round(self.seconds, 2), "peak_mb": round(self.peak_mb)}
        return found | ({"gpu_mb": round(self.gpu_mb)} if torch.cuda.is_available() else {})


@contextmanager
def measured():
    cost, process, stop = Cost(), psutil.Process(), threading.Event()

    def watch():
        while not stop.wait(0.02):
            cost.peak_mb = max(cost.peak_mb, process.memory_info().rss / 2**20)

    watcher = threading.Thread(target=watch, daemon=True)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    watcher.start()
    started = time.perf_counter()
    yield cost
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        cost.gpu_mb = torch.cuda.max_memory_allocated() / 2**20
    cost.seconds = time.perf_counter() - started
    stop.set()
    watcher.join()


def hidden_graph(graph, share=0.1, seed=0):
    """Return the graph with a share of all its facts hidden, the rest split anew, and those."""
    everything = np.concatenate([graph.train, graph.valid, graph.test])
    sizes = graph.num_entities, graph.num_relations
    kept, hidden, others = split_triples(everything, *sizes, share, seed)
    rest = np.concatenate([kept, others])
    train, valid, test = split_triples(rest, *sizes, 0.05, seed + 1)
    visible = KnowledgeGraph(
        graph.entities,
        graph.relations,
        train,
        valid,
        test,
        name=f"{graph.name}, partly hidden",
    )
    return visible, hidden


def trained(visible, name, options, runs):
    """Return a run of the visible graph, read back where it was trained before, and its time."""
    out = None if runs is None else runs / name
    if out is not None and (out / "model.safetensors").is_file():
        run = ns.load_run(out)
        assert run.graph.fingerprint == visible.fingerprint, f"{out} is of another graph"
        return run, run.summary.get("seconds")
    run = ns.train(visible, out=out, progress="lines", **options)
    return run, run.summary["seconds"]


def errors(chances, true):
    """Return the expected calibration error and the Brier score of probabilities; (n,), (n,)."""
    chances, true = np.array(chances), np.array(true)
    return {
        "mean_probability": float(chances.mean()),
        "error": expected_calibration_error(reliability_bins(chances, true)),
        "brier": float(((chances - true) ** 2).mean()),
    }


def hide_and_find(name, options, runs, pykeen, save, seed=0, part=0.1):
    """Return what each method finds; ``save`` gets the result so far after each of them."""
    visible, hidden = hidden_graph(ns.load_graph(name), part, seed=seed)
    kept_as = Path(name).stem if seed == 0 else f"{Path(name).stem} {seed}"
    run, training = trained(visible, kept_as, {"seed": seed, **options}, runs)
    count = min(len(hidden), 10_000)
    sizes = visible.num_entities, visible.num_relations
    secret = triple_keys(hidden, *sizes)

    def hit(triples):
        return np.isin(triple_keys(triples, *sizes), secret)

    def share(triples):
        return float(hit(triples).mean())

    def ids(facts):
        e, r = visible.entity_ids, visible.relation_ids
        return np.array([(e[f.head], r[f.relation], e[f.tail]) for f in facts], dtype=np.int64)

    result = {
        "scoring": run.config.scoring,
        "dim": run.config.dim,
        "epochs": run.summary.get("epochs"),
        "training_seconds": training,
        "mrr": run.evaluate("test").mrr,
        "claims_ece": run.calibration_report("test").ece,
        "hidden": len(hidden),
        "valid": len(visible.valid),
        "asked_for": count,
    }
    with measured() as cost:
        assert run.calibration is not None
    result["calibration"] = cost.as_dict()
    for limit in (None, 3):
        with measured() as cost:
            found = run.discover(count, per_question=limit, unlikely=True)
        result["discover" if limit is None else f"discover_{limit}_per_question"] = {
            "found": share(ids(found)),
            **errors([fact.probability for fact in found], hit(ids(found))),
            "first_100": share(ids(found[:100])),
            **cost.as_dict(),
        }
        save(result)
    with measured() as cost:
        best = by_raw_score(run, count)
    result["raw_score_same_questions"] = {"found": share(best), **cost.as_dict()}
    save(result)
    if pykeen:
        with measured() as cost:
            best = pykeen_predict_all(run, count, pykeen)
        found = {"found": share(best)} if best is not None else {"stopped_after": pykeen}
        result["pykeen_predict_all"] = {**found, **cost.as_dict()}
    return result


def by_raw_score(run, count, per_question=100):
    """Return the facts of highest raw score among the questions that discover asks."""
    asker, parts = run._asker, []
    for relation in range(run.graph.num_relations):
        heads = np.flatnonzero(asker.evidence.positions.column(Side.HEAD, relation).plausible)
        for start in range(0, len(heads), asker.evidence.chunk()):
            block = heads[start : start + asker.evidence.chunk()]
            k = min(per_question, run.graph.num_entities)
            found = asker.ask(Side.TAIL, relation, block, k, by_score=True)
            parts.append(np.column_stack([found.triples, found.score]))
        best = np.concatenate(parts)
        parts = [best[np.argsort(-best[:, 3], kind="stable")[:count]]]
    return parts[0][:, :3].astype(np.int64)


def pykeen_predict_all(run, count, seconds):
    """PyKEEN's list of the best of all triples, by raw score, with what is known taken out.

    None where it takes longer than so many seconds.
    """
    from pykeen.predict import predict_all

    def stop(*_):
        raise TimeoutError

    graph = run.graph
    known = np.concatenate([graph.train, graph.valid, graph.test])
    model = one_row_per_relation(run).to_pykeen().to(run.model.device)
    batch = 64 if run.model.device.type == "cpu" else 1024
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        pack = predict_all(model=model, k=count + len(known), batch_size=batch)
    except TimeoutError:
        return None
    finally:
        signal.alarm(0)
    triples = pack.result.cpu().numpy()[np.argsort(-pack.scores.cpu().numpy(), kind="stable")]
    keys = triple_keys(np.concatenate([known, triples]), graph.num_entities, graph.num_relations)
    return triples[~np.isin(keys[len(known) :], keys[: len(known)])][:count]


def one_row_per_relation(run):
    """Return a run whose questions for tails have the same scores, which is what PyKEEN asks."""
    if not run.config.reciprocal:
        return run
    model = run.model
    relation = model.relation[: run.graph.num_relations].contiguous()
    plain = EmbeddingModel(model.scoring, model.entity, relation)
    return ns.Run(replace(run.config, reciprocal=False), run.graph, plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["world"])
    parser.add_argument("--set", action="append", default=[], help="option=value of train")
    parser.add_argument("--seed", type=int, default=0, help="of what is hidden, and of training")
    parser.add_argument("--share", type=float, default=0.1, help="of all facts that is hidden")
    parser.add_argument("--runs", type=Path, help="where trained runs are kept and looked for")
    parser.add_argument(
        "--pykeen",
        nargs="*",
        metavar="DATA",
        help="PyKEEN's predict_all beside it, for all data sets or for some",
    )
    parser.add_argument("--pykeen-seconds", type=int, default=600, help="limit of each predict_all")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    options = {}
    for pair in given.set:
        name, _, value = pair.partition("=")
        options[name] = yaml.safe_load(value)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    result = {"machine": describe_machine(device), "options": options}
    for name in given.data:
        pykeen = given.pykeen is not None and (not given.pykeen or name in given.pykeen)
        seconds = given.pykeen_seconds if pykeen else 0

        def save(found, name=name):
            result[name] = found
            if given.out:
                given.out.write_text(json.dumps(result, indent=1) + "\n")

        save(hide_and_find(name, options, given.runs, seconds, save, given.seed, given.share))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
