"""Tensors by ``torch.distributed.checkpoint``, as safetensors; loading it takes two seconds."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from nscaching.errors import UserError
from nscaching.processes import Group


def save(
    state: dict[str, Tensor],
    files: dict[str, int],
    folder: Path,
    group: Group,
    finish: Callable[[], None],
) -> None:
    """Write the tensors of this rank to numbered files; rank 0 calls ``finish`` when all have."""
    writer = _Writer(folder, files, finish)
    group_of_thread, alone = group.background, group.size == 1
    with _quiet():
        try:
            state_dict_saver.save(
                state, storage_writer=writer, process_group=group_of_thread, no_dist=alone
            )
        except CheckpointException as error:  # of some ranks, raised on all
            causes = [cause for cause, _ in error.failures.values()]
            raise next((c for c in causes if isinstance(c, OSError | UserError)), error) from error


class _Writer(HuggingFaceStorageWriter):
    """Writes the files that it is told to, with the same names whichever rank writes them."""

    def __init__(self, folder: Path, files: dict[str, int], finish: Callable[[], None]) -> None:
        super().__init__(str(folder), save_distributed=True)
        self.folder, self.files, self.finished = folder, files, finish

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write one file per number."""
        storage = {"fqn_to_index_mapping": self.files}
        return super().write_data(replace(plan, storage_data=storage), planner)

    def finish(self, metadata: Any, results: list[list[Any]]) -> None:
        """Have the names of the files on the disk before they are relied on."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        self.finished()


def load(folder: Path, prefixes: Sequence[str]) -> dict[str, Tensor]:
    """Read the tensors whose keys begin with one of these, without other ranks."""
    reader = HuggingFaceStorageReader(str(folder))
    state = {
        key: torch.empty(info.size, dtype=info.properties.dtype)
        for key, info in reader.read_metadata().state_dict_metadata.items()
        if isinstance(info, TensorStorageMetadata) and key.startswith(tuple(prefixes))
    }
    with _quiet():
        state_dict_loader.load(state, storage_reader=reader, no_dist=True)
    return state


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is")  # one process may save, too
        yield
