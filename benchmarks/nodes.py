"""Walks and skip-gram on Cora's setting: ours beside PecanPy and gensim, on the same machine.

The peers are for this benchmark only. Put them into an environment of their own and name its
Python: ``python -m venv /tmp/peers && /tmp/peers/bin/pip install pecanpy gensim``, then
``python benchmarks/nodes.py --peers /tmp/peers/bin/python``. They run in a process of their own,
after ours; of each the best of some rounds counts, after one that compiles. Wall seconds mean
little on a busy machine, so the seconds of all cores (CPU) are beside them. Without ``--peers``
only ours are timed. ``--million`` walks a graph of a million nodes instead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SETTING = {"walks_per_node": 10, "length": 80, "p": 0.25, "q": 0.25}
WINDOW, DIM, NEGATIVES = 10, 100, 5
#: Name of what was timed -> (wall seconds, CPU seconds) of each round.
Timings = dict[str, list[tuple[float, float]]]


@contextlib.contextmanager
def timed(found: Timings, name: str, *, counts: bool = True) -> Iterator[None]:
    """Add the wall and CPU seconds of a block to what was found, unless it only warms up."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    if counts:
        spent = (time.perf_counter() - wall, time.process_time() - cpu)
        found.setdefault(name, []).append(spent)


def time_peers(edges: str, vectors: str, given: argparse.Namespace) -> None:
    """Time PecanPy's modes and gensim; runs under the peers' Python and prints JSON."""
    from gensim.models import Word2Vec
    from pecanpy import pecanpy

    rounds, threads, epochs = given.rounds, given.threads, given.epochs
    found: Timings = {}
    for name in given.modes:
        for round_ in range(rounds + 1):
            graph = getattr(pecanpy, name)(
                p=SETTING["p"], q=SETTING["q"], workers=threads, verbose=False, random_state=0
            )
            graph.read_edg(edges, weighted=False, directed=False)
            with timed(found, f"PecanPy {name}, walks", counts=round_ > 0):
                graph.preprocess_transition_probs()
                walks = graph.simulate_walks(SETTING["walks_per_node"], SETTING["length"])
    for shrink in (True, False):
        kind = "shrunk windows (its default)" if shrink else "full windows"
        for _ in range(rounds):
            with timed(found, f"gensim, {kind}"):
                model = Word2Vec(
                    walks,
                    vector_size=DIM,
                    window=WINDOW,
                    negative=NEGATIVES,
                    sg=1,
                    hs=0,
                    sample=0,
                    min_count=0,
                    workers=threads,
                    epochs=epochs,
                    shrink_windows=shrink,
                    seed=0,
                )
        model.wv.save_word2vec_format(f"{vectors}.{'shrunk' if shrink else 'full'}")
    print(json.dumps(found))


def time_ours(rounds: int, epochs: int) -> tuple[Timings, dict[str, float]]:
    """Time our walks and our training with each sampler; also return the F1 they come to."""
    from nscaching.nodes import NodeConfig, load_node_graph
    from nscaching.nodes.tasks import classify_nodes
    from nscaching.nodes.training import make_walker, train_nodes
    from nscaching.training import Progress

    graph = load_node_graph("cora")
    silent = Progress("none")
    found: Timings = {}
    quality = {}
    for round_ in range(rounds + 1):
        with timed(found, "ours, walks", counts=round_ > 0):
            for _ in make_walker(graph, NodeConfig()).blocks():
                pass
    for sampler in ("frequency", "nscaching"):
        config = NodeConfig(sampler=sampler, epochs=epochs, negatives=NEGATIVES)
        warm = NodeConfig(sampler=sampler, epochs=1, walks_per_node=1, walk_length=10)
        train_nodes(graph, warm, silent)
        for _ in range(rounds):
            with timed(found, f"ours, {sampler}"):
                trained = train_nodes(graph, config, silent)
        assert graph.labels is not None
        scores = classify_nodes(trained.vectors, graph.labels, shares=(0.5,))
        quality[f"ours, {sampler}"] = scores["50%"]["micro_f1"]["mean"]
    return found, quality


def quality_of_peers(vectors: str) -> dict[str, float]:
    """Classify Cora with gensim's vectors."""
    from nscaching.nodes import load_node_graph
    from nscaching.nodes.tasks import classify_nodes

    graph = load_node_graph("cora")
    assert graph.labels is not None
    quality = {}
    for kind, name in (("shrunk", "shrunk windows (its default)"), ("full", "full windows")):
        _, *lines = Path(f"{vectors}.{kind}").read_text().splitlines()
        table = np.zeros((len(graph), DIM), dtype=np.float32)
        for line in lines:
            node, *values = line.split()
            table[graph.id_of(node)] = [float(value) for value in values]
        scores = classify_nodes(table, graph.labels, shares=(0.5,))
        quality[f"gensim, {name}"] = scores["50%"]["micro_f1"]["mean"]
    return quality


def walk_a_million(walks_per_node: int, seed: int = 0) -> dict[str, float]:
    """Walk a graph of a million nodes and ten million edges, degrees skewed; walks of 80."""
    from nscaching.nodes import Walker
    from nscaching.nodes.graph import graph_of_edges

    nodes, edges = 1_000_000, 10_000_000
    rng = np.random.default_rng(seed)
    ends = np.column_stack(
        [rng.integers(nodes, size=edges), (nodes * rng.random(edges) ** 2).astype(np.int64)]
    )
    started = time.perf_counter()
    graph = graph_of_edges([str(node) for node in range(nodes)], ends)
    del ends
    built = time.perf_counter() - started
    walker = Walker(graph, **{**SETTING, "walks_per_node": walks_per_node})
    walker.walk(np.arange(2))
    found: Timings = {}
    places = 0
    with timed(found, "walks"):
        for block in walker.blocks():
            places += block.size
    ((seconds, cpu),) = found["walks"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "nodes": nodes,
        "edges": graph.num_edges,
        "largest_degree": int(graph.degrees.max()),
        "build_seconds": built,
        "walks_per_node": walks_per_node,
        "walk_seconds": seconds,
        "walk_cpu_seconds": cpu,
        "million_steps_a_second": places / seconds / 1e6,
        "peak_gigabytes": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="Python that has pecanpy and gensim")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--modes", nargs="+", default=["SparseOTF", "PreComp", "DenseOTF"])
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--walks", type=int, default=10, help="walks a node of --million")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--as-peer", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_peer:
        time_peers(*given.as_peer, given)
        return
    from nscaching.training.benchmarking import describe_machine

    report: dict[str, object] = {"machine": describe_machine()}
    if given.million:
        report["million"] = walk_a_million(given.walks)
    else:
        report |= compare(given)
    print(json.dumps(report, indent=1))
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n")


def compare(given: argparse.Namespace) -> dict[str, object]:
    """Time ours and the peers in turn; return the best seconds of each, ratios and quality."""
    from nscaching.nodes import load_node_graph

    graph = load_node_graph("cora")
    seconds: Timings = {}
    quality: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        edges, vectors = Path(folder) / "cora.edg", str(Path(folder) / "vectors")
        names = graph.nodes
        edges.write_text("".join(f"{names[a]}\t{names[b]}\n" for a, b in graph.edges()))
        ours, quality = time_ours(given.rounds, given.epochs)
        seconds |= ours
        if given.peers:
            numbers = ("--rounds", given.rounds, "--epochs", given.epochs, "--threads")
            command = [given.peers, __file__, "--as-peer", str(edges), vectors]
            command += [str(number) for number in (*numbers, given.threads)]
            command += ["--modes", *given.modes]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"The peers failed:\n{done.stderr[-2000:]}")
            seconds |= json.loads(done.stdout.splitlines()[-1])
            quality |= quality_of_peers(vectors)
    best = {
        name: {"wall": min(wall for wall, _ in spent), "cpu": min(cpu for _, cpu in spent)}
        for name, spent in seconds.items()
    }
    ratios = {
        name: {
            kind: value / best["ours, walks" if "walks" in name else "ours, frequency"][kind]
            for kind, value in values.items()
        }
        for name, values in best.items()
        if not name.startswith("ours")
    }
    setting = {**SETTING, "window": WINDOW, "dim": DIM, "negatives": NEGATIVES}
    return {
        "setting": {**setting, "epochs": given.epochs, "rounds": given.rounds},
        "seconds": best,
        "times_as_fast_as": ratios,
        "micro_f1_at_50_percent": quality,
    }


if __name__ == "__main__":
    main()
