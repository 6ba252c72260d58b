"""Graphs go to PyKEEN and back; a converted run scores as it did."""

import numpy as np
import pytest
import torch
from pykeen.datasets import Nations
from pykeen.triples import CoreTriplesFactory

from nscaching import KnowledgeGraph, Run, TrainConfig, UserError
from nscaching.models import EmbeddingModel, Side

from ...conftest import random_graph, random_model
from ...training.helpers import ring


def test_there_and_back():
    graph = ring()
    dataset = graph.to_pykeen()
    assert dataset.training.num_triples == len(graph.train)
    assert dataset.validation.num_triples == len(graph.valid)
    back = KnowledgeGraph.from_pykeen(dataset)
    assert back.fingerprint == graph.fingerprint
    assert back.name == "ring"


def test_data_sets_and_factories_of_pykeen():
    nations = KnowledgeGraph.from_pykeen(Nations())
    assert nations.num_entities == 14
    assert nations.num_relations == 55
    assert len(nations.test) > 0
    ids = CoreTriplesFactory(torch.tensor([(0, 0, 1), (1, 0, 2)]), num_entities=3, num_relations=1)
    graph = KnowledgeGraph.from_pykeen(ids, name="ids")
    assert graph.entities == ["0", "1", "2"]
    assert graph.name == "ids"
    with pytest.raises(UserError, match="not a list"):
        KnowledgeGraph.from_pykeen([])


@torch.no_grad()
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("scoring", ["transe", "transh", "distmult", "complex", "simple"])
def test_scores_of_a_converted_run_are_equal(scoring, norm):
    graph = random_graph()
    run = Run(
        TrainConfig(scoring=scoring, dim=5, norm=norm), graph, random_model(scoring, norm=norm)
    )
    model = run.to_pykeen()
    triples = torch.from_numpy(graph.train).long()
    theirs = model.predict_hrt(triples).squeeze(1).numpy()
    assert np.abs(theirs - run.score(graph.train)).max() < 1e-5
    h, r, t = triples.T
    for side, anchor, scores in (
        (Side.TAIL, h, model.predict_t(torch.stack([h, r], 1))),
        (Side.HEAD, t, model.predict_h(torch.stack([r, t], 1))),
    ):
        assert torch.allclose(scores, run.model.score_all(side, anchor, r), atol=1e-5)
    again = model.entity_representations[0](None).detach().clone()
    model.post_parameter_update()  # constraints of the model must not move what was converted
    assert torch.allclose(model.entity_representations[0](None), again, atol=1e-6)


@torch.no_grad()
def test_transe_whose_entities_are_not_normalised_keeps_their_lengths():
    graph, normalised = random_graph(), random_model("transe")
    config = TrainConfig(scoring="transe", dim=5, normalize=False)
    tables = (normalised.entity, normalised.relation)
    run = Run(config, graph, EmbeddingModel(config.build_scoring(), *tables))
    model = run.to_pykeen()
    model.post_parameter_update()
    theirs = model.predict_hrt(torch.from_numpy(graph.train).long()).squeeze(1).numpy()
    assert np.abs(theirs - run.score(graph.train)).max() < 1e-5


@pytest.mark.parametrize("scoring", ["rotate", "transd"])
def test_what_pykeen_does_not_have_is_said(scoring):
    run = Run(TrainConfig(scoring=scoring, dim=5), random_graph(), random_model(scoring))
    with pytest.raises(UserError, match=f"our {scoring}.*transe, transh"):
        run.to_pykeen()
