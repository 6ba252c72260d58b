"""The docstrings of the public names: what goes in, what comes out, and examples that run."""

import dataclasses
import doctest
import inspect

import numpy as np
import pytest

import nscaching as ns
from nscaching.interop import EntityVectors
from nscaching.interop.pykeen import NSCachingNegativeSampler, to_pykeen_model
from nscaching.interop.tracking import Tracker

#: What people call; each has Args and Returns.
FUNCTIONS = [
    *(ns.train, ns.load_run, ns.load_graph, ns.tune, ns.compare),
    *(ns.embed_nodes, ns.load_nodes, ns.load_node_graph),
    *(ns.Run.evaluate, ns.Run.classification, ns.Run.classify, ns.Run.neighbours, ns.Run.export),
    *(ns.Run.predict_tails, ns.Run.ask, ns.Run.discover, ns.Run.explain, ns.Run.update),
    *(ns.Run.probabilities, ns.Run.calibration_report),
    *(ns.KnowledgeGraph.from_triples, ns.KnowledgeGraph.from_dataframe),
    *(ns.KnowledgeGraph.from_networkx, ns.KnowledgeGraph.to_networkx, ns.KnowledgeGraph.to_pyg),
    *(ns.KnowledgeGraph.from_rdf, ns.KnowledgeGraph.from_pykeen, ns.KnowledgeGraph.to_pykeen),
    *(ns.NodeEmbedding.vector, ns.NodeEmbedding.classify, ns.NodeEmbedding.predict_links),
    *(ns.NodeEmbedding.neighbours, ns.NodeEmbedding.export, ns.NodeEmbedding.picture),
    *(ns.NodeEmbedding.save, ns.NodeGraph.without_edges, ns.NodeGraph.id_of),
    *(ns.NodeGraph.with_labels, EntityVectors.fit),
    *(EntityVectors.get_feature_names_out, NSCachingNegativeSampler.sample, to_pykeen_model),
    *(NSCachingNegativeSampler.corrupt_batch, NSCachingNegativeSampler.state),
]
#: What is called for its effect: only the arguments are explained.
CALLED = [
    *(Tracker.on_start, Tracker.on_epoch, Tracker.on_evaluation, Tracker.on_end),
    *(Tracker.log_values, NSCachingNegativeSampler.attach, NSCachingNegativeSampler.begin_epoch),
]
CLASSES = [EntityVectors, NSCachingNegativeSampler]


@pytest.mark.parametrize(
    "function", [*FUNCTIONS, *CALLED, *CLASSES], ids=lambda function: function.__qualname__
)
def test_every_argument_is_explained(function):
    text = inspect.getdoc(function)
    given = text.partition("Args:")[2]
    for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items():
        if name == "self" or (function is ns.train and name in ns.TrainConfig.names()):
            continue
        stars = {parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        assert f"\n    {stars}{name}: " in given, (function.__qualname__, name)
    assert "\nReturns:\n" in text or function in [*CALLED, *CLASSES]


@pytest.mark.slow
def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ns.train("world", epochs=1, dim=8, out="runs/world", progress="none")
    nodes = ns.embed_nodes(people(), dim=4, epochs=1, progress="none")
    finder, tried = doctest.DocTestFinder(recurse=False), 0
    members = [member for _, member in inspect.getmembers(ns.Run, callable)]
    for function in [*FUNCTIONS, *CALLED, *CLASSES, Tracker, *members]:
        for test in finder.find(function, globs={"ns": ns, "run": run, "nodes": nodes}):
            runner = doctest.DocTestRunner()
            said = []
            assert not runner.run(test, out=said.append).failed, "".join(said)
            tried += len(test.examples)
    assert tried > 35


def people():
    """Return a graph of two groups with names and classes."""
    names = ["Anna", "Ben", *(f"person {number}" for number in range(18))]
    edges = [(a, b) for a in range(20) for b in range(a) if (a - b) % 2 == 0 or b == 0]
    graph = ns.load_node_graph(np.array(edges).T)
    named = dataclasses.replace(graph, nodes=names, name="people")
    return named.with_labels(names, [str(number % 2) for number in range(20)], "here")
