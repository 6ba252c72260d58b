"""Which options of a search are about which subject."""

from __future__ import annotations

from nscaching.tuning.nodes import NodeEmbeddings
from nscaching.tuning.settings import NodeSearchOptions, SearchOptions
from nscaching.tuning.subject import Subject
from nscaching.tuning.triples import TripleRuns


def subject_of(options: SearchOptions) -> Subject:
    """Return what a search with these options tunes."""
    if isinstance(options, NodeSearchOptions):
        return NodeEmbeddings(options.seeds)
    return TripleRuns()
