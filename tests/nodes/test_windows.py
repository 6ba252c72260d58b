from collections import Counter

import numpy as np

from nscaching.nodes.walks import Walker
from nscaching.nodes.windows import WalkWindows

from ..conftest import seeded
from .helpers import graph_from, random_edges


def stream(window=3, negatives=2, batch_size=40, nodes=30, **how):
    edges, _ = random_edges()
    walker = Walker(graph_from(edges, nodes=nodes), walks_per_node=2, length=11, **how)
    return WalkWindows(walker, window, negatives, batch_size)


def slow_windows(walks, window):
    """Return (centre, counts of what stands around it) for every place, by the definition."""
    found = []
    for row in walks.tolist():
        nodes = [node for node in row if node >= 0]
        if len(nodes) < 2:
            continue
        for at, centre in enumerate(nodes):
            around = nodes[max(0, at - window) : at] + nodes[at + 1 : at + 1 + window]
            found.append((centre, Counter(around)))
    return found


def test_windows_hold_what_the_definition_says():
    source = stream(nodes=32)  # two nodes have no edge
    walks = source.walker.walk(np.arange(source.walker.count))
    made = source.windows(walks)
    expected = slow_windows(walks, 3)
    assert len(made.centres) == len(expected)
    for row, (centre, counts) in enumerate(expected):
        held = made.targets[row, : made.width]
        used = int((held >= 0).sum())
        assert made.centres[row] == centre
        assert (held[:used] >= 0).all()
        weights = made.weights[row, :used]
        assert dict(zip(held[:used].tolist(), weights.tolist(), strict=True)) == counts
        assert made.pairs[row] == counts.total()


def test_an_epoch_goes_through_all_walks_once_in_a_new_order():
    source = stream()
    everything = slow_windows(source.walker.walk(np.arange(source.walker.count)), 3)
    orders = []
    for seed in (0, 1):
        batches = list(source.epoch(seeded(seed)))
        assert len(batches) == source.steps
        centres = np.concatenate([batch.centres for batch in batches])
        assert Counter(centres.tolist()) == Counter(centre for centre, _ in everything)
        orders.append(centres)
    assert not np.array_equal(*orders)


def test_walks_do_not_depend_on_the_order_of_training():
    one, two = (sum(b.pairs.sum() for b in stream().epoch(seeded(s))) for s in (0, 5))
    assert one == two
