"""Checkpoints of sharded runs, by ``torch.distributed.checkpoint``, written while training goes on.

``checkpoint/latest.json`` holds the counters and names the folder of tensors that belongs to them,
``checkpoint/epoch-N-TOKEN``. A tensor of a stratum has a key that names the stratum and never a
rank, so that any number of processes that divides the strata reads it. Files are safetensors, one
per stratum and one for what all ranks share; each comes with a digest.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from nscaching.artefacts import files
from nscaching.errors import UserError
from nscaching.processes import Group
from nscaching.training import checkpoint

LATEST = "latest.json"
#: Names that only we give, as patterns: a folder of tensors, and a file with those of a stratum. A
#: copy that a user made beside them has another name.
TENSORS = "epoch-*-" + 8 * "[0-9a-f]"
SHARD = "model-{0}-of-{0}.safetensors".format(5 * "[0-9]")
_SHARED, _DIGEST = "shared", "digest"


class Saver:
    """Writes the checkpoints of a run, at most one at a time."""

    def __init__(self, folder: Path, group: Group) -> None:
        self.folder, self.group = folder, group
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(
        self,
        counters: checkpoint.Counters,
        shared: checkpoint.Parts,
        strata: dict[int, checkpoint.Parts],
    ) -> None:
        """Copy what belongs to a checkpoint and write it in the background; all ranks call this."""
        self.wait()
        owners = {_SHARED: shared} | {f"stratum/{v}": parts for v, parts in strata.items()}
        if self.group.rank > 0:
            del owners[_SHARED]
        copies = {
            owner: {
                name: tensor.detach().to("cpu", copy=True).contiguous()
                for name, tensor in checkpoint.by_name(parts).items()
            }
            for owner, parts in owners.items()
        }
        token = self.group.broadcast(uuid.uuid4().hex[:8])
        told = checkpoint.details_of(counters, self.folder.parent)
        self._pending = self._executor.submit(self._write, token, told, copies)

    def wait(self) -> None:
        """Wait for the checkpoint that is being written; raise what went wrong with it."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            with files.explained_writes(self.folder):
                pending.result()

    def _write(
        self, token: str, told: dict[str, Any], copies: dict[str, checkpoint.Tables]
    ) -> None:
        from nscaching.training import sharded_storage

        temporary = self.folder / f".{LATEST}.{token}.tmp"
        final = self.folder / f"epoch-{told['epoch']}-{token}"
        state: checkpoint.Tables = {}
        for owner, tensors in copies.items():
            digest = bytes.fromhex(files.tensor_digest(tensors, final.name))
            state |= {f"{owner}/{name}": tensor for name, tensor in tensors.items()}
            state[f"{owner}/{_DIGEST}"] = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
        strata = sum(owner != _SHARED for owner in copies) * self.group.size
        # File 1 has what is shared, then come the strata; "" says how many there are.
        shared = {key: key.startswith(_SHARED) for key in state}
        numbers = {key: 1 if own else 2 + int(key.split("/")[1]) for key, own in shared.items()}
        numbers[""] = 1 + strata

        def finish() -> None:
            """Put the whole checkpoint in the place of the one before, on rank 0."""
            temporary.replace(final)
            said = files.sealed({**told, "tensors": final.name})
            files.write_text(self.folder / LATEST, json.dumps(said, indent=1) + "\n")
            sweep(self.folder)

        try:
            sharded_storage.save(state, numbers, temporary, self.group, finish)
        except BaseException:  # of all ranks; what is written would keep a full disk full
            sweep(self.folder)
            raise


def drop(folder: Path) -> None:
    """Remove the checkpoints of a run that will not be resumed."""
    (folder / LATEST).unlink(missing_ok=True)
    for tensors in folder.glob(TENSORS):
        remove(tensors)


def remove(tensors: Path) -> None:
    """Remove the files of one checkpoint by name, and its folder if nothing else is in it."""
    for file in tensors.glob(SHARD):
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        tensors.rmdir()


def sweep(folder: Path) -> None:
    """Remove what a killed run left: unfinished checkpoints, and whole ones that are replaced."""
    files.sweep_temporary(folder, LATEST)
    with contextlib.suppress(UserError):
        current = files.read_json(folder / LATEST).get("tensors")
        for old in folder.glob(TENSORS):
            if old.name != current and not old.is_symlink():
                remove(old)


def read_latest(folder: Path) -> tuple[checkpoint.Counters, Path]:
    """Return where a run stands and the folder of its tensors."""
    file = folder / LATEST
    told = files.unsealed(files.read_json(file))
    if told is None or not isinstance(told.get("tensors"), str):
        raise checkpoint.damaged(file, "its content does not have its digest, or names no tensors")
    tensors = folder / Path(told.pop("tensors")).name
    return checkpoint.read_counters(file, told), tensors


def load(
    folder: Path, strata: Iterable[int]
) -> tuple[checkpoint.Counters, checkpoint.Parts, dict[int, checkpoint.Parts]]:
    """Read counters, what is shared, and some strata, on one rank without the others; checked."""
    from nscaching.training import sharded_storage

    strata = list(strata)
    counters, tensors = read_latest(folder)
    owners = [_SHARED, *(f"stratum/{v}" for v in strata)]
    try:
        state = sharded_storage.load(tensors, [f"{owner}/" for owner in owners])
    except Exception as error:  # whatever a file that is cut off or missing leads to
        raise checkpoint.damaged(
            tensors, str(error).splitlines()[0] if str(error) else ""
        ) from error
    loaded = [_checked(tensors, owner, state) for owner in owners]
    return counters, loaded[0], dict(zip(strata, loaded[1:], strict=True))


def check(folder: Path) -> checkpoint.Counters:
    """Read all of a checkpoint, one stratum after the other; return where the run stands."""
    counters, tensors = read_latest(folder)
    # Each name says how many files there are; the first is what the strata share.
    count = max((int(file.stem.rpartition("-")[2]) for file in tensors.glob(SHARD)), default=2)
    for stratum in range(count - 1):
        load(folder, [stratum])
    return counters


def _checked(tensors: Path, owner: str, state: checkpoint.Tables) -> checkpoint.Parts:
    """Return the parts of one owner."""
    mine = {
        key.removeprefix(f"{owner}/"): t for key, t in state.items() if key.startswith(f"{owner}/")
    }
    digest = mine.pop(_DIGEST, None)
    if digest is None or bytes(digest.tolist()).hex() != files.tensor_digest(mine, tensors.name):
        raise checkpoint.damaged(tensors, f"'{owner}' does not have the digest it was written with")
    return checkpoint.checked_parts(mine, tensors, tensors.parent.parent)
