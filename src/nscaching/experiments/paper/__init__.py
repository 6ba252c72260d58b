"""The paper's tables and figures as definitions that can be run."""

from __future__ import annotations

from nscaching.experiments.paper.api import Reproduction, reproduce
from nscaching.experiments.paper.definitions import Definition, definition, definitions

__all__ = ["Definition", "Reproduction", "definition", "definitions", "reproduce"]
