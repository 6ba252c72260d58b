"""PyKEEN's own checkpoint holds the caches: a resumed run ends with the same bits."""

import pytest
import torch

from nscaching import UserError

from .helpers import SMALL, factory, make_loop, run_loop, table


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
