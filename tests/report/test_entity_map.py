"""The map of the entities: which are on it, where, and what is drawn."""

import json
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from nscaching.report import entity_map as module
from nscaching.report.entity_map import HEIGHT, WIDTH, draw_map, entity_map, entity_types
from nscaching.runs.run import Run
from nscaching.training import TrainConfig

from ..conftest import graph_of, random_graph, random_model
from .reading import Reading


@pytest.fixture(scope="module")
def run():
    return Run(TrainConfig(scoring="distmult", dim=5), random_graph(), random_model("distmult"))


def test_the_entities_with_most_facts_are_taken(run):
    counts = Counter(run.graph.train[:, [0, 2]].ravel().tolist())
    found = entity_map(run, most=10)
    assert found.degree.tolist() == sorted(counts.values(), reverse=True)[:10]
    assert [counts[number] for number in found.ids] == found.degree.tolist()


def test_types_of_some_entities_are_named_by_where_they_stand():
    graph = graph_of([(0, 0, 1), (2, 0, 1), (3, 1, 0), (3, 1, 2)])
    ids = np.array([3, 1, 0])
    types, names = entity_types(graph, ids)
    assert [names[each] for each in types] == ["head of r1", "tail of r0", "head of r0"]


def test_profiles_that_are_not_clustered_go_to_the_nearest_mean(monkeypatch):
    monkeypatch.setattr(module, "_MOST_PROFILES", 30)
    profile = np.random.default_rng(0).random((200, 40)) < 0.2
    labels = []
    for block in (1000, 7):
        monkeypatch.setattr(module, "_BLOCK", block)
        labels.append(module._clusters(profile))
    assert np.array_equal(*labels)
    order = sorted(range(200), key=lambda at: profile[at].tolist())  # all differ
    rows = profile / np.linalg.norm(profile, axis=1, keepdims=True)
    clustered = np.array(order[:30])
    means = [rows[clustered[labels[0][clustered] == each]].mean(0) for each in range(7)]
    means = [mean / np.linalg.norm(mean) for mean in means]
    for at in order[30:]:
        near = [float(rows[at] @ mean) for mean in means]
        assert near[labels[0][at]] == pytest.approx(max(near))


def test_types_take_less_memory_than_where_entities_stand(monkeypatch):
    monkeypatch.setattr(module, "_MOST_PROFILES", 50)
    monkeypatch.setattr(module, "_BLOCK", 500)
    profile = np.random.default_rng(0).random((20_000, 800)) < 0.02
    module._clusters(profile[:100])
    tracemalloc.start()
    module._clusters(profile)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < profile.nbytes  # as floats it would be four times as much


def test_places_that_are_known_are_not_computed_again(run):
    places = np.arange(2 * run.graph.num_entities, dtype=np.uint16).reshape(-1, 2)
    found = entity_map(run, known_places=places)
    assert (found.places == places[found.ids]).all()


def test_entities_that_training_does_not_have_are_left_out():
    graph = graph_of([(0, 0, 1), (1, 0, 2)], test=[(3, 0, 0)])
    run = Run(TrainConfig(scoring="distmult"), graph, random_model("distmult", 4, 1))
    assert sorted(entity_map(run).ids.tolist()) == [0, 1, 2]


def test_the_drawing_has_every_entity_inside_and_by_name(run):
    found = entity_map(run)
    names = [f"<b>{name}</b>" for name in run.graph.entities]
    page = Reading(draw_map(found, names))
    (figure,) = [a for tag, a in page.tags if tag == "figure"]
    data = json.loads(figure["data-points"])
    assert data["names"] == [names[number] for number in found.ids]
    at = np.array(data["at"])
    assert ((at > 0) & (at < [WIDTH, HEIGHT])).all()
    assert page.count("b") == 0
    assert page.count("li") == len(found.types)
