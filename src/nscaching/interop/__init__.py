"""Graphs and embeddings for the tools people already use; each is imported when it is used.

They are methods: ``KnowledgeGraph.from_networkx``, ``to_networkx``, ``to_pyg``,
``from_dataframe``, ``from_rdf``, ``from_pykeen`` and ``to_pykeen``, and ``Run.to_pykeen``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nscaching.interop.transformer import EntityVectors

__all__ = ["EntityVectors"]


def __getattr__(name: str) -> Any:
    """Load scikit-learn, which takes a second, for those who use it."""
    if name == "EntityVectors":
        from nscaching.interop.transformer import EntityVectors

        return EntityVectors
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
