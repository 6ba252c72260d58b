"""Every registered kernel in all its forms through the dispatcher, on the edges of its inputs.

The plain form is the definition: in double precision where a kernel computes with floats, and bit
for bit where it chooses entities. A kernel without a case here fails the last test.
"""

from copy import copy

import pytest
import torch

from nscaching import evaluation, losses, optim, sampling  # noqa: F401  (they register kernels)
from nscaching.kernels.registry import CPU, GPU, KERNELS, PLAIN, forced, form_for
from nscaching.models.match import NO_VIEW, PROJECTION, UNIT, Query
from nscaching.models.query_kernels import Questions
from nscaching.sampling.cache import Cache

from ..conftest import device_of, kernel_forms, seeded

#: Queries, candidates, entities, numbers of a part: some, no query, one entity, no candidates, no
#: power of two beyond the blocks of kernels.
SHAPES = [(5, 3, 7, 3), (0, 3, 7, 3), (3, 2, 1, 1), (4, 0, 6, 5), (2, 19, 30, 131)]


class Case:
    """Random inputs of a shape; padding stands among the ids."""

    def __init__(self, shape):
        self.b, self.k, self.n, self.d = shape
        self.random = seeded(sum(shape))

    def floats(self, *shape):
        return torch.randn(*shape, generator=self.random)

    def below(self, high, *shape, low=0):
        return torch.randint(low, high, shape, generator=self.random)

    def match(self, width, context=False, table=0, places=None):
        """Return queries, with a context where it is wanted, a table and ids."""
        contexts = self.floats(self.b, width) if context else None
        ids = self.below(self.n, self.b, self.k, low=-1)
        vectors, rows = self.floats(self.b, width), self.floats(self.n, table or width)
        return Query(vectors, contexts, places), rows, ids

    def slopes(self):
        return self.floats(self.b, self.k)

    def places(self):
        """Return which queries are asked: all of them, or, of an odd number, any."""
        return self.below(self.b, self.b) if self.b % 2 else None

    def questions(self, second_half=0, asked=False):
        """Return questions with reciprocal rows from somewhere on; one per triple, or both."""
        triples = self.below(self.n, self.b), self.below(2, self.b), self.below(self.n, self.b)
        places = torch.arange(self.b) + self.b * self.below(2, self.b)
        return Questions(*triples, second_half, places if asked else None)

    def ranked(self):
        """Return scores with ties, rows of triples, their true scores, and what is known.

        The first two triples ask the same question.
        """
        row, true = (torch.arange(self.b) - 1).clamp_min(0), self.below(self.n, self.b)
        questions = max(min(self.b, 1), self.b - 1)
        scores = self.below(5, questions, self.n).float()
        known = self.below(3, questions, self.n) == 0
        known[row, true] = True
        return scores, row, scores[row, true], *known.nonzero(as_tuple=True)

    def bilinear(self, asked=False):
        """ComplEx's terms, with reciprocal rows from 2 on."""
        terms = torch.zeros(2, 2, 2, 2, dtype=torch.int8)
        for side, sign in ((0, -1), (1, 1)):
            terms[side, 0, 0, 0] = terms[side, 1, 1, 0] = 1
            terms[side, 0, 1, 1], terms[side, 1, 0, 1] = -sign, sign
        tables = self.floats(self.n, 2 * self.d), self.floats(4, 2 * self.d)
        return *tables, self.questions(2, asked), terms

    def translation(self, view, asked=False):
        width = 2 * self.d if view == PROJECTION else self.d
        questions = self.questions(asked=asked)
        return self.floats(self.n, width), questions, self.floats(self.b, self.d), view

    def logits(self):
        return self.floats(self.b, self.n) * 20

    def padded_logits(self):
        """Return logits of candidates, those of the first question all padding."""
        padding = self.below(3, self.b, self.n) == 0
        padding[:1] = True
        return self.floats(self.b, self.n).masked_fill(padding, -torch.inf)

    def rewards(self):
        """Return rewards, -inf for padding, as a part of scores, and their weights."""
        weights = self.below(2, self.b, self.k) / 2
        scores = self.floats(self.b, 1 + self.k)
        return scores[:, 1:].masked_fill_(weights == 0, -torch.inf), weights

    def adagrad(self):
        return self.floats(self.n, self.d), self.floats(self.n, self.d).square()

    def row_gradients(self):
        """Return ids, rows that are written out, and, of an odd number, products as well."""
        ids, rows = self.below(self.n, self.b), self.floats(self.b, self.d)
        if self.k == 0 or self.b % 2 == 0:
            return ids, rows, None
        of_products = self.below(self.n, self.b * self.k, low=-1)
        return torch.cat([ids, of_products]), rows, (self.slopes(), rows, self.places())

    def pool(self):
        """Return a pool, its weights, 0 for repeats, and what questions have of their own."""
        ids = self.below(self.n, 1 + self.n).sort().values
        once = torch.cat([torch.ones(1), (ids[1:] != ids[:-1]).float()])
        return ids, once * self.floats(1 + self.n), self.below(self.n, self.b, self.k, low=-1)

    def copy(self):
        return torch.zeros(self.n, self.d, dtype=torch.int8), torch.zeros(self.n)

    def ids(self, size=3):
        """Rows of three entities at most, with padding at their end."""
        held = torch.arange(size) < self.below(size + 1, 4, 1)
        return torch.where(held, self.below(self.n, 4, size), -1).int()

    def cache(self):
        with forced(GPU):  # which needs memory that others do not
            cache = Cache(4, 3, self.n, "quantile", torch.device("cpu"))
        cache.ids = self.ids(cache.size)
        return cache

    def rows(self):
        return torch.randperm(4, generator=self.random)[: min(self.b, 4)]

    def seed(self):
        return self.below(1 << 62, 1) * 2 - (1 << 62)

    def sampled(self):
        pair = (self.below(4, self.b), self.below(4, self.b))
        ids = (self.below(self.n, self.b), self.below(self.n, self.b))
        uniform = torch.rand(self.b, 1 + self.k, generator=self.random)
        chances = (self.below(2, self.b), torch.tensor([0.2, 0.7]))
        return (self.ids(), self.ids()), pair, ids, chances, uniform

    def answers(self):
        """Return rows and entities, and where the answers of each row stand, with the longest."""
        given = self.below(2, 4, self.n).bool()
        counts = given.sum(1)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        entities = self.below(self.n, self.b, self.k, low=-1)
        listed = given.nonzero()[:, 1].int()
        return self.below(4, self.b), entities, offsets, listed, int(counts.max())

    def kept(self):
        """Return candidates of rows, each of which its own place in the batch updates."""
        rows, cache = self.rows(), self.cache()
        candidates = self.below(self.n, len(rows), 9, low=-1)
        cache.owner[rows] = torch.arange(len(rows), dtype=torch.int32)
        return rows, cache, candidates, self.floats(len(rows), 9), 2.0, self.seed()


class Rate(float):
    """A factor of the learning rate; on a GPU it lies on the device."""


def vectors(query, *others):
    return query.vectors, *others


CASES = {
    "dot_forward": lambda c: c.match(c.d, places=c.places()),
    "dot_backward": lambda c: (*c.match(c.d, places=c.places()), c.slopes()),
    "dot_query_sums": lambda c: (*c.match(c.d)[1:], c.slopes()),
    "dot_backward_summed": lambda c: (*vectors(*c.match(c.d)), c.slopes(), torch.zeros(c.n, c.d)),
    "distance_forward": lambda c: (*c.match(c.d), 1, UNIT),
    "distance_backward": lambda c: (*c.match(c.d, True, 2 * c.d), c.slopes(), 2, PROJECTION),
    "distance_backward_summed": lambda c: (
        *(*c.match(c.d, True, 2 * c.d), c.slopes(), 2, PROJECTION),
        torch.zeros(c.n, 2 * c.d),
    ),
    "modulus_forward": lambda c: c.match(2 * c.d),
    "modulus_backward": lambda c: (*c.match(2 * c.d), c.slopes()),
    "all_distances": lambda c: (c.floats(c.b, c.d), c.floats(c.n, c.d), 2),
    "all_view_distances": lambda c: (*c.match(c.d, True, 2 * c.d)[:2], 2, PROJECTION),
    "all_moduli": lambda c: (c.floats(c.b, 2 * c.d), c.floats(c.n, 2 * c.d)),
    "sign_sums": lambda c: (c.floats(c.b, c.d), c.floats(c.n, c.d), c.floats(c.n, c.b).T),
    "direction_sums": lambda c: (
        c.floats(c.b, 2 * c.d),
        c.floats(c.n, 2 * c.d),
        c.floats(c.b, c.n),
    ),
    "count_above": lambda c: c.ranked(),
    "bilinear_forward": lambda c: c.bilinear(),
    "bilinear_backward": lambda c: (*c.bilinear(asked=True), c.floats(c.b, 2 * c.d)),
    "translation_forward": lambda c: (*c.translation(NO_VIEW), c.floats(c.b, c.d)),
    "translation_backward": lambda c: (
        *c.translation(PROJECTION, asked=True),
        c.floats(c.b, c.d),
    ),
    "take_rows": lambda c: (c.floats(c.n, c.d), c.below(c.n, c.b)),
    "int8_write": lambda c: (c.floats(c.n, c.d), *c.copy()),
    "int8_dot_forward": lambda c: (
        c.floats(c.b, c.d),
        c.below(128, c.n, c.d, low=-127).to(torch.int8),
        c.floats(c.n).abs(),
        c.below(c.n, c.b, c.k, low=-1),
    ),
    "logsumexp": lambda c: (c.logits(),),
    "softmax_gradient": lambda c: (
        c.logits(),
        30 + c.floats(c.b, 1),
        c.below(2 * c.n, c.b),
        c.n // 2,
        0.9,
        0.1 / c.n,
    ),
    "adagrad_rows": lambda c: (
        *c.adagrad(),
        c.below(c.n, c.b),
        c.floats(c.b, c.d),
        *(part[:0] for part in c.copy()),
        0.1,
        0.05,
    ),
    "adagrad_large": lambda c: (
        *c.adagrad(),
        *c.row_gradients(),
        c.seed(),
        torch.full((), 0.7),
        0.1,
        0.05,
    ),
    "adagrad_dense": lambda c: (*c.adagrad(), c.floats(c.n, c.d), Rate(0.7), 0.1, 0.05, True),
    "hashed_entities": lambda c: (c.seed(), c.rows(), c.k, c.n),
    "first_places": lambda c: (c.below(4, c.b), torch.zeros(4, dtype=torch.int64), 1),
    "offer": lambda c: (c.rows(), c.cache(), c.k, c.seed(), None),
    "keep": lambda c: c.kept(),
    "hardest": lambda c: (
        c.floats(c.b, 2 + c.n),
        c.below(2, c.b, c.n).float(),
        torch.arange(c.n) + 7,
        (c.n + 1) // 2,
    ),
    "draw_pool": lambda c: (c.seed(), 1 + 60 * c.k, 3 + 90 * c.k),
    "pool_weights": lambda c: c.pool(),
    "sample_rows": lambda c: c.sampled(),
    "draw_uniform": lambda c: (c.seed(), c.below(2, c.b).bool(), c.rows()[: c.b], None, c.n, c.k),
    "is_answer": lambda c: c.answers(),
    "draw_softmax": lambda c: (c.padded_logits(), torch.rand(c.b, 1 + c.k, generator=c.random)),
    "above_baseline": lambda c: (*c.rewards(), torch.tensor(0.3), torch.tensor(c.b % 2.0), 0.95),
}
#: Which arguments a kernel writes into.
WRITES = {
    "distance_backward_summed": (6,),
    "above_baseline": (2, 3),
    "int8_write": (1, 2),
    "adagrad_rows": (0, 1),
    "adagrad_large": (0, 1),
    "adagrad_dense": (0, 1, 2),
    "keep": (1,),
}
#: Kernels that choose entities or round: equal to the plain form bit for bit.
EXACT = {
    "int8_write",
    "hashed_entities",
    "first_places",
    "offer",
    "keep",
    "hardest",
    "draw_pool",
    "pool_weights",
    "sample_rows",
    "draw_uniform",
    "is_answer",
}


def given(value, form, double):
    """Return an argument as a form takes it: a copy, on its device, in its precision."""
    if isinstance(value, tuple):
        parts = (given(part, form, double) for part in value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Cache):
        moved = copy(value)
        for name in ("ids", "scores", "owner"):
            setattr(moved, name, given(getattr(value, name), form, False))
        return moved
    if isinstance(value, Rate):
        return torch.tensor(float(value), device=device_of(form)) if form == GPU else float(value)
    if not isinstance(value, torch.Tensor):
        return value
    wide = double and value.dtype == torch.float32
    return value.clone().to(device_of(form), torch.float64 if wide else None)


def results(name, arguments, form, double=False):
    """Run a kernel; return what it returns and what it wrote."""
    inputs = [given(value, form, double) for value in arguments]
    with forced(form):
        found = KERNELS[name](*inputs)
    parts = found if isinstance(found, tuple) else (found,)
    written = [inputs[place] for place in WRITES.get(name, ())]
    if name == "keep":
        written = [written[0].ids, written[0].scores]
    if name == "hardest":  # in any order
        parts = [part.sort(dim=1).values for part in parts]
    return [part.cpu() for part in (*parts, *written) if part is not None]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", kernel_forms())
@pytest.mark.parametrize("name", CASES)
def test_every_form_is_the_plain_one(name, form, shape):
    arguments = CASES[name](Case(shape))
    exact = name in EXACT
    expected = results(name, arguments, PLAIN, double=not exact)
    found = results(name, arguments, form)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        if exact or not theirs.is_floating_point():
            assert torch.equal(ours, theirs)
        else:
            torch.testing.assert_close(ours.double(), theirs, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("form", [PLAIN, CPU])
def test_summed_gradients_are_of_the_entities_that_are_there(form):
    """Padding is no entity: lazy optimisers move the rows that are named."""
    query, table, ids = vectors(*Case(SHAPES[0]).match(3))
    d_scores = torch.ones(5, 3)
    ids = ids.masked_fill(ids == 0, -1)
    with forced(form):
        _, touched, rows = KERNELS["dot_backward_summed"](query, table, ids, d_scores, None)
    assert touched.tolist() == sorted(set(ids.flatten().tolist()) - {-1})
    for entity, row in zip(touched, rows, strict=True):
        times = (ids == entity).sum(1, keepdim=True)
        torch.testing.assert_close(row, (times * query).sum(0))


def test_every_registered_kernel_has_a_case():
    assert set(CASES) == set(KERNELS)


def test_every_named_form_exists():
    for kernel in KERNELS.values():
        for form in kernel_forms():
            has_one = form == PLAIN or kernel.modules[form] is not None
            assert callable(kernel.form(form))
            assert (kernel.form(form) is not kernel.plain) is (has_one and form != PLAIN)


def test_the_first_tensor_decides_which_form_runs():
    single, double = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    assert form_for((single, 3)) == CPU
    assert form_for((3, (single, single))) == CPU
    assert form_for((single, double)) == PLAIN
    assert form_for((single, (double,))) == PLAIN
    assert form_for((3, None)) == PLAIN
    with forced(PLAIN):
        assert form_for((single,)) == PLAIN
        with forced(GPU):
            assert form_for((single,)) == GPU
            assert form_for((double,)) == PLAIN
    assert form_for((single,)) == CPU
