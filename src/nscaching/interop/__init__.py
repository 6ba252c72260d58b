"""Graphs and embeddings for the tools people already use; each is imported when it is used.

The doors are methods: ``KnowledgeGraph.from_networkx``, ``to_networkx``, ``to_pyg``,
``from_dataframe``, ``from_rdf``, ``from_pykeen`` and ``to_pykeen``, and ``Run.to_pykeen``.
"""

from nscaching.interop.transformer import EntityVectors

__all__ = ["EntityVectors"]
