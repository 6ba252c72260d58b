import errno
import json
from pathlib import Path

import numpy as np
import pytest

import nscaching as ns
from nscaching.errors import UserError
from nscaching.nodes import NodeConfig, embed_nodes, load_nodes

from .helpers import graph_from, random_edges, two_cliques

QUICK = {"dim": 8, "walks_per_node": 4, "walk_length": 10, "window": 3, "epochs": 12}
QUICK |= {"batch_size": 80, "lr": 0.02, "progress": "none", "cache_size": 5, "candidates": 5}


@pytest.fixture(scope="module")
def embedding():
    return embed_nodes(two_cliques(), **QUICK)


@pytest.mark.parametrize("sampler", ["frequency", "nscaching", "seedne"])
@pytest.mark.parametrize("model", ["node2vec", "deepwalk", "line"])
def test_every_model_and_sampler_tells_two_cliques_apart(model, sampler):
    made = embed_nodes(two_cliques(), model=model, sampler=sampler, **QUICK)
    assert made.vectors.shape == (24, 8)
    assert np.isfinite(made.vectors).all()
    unit = made.vectors / np.linalg.norm(made.vectors, axis=1, keepdims=True)
    cosine = unit @ unit.T
    inside = (cosine[1:12, 1:12].sum() - 11) / 110
    assert inside > cosine[1:12, 13:].mean() + 0.2


def test_the_loss_falls_and_a_seed_repeats_a_run(embedding):
    again = embed_nodes(two_cliques(), **QUICK)
    assert np.array_equal(again.vectors, embedding.vectors)
    other = embed_nodes(two_cliques(), **QUICK | {"seed": 1})
    assert not np.array_equal(other.vectors, embedding.vectors)
    short = embed_nodes(two_cliques(), **QUICK | {"epochs": 1})
    assert embedding.summary["loss"] < short.summary["loss"]


def test_deepwalk_is_node2vec_with_p_and_q_of_one():
    one = embed_nodes(two_cliques(), model="deepwalk", **QUICK)
    two = embed_nodes(two_cliques(), model="node2vec", p=1, q=1, **QUICK)
    assert np.array_equal(one.vectors, two.vectors)


def test_line_is_held_by_a_penalty_that_shrinks_as_the_graph_grows():
    line = NodeConfig(model="line")
    assert line.penalty(24) == line.penalty(3000) == pytest.approx(1e-4)
    assert line.penalty(30_000) == pytest.approx(1e-5)
    assert NodeConfig(model="line", weight_decay=0.0).penalty(3000) == 0.0
    assert NodeConfig().penalty(3000) == 1e-7
    vectors = [
        embed_nodes(two_cliques(), model="line", weight_decay=given, **QUICK).vectors
        for given in (None, 1e-4, 1e-7)
    ]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])


def test_line_puts_two_unit_embeddings_side_by_side():
    made = embed_nodes(two_cliques(), model="line", **QUICK | {"dim": 7})
    assert made.vectors.shape == (24, 7)
    for part in (made.vectors[:, :3], made.vectors[:, 3:]):
        assert np.linalg.norm(part, axis=1) == pytest.approx(1, abs=1e-5)


def test_lazy_adam_moves_only_what_occurs():
    graph = graph_from([(0, 1), (1, 2), (0, 2)], nodes=5)
    dense, lazy = (
        embed_nodes(graph, optimizer=name, weight_decay=0.1, **QUICK)
        for name in ("adam", "lazy-adam")
    )
    start = embed_nodes(graph, optimizer="lazy-adam", **QUICK | {"lr": 1e-12})
    assert np.allclose(lazy.vectors[3:], start.vectors[3:])
    assert not np.allclose(dense.vectors[3:], start.vectors[3:])
    assert NodeConfig().optimizer == "auto"


def test_neighbours_are_of_the_same_clique(embedding):
    near = embedding.neighbours("n3", k=5)
    assert [n.similarity for n in near] == sorted((n.similarity for n in near), reverse=True)
    assert all(int(n.node[1:]) < 12 and n.node != "n3" for n in near)
    assert embedding.neighbours(3, k=5) == near
    assert len(embedding.neighbours("n3", k=1000)) == 23
    with pytest.raises(UserError, match="no node 'n99'"):
        embedding.neighbours("n99")
    with pytest.raises(UserError, match="at least 1"):
        embedding.neighbours("n3", k=0)


def test_an_isolated_node_has_no_neighbours_and_is_nobodys():
    graph = graph_from([(0, 1), (1, 2), (0, 2)], nodes=4)
    made = embed_nodes(graph, **QUICK)
    with pytest.raises(UserError, match="'n3' has no edge"):
        made.neighbours("n3")
    assert {near.node for near in made.neighbours("n0")} == {"n1", "n2"}


def test_a_graph_without_edges_is_refused():
    with pytest.raises(UserError, match="no edge between two nodes"):
        embed_nodes(graph_from([(0, 0)]), **QUICK)


def test_a_folder_gives_everything_back(tmp_path, embedding):
    edges, weights = random_edges()
    graph = graph_from(edges, nodes=30, weights=weights, directed=True)
    made = embed_nodes(graph, out=tmp_path / "deep" / "E", held_out=0.1, directed=True, **QUICK)
    back = ns.load_nodes(tmp_path / "deep" / "E")
    assert np.array_equal(back.vectors, made.vectors)
    assert np.array_equal(back.context, made.context)
    assert np.array_equal(back.held_out, made.held_out)
    assert np.array_equal(back.graph.weights, made.graph.weights)
    assert (back.graph.nodes, back.graph.directed) == (graph.nodes, True)
    assert back.config == made.config
    assert back.summary == made.summary
    assert back.predict_links() == made.predict_links()
    assert not list((tmp_path / "deep").glob(".*"))
    embedding.save(tmp_path / "L")
    assert load_nodes(tmp_path / "L").classify() == embedding.classify()


def test_a_folder_is_not_overwritten_by_mistake(tmp_path, embedding):
    embedding.save(tmp_path / "E")
    with pytest.raises(UserError, match="--overwrite"):
        embed_nodes(two_cliques(), out=tmp_path / "E", **QUICK)
    embedding.save(tmp_path / "E", overwrite=True)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="no embedding of nodes"):
        embedding.save(tmp_path / "precious", overwrite=True)
    with pytest.raises(UserError, match="is not there"):
        load_nodes(tmp_path / "nothing")


def refusing_replace(monkeypatch, refused):
    replace = Path.replace

    def refuse(path, target):
        if refused(path):
            raise OSError(errno.ENOSPC, "no space")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", refuse)


def test_an_embedding_stays_where_its_replacement_cannot_be_put(tmp_path, embedding, monkeypatch):
    embedding.save(tmp_path / "E")
    other = embed_nodes(two_cliques(), **QUICK | {"epochs": 1})
    refusing_replace(monkeypatch, lambda path: path.name == "model.safetensors")
    with pytest.raises(UserError, match="the disk is full"):
        other.save(tmp_path / "E", overwrite=True)
    assert np.array_equal(load_nodes(tmp_path / "E").vectors, embedding.vectors)
    assert [path.name for path in tmp_path.iterdir()] == ["E"]
    assert not list((tmp_path / "E").glob(".*"))


def test_a_replacement_that_broke_off_halfway_is_completed(tmp_path, embedding, monkeypatch):
    embedding.save(tmp_path / "E")
    other = embed_nodes(two_cliques(), **QUICK | {"epochs": 1})
    refusing_replace(monkeypatch, lambda path: path.parent.name == ".nscaching-moving")
    with pytest.raises(UserError, match="the disk is full"):
        other.save(tmp_path / "E", overwrite=True)
    monkeypatch.undo()
    assert np.array_equal(load_nodes(tmp_path / "E").vectors, other.vectors)
    assert not list((tmp_path / "E").glob(".*"))


def test_files_of_others_stay_when_an_embedding_is_replaced(tmp_path, embedding):
    embedding.save(tmp_path / "E")
    (tmp_path / "E" / "thesis.tex").write_text("mine")
    (tmp_path / "E" / "notes").mkdir()
    (tmp_path / "E" / "notes" / "a.md").write_text("mine")
    embedding.save(tmp_path / "E", overwrite=True)
    assert (tmp_path / "E" / "thesis.tex").read_text() == "mine"
    assert (tmp_path / "E" / "notes" / "a.md").read_text() == "mine"
    assert np.array_equal(load_nodes(tmp_path / "E").vectors, embedding.vectors)


def test_a_mixture_of_two_folders_is_refused(tmp_path, embedding):
    embedding.save(tmp_path / "E")
    (tmp_path / "E" / "nodes.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match="not of one embedding"):
        load_nodes(tmp_path / "E")


@pytest.mark.parametrize("name", ["nodes.txt", "graph.safetensors", "model.safetensors"])
def test_a_changed_byte_is_refused(tmp_path, embedding, name):
    embedding.save(tmp_path / "E")
    content = bytearray((tmp_path / "E" / name).read_bytes())
    content[-2] ^= 1
    (tmp_path / "E" / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        load_nodes(tmp_path / "E")


def test_an_embedding_without_marker_is_one_of_the_first_version(tmp_path, embedding):
    embedding.save(tmp_path / "E")
    (tmp_path / "E" / "nscaching.json").unlink()
    assert np.array_equal(load_nodes(tmp_path / "E").vectors, embedding.vectors)


def test_the_configuration_repeats_the_run(tmp_path, embedding):
    embedding.save(tmp_path / "E")
    again = embed_nodes(two_cliques(), config=tmp_path / "E" / "config.yaml", progress="none")
    assert np.array_equal(again.vectors, embedding.vectors)


def test_word2vec_text_is_what_gensim_reads(tmp_path, embedding):
    (written,) = embedding.export(tmp_path / "v.txt")
    header, *lines = written.read_text().splitlines()
    assert header == "24 8"
    name, *values = lines[2].split(" ")
    assert name == "n2"
    assert np.allclose([float(value) for value in values], embedding.vector("n2"))
    assert {path.name for path in embedding.export(tmp_path / "v.npy")} == {"v.npy", "v.names.txt"}
    assert embedding.export(tmp_path / "v.parquet")


def test_training_diverged_says_so():
    with pytest.raises(ns.TrainingDiverged, match="smaller lr"):
        embed_nodes(two_cliques(), **QUICK | {"lr": 1e30})


def test_unknown_options_are_named():
    with pytest.raises(UserError, match="did you mean 'window'"):
        embed_nodes(two_cliques(), windov=3)
    assert json.dumps(NodeConfig().as_dict())
