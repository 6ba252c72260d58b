"""The table of scoring functions, written slowly in float64 on single rows of parameters."""

import numpy as np


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


TWINS = {
    "transe": transe,
    "transh": transh,
    "transd": transd,
    "distmult": distmult,
    "complex": complex_,
    "simple": simple,
    "rotate": rotate,
}


def unit(x):
    return x / np.sqrt((x**2).sum())


def halves(row):
    return np.split(row, 2)


def as_complex(row):
    re, im = halves(row)
    return re + 1j * im


class TwinModel:
    """Scores triples of ids, one by one, from the tables of an EmbeddingModel."""

    def __init__(self, model):
        self.twin = TWINS[model.scoring.name]
        self.norm = model.scoring.norm
        self.entity = model.entity.double().numpy()
        self.relation = model.relation.double().numpy()

    def score(self, h, r, t):
        return float(self.twin(self.entity[h], self.relation[r], self.entity[t], self.norm))

    def scores(self, heads, relations, tails):
        """Score arrays of ids that broadcast; returns a float64 array."""
        ids = np.broadcast_arrays(heads, relations, tails)
        flat = [self.score(*triple) for triple in zip(*(i.ravel() for i in ids), strict=True)]
        return np.array(flat).reshape(ids[0].shape)
