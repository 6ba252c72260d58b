"""The data set that comes with the package, so that a first run needs no network."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pyarrow.compute as pc

from nscaching.errors import NSCachingError
from nscaching.graph.delimited import fast_columns
from nscaching.graph.files import read_bytes
from nscaching.graph.knowledge_graph import SPLITS, KnowledgeGraph
from nscaching.graph.vocabulary import NamedTriples, encode


def world_path() -> Path | None:
    """Return the bundled file, or None when the package was built without it."""
    path = Path(str(resources.files("nscaching.graph") / "data" / "world.tsv.gz"))
    return path if path.is_file() else None


def load_world(path: Path) -> KnowledgeGraph:
    """Read four tab-separated columns: split, head, relation, tail."""
    columns = fast_columns(read_bytes(path), "\t", 4)
    if columns is None:
        raise NSCachingError(f"{path} is damaged; install the package again.")
    split, *names = columns
    named = [
        NamedTriples(*(column.filter(pc.equal(split, part)) for column in names)) for part in SPLITS
    ]
    if sum(map(len, named)) != len(split):
        raise NSCachingError(f"{path} has a split other than train, valid and test.")
    entities, relations, ids = encode(named)
    return KnowledgeGraph(entities, relations, *ids, name="world")
