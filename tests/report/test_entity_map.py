"""The map against its definition: singular vectors, degrees, roles counted one by one."""

import json
from collections import Counter

import numpy as np
import pytest

from nscaching.report.entity_map import (
    HEIGHT,
    MOST_ROLES,
    WIDTH,
    draw_map,
    entity_map,
    principal_plane,
    roles_of,
)
from nscaching.runs.run import Run
from nscaching.training import TrainConfig

from ..conftest import graph_of, random_graph, random_model
from .reading import Reading


@pytest.fixture(scope="module")
def run():
    return Run(TrainConfig(scoring="distmult", dim=5), random_graph(), random_model("distmult"))


def test_the_plane_is_that_of_the_first_singular_vectors():
    table = np.random.default_rng(0).normal(size=(40, 6)) * [3, 2, 1, 1, 0.5, 0.1]
    places, explained = principal_plane(table)
    centred = table - table.mean(0)
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    assert np.allclose(np.abs(places), np.abs(centred @ vectors[:2].T))
    assert explained == pytest.approx((values[:2] ** 2).sum() / (values**2).sum())
    again, _ = principal_plane(table[::-1])
    assert np.allclose(again[::-1], places)  # signs too


def test_an_embedding_of_one_number_and_one_without_any_spread():
    places, explained = principal_plane(np.arange(5.0).reshape(-1, 1))
    assert places.shape == (5, 2)
    assert explained == pytest.approx(1)
    assert principal_plane(np.ones((4, 3)))[1] == 0


def test_the_entities_with_most_facts_are_taken(run):
    counts = Counter(run.graph.train[:, [0, 2]].ravel().tolist())
    found = entity_map(run, most=10)
    assert found.degree.tolist() == sorted(counts.values(), reverse=True)[:10]
    assert [counts[number] for number in found.ids] == found.degree.tolist()


def test_roles_are_those_of_most_facts():
    graph = random_graph(entities=30, relations=5, train=200)
    ids = np.arange(30)
    index, names = roles_of(graph, ids)
    for entity in range(30):
        counts = Counter(
            [f"head of r{r}" for h, r, _ in graph.train if h == entity]
            + [f"tail of r{r}" for _, r, t in graph.train if t == entity]
        )
        if not counts:
            continue
        name, most = names[index[entity]], max(counts.values())
        if index[entity] < MOST_ROLES:
            assert counts[name] == most
        else:
            assert name.endswith(("other roles", "other role"))


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
    assert page.count("li") == len(found.roles)
