"""NSCaching inside PyKEEN: one import adds the negative sampler and the callback it needs.

>>> import nscaching.interop.pykeen
>>> from pykeen.pipeline import pipeline
>>> result = pipeline(
...     dataset="nations",
...     model="TransE",
...     negative_sampler="nscaching",
...     negative_sampler_kwargs=dict(cache_size=20, candidates=20),
...     training_kwargs=dict(num_epochs=2, callbacks="nscaching", use_tqdm=False),
...     evaluation_kwargs=dict(use_tqdm=False),
... )
>>> len(result.losses)
2
"""

from nscaching.extras import need

need("pykeen", "pykeen", "nscaching.interop.pykeen")

from nscaching.interop.pykeen.conversion import (  # noqa: E402
    from_pykeen,
    to_pykeen,
    to_pykeen_model,
)
from nscaching.interop.pykeen.sampler import (  # noqa: E402
    NSCachingNegativeSampler,
    NSCachingTrainingCallback,
)

__all__ = [
    "NSCachingNegativeSampler",
    "NSCachingTrainingCallback",
    "from_pykeen",
    "to_pykeen",
    "to_pykeen_model",
]
