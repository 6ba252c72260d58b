"""The model of a sharded run: one safetensors file per stratum, and an index that names them.

``model-00003-of-00008.safetensors`` holds the rows of the third stratum and the ids of their
entities; the first file holds the relations too. No process needs more than its own strata to write
them. They are read as one table, or stay mapped on disk and are asked one after the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from nscaching.artefacts import artefact_id
from nscaching.artefacts.files import (
    map_tensors,
    read_json,
    read_tensors,
    write_tensors,
    write_text,
)
from nscaching.errors import UserError
from nscaching.models import EmbeddingModel, Side
from nscaching.models.match import Query

if TYPE_CHECKING:
    from nscaching.processes import Group

INDEX = "model.safetensors.index.json"
PATTERN = "model-*-of-*.safetensors"
_SHARD = re.compile(r"model-[0-9]{5,9}-of-[0-9]{5,9}\.safetensors")
Block = tuple[Tensor, Tensor]  #: ids of entities (n,), and their rows (n, width)


def write_shards(
    folder: Path, own: Mapping[int, Block], relation: Tensor, strata: int, group: Group
) -> None:
    """Write the strata of this rank, and on rank 0 the index once all are there.

    Without the index there is no model: it is removed first, so that shards are never mixed.
    """
    index = folder / INDEX
    if group.rank == 0:
        index.unlink(missing_ok=True)
    group.barrier()
    run = artefact_id(folder)
    written: dict[str, Any] = {}
    for stratum, (ids, rows) in own.items():
        file = f"model-{stratum + 1:05}-of-{strata:05}.safetensors"
        tensors = {f"stratum.{stratum}.entity": rows, f"stratum.{stratum}.ids": ids}
        if stratum == 0:
            tensors["relation"] = relation
        write_tensors(folder / file, tensors, {"run": run})
        written[file] = {name: tensor.nbytes for name, tensor in tensors.items()}
    everything = {file: sizes for part in group.gather(written) for file, sizes in part.items()}
    if group.rank == 0:
        told = {
            "metadata": {
                "total_size": sum(sum(sizes.values()) for sizes in everything.values()),
                "strata": strata,
                "run": run,
            },
            "weight_map": {name: file for file, sizes in everything.items() for name in sizes},
        }
        write_text(index, json.dumps(told, indent=1) + "\n")
        (folder / "model.safetensors").unlink(missing_ok=True)
    group.barrier()


def has_shards(folder: Path) -> bool:
    """Tell whether a folder holds a whole model in shards."""
    return (folder / INDEX).is_file()


def _files(folder: Path) -> list[Path]:
    """Return the shards, in the order of the strata."""
    index = folder / INDEX
    told = read_json(index)
    try:
        strata, files = told["metadata"]["strata"], told["weight_map"]
        names = [files[f"stratum.{v}.entity"] for v in range(strata)]
        wrong = [at for at, name in enumerate(names) if not _SHARD.fullmatch(name)]
    except (KeyError, TypeError) as error:
        raise UserError(f"{index} lacks {error}. Restore it from a copy, or resume the run.") from (
            error
        )
    if wrong:
        raise UserError(
            f"{index} names no shard of a model for stratum {wrong[0]}. Restore it from a copy, or "
            "resume the run."
        )
    return [folder / name for name in names]


def read_shards(
    folder: Path, entities: int, mapped: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read all shards as one table, rows in the order of the entities, and their details.

    With ``mapped`` the table is a :class:`MappedRows`, and its numbers are not looked at.
    """
    whole = relation = torch.empty(0)
    blocks: list[Block] = []
    details: dict[str, Any] = {}
    seen = 0
    run = artefact_id(folder)
    for stratum, file in enumerate(_files(folder)):
        tensors, details = (map_tensors if mapped else read_tensors)(file, "shard of a model")
        if run is not None and details.get("run") != run:
            raise UserError(
                f"{file} is a shard of another run. Restore it from a copy, or resume the run."
            )
        ids, rows = _block(file, stratum, tensors, entities)
        relation = tensors.get("relation", relation)
        seen += len(ids)
        if mapped:
            blocks.append((ids, rows))
        elif stratum == 0:
            whole = torch.full((entities, rows.shape[1]), torch.nan)
        if not mapped:
            whole[ids] = rows.float()
    if seen != entities:
        raise UserError(
            f"{folder / INDEX} names shards with {seen:,} of {entities:,} entities. Restore them "
            "from a copy, or resume the run."
        )
    table = cast(Tensor, MappedRows(blocks, torch.device("cpu"))) if mapped else whole
    return {"entity": table, "relation": relation}, details


def _block(file: Path, stratum: int, tensors: Mapping[str, Tensor], entities: int) -> Block:
    try:
        ids, rows = (tensors[f"stratum.{stratum}.{name}"] for name in ("ids", "entity"))
    except KeyError as error:
        raise UserError(f"{file} lacks {error}: it is the shard of another stratum.") from error
    low, high = ids.aminmax() if len(ids) else (torch.zeros(()), torch.zeros(()))
    if len(ids) != len(rows) or int(low) < 0 or int(high) >= max(1, entities):
        raise UserError(f"{file} holds an id that is not one of the {entities:,} entities.")
    return ids, rows


class MappedRows:
    """The rows of all entities in shards that stay on disk; indexed by ids, as a table is."""

    def __init__(self, blocks: list[Block], device: torch.device) -> None:
        self.blocks, self.device = blocks, device
        count = sum(len(ids) for ids, _ in blocks)
        self.shape = torch.Size((count, blocks[0][1].shape[1]))
        self._block = torch.zeros(count, dtype=torch.int16)
        self._row = torch.zeros(count, dtype=torch.int32)
        for number, (ids, _) in enumerate(blocks):
            self._block[ids] = number
            self._row[ids] = torch.arange(len(ids), dtype=torch.int32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, ids: Tensor | slice | int) -> Tensor:
        """Return copies of rows. Shapes: (...) -> (..., width)."""
        if isinstance(ids, slice):
            ids = torch.arange(*ids.indices(len(self)))
        ids = torch.as_tensor(ids)
        wanted = ids.detach().cpu().reshape(-1).long()
        found = torch.empty(len(wanted), self.shape[1])
        block, row = self._block[wanted], self._row[wanted].long()
        for number in torch.unique(block).tolist():
            mine = block == number
            found[mine] = self.blocks[number][1][row[mine]].float()
        return found.reshape(*ids.shape, -1).to(self.device)

    def numel(self) -> int:
        """Return how many numbers there are."""
        return self.shape.numel()

    def float(self) -> MappedRows:
        """Return this: rows are made float as they are read."""
        return self

    def detach(self) -> Tensor:
        """Return the whole table, for what cannot do without."""
        return self[:]


class ShardedModel(EmbeddingModel):
    """A model whose entity rows stay on disk: it reads one shard after the other."""

    def shards(self) -> list[Block]:
        """Return the shards, which are on disk."""
        return cast(MappedRows, self.entity).blocks

    def to(self, device: torch.device) -> ShardedModel:
        """Return the model with its relations, and every shard while it is read, on a device."""
        rows = cast(Tensor, MappedRows(self.shards(), device))
        relation = self.relation.to(device)
        return ShardedModel(self.scoring, rows, relation, reciprocal=self.reciprocal)

    @torch.no_grad()
    def score_ids(self, query: Query, ids: Tensor) -> Tensor:
        """Score k candidates per query. Shape: (b, k)."""
        distinct, place = torch.unique(ids.clamp(min=0), return_inverse=True)
        return self.match.forward(query, self.entity[distinct], place.where(ids >= 0, -1))

    @torch.no_grad()
    def score_pool(self, query: Query, pool: Tensor) -> Tensor:
        """Score the same p entities for each query. Shapes: (b, q), (p,) -> (b, p)."""
        return self.score_ids(query, pool.expand(len(query.vectors), -1))

    @torch.no_grad()
    def score_all(self, side: Side, anchor: Tensor, relation: Tensor) -> Tensor:
        """Score all entities for each question. Shapes: (b,), (b,) -> (b, n)."""
        query = self.query(side, anchor, relation)
        scores = torch.empty(len(anchor), self.num_entities, device=self.device)
        for ids, rows in self.blocks():
            scores[:, ids] = self.match.forward_all(query, rows)
        return scores
