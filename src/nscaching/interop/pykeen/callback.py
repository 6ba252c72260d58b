"""The training callback: gives the sampler its model, and stores the caches in checkpoints.

PyKEEN's checkpoint has no place for a sampler. It stores the optimiser's ``state_dict``, though,
and an optimiser keeps entries of a parameter group that it does not know. While training runs, a
hook adds the caches there; when a checkpoint is loaded, they are removed again.
"""

from __future__ import annotations

from typing import Any

from pykeen.sampling import NegativeSampler, negative_sampler_resolver
from pykeen.training import TrainingCallback
from pykeen.training.callbacks import callback_resolver
from torch import Tensor

from nscaching.errors import UserError
from nscaching.interop.pykeen.sampler import NSCachingNegativeSampler

#: The entry of the caches in the first parameter group of a checkpoint.
_ENTRY = "nscaching"


class NSCachingTrainingCallback(TrainingCallback):  # type: ignore[misc]
    """Goes with ``negative_sampler="nscaching"``, as ``training_kwargs=dict(callbacks=...)``."""

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
            optimizer.register_load_state_dict_post_hook(self._take_out),
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

    def _take_out(self, optimizer: Any) -> None:
        _popped(optimizer)

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def _popped(optimizer: Any) -> dict[str, Tensor]:
    """Remove and return the caches of a checkpoint from the optimiser that loaded it."""
    caches: dict[str, Tensor] = optimizer.param_groups[0].pop(_ENTRY, {})
    return caches


callback_resolver.register(NSCachingTrainingCallback)
