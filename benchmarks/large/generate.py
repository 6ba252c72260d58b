"""Write a graph of any size whose best possible tail MRR is known.

An entity is a cluster and an angle; a relation permutes the clusters, turns the angle, and adds
noise: the tail is ``k`` angles further on, where ``k`` is geometric with mean ``spread - 1``. Heads
follow a power law, and those of a cluster have few relations. Nobody can rank tails better than by
``k``, so that the best unfiltered MRR is

    sum over k of p (1 - p)^k / (k + 1) = -ln(p) p / (1 - p),   p = 1 / spread,

.462 at a spread of 4. Filtered by what the graph holds it is higher; ``best_filtered`` ranks the
test triples of a store by their ``k``.

    python benchmarks/large/generate.py graph.parquet --facts 10000000 --entities 2000000
    python benchmarks/large/generate.py graphs/ingested --best --entities 2000000

How hard a graph is does not depend on its size as long as facts per entity, ``angles``,
``per_cluster`` and ``sharing`` stay: so many clusters have a relation in common. Without
``sharing`` there are ``relations`` of them, shared by the more clusters the larger the graph.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

BLOCK = 1 << 20
#: An odd number near 2^64 / golden ratio: multiplied by it, ranks are spread over the clusters.
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Generated:
    """The structure; every block of facts is a function of it and of the block's number."""

    facts: int
    entities: int
    relations: int = 1000
    per_cluster: int = 10  # relations that the entities of a cluster are heads of
    angles: int = 1000
    spread: float = 4.0
    exponent: float = 0.5  # of the power law of the heads
    seed: int = 0

    @property
    def clusters(self) -> int:
        """Permuted by every relation."""
        return max(1, self.entities // self.angles)

    def shared_by(self, clusters: int) -> Generated:
        """Return it with as many relations as each being of so many clusters takes."""
        return replace(self, relations=max(1, self.clusters * self.per_cluster // clusters))

    @property
    def used(self) -> int:
        """Entities that can occur: whole clusters."""
        return self.clusters * self.angles

    @property
    def best_mrr(self) -> float:
        """The best possible unfiltered tail MRR."""
        p = 1 / self.spread
        return -math.log(p) * p / (1 - p) if p < 1 else 1.0

    def first_tails(self, heads: np.ndarray, relations: np.ndarray) -> np.ndarray:
        """Return the most probable tail of (h, r, ?), the one with k = 0."""
        rng = np.random.default_rng([self.seed, 1])
        shift = rng.integers(0, self.clusters, self.relations)
        factor = rng.integers(1, self.clusters + 1, self.relations)
        while (common := np.gcd(factor, self.clusters)).max() > 1:  # a permutation of the clusters
            factor = np.where(common > 1, factor // common, factor)
        turn = rng.integers(0, self.angles, self.relations)
        cluster, angle = np.divmod(heads, self.angles)
        cluster = (cluster * factor[relations] + shift[relations]) % self.clusters
        return cluster * self.angles + (angle + turn[relations]) % self.angles

    def steps(self, triples: np.ndarray) -> np.ndarray:
        """Return the k of each triple by these ids. Shapes: (n, 3) -> (n,)."""
        first = self.first_tails(triples[:, 0].astype(np.int64), triples[:, 1])
        return (triples[:, 2] - first) % self.angles

    def blocks(self, part: int = 0, parts: int = 1) -> Iterator[np.ndarray]:
        """Yield every ``parts``-th block (n, 3) of ids; some facts occur more than once."""
        stride = _coprime(_GOLDEN % self.used, self.used)
        for number, start in list(enumerate(range(0, self.facts, BLOCK)))[part::parts]:
            rng = np.random.default_rng([self.seed, 2, number])
            size = min(BLOCK, self.facts - start)
            rank = (self.used * rng.random(size) ** (1 / (1 - self.exponent))).astype(np.int64)
            heads = rank * stride % self.used
            kind = rng.integers(0, self.per_cluster, size)
            relations = (heads // self.angles * self.per_cluster + kind) % self.relations
            first = self.first_tails(heads, relations)
            step = rng.geometric(1 / self.spread, size) - 1
            tails = first - first % self.angles + (first + step) % self.angles
            yield np.stack([heads, relations, tails], axis=1)


def _coprime(number: int, other: int) -> int:
    number = max(1, number)
    while math.gcd(number, other) > 1:
        number += 1
    return number


def names(ids: np.ndarray, letter: str, width: int) -> pa.Array:
    """Return e0000123 and so on: sorted by name, they are sorted by id."""
    digits = pc.utf8_lpad(pa.array(ids).cast(pa.string()), width, padding="0")
    return pc.binary_join_element_wise(letter, digits, "")


def tables(made: Generated, part: int = 0, parts: int = 1) -> Iterator[pa.Table]:
    """Yield the facts by name, all of them or one of several parts."""
    entity, relation = len(str(made.used - 1)), len(str(made.relations - 1))
    of_relation = names(np.arange(made.relations), "r", relation)
    for block in made.blocks(part, parts):
        columns = (
            names(block[:, 0], "e", entity),
            of_relation.take(pa.array(block[:, 1])),
            names(block[:, 2], "e", entity),
        )
        yield pa.table(dict(zip(("head", "relation", "tail"), columns, strict=True)))


def write_parts(made: Generated, folder: Path, processes: int) -> None:
    """Write the facts to as many Parquet files as there are processes, at once."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = min(processes, -(-made.facts // BLOCK))
    with ProcessPoolExecutor(parts) as pool:
        files = [folder / f"part-{part:03}.parquet" for part in range(parts)]
        list(pool.map(write, [made] * parts, files, range(parts), [parts] * parts))


def write(made: Generated, path: Path, part: int = 0, parts: int = 1) -> None:
    """Write the facts by name to .parquet, .tsv or .csv."""
    blocks = tables(made, part, parts)
    first = next(blocks)
    if path.suffix == ".parquet":
        writer = pq.ParquetWriter(path, first.schema)
    else:
        delimiter = "," if path.suffix == ".csv" else "\t"
        options = pacsv.WriteOptions(
            include_header=False, delimiter=delimiter, quoting_style="none"
        )
        writer = pacsv.CSVWriter(path, first.schema, write_options=options)
    with writer:
        writer.write_table(first)
        for table in blocks:
            writer.write_table(table)


def best_filtered(made: Generated, store: Path, split: str = "test") -> float:
    """Return the filtered tail MRR of a split of an ingested graph when tails are ranked by k."""
    import nscaching as ns
    from nscaching.evaluation.ranking import known_positives
    from nscaching.models import Side

    graph = ns.load_graph(store)
    entity, relation = (_numbers(names) for names in (graph.entities, graph.relations))
    there = np.zeros(made.used, dtype=np.int64)
    there[entity] = 1
    triples = graph.split(split)

    def steps(heads: np.ndarray, relations: np.ndarray, tails: np.ndarray) -> np.ndarray:
        return made.steps(np.stack([entity[heads], relation[relations], entity[tails]], axis=1))

    own = steps(*triples.T)
    rank = np.zeros(len(triples))
    first = made.first_tails(entity[triples[:, 0]], relation[triples[:, 1]])
    for k in range(int(own.max(initial=0)) + 1):  # entities that are likelier, and exist
        tails = first - first % made.angles + (first + k) % made.angles
        rank += there[tails] * (k <= own)
    question, known = known_positives(graph, triples)[Side.TAIL].of(triples[:, 0], triples[:, 1])
    likelier = steps(triples[question, 0], triples[question, 1], known) < own[question]
    rank -= np.bincount(question[likelier], minlength=len(triples))
    return float((1 / rank).mean())


def _numbers(stored: Any) -> np.ndarray:
    """Return the numbers of names such as e0000123, all of one length."""
    digits = stored.bytes.reshape(len(stored), -1)[:, 1:].astype(np.int64) - ord("0")
    return digits @ 10 ** np.arange(digits.shape[1])[::-1]


def add_options(parser: argparse.ArgumentParser, facts: int, entities: int) -> None:
    """Add the options of a graph, which ``generated`` reads."""
    parser.add_argument("--facts", type=int, default=facts)
    parser.add_argument("--entities", type=int, default=entities)
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--relations", type=int, default=Generated.relations)
    number.add_argument("--sharing", type=int, help="clusters per relation, for --relations")
    parser.add_argument("--per-cluster", type=int, default=Generated.per_cluster)
    parser.add_argument("--angles", type=int, default=Generated.angles)
    parser.add_argument("--spread", type=float, default=Generated.spread)
    parser.add_argument("--seed", type=int, default=Generated.seed)


def generated(given: argparse.Namespace) -> Generated:
    """Return the graph that was asked for."""
    told = {field.name: getattr(given, field.name, field.default) for field in fields(Generated)}
    made = Generated(**told)
    return made.shared_by(given.sharing) if given.sharing else made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help=".parquet, .tsv or .csv; or with --best a graph")
    add_options(parser, 10_000_000, 2_000_000)
    parser.add_argument(
        "--best", action="store_true", help="OUT is an ingested graph: print its best MRR"
    )
    given = parser.parse_args()
    out, made = given.out, generated(given)
    if given.best:
        filtered = {split: best_filtered(made, out, split) for split in ("valid", "test")}
        print(json.dumps({"best_mrr": made.best_mrr, "best_filtered_tail_mrr": filtered}))
        return
    begin = time.perf_counter()
    write(made, out)
    seconds = round(time.perf_counter() - begin, 2)
    told = {**asdict(made), "best_mrr": made.best_mrr, "bytes": out.stat().st_size}
    print(json.dumps({**told, "seconds": seconds}))


if __name__ == "__main__":
    main()
