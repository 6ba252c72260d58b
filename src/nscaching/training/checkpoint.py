"""Checkpoints: everything a run needs to resume as if it had never stopped, in one file.

One safetensors file, renamed into place, holds parameters, the best parameters so far, Adam's
moments, the sampler's state, the state of the random generator and, in the middle of an epoch, the
order of its triples. Its details hold the counters.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

from torch import Tensor

from nscaching.artefacts import artefact_id, files
from nscaching.errors import UserError, shown

FORMAT = 1
Tables = dict[str, Tensor]
#: Named groups of tensors: model, best, adam, sampler, random, trace, epoch.
Parts = dict[str, Tables]
_ANEW = "begin anew with --overwrite (overwrite=True)."


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
    epoch_seconds: float = 0.0  #: spent in epochs, validations not counted
    finished: bool = False
    pretraining: bool = False  #: whether the sampler is still Bernoulli's: a warm start may follow

    def within_budget(self, epochs: int, max_seconds: float | None) -> bool:
        """Tell whether epochs and seconds are left."""
        return self.epoch < epochs and (max_seconds is None or self.epoch_seconds < max_seconds)

    def out_of_patience(self, patience: int) -> bool:
        """Tell whether so many validations brought no gain, or more; 0 is without end."""
        return 0 < patience <= self.validations_without_gain and not self.pretraining

    def nothing_left(self, epochs: int, max_seconds: float | None, patience: int) -> bool:
        """Tell whether a run that is resumed with these limits has no step to take."""
        ended = self.out_of_patience(patience) or not self.within_budget(epochs, max_seconds)
        return ended and not self.steps_into_epoch

    def summary(self) -> dict[str, Any]:
        """Return what a summary of the run says of its training."""
        return {
            "epochs": self.epoch,
            "best_epoch": self.best_epoch,
            "seconds": self.seconds,
            "seconds_per_epoch": self.epoch_seconds / max(1, self.epoch),
            "valid": self.best_valid,
        }


def save(path: Path, counters: Counters, parts: Parts) -> None:
    """Write counters and named groups of tensors."""
    with files.explained_writes(path):
        path.parent.mkdir(exist_ok=True)
    files.write_tensors(path, by_name(parts), details_of(counters, path.parent.parent))


def load(path: Path) -> tuple[Counters, Parts]:
    """Read back what :func:`save` wrote.

    A run that is resumed has tables of its own, into which it copies what is mapped here. It keeps
    the best model and the order of an epoch as they are, so that these are copies.
    """
    tensors, details = files.read_tensors(path, "checkpoint", mapped=True)
    counters, parts = read_counters(path, details), checked_parts(tensors, path, path.parent.parent)
    for name in ("best", "epoch"):
        if name in parts:
            parts[name] = {part: tensor.clone() for part, tensor in parts[name].items()}
    return counters, parts


def details_of(counters: Counters, run: Path) -> dict[str, Any]:
    """Return what a checkpoint says beside its tensors."""
    return {"format": FORMAT, "run": artefact_id(run), **asdict(counters)}


def by_name(parts: Parts) -> Tables:
    """Return the tensors of all parts as files have them, ``part/name``."""
    return {f"{part}/{name}": t for part, group in parts.items() for name, t in group.items()}


def checked_parts(tensors: Tables, place: Path, run: Path) -> Parts:
    """Return the parts of tensors read from a place; kernels take ids and counts as they are."""
    entities = len(tensors["model/entity"]) if "model/entity" in tensors else 0
    triples = files.stored_length(run / "graph.safetensors", "train")
    parts: Parts = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        wrong = _wrong_tensor(part, rest, tensor, entities, triples)
        if wrong is not None:
            raise damaged(place, f"'{name}' {wrong}")
        parts.setdefault(part, {})[rest] = tensor
    return parts


def damaged(place: Path, why: str) -> UserError:
    """Return the error for a checkpoint that cannot be used."""
    return UserError(f"{place} is damaged ({why}). Restore it from a copy, or {_ANEW}")


def _wrong_tensor(
    part: str, rest: str, tensor: Tensor, entities: int, triples: int | None
) -> str | None:
    """Say what is wrong with a tensor of a checkpoint, if anything is."""
    if tensor.is_floating_point():
        if part in ("model", "best") and not bool(tensor.isfinite().all()):
            return "holds numbers that are not finite"
        if bool(tensor.isnan().any()):
            return "holds numbers that are none (NaN)"
    elif part in ("model", "best"):
        return f"holds numbers of type {str(tensor.dtype)[6:]}, not parameters"
    if rest == "count" and (tensor.numel() != 1 or bool((tensor < 0).any())):
        return "is no number of steps"
    if rest.endswith("ids") and tensor.numel():
        low, high = tensor.aminmax()
        if tensor.is_floating_point() or int(low) < -1 or int(high) >= entities:
            return f"holds an id that is not one of the {entities:,} entities"
    if (part, rest) == ("epoch", "order") and tensor.numel():
        low, high = tensor.aminmax()
        if int(low) < 0 or (triples is not None and int(high) >= triples):
            return "holds the place of a triple that is not there"
    return None


def load_counters(path: Path) -> Counters:
    """Read where a run stands, without its tensors."""
    return read_counters(path, files.read_details(path, "checkpoint"))


def read_counters(path: Path, details: dict[str, Any]) -> Counters:
    """Return the counters among the details of a checkpoint, which must be of this run."""
    try:
        if details.pop("format", None) != FORMAT:
            raise TypeError("another format")
        run = details.pop("run", None)
        if run is not None and artefact_id(path.parent.parent) not in (run, None):
            raise UserError(
                f"{path} is the checkpoint of another run; restore the one of this run from a "
                f"copy, or {_ANEW}"
            )
        counters = Counters(**details)
        for name, hint in get_type_hints(Counters).items():
            if not _fits(getattr(counters, name), hint):
                raise TypeError(f"its '{name}' is {shown(repr(getattr(counters, name)))}")
        return counters
    except TypeError as error:
        raise UserError(
            f"{path} was not written by this version of nscaching ({error}); {_ANEW}"
        ) from error


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a counter is of its type and not negative."""
    if hint in (int, float):
        allowed = int if hint is int else int | float
        return isinstance(value, allowed) and not isinstance(value, bool) and not value < 0
    if hint in (str, bool):
        return isinstance(value, hint)
    return value is None or (isinstance(value, dict) and _fits(value.get("mrr"), float))
