"""Tables of bfloat16: rows of a step are added up, moved in float32 and rounded at random."""

import pytest
import torch

from nscaching.kernels.registry import GPU, PLAIN, forced
from nscaching.optim import Adagrad, RowGradients
from nscaching.optim import adagrad as adagrad_module
from nscaching.optim.adagrad import rounded_at_random

from ..conftest import HAVE_GPU_FORMS, device_of, seeded
from .helpers import ROWS, WIDTH, TorchTwin, step, steps_of, table_of

STEP = 2.0**-7  # the last bit of bfloat16, relative to a power of two


def half_table(form, **sizes):
    return table_of(**sizes).to(device_of(form), torch.bfloat16)


def test_rounding_is_exact_in_expectation():
    values = torch.randn(50, generator=seeded(0)).repeat(4000, 1)
    bits = torch.randint(1 << 62, values.shape, generator=seeded(1))
    rounded = rounded_at_random(values, torch.bfloat16, bits)
    assert rounded.dtype == torch.bfloat16
    error = (rounded.double() - values.double()) / values.double().abs()
    assert error.abs().max() < STEP
    assert error.mean(0).abs().max() < 5 * STEP / 4000**0.5


def test_numbers_that_bfloat16_holds_stay():
    values = torch.randn(100, generator=seeded(0)).bfloat16()
    bits = torch.randint(1 << 62, values.shape, generator=seeded(1))
    assert rounded_at_random(values.float(), torch.bfloat16, bits).equal(values)
    assert rounded_at_random(values.float(), torch.float32, bits).equal(values.float())


@pytest.mark.parametrize("width", [1, 12, 300])
def test_one_step_is_that_of_a_float64_twin_to_a_bit_of_bfloat16(width, form):
    table = half_table(form, width=width)
    twin, ours = (
        TorchTwin(torch.optim.Adagrad, table, lr=0.1, eps=1e-10),
        Adagrad({"x": table}, 0.1),
    )
    before = table.clone()
    ((ids, rows),) = steps_of(1, width=width, size=40)
    twin.step(ids, rows)
    step(ours, ids, rows)
    assert table.dtype == ours.square["x"].dtype == torch.bfloat16
    error = table.cpu().double() - twin.table.detach()
    assert (error.abs() <= STEP * twin.table.detach().abs() + 1e-6).all()
    assert torch.equal(table[-1], before[-1])


def test_small_steps_add_up_where_rounding_to_nearest_would_lose_them(form):
    table = torch.ones(64, 64, dtype=torch.bfloat16, device=device_of(form))
    ours = Adagrad({"x": table}, 1.0)
    ours.square["x"].fill_(1.0)  # so that a step is 1e-4
    ids = torch.arange(64)
    for _ in range(40):
        step(ours, ids, torch.full((64, 64), 1e-4))
    moved = 1 - table.double().mean().item()
    assert moved == pytest.approx(40e-4, rel=0.1)
    assert torch.full((), 1.0 - 1e-4).bfloat16() == 1.0


@pytest.mark.skipif(not HAVE_GPU_FORMS, reason="triton is not installed")
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_kernel_of_a_gpu_moves_rows_as_the_plain_form(decay):
    tables = {}
    for form in (PLAIN, GPU):
        with forced(form):
            table = half_table(form, rows=30, width=70)
            ours = Adagrad({"x": table}, 0.1, decay)
            for ids, rows in steps_of(3, rows=30, width=70, size=200):
                step(ours, ids, rows)
            tables[form] = torch.cat([table.cpu(), ours.square["x"].cpu()]).double()
    differs = tables[PLAIN] != tables[GPU]
    assert differs.double().mean() < 0.01  # sums in another order, at the edge of a rounding
    torch.testing.assert_close(tables[PLAIN], tables[GPU], rtol=2 * STEP, atol=1e-6)


@pytest.mark.skipif(not HAVE_GPU_FORMS, reason="triton is not installed")
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_large_float32_table_moves_as_a_small_one(decay, monkeypatch):
    with forced(GPU):
        small, large = (table_of().to(device_of(GPU)) for _ in range(2))
        one = Adagrad({"x": small}, 0.1, decay)
        monkeypatch.setattr(adagrad_module, "LARGE", 10)
        two = Adagrad({"x": large}, 0.1, decay)
        assert one.gradient_table("x") is not None
        assert two.gradient_table("x") is None
        assert two.adds_rows_up("x")
        for ids, rows in steps_of(4):
            for ours in (one, two):
                step(ours, ids, rows)
    torch.testing.assert_close(small, large)
    assert one.state().keys() == two.state().keys()


def test_a_run_resumes_to_the_same_bits(form):
    first, second = (half_table(form) for _ in range(2))
    one, two = Adagrad({"x": first}, 0.1, 0.1), Adagrad({"x": second}, 0.1, 0.1)
    steps = list(steps_of(4))
    for ids, rows in steps[:2]:
        step(one, ids, rows)
    second.copy_(first)
    two.load_state({name: part.clone() for name, part in one.state().items()})
    for ours in (one, two):
        for ids, rows in steps[2:]:
            step(ours, ids, rows)
    assert torch.equal(first, second)
    assert torch.equal(one.square["x"], two.square["x"])


def test_parts_and_an_empty_step(form):
    table = half_table(form)
    ours, before = Adagrad({"x": table}, 0.1), table.clone()
    nothing = RowGradients(torch.empty(0, dtype=torch.int64), torch.empty(0, WIDTH))
    ours.step({"x": [RowGradients(*(part.to(table.device) for part in nothing[:2]))]})
    assert torch.equal(table, before)
    ids, rows = torch.arange(ROWS, device=table.device), torch.ones(ROWS, WIDTH).to(table.device)
    ours.step({"x": [RowGradients(ids[:3], rows[:3]), RowGradients(ids[3:], rows[3:])]})
    torch.testing.assert_close(table.float(), before.float() - 0.1, rtol=2 * STEP, atol=2 * STEP)
