"""RDF in its forms gives the same graph; literals are dropped and counted."""

import gzip

import pytest

from nscaching import KnowledgeGraph, UserError, load_graph
from tests.interop.helpers import named

pyoxigraph = pytest.importorskip("pyoxigraph")

TURTLE = b"""@prefix : <http://x/> .
:a :likes :b , :c ; :age 5 ; :name "A"@en .
:b :likes _:someone .
"""
LIKES = ("http://x/a", "http://x/likes", "http://x/b")
FACTS = [LIKES, (*LIKES[:2], "http://x/c"), ("http://x/b", "http://x/likes", "_:someone")]
FORMATS = {
    ".ttl": pyoxigraph.RdfFormat.TURTLE,
    ".nt": pyoxigraph.RdfFormat.N_TRIPLES,
    ".rdf": pyoxigraph.RdfFormat.RDF_XML,
    ".owl": pyoxigraph.RdfFormat.RDF_XML,
    ".nq": pyoxigraph.RdfFormat.N_QUADS,
    ".jsonld": pyoxigraph.RdfFormat.JSON_LD,
}


def filled_store():
    store = pyoxigraph.Store()  # its method load would give other labels to blank nodes
    store.extend(pyoxigraph.parse(TURTLE, format=pyoxigraph.RdfFormat.TURTLE))
    return store


def written(kind):
    quads = pyoxigraph.parse(TURTLE, format=pyoxigraph.RdfFormat.TURTLE)
    return pyoxigraph.serialize((quad.triple for quad in quads), format=FORMATS[kind])


@pytest.mark.parametrize("kind", FORMATS)
def test_every_form_gives_the_same_graph(tmp_path, kind):
    path = tmp_path / f"people{kind}"
    path.write_bytes(written(kind))
    for graph in (load_graph(path), KnowledgeGraph.from_rdf(path)):
        assert sorted(named(graph)) == sorted(FACTS)
        assert graph.name == "people"
        assert f"2 triples of people{kind} with a literal as object were dropped." in graph.notes


def test_gzip_and_a_folder(tmp_path):
    (tmp_path / "train.ttl.gz").write_bytes(gzip.compress(TURTLE))
    (tmp_path / "test.ttl").write_bytes(b"<http://x/c> <http://x/likes> <http://x/a> .")
    graph = load_graph(tmp_path)
    assert named(graph) == FACTS
    assert named(graph, "test") == [("http://x/c", "http://x/likes", "http://x/a")]


def test_nodes_without_a_label_are_named_alike_each_time(tmp_path):
    path = tmp_path / "x.ttl"
    path.write_bytes(b"@prefix : <http://x/> . :a :p [ :q :b ] , [ :q :c ] .")
    graph = load_graph(path)
    assert graph.fingerprint == load_graph(path).fingerprint
    assert {"_:x.anonymous1", "_:x.anonymous2"} <= set(graph.entities)


def test_nodes_without_a_label_of_two_files_are_two_entities(tmp_path):
    prefix = "@prefix : <http://x/> .\n"
    (tmp_path / "train.ttl").write_text(prefix + ":anna :address [ :city :paris ] .")
    (tmp_path / "test.ttl").write_text(prefix + ":bob :address [ :city :rome ] .")
    graph = load_graph(tmp_path)
    home = {split: graph.split(split)[0, 0] for split in ("train", "test")}
    assert graph.entities[home["train"]] == "_:train.anonymous1"
    assert graph.entities[home["test"]] == "_:test.anonymous1"


CONSTRUCT = "CONSTRUCT { ?b <http://x/liked_by> ?a } WHERE { ?a <http://x/likes> ?b }"
SELECT = "SELECT ?b ?how ?a { BIND(<http://x/liked_by> AS ?how) ?a <http://x/likes> ?b }"


@pytest.mark.parametrize("query", [CONSTRUCT, SELECT])
def test_sparql_on_a_file_and_a_store(tmp_path, query):
    path = tmp_path / "x.ttl"
    path.write_bytes(TURTLE)
    store = filled_store()
    for source in (path, str(path), store):
        graph = KnowledgeGraph.from_rdf(source, query)
        wanted = [(t, "http://x/liked_by", h) for h, _, t in FACTS]
        assert sorted(named(graph)) == sorted(wanted)


def test_a_whole_store_counts_its_literals():
    store = filled_store()
    graph = KnowledgeGraph.from_rdf(store, name="mine")
    assert sorted(named(graph)) == sorted(FACTS)
    assert graph.name == "mine"
    assert "2 triples of the store with a literal as object were dropped." in graph.notes


@pytest.mark.parametrize(
    ("name", "content", "query", "words"),
    [
        ("x.ttl", b"@prefix : <http://x/> .\n:a :p .\n", None, ["Line 2", "x.ttl"]),
        ("x.ttl", b"<http://a> <http://p> 5 .", None, ["x.ttl", "all literals"]),
        ("x.ttl", b"", None, ["x.ttl", "empty"]),
        ("x.rdf", b"<rdf", None, ["x.rdf"]),
        ("x.tsv", b"a\tb\tc\n", None, ["x.tsv", ".ttl"]),
        ("x.ttl", TURTLE, "SELECT ?a WHER", ["SPARQL"]),
        ("x.ttl", TURTLE, "SELECT ?a { ?a ?b ?c }", ["three variables"]),
        ("x.ttl", TURTLE, "ASK { ?a ?b ?c }", ["CONSTRUCT"]),
    ],
)
def test_bad_rdf_is_explained(tmp_path, name, content, query, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        KnowledgeGraph.from_rdf(path, query)
    assert all(word in str(error.value) for word in words)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nothing\.ttl"):
        KnowledgeGraph.from_rdf(tmp_path / "nothing.ttl")
