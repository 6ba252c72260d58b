"""Valid and test: held out of triples so that the test is fair, and what to know of them.

A held-out triple is no test when its entities never occur in training, and no test when its mirror
image does. So every entity and relation keeps a training triple, and all triples over one unordered
pair of entities (symmetric, inverse and parallel ones alike) stay together. Fewer are held out when
the graph is too small or too sparse to spare that many.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nscaching.errors import UserError, plural, shown
from nscaching.graph.knowledge_graph import KnowledgeGraph
from nscaching.graph.names import SPLITS, Bools, FirstLine, Ids, Longs
from nscaching.graph.pairs import blocks_of, contained, pair_keys

#: Held out where nothing else is said. Of 20,000 facts the 95 % interval of the MRR is about .004
#: wide to either side, and ranking more of them among many entities takes longer than training.
USUAL_SHARE, USUALLY_ENOUGH = 0.05, 20_000
PASSES = 12
"""Bound on the vectorised passes; each leaves far less to do than the one before."""
Numbers = npt.NDArray[np.uint64]
#: Groups are chosen by the first bits of their numbers; so many are told apart.
_BUCKETS = 1 << 22
#: Lines from which on names that occur in the first one alone are remarked on.
_ENOUGH_LINES = 20


def hold_out(graph: KnowledgeGraph, share: float | None, seed: int) -> KnowledgeGraph:
    """Return a graph with valid and test taken out of its training triples; ids stay.

    Without a share it is the usual one, of at most :data:`USUALLY_ENOUGH` triples each.
    """
    if graph.on_disk:
        raise split_on_disk(graph, share)
    if len(graph.valid) or len(graph.test) or graph.labelled:
        raise UserError(f"'{graph.name}' has valid or test triples of its own; use split 0.")
    if share is None:
        share = min(USUAL_SHARE, USUALLY_ENOUGH / max(1, len(graph.train)))
    train, valid, test = split_triples(
        graph.train, graph.num_entities, graph.num_relations, share, seed
    )
    notes = list(graph.notes)
    wanted = round(share * len(graph.train))
    if len(valid) == 0 and len(test) == 0:
        notes.append(
            "No triple was held out for valid and test: the graph is too small, or every triple is "
            "the only one of an entity. Nothing will be validated or tested."
        )
    elif min(len(valid), len(test)) < max(wanted, 1):
        notes.append(_fewer_than_wanted(len(valid), len(test), wanted))
    return KnowledgeGraph(
        graph.entities,
        graph.relations,
        train,
        valid,
        test,
        name=graph.name,
        duplicates=graph.duplicates,
        notes=notes,
    )


def split_on_disk(graph: KnowledgeGraph, share: float | None) -> UserError:
    """Return the error for a graph on disk of which facts are to be held out."""
    return UserError(
        f"The graph '{graph.name}' is on disk, where facts are held out when it is made; use "
        f"'nscaching ingest ... --split {share or USUAL_SHARE:g}'."
    )


def split_triples(
    triples: Ids, num_entities: int, num_relations: int, share: float, seed: int
) -> tuple[Ids, Ids, Ids]:
    """Return train, valid and test, with ``share`` of the triples in each of the last two."""
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
    sizes: Longs,
    wanted: int,
    rng: np.random.Generator,
) -> Longs:
    """Return, in random order, groups that training can do without, all at the same time.

    Walking the groups in a random order, those that show some entity or relation for the first time
    cover everything, so the others are spare. Walking the cover itself in another order makes it
    smaller, which is repeated while more spare groups are wanted.
    """
    parts = np.concatenate([triples[:, 0], triples[:, 2], triples[:, 1] + np.int32(num_entities)])
    owner = np.tile(group, 3)
    free: list[Longs] = []
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


def _fill(groups: Longs, sizes: Longs, capacity: int) -> Longs:
    """Take groups in order while they fit into ``capacity`` triples, skipping what does not."""
    taken: list[Longs] = [groups[:0]]
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


# On disk ------------------------------------------------------------------------------------------


def hold_out_on_disk(
    everything: Path, folder: Path, num_entities: int, num_relations: int, share: float, seed: int
) -> list[str]:
    """Write train, valid and test with ``share`` of the triples in each of the last two.

    Triples over the same two entities are a group with a random number: the group with the largest
    number of an entity stays in train, and of the others those with the smallest are held out.
    Returns remarks.
    """
    from nscaching.graph.store import ArrayWriter  # loads torch

    triples: Ids = np.load(everything, mmap_mode="r")
    largest = np.zeros(num_entities, dtype=np.uint64)
    of_relation = np.zeros(num_relations, dtype=np.uint64)
    for block in blocks_of(triples):
        number = group_numbers(block, num_entities, seed)
        for column in (0, 2):
            np.maximum.at(largest, block[:, column], number)
        np.maximum.at(of_relation, block[:, 1], number)
    needed = np.sort(of_relation)

    def spare(block: Ids) -> tuple[Numbers, Bools]:
        """Return the bucket of each triple, and whether training can do without it."""
        number = group_numbers(block, num_entities, seed)
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
    return [_fewer_than_wanted(valid, test, wanted)]


def _fewer_than_wanted(valid: int, test: int, wanted: int) -> str:
    """Say how many triples were held out where more were asked for."""
    return (
        f"{valid:,} triples were held out for valid and {test:,} for test, where {wanted:,} each "
        "were asked for: every entity keeps a training triple, and triples over the same two "
        "entities stay together."
    )


def group_numbers(triples: Ids, num_entities: int, seed: int) -> Numbers:
    """Return a random number, not 0, of the unordered pair of entities of each triple."""
    low, high = np.minimum(triples[:, 0], triples[:, 2]), np.maximum(triples[:, 0], triples[:, 2])
    z = low.astype(np.uint64) * np.uint64(num_entities) + high.astype(np.uint64)
    z += np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


# What a user should know of the splits ------------------------------------------------------------


def with_remarks(graph: KnowledgeGraph) -> KnowledgeGraph:
    """Add sentences on duplicates, unseen entities and leaked triples to the notes of a graph."""
    sizes = graph.num_entities, graph.num_relations
    held_out = np.concatenate([graph.valid, graph.test])
    leaked = contained(held_out, graph.train, *sizes)
    unseen = count_unseen(graph.train, [held_out], *sizes)
    graph.notes += remarks(graph.duplicates, unseen, int(leaked.sum()))
    graph.notes += space_remarks(graph)
    return graph


def space_remarks(graph: KnowledgeGraph) -> list[str]:
    """Return remarks on names that are another name but for spaces, as after a comma of a CSV."""
    told = []
    for kind, names in (("entity", graph.entities), ("relation", graph.relations)):
        spaced = [name for name in names if name[0].isspace() or name[-1].isspace() or "  " in name]
        bare = {without_spaces(name) for name in spaced}
        twins = bare.intersection(names) if bare else bare
        found = [name for name in spaced if without_spaces(name) in twins]
        told += differing_by_spaces(kind, len(found), *found[:1])
    return told


def without_spaces(name: str) -> str:
    """Return a name without spaces at its ends, and with one where several follow each other."""
    return re.sub("  +", " ", name.strip())


def differing_by_spaces(kind: str, count: int, name: str = "") -> list[str]:
    """Return a remark on names of a kind, of which one is given, that differ by spaces alone."""
    if count == 0:
        return []
    differ = "differs" if count == 1 else "differ"
    many = "entities" if kind == "entity" else "relations"
    return [
        f"{plural(count, f'{kind} name')} {differ} from another only by spaces: '{shown(name)}' "
        f"and '{shown(without_spaces(name))}' are two {many} here. Remove the spaces if they "
        "should be one."
    ]


def first_line_remarks(
    first: Sequence[FirstLine],
    entities: Sequence[str],
    relations: Sequence[str],
    splits: Sequence[Ids],
) -> list[str]:
    """Return remarks on first lines with names that no other line has: column names, perhaps."""
    if not first or sum(map(len, splits)) < _ENOUGH_LINES:
        return []
    counts = np.zeros(len(relations), dtype=np.int64)
    for block in (block for triples in splits for block in blocks_of(triples)):
        counts += np.bincount(block[:, 1], minlength=len(relations))
    files: dict[tuple[str, str, str], list[str]] = {}
    for file, triple in first:
        files.setdefault(triple, []).append(file)
    told = []
    for (head, relation, tail), named in files.items():
        r = relations.index(relation)
        if counts[r] > len(splits):  # a split has a triple once
            continue
        ids = np.array([entities.index(head), r, entities.index(tail)])
        if all(_alone(ids, triples) for triples in splits):
            lines = f"The first line of {named[0]}"
            lines += f" and of {plural(len(named) - 1, 'more file')}" if len(named) > 1 else ""
            told.append(
                f"{lines} was read as head '{shown(head)}', relation '{shown(relation)}', tail "
                f"'{shown(tail)}', and these names occur nowhere else. If they are column names, "
                "call the columns head, relation and tail, and the line is skipped; without such "
                "names the columns must be in the order head, relation, tail."
            )
    return told


def _alone(ids: Longs, triples: Ids) -> bool:
    """Say whether no other triple has a name of this one."""
    for block in blocks_of(triples):
        same = np.isin(block[:, ::2], ids[::2]).any(axis=1) | (block[:, 1] == ids[1])
        if (block[same] != ids).any():
            return False
    return True


def count_unseen(
    train: Ids, held_out: Sequence[Ids], num_entities: int, num_relations: int
) -> list[int]:
    """Count the entities, and the relations, of held-out triples that training does not have."""
    counts = []
    for columns, size in (([0, 2], num_entities), ([1], num_relations)):
        missing = np.zeros(size, dtype=bool)
        for triples in held_out:
            missing[triples[:, columns]] = True
        for block in blocks_of(train):
            missing[block[:, columns]] = False
        counts.append(int(missing.sum()))
    return counts


def remarks(duplicates: Mapping[str, int], unseen: Sequence[int], leaked: int) -> list[str]:
    """Return sentences on duplicates, unseen entities and relations, and leaked triples."""
    entities, relations = unseen
    absent, held = "not occur in train", "of valid and test"
    told = []
    for split in SPLITS:
        one, many = (f"duplicate {line} of {split}" for line in ("line", "lines"))
        told.append((duplicates[split], f"{one} was dropped", f"{many} were dropped"))
    told += [
        (entities, f"entity {held} does {absent}", f"entities {held} do {absent}"),
        (relations, f"relation {held} does {absent}", f"relations {held} do {absent}"),
        (leaked, f"triple {held} is also in train", f"triples {held} are also in train"),
    ]
    return [f"{plural(count, one, many)}." for count, one, many in told if count]
