"""The paper's tables and figures as definitions that can be run."""

from __future__ import annotations

from nscaching.experiments.paper.definitions import Definition, definition, definitions
from nscaching.experiments.paper.running import Reproduction, reproduce

__all__ = ["Definition", "Reproduction", "definition", "definitions", "reproduce"]
