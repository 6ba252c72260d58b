"""The table of scoring functions, written slowly in float64 on single rows of parameters."""

import numpy as np

from nscaching.models import Side


def transe(h, r, t, p):
    return -np.linalg.norm(unit(h) + r - unit(t), ord=p)


def transh(h, row, t, p):
    r, w = halves(row)
    w = unit(w)
    h, t = unit(h), unit(t)
    return -np.linalg.norm((h - (w @ h) * w) + r - (t - (w @ t) * w), ord=p)


def transd(h_row, r_row, t_row, p):
    (h, w_h), (r, w_r), (t, w_t) = halves(h_row), halves(r_row), halves(t_row)
    h, t = unit(h), unit(t)
    return -np.linalg.norm((h + (w_h @ h) * w_r) + r - (t + (w_t @ t) * w_r), ord=p)


def distmult(h, r, t, p):
    return sum(h[k] * r[k] * t[k] for k in range(len(h)))


def complex_(h_row, r_row, t_row, p):
    h, r, t = (as_complex(row) for row in (h_row, r_row, t_row))
    return sum((h[k] * r[k] * t[k].conjugate()).real for k in range(len(h)))


def simple(h_row, r_row, t_row, p):
    (h1, h2), (r1, r2), (t1, t2) = halves(h_row), halves(r_row), halves(t_row)
    return (h1 * r1 * t2).sum() + (h2 * r2 * t1).sum()


def rotate(h_row, phase, t_row, p):
    h, t = as_complex(h_row), as_complex(t_row)
    return -sum(abs(h[k] * np.exp(1j * phase[k]) - t[k]) for k in range(len(h)))


def quate(h_row, r_row, t_row, p):
    h, r, t = (np.stack(np.split(row, 4), axis=1) for row in (h_row, r_row, t_row))
    return sum(hamilton(h[k], unit(r[k])) @ t[k] for k in range(len(h)))


TWINS = {
    "transe": transe,
    "transh": transh,
    "transd": transd,
    "distmult": distmult,
    "complex": complex_,
    "simple": simple,
    "rotate": rotate,
    "quate": quate,
}


def unit(x):
    return x / np.sqrt((x**2).sum())


def halves(row):
    return np.split(row, 2)


def as_complex(row):
    re, im = halves(row)
    return re + 1j * im


def hamilton(x, y):
    """Multiply quaternions as 2 x 2 complex matrices: a + bi + cj + dk is [[z, w], [-w*, z*]]."""
    (z, w), _ = matrix(x) @ matrix(y)
    return np.array([z.real, z.imag, w.real, w.imag])


def matrix(x):
    z, w = complex(x[0], x[1]), complex(x[2], x[3])
    return np.array([[z, w], [-w.conjugate(), z.conjugate()]])


class TwinModel:
    """Scores triples of ids, one by one, from the tables of an EmbeddingModel."""

    def __init__(self, model):
        self.twin = TWINS[model.scoring.name]
        self.norm = model.scoring.norm
        self.entity = model.entity.double().numpy()
        self.relation = model.relation.double().numpy()
        self.inverse = len(self.relation) // 2 if model.reciprocal else None

    def row_score(self, h, row, t):
        return float(self.twin(self.entity[h], self.relation[row], self.entity[t], self.norm))

    def score(self, h, r, t, side=None):
        """Score a triple, as the answer to the question for a side; without one, the mean."""
        if self.inverse is None:
            return self.row_score(h, r, t)
        of_tail, of_head = self.row_score(h, r, t), self.row_score(t, r + self.inverse, h)
        return {Side.TAIL: of_tail, Side.HEAD: of_head, None: (of_tail + of_head) / 2}[side]

    def scores(self, heads, relations, tails, side=None):
        """Score arrays of ids that broadcast; returns a float64 array."""
        ids = np.broadcast_arrays(heads, relations, tails)
        triples = zip(*(i.ravel() for i in ids), strict=True)
        flat = [self.score(*triple, side) for triple in triples]
        return np.array(flat).reshape(ids[0].shape)
