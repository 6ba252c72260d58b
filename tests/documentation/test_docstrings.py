"""The docstrings of the public names: what goes in, what comes out, and examples that run."""

import doctest
import inspect

import pytest

import nscaching as ns

#: What people call; each has Args and Returns.
FUNCTIONS = [
    *(ns.train, ns.load_run, ns.load_graph, ns.tune, ns.compare),
    *(ns.embed_nodes, ns.load_nodes, ns.load_node_graph),
    *(ns.Run.evaluate, ns.Run.classification, ns.Run.classify, ns.Run.neighbours, ns.Run.export),
    *(ns.Run.predict_tails, ns.Run.ask, ns.Run.discover, ns.Run.explain, ns.Run.update),
    *(ns.Run.probabilities, ns.Run.calibration_report),
    *(ns.KnowledgeGraph.from_triples, ns.KnowledgeGraph.from_dataframe),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_every_argument_is_explained(function):
    text = inspect.getdoc(function)
    given = text.partition("Args:")[2]
    for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items():
        if name == "self" or (function is ns.train and name in ns.TrainConfig.names()):
            continue
        stars = {parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        assert f"\n    {stars}{name}: " in given, (function.__qualname__, name)
    assert "\nReturns:\n" in text


@pytest.mark.slow
def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ns.train("world", epochs=1, dim=8, out="runs/world", progress="none")
    finder, tried = doctest.DocTestFinder(recurse=False), 0
    public = [*FUNCTIONS, *(member for _, member in inspect.getmembers(ns.Run, callable))]
    for function in public:
        for test in finder.find(function, globs={"ns": ns, "run": run}):
            runner = doctest.DocTestRunner()
            said = []
            assert not runner.run(test, out=said.append).failed, "".join(said)
            tried += len(test.examples)
    assert tried > 15
