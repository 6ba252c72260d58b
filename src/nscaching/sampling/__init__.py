"""Negative samplers. Add one here in one line."""

from __future__ import annotations

from nscaching.sampling.adversarial import IGANSampler, KBGANSampler
from nscaching.sampling.base import Batch, Candidates, Queries, Sampler, Scorer, triple_columns
from nscaching.sampling.cache import Cache
from nscaching.sampling.fixed import (
    AllEntities,
    BernoulliSampler,
    SelfAdversarialSampler,
    UniformSampler,
)
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.sampling.options import SAMPLERS, CacheOptions, SamplerOptions

SAMPLERS.update(
    {
        sampler.name: sampler
        for sampler in (
            AllEntities,
            UniformSampler,
            BernoulliSampler,
            SelfAdversarialSampler,
            KBGANSampler,
            IGANSampler,
            NSCachingSampler,
        )
    }
)

__all__ = [
    "SAMPLERS",
    "Batch",
    "BernoulliSampler",
    "Cache",
    "CacheOptions",
    "Candidates",
    "Queries",
    "Sampler",
    "SamplerOptions",
    "Scorer",
    "triple_columns",
]
