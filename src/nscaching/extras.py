"""Optional dependencies: imported when they are used, with the extra to install when missing."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

from nscaching.errors import UserError


@dataclass(frozen=True)
class Extra:
    """A group of packages that ``pip install 'nscaching[name]'`` adds, and what it is for."""

    name: str
    modules: tuple[str, ...]
    purpose: str

    @property
    def missing(self) -> tuple[str, ...]:
        """The modules that are not installed."""
        return tuple(module for module in self.modules if not is_installed(module))

    @property
    def command(self) -> str:
        """What to type to get it."""
        return f"pip install 'nscaching[{self.name}]'"


#: Every extra a user may want, by name; ``pyproject.toml`` has the packages.
EXTRAS = {
    extra.name: extra
    for extra in (
        Extra("tune", ("smac",), "search for hyperparameters: nscaching tune"),
        Extra("explore", ("starlette", "uvicorn"), "nscaching explore RUN as a server"),
        Extra("rdf", ("pyoxigraph",), "read Turtle and RDF/XML, ask SPARQL"),
        Extra("large", ("duckdb",), "graphs larger than memory: nscaching ingest"),
        Extra("networkx", ("networkx",), "graphs of NetworkX"),
        Extra("pyg", ("torch_geometric",), "data for PyTorch Geometric"),
        Extra("pykeen", ("pykeen",), "our sampler in PyKEEN, our runs as its models"),
        Extra("tensorboard", ("tensorboard",), "train --track tensorboard:DIR"),
        Extra("mlflow", ("mlflow", "sqlalchemy"), "train --track mlflow:DIR"),
        Extra("wandb", ("wandb",), "train --track wandb:DIR"),
    )
}


def is_installed(module: str) -> bool:
    """Tell whether a module can be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def need(module: str, extra: str, what: str) -> Any:
    """Import a module, or say which extra it comes with; ``what`` is what needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        if is_installed(package):
            raise UserError(
                f"{what} needs {package}, which is installed but cannot be imported: {error}. "
                f"Install it again: {EXTRAS[extra].command}"
            ) from error
        raise UserError(f"{what} needs {package}: {EXTRAS[extra].command}") from error
