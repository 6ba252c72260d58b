"""A cell: one run that a table or a figure needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One number of a table, or one line of a figure, for one seed."""

    dataset: str
    scoring: str | None  #: None for graphs without relations
    sampler: str
    mode: str = "scratch"
    options: Mapping[str, Any] = field(default_factory=dict)  #: what differs from the settings
    seed: int = 0
    kind: str = "train"  #: train, search, nodes or variance
    panel: str = ""  #: part of the figure

    @property
    def identity(self) -> tuple[str, ...]:
        """What a result belongs to; two figures may share one."""
        own = json.dumps(dict(self.options), sort_keys=True)
        scoring = self.scoring or ""
        return self.kind, self.dataset, scoring, self.sampler, self.mode, own, str(self.seed)

    @property
    def label(self) -> str:
        """How a row or a line is called."""
        shown = {k: v for k, v in self.options.items() if not k.startswith("trace")}
        own = [f"{name}={value}" for name, value in shown.items()]
        mode = [] if self.mode == "scratch" else [self.mode]
        return ", ".join([self.sampler, *mode, *own])

    @property
    def folder(self) -> str:
        """Return the name of its run folder."""
        own = [f"{name}={value}" for name, value in sorted(self.options.items())]
        parts = [self.dataset, self.scoring or "nodes", self.sampler, self.mode, *own]
        if self.kind != "train":
            parts.append(self.kind)
        return re.sub(r"[^A-Za-z0-9=.+_-]+", "-", "-".join(parts)) + f"-seed{self.seed}"
