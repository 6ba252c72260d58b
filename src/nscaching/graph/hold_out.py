"""Valid and test held out of triples on disk, as :func:`split_triples` does it in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nscaching.graph.names import SPLITS, Ids
from nscaching.graph.store import ArrayWriter

Numbers = npt.NDArray[np.uint64]
#: Groups are chosen by the first bits of their numbers; so many are told apart.
_BUCKETS = 1 << 22


def hold_out(
    everything: Path, folder: Path, num_entities: int, num_relations: int, share: float, seed: int
) -> list[str]:
    """Write train, valid and test with ``share`` of the triples in each of the last two.

    Every entity and relation keeps a training triple, and triples over the same two entities stay
    together. Each such group has a random number: the group with the largest number of an entity
    stays in train, and of the others those with the smallest are held out. Returns remarks.
    """
    triples: Ids = np.load(everything, mmap_mode="r")
    largest = np.zeros(num_entities, dtype=np.uint64)
    of_relation = np.zeros(num_relations, dtype=np.uint64)
    for block in blocks_of(triples):
        number = _group_numbers(block, num_entities, seed)
        for column in (0, 2):
            np.maximum.at(largest, block[:, column], number)
        np.maximum.at(of_relation, block[:, 1], number)
    needed = np.sort(of_relation)

    def spare(block: Ids) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the bucket of each triple, and whether training can do without it."""
        number = _group_numbers(block, num_entities, seed)
        kept = needed[np.searchsorted(needed, number).clip(max=num_relations - 1)] == number
        for column in (0, 2):
            kept |= largest[block[:, column]] == number
        return number // np.uint64(2**64 // _BUCKETS), ~kept

    sizes = np.zeros(_BUCKETS, dtype=np.int64)
    for block in blocks_of(triples):
        bucket, free = spare(block)
        sizes += np.bincount(bucket[free].astype(np.int64), minlength=_BUCKETS)
    wanted = round(share * len(triples))
    ends = np.cumsum(sizes)
    first = int(np.searchsorted(ends, min(wanted, -(-int(ends[-1]) // 2)), side="right"))
    before = int(ends[first - 1]) if first else 0
    second = int(np.searchsorted(ends, before + wanted, side="right"))
    files = [ArrayWriter(folder / f"{split}.npy", "<i4", 3) for split in SPLITS]
    for block in blocks_of(triples):
        bucket, free = spare(block)
        place = np.where(free & (bucket < second), np.where(bucket < first, 1, 2), 0)
        for split, file in enumerate(files):
            file.append(block[place == split])
    for file in files:
        file.close()
    valid, test = (file.rows for file in files[1:])
    if min(valid, test) >= max(0.99 * wanted, 1):  # whole groups seldom make the number exactly
        return []
    return [
        f"{valid:,} triples were held out for valid and {test:,} for test, where {wanted:,} each "
        "were asked for: every entity keeps a training triple, and triples over the same two "
        "entities stay together."
    ]


def blocks_of(triples: Ids, size: int = 1 << 20) -> Iterator[Ids]:
    """Yield mapped triples in blocks that are in memory."""
    for start in range(0, len(triples), size):
        yield np.array(triples[start : start + size])


def _group_numbers(triples: Ids, num_entities: int, seed: int) -> Numbers:
    """Return a random number, not 0, of the unordered pair of entities of each triple."""
    low, high = np.minimum(triples[:, 0], triples[:, 2]), np.maximum(triples[:, 0], triples[:, 2])
    z = low.astype(np.uint64) * np.uint64(num_entities) + high.astype(np.uint64)
    z += np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)
