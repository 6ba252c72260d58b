"""The data files of this room: definitions, settings, the paper's numbers, costs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def packaged(name: str) -> Any:
    """Return the content of a YAML or JSON file of this package; None where there is none."""
    file = files("nscaching.experiments.paper").joinpath(*name.split("/"))
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None
