"""Checkpoints: everything a run needs to go on as if it had never stopped, in one file.

One safetensors file, renamed into place, holds parameters, the best parameters so far, Adam's
moments, the sampler's state, the state of the random generator and, in the middle of an epoch, the
order of its triples. Its details hold the counters.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from nscaching.artefacts import artefact_id
from nscaching.artefacts.files import explained_writes, read_details, read_tensors, write_tensors
from nscaching.errors import UserError

FORMAT = 1


@dataclass
class Counters:
    """Where a run stands."""

    fingerprint: str  #: of the graph
    epoch: int = 0  #: epochs finished
    steps_into_epoch: int = 0  #: steps taken of the epoch after that
    loss_sum: float = 0.0  #: of those steps
    best_valid: dict[str, Any] | None = None  #: metrics of the best validation
    best_epoch: int = 0
    validations_without_gain: int = 0
    seconds: float = 0.0  #: spent training and validating, over all parts of the run
    epoch_seconds: float = 0.0  #: spent in whole epochs, validations not counted
    finished: bool = False
    pretraining: bool = False  #: whether the sampler is still Bernoulli's: a warm start may follow

    def within_budget(self, epochs: int, max_seconds: float | None) -> bool:
        """Tell whether epochs and seconds are left."""
        return self.epoch < epochs and (max_seconds is None or self.epoch_seconds < max_seconds)


def save(path: Path, counters: Counters, parts: dict[str, dict[str, Tensor]]) -> None:
    """Write counters and named groups of tensors."""
    tensors = {f"{part}/{name}": t for part, group in parts.items() for name, t in group.items()}
    with explained_writes(path):
        path.parent.mkdir(exist_ok=True)
    run = artefact_id(path.parent.parent)
    write_tensors(path, tensors, {"format": FORMAT, "run": run, **asdict(counters)})


def load(path: Path) -> tuple[Counters, dict[str, dict[str, Tensor]]]:
    """Read back what :func:`save` wrote."""
    tensors, details = read_tensors(path, "checkpoint")
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    return _counters(path, details), parts


def load_counters(path: Path) -> Counters:
    """Read where a run stands, without its tensors."""
    return _counters(path, read_details(path, "checkpoint"))


def _counters(path: Path, details: dict[str, Any]) -> Counters:
    try:
        if details.pop("format", None) != FORMAT:
            raise TypeError("another format")
        run = details.pop("run", None)
        if run is not None and artefact_id(path.parent.parent) not in (run, None):
            raise UserError(
                f"{path} is the checkpoint of another run; restore the one of this run from a "
                "copy, or begin anew with --overwrite (overwrite=True)."
            )
        return Counters(**details)
    except TypeError as error:
        raise UserError(
            f"{path} was not written by this version of nscaching ({error}); begin anew with "
            "--overwrite (overwrite=True)."
        ) from error
