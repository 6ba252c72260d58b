"""Holding out triples so that the test is fair.

A held-out triple is no test when its entities never occur in training, and no test when its mirror
image does. So every entity and relation keeps a training triple, and all triples over one unordered
pair of entities (symmetric, inverse and parallel ones alike) stay together in one split.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nscaching.graph.names import Ids
from nscaching.graph.pairs import pair_keys

Wide = npt.NDArray[np.int64]
PASSES = 12
"""Bound on the vectorised passes; each leaves far less to do than the one before."""


def split_triples(
    triples: Ids, num_entities: int, num_relations: int, share: float, seed: int
) -> tuple[Ids, Ids, Ids]:
    """Return train, valid and test, with ``share`` of the triples in each of the last two.

    Fewer are held out when the graph is too small or too sparse to spare that many.
    """
    if not 0 <= share < 0.5:
        raise ValueError(f"share must be at least 0 and less than 0.5, not {share}")
    wanted = round(share * len(triples))
    if wanted == 0:
        return triples, triples[:0], triples[:0]
    rng = np.random.default_rng(seed)
    low, high = np.sort(triples[:, ::2], axis=1).T
    pairs, pair = np.unique(pair_keys(low, high, num_entities), return_inverse=True)
    count = len(pairs)
    group = rng.permutation(count).astype(np.int32)[pair.reshape(-1)]
    del pairs, pair  # large, and not needed any more
    sizes = np.bincount(group, minlength=count)
    free = _spare_groups(triples, group, num_entities, num_relations, sizes, 2 * wanted, rng)
    spare = int(sizes[free].sum())
    valid = _fill(free, sizes, min(wanted, spare - spare // 2))
    rest = free[~np.isin(free, valid)]
    test = _fill(rest, sizes, min(wanted, int(sizes[rest].sum())))
    where = np.zeros(count, dtype=np.int8)
    where[valid], where[test] = 1, 2
    place = where[group]
    train, held, last = (np.ascontiguousarray(triples[place == at]) for at in range(3))
    return train, held, last


def _spare_groups(
    triples: Ids,
    group: Ids,
    num_entities: int,
    num_relations: int,
    sizes: Wide,
    wanted: int,
    rng: np.random.Generator,
) -> Wide:
    """Return, in random order, groups that training can do without, all at the same time.

    Walking the groups in a random order, those that show some entity or relation for the first time
    cover everything, so the others are spare. Walking the cover itself in another order makes it
    smaller, which is repeated while more spare groups are wanted.
    """
    parts = np.concatenate([triples[:, 0], triples[:, 2], triples[:, 1] + np.int32(num_entities)])
    owner = np.tile(group, 3)
    free: list[Wide] = []
    needed = np.ones(len(sizes), dtype=bool)
    found = 0
    for _ in range(PASSES):
        if not needed.all():
            inside = needed[owner]
            parts, owner = parts[inside], owner[inside]
        rank = rng.permutation(len(sizes)).astype(np.int32)
        first = np.full(num_entities + num_relations, len(sizes), dtype=np.int32)
        np.minimum.at(first, parts, rank[owner])
        covers = np.zeros(len(sizes) + 1, dtype=bool)
        covers[first] = True
        cover = covers[rank]  # groups that show something first, back from their rank
        freed = np.flatnonzero(needed & ~cover)
        free.append(rng.permutation(freed))
        needed = cover
        found += int(sizes[freed].sum())
        if found >= wanted:
            break
    return np.concatenate(free)


def _fill(groups: Wide, sizes: Wide, capacity: int) -> Wide:
    """Take groups in order while they fit into ``capacity`` triples, skipping what does not."""
    taken: list[Wide] = [groups[:0]]
    left = groups
    for _ in range(PASSES):
        left = left[sizes[left] <= capacity]
        if capacity == 0 or len(left) == 0:
            break
        count = int(np.searchsorted(np.cumsum(sizes[left]), capacity, side="right"))
        taken.append(left[:count])
        capacity -= int(sizes[left[:count]].sum())
        left = left[count:]
    return np.concatenate(taken)
