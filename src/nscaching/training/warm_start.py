"""The TransE of its own from which the generator of KBGAN or IGAN starts."""

from __future__ import annotations

from nscaching.sampling import SAMPLERS, BernoulliSampler
from nscaching.training.config import TrainConfig


def warm_start_config(config: TrainConfig, batch_size: int) -> TrainConfig | None:
    """Return how the TransE of a run's generator is trained; None where it starts at random."""
    epochs = config.generator_epochs
    epochs = config.pretrain_epochs if epochs is None else epochs
    if not SAMPLERS[config.sampler].has_generator or epochs == 0:
        return None
    return TrainConfig(
        scoring="transe",
        sampler=BernoulliSampler.name,
        dim=config.generator_dim,
        margin=config.margin,
        lr=config.lr,
        batch_size=batch_size,
        epochs=epochs,
        valid_every=0,
        seed=config.seed,
        device=config.device,
    )
