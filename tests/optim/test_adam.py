"""Adam, dense and lazy, with the kernels of every form; and deferred updates on the CPU."""

import pytest
import torch

from nscaching.kernels.registry import CPU, GPU, PLAIN, forced
from nscaching.models import HalfTable, Int8Table
from nscaching.optim import Adam, RowGradients

from ..conftest import HAVE_GPU_FORMS, device_of, seeded
from .helpers import ROWS, WIDTH, TorchTwin, step, steps_of, table_of

needs_gpu_forms = pytest.mark.skipif(not HAVE_GPU_FORMS, reason="no GPU, and no triton")
each_decay = pytest.mark.parametrize("decay", [0.0, 0.1])


@each_decay
@pytest.mark.parametrize("width", [1, 12, 300])
def test_dense_adam_is_torchs(width, decay, form):
    table = table_of(width=width).to(device_of(form))
    theirs = TorchTwin(torch.optim.Adam, table, lr=0.01, weight_decay=decay)
    ours = Adam({"x": table}, 0.01, decay)
    for number, (ids, rows) in enumerate(steps_of(5, width=width)):
        theirs.step(ids, rows)
        step(ours, ids, rows)
        theirs.assert_same(table)
        assert int(ours.count) == number + 1


@each_decay
def test_parts_of_a_gradient_add_up(decay, form):
    """Two parts of rows, and one of the whole table."""
    table = table_of().to(device_of(form))
    theirs = TorchTwin(torch.optim.Adam, table, lr=0.01, weight_decay=decay)
    ours = Adam({"x": table}, 0.01, decay)
    for number, (ids, rows) in enumerate(steps_of(6)):
        whole = torch.randn(ROWS, WIDTH, generator=seeded(50 + number))
        parts = [(ids[:5], rows[:5]), (ids[5:], rows[5:])]
        if number % 2:
            parts.append((None, whole))
            ids = torch.cat([ids, torch.arange(ROWS)])
            rows = torch.cat([rows, whole])
        given = [
            RowGradients(None if part is None else part.to(table.device), of.clone().to(table))
            for part, of in parts
        ]
        ours.step({"x": given})
        theirs.step(ids, rows)
        theirs.assert_same(table)


@each_decay
@pytest.mark.parametrize("lazy", [False, True])
def test_a_gradient_may_stay_products(decay, lazy, form):
    """Slopes times vectors, with padding, chosen places, and vectors that two parts share."""
    device = device_of(form)
    tables = [table_of().to(device) for _ in range(2)]
    ours, theirs = (Adam({"x": table}, 0.01, decay, lazy=lazy) for table in tables)
    for number, (ids, rows) in enumerate(steps_of(8)):
        random = seeded(70 + number)
        vectors, others = torch.randn(2, 4, WIDTH, generator=random).unbind(0)
        places = torch.randint(4, (6,), generator=random)
        products = [
            (torch.randint(-1, ROWS, (6 * 3,), generator=random), vectors, (6, 3), places),
            (torch.randint(-1, ROWS, (4 * 2,), generator=random), vectors, (4, 2), None),
            (torch.randint(-1, ROWS, (4 * 1,), generator=random), others, (4, 1), None),
        ]
        given = [RowGradients(ids.to(device), rows.to(device))] if number % 2 else []
        for candidates, of, shape, chosen in products[: 1 + number % 3]:
            parts = candidates, of, torch.randn(shape, generator=random), chosen
            given.append(
                RowGradients(*(each if each is None else each.to(device) for each in parts))
            )
        ours.step({"x": given})
        theirs.step({"x": [part.written_out() for part in given]})
        assert all(bool((part.written_out().ids >= 0).all()) for part in given)
        torch.testing.assert_close(*tables, atol=1e-5, rtol=1e-4)


def test_rows_are_the_same_bits_on_any_number_of_threads():
    import numba

    found = []
    for threads in (1, 2):
        table = table_of(4000, 16)
        ours = Adam({"x": table}, 0.01, 0.0)
        before = numba.get_num_threads()
        numba.set_num_threads(min(threads, before))
        try:
            for ids, rows in steps_of(3, rows=4000, width=16, size=9000):
                products = RowGradients(ids, rows[:90], rows[:90, :1].expand(90, 100), None)
                ours.step({"x": [RowGradients(ids, rows), products]})
        finally:
            numba.set_num_threads(before)
        found.append(table)
    assert torch.equal(*found)


def test_the_factor_scales_the_learning_rate(form):
    table = table_of().to(device_of(form))
    theirs = TorchTwin(torch.optim.Adam, table, lr=0.01)
    ours = Adam({"x": table}, 0.01, 0.0)
    for number, (ids, rows) in enumerate(steps_of(6)):
        factor = 1 / (1 + number)
        ours.set_lr_factor(factor)
        theirs.optimizer.param_groups[0]["lr"] = 0.01 * factor
        theirs.step(ids, rows)
        step(ours, ids, rows)
        theirs.assert_same(table)


def test_a_table_without_a_gradient_moves_as_torchs(form):
    tables = {name: table_of(6).to(device_of(form)) for name in "ab"}
    theirs = {name: TorchTwin(torch.optim.Adam, tables[name], lr=0.01) for name in "ab"}
    ours = Adam(tables, 0.01, 0.0)
    for number in range(12):
        rows = torch.randn(6, WIDTH, generator=seeded(number))
        names = "ab" if number in (0, 11) else "a"
        for name, twin in theirs.items():
            twin.step(torch.arange(6), rows if name in names else torch.zeros_like(rows))
        ids = torch.arange(6).to(ours.device)
        ours.step({name: [RowGradients(ids, rows.clone().to(ours.device))] for name in names})
    for name, table in tables.items():
        theirs[name].assert_same(table, 2e-5)


@pytest.mark.parametrize("kind", [PLAIN, CPU])
def test_rows_without_a_gradient_for_long_move_as_torchs(kind):
    table = table_of(6)
    theirs = TorchTwin(torch.optim.Adam, table, lr=0.01)
    with forced(kind):
        ours = Adam({"x": table}, 0.01, 0.0)
        for number in range(900):
            # Row 0 in every step, row 1 now and then, row 2 twice with more than 400 steps between.
            ids = [0] + [1] * (number % 37 == 0) + [2] * (number in (3, 700)) + [3] * (number == 5)
            rows = torch.randn(len(ids), WIDTH, generator=seeded(number))
            theirs.step(torch.tensor(ids), rows)
            step(ours, torch.tensor(ids), rows)
            theirs.assert_same(table, 2e-5)


def test_a_step_leaves_no_gradient_to_the_next(form):
    ours = Adam({"x": table_of().to(device_of(form))}, 0.01, 0.0)
    for ids, rows in steps_of(2):
        step(ours, ids, rows)
        if not ours._torch:
            assert not any(gradient.any() for gradient in ours._gradient.values())


# Lazy --------------------------------------------------------------------------------------------


def test_lazy_adam_moves_only_rows_with_a_gradient(form):
    table = table_of().to(device_of(form))
    ours = Adam({"x": table}, 0.01, 0.1, lazy=True)
    for ids, rows in steps_of(4):
        before = table.clone()
        step(ours, ids, rows)
        moved = (table != before).any(1).cpu()
        assert moved[ids].all()
        assert moved.sum() == len(ids.unique())


def test_a_gpu_adds_gradients_up_in_its_table_unless_it_is_lazy(form):
    table = table_of().to(device_of(form))
    dense, lazy = (Adam({"x": table.clone()}, 0.01, 0.1, lazy=lazy) for lazy in (False, True))
    assert lazy.gradient_table("x") is None  # a gradient of the whole table moves all rows
    assert lazy.adds_rows_up("x") == (form == GPU)
    assert not dense.adds_rows_up("x")
    into = dense.gradient_table("x")
    assert (into is None) == (form != GPU)
    if into is None:
        return
    theirs = TorchTwin(torch.optim.Adam, table, lr=0.01, weight_decay=0.1)
    for ids, rows in steps_of(4):
        ids, rows = ids.to(table.device), rows.to(table.device)
        into.index_add_(0, ids[:5], rows[:5])
        dense.step({"x": [RowGradients(None, into), RowGradients(ids[5:], rows[5:])]})
        theirs.step(ids.cpu(), rows.cpu())
        theirs.assert_same(dense.tables["x"])


def test_lazy_adam_where_every_row_has_a_gradient_is_dense_adam(form):
    tables = [table_of().to(device_of(form)) for _ in range(2)]
    dense, lazy = (Adam({"x": t}, 0.01, 0.1, lazy=i == 1) for i, t in enumerate(tables))
    for seed in range(4):
        rows = torch.randn(ROWS, WIDTH, generator=seeded(seed))
        for adam in (dense, lazy):
            step(adam, torch.arange(ROWS), rows)
        torch.testing.assert_close(*tables, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("again", ["forget", "load_state"])
def test_a_row_does_not_move_for_a_gradient_of_before(again, form):
    table = table_of().to(device_of(form))
    adam = Adam({"x": table}, 0.1, 0.1, lazy=True)
    fresh = {name: part.clone() for name, part in adam.state().items()}
    for ids, rows in steps_of(1):
        step(adam, ids, rows)
    adam.forget() if again == "forget" else adam.load_state(fresh)
    before = table.clone()
    step(adam, torch.tensor([ROWS - 1]), torch.ones(1, WIDTH))
    assert (table != before).any(1).nonzero().flatten().tolist() == [ROWS - 1]


# State -------------------------------------------------------------------------------------------


def clones(state):
    return {name: tensor.clone() for name, tensor in state.items()}


@each_decay
def test_a_run_resumes_where_it_was(decay, form):
    first, second = (table_of().to(device_of(form)) for _ in range(2))
    one, two = Adam({"x": first}, 0.01, decay), Adam({"x": second}, 0.01, decay)
    steps = list(steps_of(4))
    for ids, rows in steps[:2]:
        step(one, ids, rows)
    second.copy_(first)
    two.load_state(clones(one.state()))
    for adam in (one, two):
        for ids, rows in steps[2:]:
            step(adam, ids, rows)
    assert torch.equal(first, second)


@pytest.mark.parametrize("kinds", [(PLAIN, CPU), (CPU, PLAIN)], ids=str)
def test_the_state_resumes_with_another_form(kinds):
    tables = [table_of() for _ in range(3)]
    whole = Adam({"x": tables[0]}, 0.01, 0.0)
    optimizers = []
    for kind, table in zip(kinds, tables[1:], strict=True):
        with forced(kind):
            optimizers.append(Adam({"x": table}, 0.01, 0.0))
    first, second = optimizers
    steps = [(ids[:3], rows[:3]) for ids, rows in steps_of(12)]
    for adam in (whole, first):
        for ids, rows in steps[:6]:
            step(adam, ids, rows)
    tables[2].copy_(tables[1])
    second.load_state(first.state())
    for adam in (whole, second):
        for ids, rows in steps[6:]:
            step(adam, ids, rows)
    torch.testing.assert_close(tables[0], tables[2], atol=1e-5, rtol=1e-4)


def test_moments_of_an_older_checkpoint_fade():
    tables = [table_of() for _ in range(2)]
    first = Adam({"x": tables[0]}, 0.01, 0.0)
    steps = [(ids[:3], rows[:3]) for ids, rows in steps_of(12)]
    for ids, rows in steps[:6]:
        step(first, ids, rows)
    with forced(PLAIN):
        second = Adam({"x": tables[1]}, 0.01, 0.0)
    tables[1].copy_(tables[0])
    second.load_state({k: v.clone() for k, v in first.state().items() if k != "x.moved"})
    for adam in (first, second):
        for ids, rows in steps[6:]:
            step(adam, ids, rows)
    torch.testing.assert_close(*tables, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", [Int8Table, HalfTable])
def test_a_copy_is_as_fresh_as_a_new_one(kind, lazy, form):
    if kind is (Int8Table if form == GPU else HalfTable):
        pytest.skip("a GPU has bfloat16 copies, others int8 ones")
    table = table_of(203, 9).to(device_of(form))  # rows are not whole blocks of the kernel
    copy = kind(table)
    adam = Adam({"x": table}, 0.05, 0.1, lazy=lazy, copies={"x": copy})
    for ids, rows in steps_of(3, rows=203, width=9, size=30):
        step(adam, ids, rows)
    # Triton's interpreter cuts a float to bfloat16 where a GPU, as torch, rounds.
    cut = {"rtol": 2**-7, "atol": 0} if form == GPU and table.device.type == "cpu" else None
    for name, part in vars(kind(table)).items():
        torch.testing.assert_close(getattr(copy, name), part, **(cut or {"rtol": 0, "atol": 0}))


# Deferred updates, by the kernels ----------------------------------------------------------------


def rare_steps(count):
    """Yield gradients of three of forty rows per step."""
    return steps_of(count, rows=41, size=3)


kernels = pytest.mark.parametrize(
    "form", [CPU, pytest.param(GPU, marks=needs_gpu_forms)], indirect=True
)


@kernels
@pytest.mark.parametrize("deferred", [2, 8, 16, 99])
@each_decay
def test_deferred_rows_are_torchs_once_they_have_caught_up(deferred, decay, form):
    table = table_of(40).to(device_of(form))
    theirs = TorchTwin(torch.optim.Adam, table, lr=0.01, weight_decay=decay)
    ours = Adam({"x": table}, 0.01, decay)
    ours.defer("x", deferred)
    assert ours.is_deferred("x")
    for number, (ids, rows) in enumerate(rare_steps(700 if form == CPU else 50)):
        padded = torch.cat([ids, torch.tensor([-1])]).to(table.device)
        ours.catch_up("x", padded)
        expected = theirs.table.detach()[ids].float()
        found = table[ids.to(table.device)].cpu()
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-4)
        theirs.step(ids, rows)
        step(ours, ids, rows)
        if number % 50 == 49:
            outstanding = table.clone()
            theirs.assert_same(ours.caught_up()["x"], 2e-5)
            assert torch.equal(table, outstanding)
    expected = theirs.table.detach().float()
    assert not torch.allclose(table.cpu(), expected, atol=2e-5, rtol=2e-4)  # some are outstanding
    ours.catch_up_all()
    theirs.assert_same(table, 2e-5)
    assert ours.caught_up()["x"] is table


@needs_gpu_forms
@each_decay
def test_on_a_gpu_a_deferred_row_takes_the_same_steps(decay):
    """Each with the learning rate of its own, in the same operations."""
    with forced(GPU):
        tables = [table_of(40).to(device_of(GPU)) for _ in range(2)]
        dense, deferred = (Adam({"x": table}, 0.01, decay) for table in tables)
        deferred.defer("x", 16)
        for number, (ids, rows) in enumerate(rare_steps(40)):
            for adam in (dense, deferred):
                adam.set_lr_factor(1 / (1 + number))
                adam.catch_up("x", ids.to(adam.device))
                step(adam, ids, rows)
            found, expected = (table.cpu()[ids] for table in tables)
            torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-6)
        deferred.catch_up_all()
    torch.testing.assert_close(*tables, atol=1e-7, rtol=1e-6)


def test_two_steps_that_stand_for_sixteen_are_as_good_as_floats():
    # One gradient, then none: what sixteen steps sum up to, deferred and one by one.
    tables = [table_of(40) for _ in range(2)]
    adams = [Adam({"x": table}, 0.01, 0.0) for table in tables]
    adams[0].defer("x", 16)
    for ids, rows in rare_steps(300):
        for adam in adams:
            adam.catch_up("x", ids)
            step(adam, ids, rows)
    adams[0].catch_up_all()
    torch.testing.assert_close(*tables, atol=2e-6, rtol=2e-6)


@each_decay
def test_the_int8_copy_of_a_deferred_row_is_that_of_the_row_as_it_stands(decay):
    table = table_of(40)
    copy = Int8Table(table)
    adam = Adam({"x": table}, 0.01, decay, copies={"x": copy})
    adam.defer("x", 8)
    for ids, rows in rare_steps(150):
        adam.catch_up("x", ids)
        step(adam, ids, rows)
        fresh = Int8Table(table)
        assert torch.equal(copy.values, fresh.values)
        torch.testing.assert_close(copy.scale, fresh.scale)


@each_decay
@pytest.mark.parametrize(
    "kinds",
    [
        (CPU, CPU),
        (CPU, PLAIN),
        *(pytest.param(x, marks=needs_gpu_forms) for x in ((CPU, GPU), (GPU, CPU), (GPU, GPU))),
    ],
    ids=str,
)
def test_deferred_rows_resume_from_a_checkpoint(decay, kinds):
    first, kind = kinds
    tables = [table_of(40).to(device_of(form)) for form in kinds]
    with forced(first):
        one = Adam({"x": tables[0]}, 0.01, decay)
        one.defer("x", 8)
    steps = list(rare_steps(50 if GPU in kinds else 230))
    before = len(steps) - 27
    for ids, rows in steps[:before]:
        one.catch_up("x", ids.to(one.device))
        step(one, ids, rows)
    with forced(kind):
        two = Adam({"x": tables[1]}, 0.01, decay)
        two.defer("x", 8)
    tables[1].copy_(tables[0])
    two.load_state(clones(one.state()))
    for adam in (one, two):
        for ids, rows in steps[before:]:
            adam.catch_up("x", ids.to(adam.device))
            step(adam, ids, rows)
        adam.catch_up_all()
    if kinds == (CPU, CPU):
        assert torch.equal(*tables)
    else:
        torch.testing.assert_close(*(table.cpu() for table in tables), atol=2e-5, rtol=2e-4)


def test_only_the_dense_adam_of_the_kernels_defers(form):
    for lazy in (False, True):
        table = table_of().to(device_of(form))
        adam = Adam({"x": table}, 0.01, 0.0, lazy=lazy)
        adam.defer("x", 8)
        assert adam.is_deferred("x") is (form != PLAIN and not lazy)
        assert adam.caught_up()["x"] is table


@needs_gpu_forms
def test_a_deferred_table_wants_its_gradients_by_rows():
    with forced(GPU):
        adam = Adam({"x": table_of().to(device_of(GPU))}, 0.01, 0.0)
        assert adam.gradient_table("x") is not None
        adam.defer("x", 8)
        assert adam.gradient_table("x") is None
        assert adam.adds_rows_up("x")
