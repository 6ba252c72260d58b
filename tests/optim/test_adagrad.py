"""Adagrad against torch's, with the kernels of every form."""

import pytest
import torch

from nscaching.kernels.registry import GPU
from nscaching.models import HalfTable, Int8Table
from nscaching.optim import Adagrad, RowGradients
from nscaching.optim import adagrad as adagrad_module

from ..conftest import device_of, seeded
from .helpers import ROWS, WIDTH, TorchTwin, step, steps_of, table_of

each_decay = pytest.mark.parametrize("decay", [0.0, 0.1])
EPSILON = 1e-10


class Twin(TorchTwin):
    """Torch's Adagrad; only rows with a gradient decay, so the decay is put into the gradient."""

    def __init__(self, table, lr, decay):
        super().__init__(torch.optim.Adagrad, table, lr=lr, eps=EPSILON)
        self.decay = decay

    def step(self, ids, rows):
        touched = ids.unique()
        decay = self.decay * self.table.detach()[touched]
        super().step(torch.cat([ids, touched]), torch.cat([rows.double(), decay]))


@each_decay
@pytest.mark.parametrize("width", [1, 12, 300])
def test_rows_with_repeated_ids_move_as_torchs(width, decay, form):
    table = table_of(width=width).to(device_of(form))
    theirs, ours = Twin(table, 0.1, decay), Adagrad({"x": table}, 0.1, decay)
    for ids, rows in steps_of(5, width=width):
        before = table.clone()
        theirs.step(ids, rows)
        step(ours, ids, rows)
        theirs.assert_same(table)
        assert torch.equal(table[-1], before[-1])  # no gradient, no decay


@each_decay
def test_whole_tables_and_parts_of_rows_add_up(decay, form):
    table = table_of().to(device_of(form))
    theirs, ours = Twin(table, 0.1, decay), Adagrad({"x": table}, 0.1, decay)
    for number, (ids, rows) in enumerate(steps_of(6)):
        whole = torch.randn(ROWS, WIDTH, generator=seeded(50 + number))
        parts = [(ids[:5], rows[:5]), (ids[5:], rows[5:])]
        if number % 2:
            parts.append((None, whole))
            ids, rows = torch.cat([ids, torch.arange(ROWS)]), torch.cat([rows, whole])
        given = [
            RowGradients(None if part is None else part.to(table.device), of.clone().to(table))
            for part, of in parts
        ]
        ours.step({"x": given})
        theirs.step(ids, rows)
        theirs.assert_same(table)


def test_a_gradient_of_zero_is_none_for_the_decay(form):
    """As where a margin is met: forms agree on which rows decay."""
    table = table_of().to(device_of(form))
    before = table.clone()
    ours = Adagrad({"x": table}, 0.1, 0.1)
    step(ours, torch.tensor([3, 4]), torch.tensor([[0.0] * WIDTH, [1.0] * WIDTH]))
    assert torch.equal(table[3], before[3])
    assert (table[4] != before[4]).all()


def test_the_factor_scales_the_learning_rate(form):
    table = table_of().to(device_of(form))
    theirs, ours = Twin(table, 0.1, 0.0), Adagrad({"x": table}, 0.1)
    for number, (ids, rows) in enumerate(steps_of(5)):
        factor = 1 / (1 + number)
        ours.set_lr_factor(factor)
        theirs.optimizer.param_groups[0]["lr"] = 0.1 * factor
        theirs.step(ids, rows)
        step(ours, ids, rows)
        theirs.assert_same(table)


@pytest.mark.parametrize("whole", [False, True])
def test_the_int8_copy_is_as_fresh_as_a_new_one(whole, form):
    table = table_of(203, 9).to(device_of(form))
    copy = Int8Table(table)
    adagrad = Adagrad({"x": table}, 0.1, 0.1, {"x": copy})
    for ids, rows in steps_of(3, rows=203, width=9, size=30):
        if whole:
            dense = torch.zeros(203, 9).index_add_(0, ids, rows).to(table)
            adagrad.step({"x": [RowGradients(None, dense)]})
        else:
            step(adagrad, ids, rows)
    fresh = Int8Table(table)
    assert copy.values.equal(fresh.values)
    assert copy.scale.equal(fresh.scale)


@pytest.mark.parametrize("large", [False, True])
def test_the_bfloat16_copy_is_as_fresh_as_a_new_one(large, form, monkeypatch):
    monkeypatch.setattr(adagrad_module, "LARGE", 10 if large else 1 << 30)
    table = table_of().to(device_of(form))
    copy = HalfTable(table)
    adagrad = Adagrad({"x": table}, 0.1, 0.1, {"x": copy})
    for ids, rows in steps_of(3):
        step(adagrad, ids, rows)
    assert copy.values.equal(table.to(torch.bfloat16))


def test_a_run_resumes_where_it_was(form):
    first, second = (table_of().to(device_of(form)) for _ in range(2))
    one, two = Adagrad({"x": first}, 0.1, 0.1), Adagrad({"x": second}, 0.1, 0.1)
    steps = list(steps_of(4))
    for ids, rows in steps[:2]:
        step(one, ids, rows)
    second.copy_(first)
    two.load_state({name: part.clone() for name, part in one.state().items()})
    for adagrad in (one, two):
        for ids, rows in steps[2:]:
            step(adagrad, ids, rows)
    assert torch.equal(first, second)


def test_forgetting_starts_again(form):
    tables = [table_of().to(device_of(form)) for _ in range(2)]
    one, two = (Adagrad({"x": table}, 0.1) for table in tables)
    for ids, rows in steps_of(2):
        step(one, ids, rows)
    one.forget()
    tables[0].copy_(tables[1])
    for ids, rows in steps_of(2, seed=7):
        for adagrad in (one, two):
            step(adagrad, ids, rows)
    assert torch.equal(*tables)


def test_nothing_is_deferred():
    table = table_of()
    adagrad = Adagrad({"x": table}, 0.1)
    adagrad.defer("x", 16)
    assert not adagrad.is_deferred("x")
    assert adagrad.caught_up()["x"] is table


@pytest.mark.parametrize("placed", [False, True])
@each_decay
def test_a_gradient_may_stay_products(decay, placed, form, monkeypatch):
    """Slopes times vectors, with padding; a GPU adds them up row by row."""
    monkeypatch.setattr(adagrad_module, "SORTED", 1)
    for name, value in (("_LARGE_BLOCK", 4), ("_AT_ONCE", 2)):  # so that rows have several of each
        monkeypatch.setattr(f"nscaching.kernels.adagrad_gpu.{name}", value, raising=False)
    table = table_of().to(device_of(form))
    theirs, ours = Twin(table, 0.1, decay), Adagrad({"x": table}, 0.1, decay)
    assert ours.takes_products("x", few=False) is (form == GPU)
    for number, (ids, rows) in enumerate(steps_of(4)):
        random = seeded(70 + number)
        vectors, slopes = torch.randn(4, WIDTH, generator=random), torch.randn(6, 3)
        places = torch.randint(4, (6,), generator=random) if placed else None
        if places is None:
            slopes = slopes[:4]
        of_products = torch.randint(-1, ROWS, (slopes.numel(),), generator=random)
        products = RowGradients(of_products, vectors, slopes, places)
        given = [products] if number % 2 else [RowGradients(ids, rows), products]
        there = [
            RowGradients(*(part if part is None else part.to(table.device) for part in each))
            for each in given
        ]
        if not ours.takes_products("x", few=False):
            there = [part.written_out() for part in there]
        ours.step({"x": there})
        written = [part.written_out() for part in given]
        theirs.step(torch.cat([x.ids for x in written]), torch.cat([x.rows for x in written]))
        theirs.assert_same(table)
    assert not ours._gradient
