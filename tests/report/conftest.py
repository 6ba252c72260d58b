"""One small traced run with names that bite; one thread, as the graph is tiny."""

import numpy as np
import pytest

from nscaching.graph import KnowledgeGraph

from ..training.conftest import one_thread  # noqa: F401
from ..training.helpers import ring, train, write_folder

#: Names that would break out of text, attributes, scripts and templates.
NASTY = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "</script><script>alert(3)</script>",
    "a ' quote & an &amp; ampersand",
    "$title ${body} {braces} %s",
    "x" * 300,
    "<!-- </style> -->",
)


@pytest.fixture(scope="session")
def nasty_graph():
    plain = ring()
    entities, relations = list(plain.entities), list(plain.relations)
    entities[: len(NASTY)] = NASTY
    relations[relations.index("r2")] = "/award/nominee/nominations./award/nomination/" + "z" * 120
    relations[relations.index("r0")] = '<b>rel</b> & "more" </script>'
    splits = (plain.train, plain.valid, plain.test)
    return KnowledgeGraph(entities, relations, *splits, name="<i>graph</i>" + "w" * 300)


@pytest.fixture(scope="session")
def nasty_run(tmp_path_factory, nasty_graph):
    out = tmp_path_factory.mktemp("runs") / "nasty"
    row = "e20|r1|?"
    run = train(nasty_graph, out=out, epochs=4, valid_every=1, trace_row=row, cache_size=8)
    entities = [{"entity": name, "score": 1.0, "split": "test"} for name in NASTY]
    bite = {"event": "row", "row": f"{NASTY[0]}|r1|?", "held": 5}
    looks = [
        {**bite, "epoch": 0, "hardest": entities[:4], "random": [NASTY[5]]},
        {**bite, "epoch": 4, "hardest": entities[4:], "random": [NASTY[6]]},
    ]
    run.folder.append_trace(looks)
    run.trace = run.folder.read_trace()
    return run


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_folder(ring(), tmp_path_factory.mktemp("graph") / "ring")


def clubs(people=40, seed=0):
    """Make a graph of people who know most others of their club: what is missing can be found."""
    rng = np.random.default_rng(seed)
    facts = [(f"p{i}", "member of", f"club {i % 4}") for i in range(people)]
    facts += [
        (f"p{i}", "knows", f"p{j}")
        for i in range(people)
        for j in range(people)
        if i != j and i % 4 == j % 4 and rng.random() < 0.75
    ]
    order = [facts[place] for place in rng.permutation(len(facts))]
    return KnowledgeGraph.from_triples(order[60:], order[30:60], order[:30], name="clubs")


@pytest.fixture(scope="session")
def clubs_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "clubs"
    return train(clubs(), out=out, epochs=40, dim=16, lr=0.02, scoring="complex")
