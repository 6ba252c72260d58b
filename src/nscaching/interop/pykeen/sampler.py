"""The negative sampler for PyKEEN's sLCWA loop, a shell around our own, and its callback.

PyKEEN asks for the negatives of a whole batch before it splits the batch, so sub-batches share one
update. It makes a new sampler for every search for a batch size, so those never touch the caches.

The training callback gives the sampler its model, and stores the caches in checkpoints. PyKEEN's
checkpoint has no place for a sampler. It stores the optimiser's ``state_dict``, though, and an
optimiser keeps entries of a parameter group that it does not know. While training runs, a hook adds
the caches there; when a checkpoint is loaded, they are removed again.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from pykeen.sampling import NegativeSampler, negative_sampler_resolver
from pykeen.training import TrainingCallback
from pykeen.training.callbacks import callback_resolver
from torch import Tensor
from torch.utils.data import get_worker_info

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph
from nscaching.interop.pykeen.conversion import BatchQuestions, PyKEENScorer
from nscaching.models import Side
from nscaching.sampling import Batch, SamplerOptions
from nscaching.sampling.nscaching import NSCachingSampler
from nscaching.sampling.options import fitted, with_preset

#: Arguments that PyKEEN's samplers have in common; the others are options of our sampler.
_THEIRS = ("num_entities", "num_relations", "filtered", "filterer", "filterer_kwargs")
#: Options of our sampler that have a meaning here.
_OURS = (
    *("cache_size", "candidates", "alpha2", "alpha3", "lazy", "pool", "rescale"),
    *("known_positives", "nu", "preset"),
)
#: The entry of the caches in the first parameter group of a checkpoint.
_ENTRY = "nscaching"


class WorkersNotSupported(UserError):
    """Raised in a worker process; the sentence is fixed, since torch wraps what a worker says."""

    def __init__(self, *said: object) -> None:
        super().__init__(
            "The nscaching sampler asks the current model in every batch, which a worker process "
            "does not have; set num_workers=0."
        )


class NSCachingNegativeSampler(NegativeSampler):  # type: ignore[misc]
    """Negatives from a cache of hard ones for every (head, relation) and (relation, tail).

    Options are those of :class:`nscaching.sampling.SamplerOptions`: ``cache_size``,
    ``candidates``, ``alpha2``, ``alpha3``, ``lazy``, ``pool``, ``rescale``, ``known_positives``,
    ``nu`` and ``preset``, which gives others their defaults. The training callback ``"nscaching"``
    brings the model that scores candidates; in a loop of your own call :meth:`attach`.

    Args:
        mapped_triples: The training triples; shape: (n, 3).
        num_negs_per_pos: Negatives per triple; 1 by default.
        callback: The training callback, which PyKEEN's loop gives.
        **kwargs: The options above, and those of PyKEEN's samplers.

    Examples:
        >>> result = pipeline(  # doctest: +SKIP
        ...     dataset="WN18RR",
        ...     model="DistMult",
        ...     negative_sampler="nscaching",
        ...     negative_sampler_kwargs={"cache_size": 50},
        ...     training_kwargs={"callbacks": "nscaching"},
        ... )

    """

    hpo_default: ClassVar[dict[str, Any]] = {
        "num_negs_per_pos": {"type": int, "low": 1, "high": 10, "log": True},
        "cache_size": {"type": int, "low": 10, "high": 90, "q": 20},
        "candidates": {"type": int, "low": 10, "high": 90, "q": 20},
        "alpha2": {"type": float, "low": 0.0, "high": 10.0},
        "alpha3": {"type": float, "low": 0.1, "high": 100.0, "log": True},
    }

    def __init__(
        self,
        *,
        mapped_triples: Tensor,
        num_negs_per_pos: int | None = None,
        callback: NSCachingTrainingCallback | None = None,
        **kwargs: Any,
    ) -> None:
        theirs = {name: kwargs.pop(name) for name in _THEIRS if name in kwargs}
        super().__init__(mapped_triples=mapped_triples, num_negs_per_pos=num_negs_per_pos, **theirs)
        self.options = _options(kwargs, self.num_negs_per_pos, self.num_entities)
        self._triples = mapped_triples.cpu().numpy()
        self._scorer: PyKEENScorer | None = None
        self._ours: NSCachingSampler | None = None
        self._keys: dict[Side, Tensor] = {}
        self._random: torch.Generator | None = None
        self._epoch = 0
        if callback is not None:
            callback.adopt(self)

    def attach(
        self, model: Any, mode: str | None = None, state: dict[str, Tensor] | None = None
    ) -> None:
        """Give the model that candidates are scored with, and fill the caches.

        Args:
            model: A PyKEEN model.
            mode: PyKEEN's inductive mode, or None.
            state: What :meth:`state` returned: the caches continue where they were.

        """
        self._scorer = PyKEENScorer(model, mode)
        entities, relations = (
            [str(i) for i in range(count)] for count in (self.num_entities, self.num_relations)
        )
        graph = KnowledgeGraph(entities, relations, self._triples)
        self._ours = NSCachingSampler(graph, self.options, model.device)
        for side in Side:
            pair = graph.rows[side]
            keys = pair.relation.astype(np.int64) * self.num_entities + pair.anchor
            self._keys[side] = torch.from_numpy(keys).to(model.device)
        self._random = torch.Generator(model.device)
        if state:
            self._load(self._ours, self._random, state)
            return
        # Seeded from torch's own generator, so that PyKEEN's random_seed decides all of it.
        self._random.manual_seed(int(torch.randint(2**62, ())))
        self._ours.prepare(self._scorer, self._random)

    def begin_epoch(self, epoch: int) -> None:
        """Tell which epoch comes: lazy updates skip some.

        Args:
            epoch: Its number, from 0.

        """
        self._epoch = epoch
        if self._ours is not None and self._random is not None:
            self._ours.begin_epoch(epoch, self._random)

    def sample(self, positive_batch: Tensor) -> tuple[Tensor, Tensor | None]:
        """Draw negatives, then update the rows of the batch.

        Args:
            positive_batch: Triples; shape: (b, 3).

        Returns:
            Negatives, (b, k, 3), and where a row was empty or a filter is asked for which of them
            count, (b, k); else None.

        """
        negatives, exists = self._draw(positive_batch)
        mask = None if self.filterer is None else self.filterer(negative_batch=negatives)
        if not exists.all():
            mask = exists if mask is None else mask & exists
        return negatives, mask

    def corrupt_batch(self, positive_batch: Tensor) -> Tensor:
        """Draw negatives as :meth:`sample` does, without the mask.

        Args:
            positive_batch: Triples; shape: (b, 3).

        Returns:
            Negatives; shape: (b, k, 3).

        """
        return self._draw(positive_batch)[0]

    def _draw(self, positive_batch: Tensor) -> tuple[Tensor, Tensor]:
        if get_worker_info() is not None:
            raise WorkersNotSupported
        if self._ours is None or self._scorer is None or self._random is None:
            raise UserError(
                "The nscaching sampler has no model to score candidates with; add "
                "callbacks='nscaching' to training_kwargs."
            )
        batch = self._batch(positive_batch.to(self._random.device))
        drawn = self._ours.sample(batch, self._random)
        questions = BatchQuestions(self._scorer, batch)
        for update in self._ours.update_jobs(batch, questions, self._random):
            update()
        home = positive_batch.device
        entities = drawn.negatives.clamp_min(0).to(home)
        replaces_head = drawn.replaces_head.unsqueeze(1).to(home)
        heads, relations, tails = (
            column.unsqueeze(1).expand_as(entities) for column in positive_batch.unbind(1)
        )
        negatives = [
            torch.where(replaces_head, entities, heads),
            relations,
            torch.where(replaces_head, tails, entities),
        ]
        return torch.stack(negatives, dim=-1), (drawn.weights > 0).to(home)

    def _batch(self, triples: Tensor) -> Batch:
        """Find the rows of the triples, which PyKEEN names by their ids only."""
        heads, relations, tails = triples.unbind(1)
        rows = {}
        for side, anchor in ((Side.HEAD, tails), (Side.TAIL, heads)):
            keys = relations * self.num_entities + anchor
            rows[side] = torch.searchsorted(self._keys[side], keys)
        return Batch(heads, heads, relations, tails, rows[Side.HEAD], rows[Side.TAIL])

    def state(self) -> dict[str, Tensor]:
        """Return all that a checkpoint needs.

        Returns:
            The caches, the random state and the epoch.

        """
        if self._ours is None or self._random is None:
            return {}
        ours = {name: part.detach().cpu() for name, part in self._ours.state().items()}
        mine = {"random": self._random.get_state(), "epoch": torch.tensor(self._epoch)}
        return {**ours, **mine}

    def _load(
        self, ours: NSCachingSampler, random: torch.Generator, state: dict[str, Tensor]
    ) -> None:
        try:
            ours.load_state(state)
            random.set_state(state["random"])
        except (KeyError, RuntimeError) as error:
            raise UserError(
                "The caches of the checkpoint do not fit: it was made with other triples or other "
                "negative_sampler_kwargs. Start afresh with another checkpoint_name."
            ) from error
        self._epoch = int(state["epoch"])


def _options(given: dict[str, Any], negatives: int, num_entities: int) -> SamplerOptions:
    """Return the checked options, a preset's values below those that are given."""
    elsewhere = set(SamplerOptions.names()).difference(_OURS)
    for name in given:
        if name in elsewhere:
            raise UserError(
                f"negative_sampler_kwargs: {name} means nothing in PyKEEN's loop, which chooses "
                "the positives, and how many negatives each has by num_negs_per_pos; drop it. "
                f"The options are: {', '.join(_OURS)}."
            )
    values = {**with_preset(given), "negatives": negatives}
    options = SamplerOptions.from_mapping(values, "negative_sampler_kwargs")
    return fitted(options, num_entities)


class NSCachingTrainingCallback(TrainingCallback):  # type: ignore[misc]
    """Goes with ``negative_sampler="nscaching"``, as ``training_kwargs=dict(callbacks=...)``.

    It gives the sampler the model, and puts the caches into PyKEEN's checkpoints.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sampler: NSCachingNegativeSampler | None = None
        self._kept: dict[str, Tensor] = {}
        self._hooks: list[Any] = []

    def register_training_loop(self, training_loop: Any) -> None:
        """Let every sampler that this loop makes know the callback."""
        super().register_training_loop(training_loop)
        hint = getattr(training_loop, "negative_sampler", None)
        if isinstance(hint, NSCachingNegativeSampler):
            raise UserError(
                "Give negative_sampler by its name 'nscaching' or its class, with "
                "negative_sampler_kwargs: PyKEEN makes a new one when it searches for a batch size."
            )
        ours = hint is not None and not isinstance(hint, NegativeSampler)
        if not ours or not issubclass(
            negative_sampler_resolver.lookup(hint), NSCachingNegativeSampler
        ):
            raise UserError(
                "The callback 'nscaching' belongs to the sLCWA training loop with "
                "negative_sampler='nscaching'; drop the callback, or choose that sampler."
            )
        given = training_loop.negative_sampler_kwargs or {}
        training_loop.negative_sampler_kwargs = {**given, "callback": self}
        self._unhook()
        self._kept = _popped(training_loop.optimizer)

    def adopt(self, sampler: NSCachingNegativeSampler) -> None:
        """Give a new sampler the model; the last one made is the one that trains."""
        sampler.attach(self.model, self.training_loop.mode, self._kept)
        self._sampler = sampler

    def pre_batch(self, **kwargs: Any) -> None:
        """Store the caches in checkpoints from now on; a search for a batch size skips this."""
        if self._hooks:
            return
        self._kept = {}
        optimizer = self.training_loop.optimizer
        self._hooks = [
            optimizer.register_state_dict_post_hook(self._put_in),
            optimizer.register_load_state_dict_post_hook(_popped),
        ]

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        """Begin the next epoch; PyKEEN counts those that are done."""
        if self._sampler is not None:
            self._sampler.begin_epoch(epoch)

    def post_train(self, losses: list[float], **kwargs: Any) -> None:
        """Leave the optimiser as it was."""
        self._unhook()

    def _put_in(self, optimizer: Any, state: dict[str, Any]) -> None:
        if self._sampler is not None:
            state["param_groups"][0][_ENTRY] = self._sampler.state()

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def _popped(optimizer: Any) -> dict[str, Tensor]:
    """Remove and return the caches of a checkpoint from the optimiser that loaded it."""
    caches: dict[str, Tensor] = optimizer.param_groups[0].pop(_ENTRY, {})
    return caches


negative_sampler_resolver.register(NSCachingNegativeSampler)
callback_resolver.register(NSCachingTrainingCallback)
