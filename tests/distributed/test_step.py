"""A step over strata is the step of the contract: same candidates, same gradients."""

from itertools import product

import numpy as np
import pytest
import torch

from nscaching.distributed.exchange import pairwise_sum
from nscaching.evaluation import rank_triples
from nscaching.graph import load_graph
from nscaching.models import Side
from nscaching.sampling import Batch, Candidates, Sampler, triple_columns
from nscaching.training import Progress, Trainer
from nscaching.training.step import TrainingStep
from tests.conftest import CPU, GPU, PLAIN, device_of, forced, graph_of, quick_forms
from tests.distributed.helpers import KINDS, STRATA, config, small_graph, take_steps

GRAPH = small_graph(entities=60, triples=400)
#: Those that draw; dropout is drawn for other shapes.
DRAWING = {name: {"dropout": 0.0} for name in KINDS if name != "all"}


class Given(Sampler):
    """Returns candidates that were drawn elsewhere."""

    def __init__(self, candidates, weigh):
        self.candidates, self._weigh = candidates, weigh

    def sample(self, batch, generator):
        return self.candidates

    def weigh(self, candidates, scores):
        return self._weigh(candidates, scores)


def entities_of(shards, number, ids):
    """Return the entities of rows, counted from the first of a stratum; -1 stays."""
    strata = shards.strata
    names = np.full(strata.count * strata.stride, -1)
    names[strata.places] = np.arange(strata.num_entities)
    names = torch.from_numpy(names).to(ids.device)
    return torch.where(ids < 0, -1, names[ids.clamp_min(0) + number * strata.stride])


def as_one(sampler, drawn, batch):
    """Return the candidates of all strata as candidates of the graph's entities."""
    targets = torch.stack([batch.heads, batch.tails], dim=1).view(-1)[drawn.ids]
    ids, weights, pools, pool_weights = [], [], [], []
    for part, given in zip(sampler.parts, drawn.parts, strict=True):
        ids.append(entities_of(sampler.shards, part.numbers[0], given.negatives))
        weights.append(given.weights)
        if given.pool is not None:
            pools.append(entities_of(sampler.shards, part.numbers[0], given.pool))
            pool_weights.append(given.pool_weights)
    if sampler.both_sides:
        candidates = torch.cat([targets, *ids], dim=1), torch.cat(weights, dim=1)
    else:
        candidates = torch.cat([targets, torch.cat(ids)], dim=1), torch.cat(weights)
    if not pools:
        return Candidates(drawn.replaces_head, *candidates)
    if sampler.both_sides:
        shared = torch.cat(pool_weights, dim=1)
    else:  # each question has the pool of its stratum
        shared = torch.block_diag(*pool_weights)
    return Candidates(drawn.replaces_head, *candidates, pool=torch.cat(pools), pool_weights=shared)


@pytest.mark.parametrize("form", quick_forms())
@pytest.mark.parametrize("kind", DRAWING)
def test_tables_move_as_with_all_candidates_in_one_table(kind, form):
    with forced(form):
        check_step(kind, device_of(form), *((0, 6) if form == GPU else (3, 40)))


def check_step(kind, device, steps, batch_size):
    options = {"batch_size": batch_size, "device": device, **DRAWING[kind]}
    sharded = take_steps(GRAPH, kind, steps=steps, **options)
    sharded.optimizer.catch_up_all()
    # Adam's and Adagrad's first steps have the size of the rate, however small a gradient is: they
    # are compared by the state that gradients leave.
    sharded.optimizer.forget()
    step, whole = sharded.executor.training_step, sharded.best_model()
    tables = {name: table.clone() for name, table in whole.state().items()}
    ours, lazy = sharded.optimizer, {}
    if sharded.config.optimizer == "lazy-adam":
        lazy = {"lazy": True}
    plain = type(ours)(tables, sharded.config.lr, ours.weight_decay, **lazy)
    model = whole.with_tables(plain.tables)
    index = torch.arange(90, 90 + batch_size, device=device)
    batch = Batch.of(sharded.columns, index)
    of_entities = Batch.of(triple_columns(GRAPH, torch.device(device)), index)
    drawn = []
    sample = sharded.sampler.sample
    sharded.sampler.sample = lambda *given: drawn.append(sample(*given)) or drawn[-1]
    loss = step(batch)
    given = as_one(sharded.sampler, drawn[0], of_entities)
    sampler = Given(given, sharded.sampler.parts[0].sampler.weigh)
    added = {name: getattr(sharded.config, name) for name in ("n3", "relation_prediction")}
    parts = model, sampler, sharded.loss, plain, sharded.generator
    expected = TrainingStep(*parts, **added)(of_entities)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    sharded.optimizer.catch_up_all()
    moved = sharded.placement.shards.whole(sharded.model)
    places = torch.from_numpy(sharded.placement.shards.strata.places).to(device)
    for name, table in plain.square.items():
        ours = sharded.optimizer.square[name]
        ours = ours[places] if name == "entity" else ours
        scale = table.abs().max()
        assert scale > 0
        torch.testing.assert_close(ours / scale, table / scale, rtol=1e-3, atol=1e-6)
    still = plain.square["entity"].sum(1) == 0
    assert torch.equal(moved.entity[still], plain.tables["entity"][still])


@pytest.mark.parametrize("form", [PLAIN, CPU])
def test_padding_stands_for_no_entity(form):
    """Of an empty cache row; lazy Adam would decay the row that it stood for."""
    graph = graph_of([(h, 0, t) for h in range(3) for t in range(60)], entities=60)
    with forced(form):
        trainer = take_steps(graph, "complex", steps=0, optimizer="lazy-adam", batch_size=4)
        trainer.sampler.parts[0].sampler.head_probability.zero_()  # any entity is a known tail
        heads, _, tails, *_ = trainer.columns
        order = ((heads > 0) & (tails > 0)).nonzero().squeeze(1)  # without the first row
        trainer.executor.begin_epoch(order, 0)
        before = trainer.model.entity.clone()
        trainer.executor.step()
    moved = (trainer.model.entity != before).any(1).nonzero().squeeze(1)
    batch = torch.cat([heads[order[:4]], tails[order[:4]]])
    assert moved.tolist() == batch.unique().tolist()


@pytest.mark.parametrize("form", quick_forms())
def test_all_entities_of_strata_are_all_entities(form):
    """Nothing is drawn, so that four strata train the same as one, up to the order of sums."""
    with forced(form):
        check_all_entities(device_of(form))


def check_all_entities(device):
    options = {"lr": 0.01, "batch_size": 50, "device": device}
    whole, cut = (take_steps(GRAPH, "all", steps=0, strata=strata, **options) for strata in (1, 4))
    shards = cut.placement.shards
    for name, table in shards.sharded(whole.model).state().items():
        cut.model.state()[name].copy_(table)
    for trainer in (whole, cut):
        for _ in range(5):
            trainer.executor.step()
    moved = shards.whole(cut.model)
    assert cut.executor.loss() == pytest.approx(whole.executor.loss(), rel=1e-5)
    assert torch.allclose(moved.entity, whole.model.entity, atol=1e-4)
    assert torch.allclose(moved.relation, whole.model.relation, atol=1e-4)


@pytest.mark.parametrize("kind", ["transe", "complex", "cached"])
def test_parts_of_a_row_hold_entities_of_their_stratum(kind):
    trainer = take_steps(GRAPH, kind, known_positives="exclude", steps=6)
    before = take_steps(GRAPH, kind, known_positives="exclude", steps=0)
    known = {Side.HEAD: GRAPH.rows.head, Side.TAIL: GRAPH.rows.tail}
    for number, side in product(range(STRATA), Side):
        size = trainer.placement.shards.strata.size(number)
        name, pairs = f"{number}.{side.name.lower()}_ids", known[side]
        ids = trainer.sampler.state()[name]
        assert ids.shape == (len(pairs), 3)  # 10 of the row, in 4 strata
        assert ids.min() >= -1
        assert ids.max() == size - 1
        assert not torch.equal(ids, before.sampler.state()[name])
        for row in range(len(pairs)):
            answers = pairs.answers[pairs.offsets[row] : pairs.offsets[row + 1]]
            held = entities_of(trainer.placement.shards, number, ids[row].long())
            assert not set(held.tolist()) & set(answers.tolist())


@pytest.mark.parametrize("kind", ["transe", "complex"])
def test_ranks_are_those_of_the_whole_model(kind):
    trainer = take_steps(GRAPH, kind, steps=6)
    trainer.optimizer.catch_up_all()
    expected = rank_triples(trainer.best_model(), GRAPH, GRAPH.valid)
    found = rank_triples(trainer.model, GRAPH, GRAPH.valid, count=trainer.placement.count())
    for side in Side:
        assert np.array_equal(found[side].rank, expected[side].rank)
        assert np.array_equal(found[side].among, expected[side].among)


def test_a_score_that_is_no_number_ranks_last_wherever_it_is():
    trainer = take_steps(GRAPH, "complex", steps=1)
    trainer.model.entity[trainer.placement.shards.rows(2)] = torch.nan
    expected = rank_triples(trainer.best_model(), GRAPH, GRAPH.valid)
    found = rank_triples(trainer.model, GRAPH, GRAPH.valid, count=trainer.placement.count())
    for side in Side:
        assert np.array_equal(found[side].rank, expected[side].rank)


def test_sums_are_taken_pairwise():
    parts = [torch.tensor([value]) for value in (1.0, 2.0, 4.0, 8.0, 16.0)]
    assert pairwise_sum(parts).item() == 31.0
    big, small = torch.tensor([2.0**24]), torch.tensor([1.0])
    assert pairwise_sum([big, -big, small, small]).item() == 2.0


@pytest.mark.slow
def test_a_run_over_strata_learns_as_well_as_one_over_the_whole():
    mrr = []
    for strata in (1, 8):
        options = {"strata": strata, "epochs": 5, "lr": 0.01, "dim": 16, "batch_size": 512}
        trainer = Trainer(load_graph("world"), config("transe", **options), None, Progress("none"))
        trainer.run(resume=False)
        mrr.append(trainer.counters.best_valid["mrr"])
    assert mrr[0] > 0.1
    assert mrr[1] > mrr[0] - 0.02
