"""Our sampler in PyKEEN: negatives come from the cache, and the cache from our own code.

PyKEEN's own checkpoint holds the caches: a resumed run ends with the same bits.
"""

from itertools import pairwise

import pytest
import torch
from pykeen.models import ComplEx, DistMult, RotatE, TransE, TransH
from pykeen.pipeline import pipeline
from pykeen.sampling import negative_sampler_resolver
from pykeen.training.callbacks import callback_resolver

from nscaching import UserError
from nscaching.interop.pykeen import NSCachingNegativeSampler, NSCachingTrainingCallback
from nscaching.interop.pykeen.conversion import PyKEENScorer, score_by_kernel
from nscaching.kernels.registry import forced
from nscaching.models import Side

from ...conftest import device_of, kernel_forms, random_graph
from .helpers import SMALL, factory, make_loop, run_loop, table


def sampler_of(triples, model=None, **options):
    model = model or TransE(triples_factory=triples, embedding_dim=6, random_seed=0)
    made = NSCachingNegativeSampler(
        mapped_triples=triples.mapped_triples,
        num_entities=triples.num_entities,
        num_relations=triples.num_relations,
        **{**SMALL, **options},
    )
    made.attach(model)
    return made


def test_one_import_registers_both():
    assert negative_sampler_resolver.lookup("nscaching") is NSCachingNegativeSampler
    assert callback_resolver.lookup("nscaching") is NSCachingTrainingCallback


def test_the_pipeline_takes_it_by_name():
    result = pipeline(
        dataset=random_graph().to_pykeen(),
        model="TransE",
        model_kwargs={"embedding_dim": 4},
        negative_sampler="nscaching",
        negative_sampler_kwargs={**SMALL, "num_negs_per_pos": 2},
        training_kwargs={"num_epochs": 2, "callbacks": "nscaching", "use_tqdm": False},
        evaluation_kwargs={"use_tqdm": False},
        random_seed=0,
    )
    assert len(result.losses) == 2
    assert 0 < result.get_metric("mrr") < 1


def test_negatives_are_what_the_rows_hold_and_no_known_triples():
    triples = factory()
    known = {tuple(triple) for triple in triples.mapped_triples.tolist()}
    sampler = sampler_of(triples, num_negs_per_pos=3, candidates=0)
    positives = triples.mapped_triples[:40]
    held = {side: cache.ids.clone() for side, cache in sampler._ours.caches.items()}
    negatives, mask = sampler.sample(positives)
    assert negatives.shape == (40, 3, 3)
    assert mask is None
    batch = sampler._batch(positives)
    for place, (positive, drawn) in enumerate(
        zip(positives.tolist(), negatives.tolist(), strict=True)
    ):
        for negative in drawn:
            assert tuple(negative) not in known
            assert negative[1] == positive[1]
            replaced = [negative[at] != positive[at] for at in (0, 2)]
            assert replaced.count(True) == 1
            side = Side.HEAD if replaced[0] else Side.TAIL
            new = negative[0] if side is Side.HEAD else negative[2]
            assert new in held[side][batch.rows(side)[place]].tolist()


def test_the_hardest_stay_in_the_cache():
    triples = factory()
    sampler = sampler_of(triples, alpha3=float("inf"), candidates=25, cache_size=3)
    for start in range(0, 120, 40):
        sampler.corrupt_batch(triples.mapped_triples[start : start + 40])
    cache, known = sampler._ours.caches[Side.TAIL], sampler._ours.known[Side.TAIL]
    rows = torch.arange(len(cache))
    anchor, relation = (
        part[Side.TAIL].long() for part in (sampler._ours.anchor, sampler._ours.relation)
    )
    scores = sampler._scorer.score_pool(Side.TAIL, anchor, relation, torch.arange(25))
    everything = torch.arange(25).expand(len(cache), -1)
    scores = scores.masked_fill(known.contains(rows, everything), -torch.inf)
    hardest = scores.topk(3).indices.sort().values
    assert (cache.ids.long().sort().values == hardest).all()


def test_an_empty_row_gives_a_masked_negative():
    everything = torch.tensor([(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)])
    triples = type(factory())(everything, {"a": 0, "b": 1}, {"r": 0})
    sampler = sampler_of(triples)
    negatives, mask = sampler.sample(everything)
    assert negatives.shape == (4, 1, 3)
    assert not mask.any()


MODELS = {
    "transe-1": lambda tf: TransE(triples_factory=tf, embedding_dim=7, scoring_fct_norm=1),
    "transe-2": lambda tf: TransE(triples_factory=tf, embedding_dim=7, scoring_fct_norm=2),
    "distmult": lambda tf: DistMult(triples_factory=tf, embedding_dim=7),
    "complex": lambda tf: ComplEx(triples_factory=tf, embedding_dim=7),
    "rotate": lambda tf: RotatE(triples_factory=tf, embedding_dim=7),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("side", list(Side))
def test_kernels_score_as_pykeen_does(kind, side):
    triples = factory()
    model = MODELS[kind](triples).eval()
    model.post_parameter_update()
    h, r, t = triples.mapped_triples[:30].T
    anchor = h if side is Side.TAIL else t
    candidates = torch.randint(25, (30, 6), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = score_by_kernel(model, side, anchor, r, candidates)
        theirs = (
            model.score_t(torch.stack([h, r], 1), tails=candidates)
            if side is Side.TAIL
            else model.score_h(torch.stack([r, t], 1), heads=candidates)
        )
    assert ours is not None
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("form", kernel_forms())
@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("kind", [*MODELS, "transh"])
def test_padding_scores_minus_infinity_on_every_path(kind, side, form):
    """-1 is no row of a table: it may not reach PyKEEN, and no path may read it."""
    triples = factory()
    makers = {**MODELS, "transh": lambda tf: TransH(triples_factory=tf, embedding_dim=7)}
    model = makers[kind](triples).to(device_of(form))
    model.post_parameter_update()
    h, r, t = triples.mapped_triples[:6].to(device_of(form)).T
    anchor = h if side is Side.TAIL else t
    candidates = torch.tensor([[3, -1, 0, 24], [-1, -1, -1, -1], [5, 6, 7, -1]]).repeat(2, 1)
    candidates = candidates.to(device_of(form))
    scorer = PyKEENScorer(model)
    with forced(form):
        scores = scorer.score_candidates(side, anchor, r, candidates)
        whole = scorer.score_candidates(side, anchor, r, candidates.clamp_min(0))
    padding = candidates < 0
    assert (scores[padding] == -torch.inf).all()
    assert torch.isfinite(whole).all()
    assert torch.equal(scores[~padding], whole[~padding])


@pytest.mark.parametrize("form", kernel_forms())
@pytest.mark.parametrize("kind", ["transe-1", "rotate", "transh"])
def test_short_rows_are_updated_on_every_path(kind, form):
    """Pairs that most entities complete have padded rows, which are scored in every update."""
    known = torch.tensor([(0, 0, t) for t in range(1, 5)] + [(5, 0, 1)])
    names = {f"e{i}": i for i in range(6)}
    triples = type(factory())(known, names, {"r": 0})
    makers = {**MODELS, "transh": lambda tf: TransH(triples_factory=tf, embedding_dim=7)}
    with forced(form):
        sampler = sampler_of(triples, makers[kind](triples).to(device_of(form)))
        for _ in range(2):
            sampler.corrupt_batch(known)
    (row,) = (sampler._ours.anchor[Side.TAIL] == 0).nonzero().flatten().tolist()
    cache = sampler._ours.caches[Side.TAIL]
    assert sorted(cache.ids[row].tolist()) == [-1, -1, 0, 5]
    assert torch.isfinite(cache.scores).all()


def test_other_models_are_scored_by_pykeen_without_dropout_or_gradient():
    triples = factory()
    model = TransH(triples_factory=triples, embedding_dim=5).train()
    scorer = PyKEENScorer(model)
    h, r, t = triples.mapped_triples[:30].T
    candidates = t.unsqueeze(1).expand(-1, 4)
    scores = scorer.score_candidates(Side.TAIL, h, r, candidates)
    assert not scores.requires_grad
    assert model.training
    assert torch.allclose(scores[:, :1], model.score_hrt(triples.mapped_triples[:30]), atol=1e-6)
    pooled = scorer.score_pool(Side.HEAD, t, r, torch.arange(25))
    assert torch.allclose(pooled.gather(1, h.unsqueeze(1)), scores[:, :1], atol=1e-6)


def test_sub_batches_train_as_whole_batches_do():
    triples = factory()
    tables = []
    for size in (None, 8):
        loop = make_loop(triples)
        run_loop(loop, triples, sub_batch_size=size)
        tables.append(table(loop))
    assert torch.allclose(*tables, atol=1e-5)


def test_a_search_for_the_batch_size_leaves_the_caches_alone():
    triples = factory()
    loop = make_loop(triples)
    run_loop(loop, triples, epochs=1)
    sampler = loop.negative_sampler_kwargs["callback"]._sampler
    before = {name: part.clone() for name, part in sampler.state().items()}
    loop._train(triples, num_epochs=1, batch_size=16, only_size_probing=True, pin_memory=False)
    assert all((part == before[name]).all() for name, part in sampler.state().items())


def test_a_loop_with_a_search_for_the_sub_batch_size_trains():
    triples = factory()
    loop = make_loop(triples)
    loop.automatic_memory_optimization = True
    losses = run_loop(loop, triples)
    assert len(losses) == 2
    assert all(0 < loss < 10 for loss in losses)


def test_lazy_updates_skip_epochs():
    triples = factory()
    loop = make_loop(triples, negative_sampler_kwargs={**SMALL, "lazy": 1})
    seen = []

    class Watch(callback_resolver.lookup("tracker")):
        def post_epoch(self, epoch, epoch_loss, **kwargs):
            callback = loop.negative_sampler_kwargs["callback"]
            seen.append(callback._sampler._ours.caches[Side.TAIL].ids.clone())

    run_loop(loop, triples, epochs=4, callbacks=["nscaching", Watch()])
    changed = [bool((a != b).any()) for a, b in pairwise(seen)]
    assert changed == [False, True, False]


def test_workers_are_refused_in_one_sentence():
    triples = factory()
    with pytest.raises(UserError) as error:
        run_loop(make_loop(triples), triples, num_workers=1)
    assert str(error.value).endswith("set num_workers=0.")
    assert "\n" not in str(error.value)


def test_a_preset_gives_defaults_that_fit_the_graph():
    triples = factory()
    sizes = {"num_entities": triples.num_entities, "num_relations": triples.num_relations}
    made = {
        name: NSCachingNegativeSampler(
            mapped_triples=triples.mapped_triples, preset=name, alpha2=2.0, **sizes
        ).options
        for name in ("kbgan", "igan")
    }
    assert (made["kbgan"].alpha3, made["kbgan"].candidates) == (0.0, triples.num_entities)
    assert (made["igan"].cache_size, made["igan"].candidates) == (triples.num_entities, 0)
    assert made["kbgan"].alpha2 == made["igan"].alpha2 == 2.0


def test_without_the_callback_it_says_what_is_missing():
    triples = factory()
    with pytest.raises(UserError, match="callbacks='nscaching'"):
        run_loop(make_loop(triples), triples, callbacks=None)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"negative_sampler": "basic", "negative_sampler_kwargs": None}, "negative_sampler='nscac"),
        ({"negative_sampler_kwargs": {"alpha1": 0.5}}, "alpha1 means nothing"),
        ({"negative_sampler_kwargs": {"generator_dim": 5}}, "generator_dim means nothing"),
        ({"negative_sampler_kwargs": {"preset": "kbgam"}}, "preset must be one of"),
        ({"negative_sampler_kwargs": {"cache_sise": 5}}, "did you mean 'cache_size'"),
        ({"negative_sampler_kwargs": {"cache_size": 0}}, "at least 1"),
    ],
)
def test_bad_settings_are_explained(kwargs, words):
    triples = factory()
    with pytest.raises(UserError, match=words):
        run_loop(make_loop(triples, **kwargs), triples)


def test_a_resumed_run_is_the_run_that_was_not_stopped(tmp_path):
    triples = factory()
    options = {"negative_sampler_kwargs": {**SMALL, "alpha2": 1.0, "lazy": 1}}
    whole = make_loop(triples, **options)
    run_loop(whole, triples, epochs=5)

    saved = {"checkpoint_directory": tmp_path, "checkpoint_name": "run.pt"}
    first = make_loop(triples, **options)
    run_loop(first, triples, epochs=2, **saved)
    second = make_loop(triples, **options)
    torch.manual_seed(99)  # whatever happened since
    run_loop(second, triples, epochs=5, **saved)

    assert second.losses_per_epochs == whole.losses_per_epochs
    assert (table(second) == table(whole)).all()
    states = [loop.negative_sampler_kwargs["callback"]._sampler.state() for loop in (whole, second)]
    assert all((states[0][name] == states[1][name]).all() for name in states[0])


def test_the_optimiser_is_left_as_it_was(tmp_path):
    triples = factory()
    loop = make_loop(triples)
    run_loop(loop, triples, epochs=1)
    assert "nscaching" not in loop.optimizer.state_dict()["param_groups"][0]
    run_loop(loop, triples, epochs=1)  # PyKEEN makes a new optimiser from the old one's settings


def test_caches_of_other_settings_are_refused(tmp_path):
    triples = factory()
    saved = {"checkpoint_directory": tmp_path, "checkpoint_name": "run.pt"}
    run_loop(make_loop(triples), triples, epochs=1, **saved)
    other = make_loop(triples, negative_sampler_kwargs={**SMALL, "cache_size": 7})
    with pytest.raises(UserError, match="do not fit"):
        run_loop(other, triples, epochs=2, **saved)
