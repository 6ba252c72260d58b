"""Adam, dense and lazy, on the kernel and on plain torch."""

import pytest
import torch

from nscaching.models import CompactTable
from nscaching.optim import DenseAdam
from nscaching.optim import adam as adam_module

from ..conftest import on_both_paths, seeded


def steps_of(count, generator):
    for _ in range(count):
        ids = torch.randint(20, (12,), generator=generator)
        yield ids, torch.randn(12, 5, generator=generator)


@on_both_paths
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_dense_adam_is_torchs(decay):
    table = torch.randn(20, 5, generator=seeded(0))
    parameter = torch.nn.Parameter(table.clone())
    theirs = torch.optim.Adam([parameter], lr=0.01, weight_decay=decay)
    ours = DenseAdam({"x": table}, 0.01, decay)
    for ids, rows in steps_of(6, seeded(1)):
        parameter.grad = torch.zeros(20, 5).index_add_(0, ids, rows)
        theirs.step()
        ours.step({"x": (ids, rows.clone())})
        torch.testing.assert_close(table, parameter.data, atol=1e-5, rtol=1e-4)


@on_both_paths
def test_rows_that_wait_long_for_a_gradient_move_as_torchs():
    table = torch.randn(6, 5, generator=seeded(0))
    parameter = torch.nn.Parameter(table.clone())
    theirs, ours = torch.optim.Adam([parameter], lr=0.01), DenseAdam({"x": table}, 0.01, 0.0)
    for number in range(900):
        # Row 0 in every step, row 1 now and then, row 2 twice with more than 400 steps between.
        ids = [0] + [1] * (number % 37 == 0) + [2] * (number in (3, 700)) + [3] * (number == 5)
        rows = torch.randn(len(ids), 5, generator=seeded(number))
        parameter.grad = torch.zeros(6, 5).index_add_(0, torch.tensor(ids), rows)
        theirs.step()
        ours.step({"x": (torch.tensor(ids), rows.clone())})
        torch.testing.assert_close(table, parameter.data, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize("plain_first", [True, False])
def test_the_state_goes_on_by_the_other_path(plain_first, monkeypatch):
    tables = [torch.randn(20, 5, generator=seeded(0)) for _ in range(3)]
    whole = DenseAdam({"x": tables[0]}, 0.01, 0.0)
    monkeypatch.setattr(adam_module, "HAVE_NUMBA", not plain_first)
    first = DenseAdam({"x": tables[1]}, 0.01, 0.0)
    monkeypatch.setattr(adam_module, "HAVE_NUMBA", plain_first)
    second = DenseAdam({"x": tables[2]}, 0.01, 0.0)
    steps = [(ids[:3], rows[:3]) for ids, rows in steps_of(12, seeded(1))]
    for adam in (whole, first):
        for ids, rows in steps[:6]:
            adam.step({"x": (ids, rows.clone())})
    tables[2].copy_(tables[1])
    second.load_state(first.state())
    for adam in (whole, second):
        for ids, rows in steps[6:]:
            adam.step({"x": (ids, rows.clone())})
    torch.testing.assert_close(tables[0], tables[2], atol=1e-5, rtol=1e-4)


@on_both_paths
def test_lazy_adam_moves_only_rows_with_a_gradient():
    table = torch.randn(20, 5, generator=seeded(0))
    ours = DenseAdam({"x": table}, 0.01, 0.1, lazy=True)
    for ids, rows in steps_of(6, seeded(1)):
        before = table.clone()
        ours.step({"x": (ids, rows.clone())})
        moved = (table != before).any(1)
        assert moved[ids].all()
        assert moved.sum() == len(ids.unique())


@on_both_paths
def test_lazy_adam_where_every_row_has_a_gradient_is_dense_adam():
    tables = [torch.randn(20, 5, generator=seeded(0)) for _ in range(2)]
    dense, lazy = (DenseAdam({"x": t}, 0.01, 0.1, lazy=i == 1) for i, t in enumerate(tables))
    for seed in range(5):
        rows = torch.randn(20, 5, generator=seeded(seed))
        for adam in (dense, lazy):
            adam.step({"x": (torch.arange(20), rows.clone())})
        torch.testing.assert_close(*tables, atol=1e-6, rtol=1e-5)


@on_both_paths
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_state_goes_on_where_it_was(decay):
    first, second = (torch.randn(20, 5, generator=seeded(0)) for _ in range(2))
    one, two = DenseAdam({"x": first}, 0.01, decay), DenseAdam({"x": second}, 0.01, decay)
    steps = list(steps_of(4, seeded(1)))
    for ids, rows in steps[:2]:
        one.step({"x": (ids, rows.clone())})
    second.copy_(first)
    two.load_state({name: tensor.clone() for name, tensor in one.state().items()})
    for adam in (one, two):
        for ids, rows in steps[2:]:
            adam.step({"x": (ids, rows.clone())})
    assert torch.equal(first, second)


# Rows that take turns -----------------------------------------------------------------------------


def rare_steps(count, seed):
    """Yield gradients of three of forty rows a step."""
    generator = seeded(seed)
    for _ in range(count):
        yield torch.randint(40, (3,), generator=generator), torch.randn(3, 5, generator=generator)


@pytest.mark.parametrize("turns", [2, 8, 16, 99])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_rows_in_turns_are_torchs_when_they_are_settled(turns, decay):
    table = torch.randn(40, 5, generator=seeded(0))
    parameter = torch.nn.Parameter(table.clone())
    theirs = torch.optim.Adam([parameter], lr=0.01, weight_decay=decay)
    ours = DenseAdam({"x": table}, 0.01, decay)
    ours.take_turns("x", turns)
    for number, (ids, rows) in enumerate(rare_steps(700, 1)):
        ours.settle("x", ids)
        torch.testing.assert_close(table[ids], parameter.data[ids], atol=2e-5, rtol=2e-4)
        parameter.grad = torch.zeros(40, 5).index_add_(0, ids, rows)
        theirs.step()
        ours.step({"x": (ids, rows.clone())})
        if number % 50 == 49:
            waiting = table.clone()
            torch.testing.assert_close(ours.settled()["x"], parameter.data, atol=2e-5, rtol=2e-4)
            assert torch.equal(table, waiting)
    assert not torch.allclose(table, parameter.data, atol=2e-5, rtol=2e-4)  # some do wait
    ours.settle_all()
    torch.testing.assert_close(table, parameter.data, atol=2e-5, rtol=2e-4)


def test_two_steps_that_stand_for_sixteen_are_as_good_as_floats():
    # One gradient, then none: what sixteen steps sum up to, in turns and one by one.
    tables = [torch.randn(40, 5, generator=seeded(0)) for _ in range(2)]
    adams = [DenseAdam({"x": table}, 0.01, 0.0) for table in tables]
    adams[0].take_turns("x", 16)
    for ids, rows in rare_steps(300, 1):
        for adam in adams:
            adam.settle("x", ids)
            adam.step({"x": (ids, rows.clone())})
    adams[0].settle_all()
    torch.testing.assert_close(*tables, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_bytes_of_a_waiting_row_are_those_of_the_row_as_it_stands(decay):
    table = torch.randn(40, 5, generator=seeded(0))
    copy = CompactTable(table)
    adam = DenseAdam({"x": table}, 0.01, decay, copies={"x": copy})
    adam.take_turns("x", 8)
    for ids, rows in rare_steps(150, 1):
        adam.settle("x", ids)
        adam.step({"x": (ids, rows.clone())})
        fresh = CompactTable(table)
        assert torch.equal(copy.values, fresh.values)
        torch.testing.assert_close(copy.scale, fresh.scale)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("plainly", [False, True])
def test_waiting_rows_go_on_from_a_checkpoint(decay, plainly, monkeypatch):
    tables = [torch.randn(40, 5, generator=seeded(0)) for _ in range(2)]
    one = DenseAdam({"x": tables[0]}, 0.01, decay)
    one.take_turns("x", 8)
    steps = list(rare_steps(230, 1))
    for ids, rows in steps[:203]:
        one.settle("x", ids)
        one.step({"x": (ids, rows.clone())})
    monkeypatch.setattr(adam_module, "HAVE_NUMBA", not plainly)
    two = DenseAdam({"x": tables[1]}, 0.01, decay)
    two.take_turns("x", 8)
    tables[1].copy_(tables[0])
    two.load_state({name: tensor.clone() for name, tensor in one.state().items()})
    for adam in (one, two):
        for ids, rows in steps[203:]:
            adam.settle("x", ids)
            adam.step({"x": (ids, rows.clone())})
        adam.settle_all()
    if plainly:
        torch.testing.assert_close(*tables, atol=2e-5, rtol=2e-4)
    else:
        assert torch.equal(*tables)


@on_both_paths
def test_a_table_without_a_gradient_moves_as_torchs():
    tables = {name: torch.randn(6, 5, generator=seeded(0)) for name in "ab"}
    parameters = {name: torch.nn.Parameter(table.clone()) for name, table in tables.items()}
    theirs = torch.optim.Adam(parameters.values(), lr=0.01)
    ours = DenseAdam(tables, 0.01, 0.0)
    for number in range(40):
        rows = torch.randn(6, 5, generator=seeded(number))
        names = "ab" if number in (0, 39) else "a"
        for name, parameter in parameters.items():
            parameter.grad = rows.clone() if name in names else torch.zeros(6, 5)
        theirs.step()
        ours.step({name: (torch.arange(6), rows.clone()) for name in names})
    for name, table in tables.items():
        torch.testing.assert_close(table, parameters[name].data, atol=2e-5, rtol=2e-4)


def test_moments_of_an_older_checkpoint_fade(monkeypatch):
    tables = [torch.randn(20, 5, generator=seeded(0)) for _ in range(2)]
    first = DenseAdam({"x": tables[0]}, 0.01, 0.0)
    steps = [(ids[:3], rows[:3]) for ids, rows in steps_of(12, seeded(1))]
    for ids, rows in steps[:6]:
        first.step({"x": (ids, rows.clone())})
    monkeypatch.setattr(adam_module, "HAVE_NUMBA", False)
    second = DenseAdam({"x": tables[1]}, 0.01, 0.0)
    tables[1].copy_(tables[0])
    second.load_state({k: v.clone() for k, v in first.state().items() if k != "x.moved"})
    for adam in (first, second):
        for ids, rows in steps[6:]:
            adam.step({"x": (ids, rows.clone())})
    torch.testing.assert_close(*tables, atol=1e-5, rtol=1e-4)
