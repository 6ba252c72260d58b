import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from nscaching.nodes.plain import LOSS_EVERY
from nscaching.nodes.training import SkipGram, SkipGramStep
from nscaching.nodes.windows import Windows

from ..conftest import seeded


def some_windows(nodes=15, count=40, width=4, negatives=3, seed=0):
    """Return windows of random distinct contexts, some places empty, with negatives."""
    rng = np.random.default_rng(seed)
    targets = np.stack([rng.permutation(nodes)[: width + negatives] for _ in range(count)])
    targets[rng.random(targets.shape) < 0.2] = -1
    weights = rng.integers(1, 4, targets.shape).astype(np.float32)
    pairs = (weights * (targets >= 0))[:, :width].sum(1)
    centres = rng.integers(nodes, size=count)
    return Windows(centres, pairs.astype(np.float32), targets.astype(np.int32), weights, width)


def slow_loss(node, context, windows):
    """Return the mean loss of a pair, straight from the definition (eq:skip:loss)."""
    total = torch.zeros(())
    for row, centre in enumerate(windows.centres):
        for place, target in enumerate(windows.targets[row]):
            if target < 0:
                continue
            score = node[centre] @ context[target]
            if place < windows.width:
                total = total + float(windows.weights[row, place]) * softplus(-score)
            else:
                total = total + float(windows.pairs[row]) * softplus(score)
    return total / float(windows.pairs.sum())


@pytest.mark.parametrize("tied", [False, True])
def test_a_step_is_adam_on_the_loss_of_the_definition(tied):
    model = SkipGram(15, 6, seeded(0), tied=tied)
    for table in {id(t): t for t in (model.node, model.context)}.values():
        table.mul_(8)
    node = model.node.clone().requires_grad_()
    context = node if tied else model.context.clone().requires_grad_()
    twin = torch.optim.Adam([node] if tied else [node, context], lr=0.01, weight_decay=1e-3)
    step = SkipGramStep(model, 0.01, 1e-3, lazy=False)
    for seed in range(5):
        loss = slow_loss(node, context, some_windows(seed=seed))
        twin.zero_grad()
        loss.backward()
        twin.step()
        step(some_windows(seed=seed))
    assert torch.allclose(model.node, node, atol=2e-5)
    assert torch.allclose(model.context, context, atol=2e-5)


def test_the_loss_shown_is_that_of_every_eighth_window():
    model = SkipGram(15, 6, seeded(0))
    windows = some_windows()
    part = Windows(
        *(array[::LOSS_EVERY] for array in (windows.centres, windows.pairs)),
        *(array[::LOSS_EVERY] for array in (windows.targets, windows.weights)),
        windows.width,
    )
    expected = float(slow_loss(model.node.clone(), model.context.clone(), part))
    assert SkipGramStep(model, 0.01, 0.0, lazy=False)(windows) == pytest.approx(expected, rel=1e-4)


def test_scores_are_dot_products():
    model = SkipGram(15, 7, seeded(0))
    rows, ids = torch.tensor([3, 1]), torch.tensor([[0, 5, 5], [14, 1, 2]])
    expected = torch.einsum("bd,bkd->bk", model.node[rows], model.context[ids])
    assert torch.allclose(model.score(rows, ids), expected, atol=1e-6)
