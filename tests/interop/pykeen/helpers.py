"""Short training of PyKEEN models with our sampler."""

import torch
from pykeen.models import TransE
from pykeen.training import SLCWATrainingLoop

import nscaching.interop.pykeen  # noqa: F401  (registers the sampler and the callback)

from ...conftest import random_graph

SMALL = {"cache_size": 4, "candidates": 4}


def factory():
    return random_graph().to_pykeen().training


def make_loop(triples, model=None, **kwargs):
    """Return an sLCWA loop with our sampler."""
    torch.manual_seed(0)
    if model is None:
        model = TransE(triples_factory=triples, embedding_dim=6, random_seed=0)
    kwargs = {"negative_sampler": "nscaching", "negative_sampler_kwargs": SMALL} | kwargs
    return SLCWATrainingLoop(
        model=model, triples_factory=triples, automatic_memory_optimization=False, **kwargs
    )


def run_loop(loop, triples, epochs=2, **kwargs):
    """Train quietly, with the callback unless told otherwise."""
    kwargs = {"callbacks": "nscaching", "batch_size": 32, "pin_memory": False} | kwargs
    return loop.train(triples, num_epochs=epochs, use_tqdm=False, **kwargs)


def table(loop):
    return loop.model.entity_representations[0]._embeddings.weight.detach().clone()
