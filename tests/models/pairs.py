"""Positives with their negatives, and what a gradient step says of them."""

import torch

from nscaching.losses import Loss
from nscaching.models import SCORING, EmbeddingModel
from nscaching.sampling import Batch, Negatives
from nscaching.training.step import GradientStep
from tests.conftest import seeded

ENTITIES, RELATIONS = 25, 4
#: The norm means something to these only.
NORMED = [(name, norm) for name in ("transe", "transh", "transd") for norm in (1, 2)]
FUNCTIONS = [*NORMED, *((name, 1) for name in SCORING if (name, 1) not in NORMED)]


def in_double(model):
    """Return the model in double precision, which has no kernels."""
    return EmbeddingModel(model.scoring, model.entity.double(), model.relation.double())


def pairs(count, negatives, seed=3):
    """Return a batch and its negatives: both sides, some entities repeated, some weights zero."""
    rng = seeded(seed)
    ids = [torch.randint(n, (count,), generator=rng) for n in (ENTITIES, RELATIONS, ENTITIES)]
    batch = Batch(torch.arange(count), *ids, torch.zeros(count), torch.zeros(count))
    shape = (count, negatives)
    weight = torch.rand(shape, generator=rng)
    weight[torch.rand(shape, generator=rng) < 0.3] = 0
    weight[0] = 0
    entities = torch.randint(ENTITIES, shape, generator=rng)
    return batch, Negatives(entities, torch.rand(shape, generator=rng) < 0.5, weight)


def gradients_of_a_step(model, batch, negatives, margin):
    """Return loss, scores, and gradient rows of entities and relations: by kernel or autograd."""
    step = GradientStep(model, Loss(margin), 0.1, 0.0)
    loss, scores, gradients = step.gradients(batch, negatives)
    return loss, scores, gradients["entity"][1], gradients["relation"][1]
