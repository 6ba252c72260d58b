"""Which options of a search are about which subject."""

from __future__ import annotations

from nscaching.experiments.tune.nodes import NodeEmbeddings
from nscaching.experiments.tune.settings import NodeSearchOptions, SearchOptions
from nscaching.experiments.tune.subject import Subject
from nscaching.experiments.tune.triples import TripleRuns


def subject_of(options: SearchOptions) -> Subject:
    """Return what a search with these options tunes."""
    if isinstance(options, NodeSearchOptions):
        return NodeEmbeddings(options.seeds)
    return TripleRuns()
