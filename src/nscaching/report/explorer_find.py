"""Finding entities by a part of their name, as the explorer's page does it by itself."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

#: Entities found at most, and names with the text in their middle that are looked at for them.
MOST_FOUND, _MOST_INSIDE = 20, 4000


def fold(name: str) -> str:
    """Return a name without case and accents."""
    decomposed = unicodedata.normalize("NFD", name)
    return re.sub(r"[\u0300-\u036f]", "", decomposed).lower()


class NameIndex:
    """Names in order, for what begins so, and one text of all, for what has it inside."""

    def __init__(self, names: Sequence[str], degree: np.ndarray) -> None:
        folded = [fold(name) for name in names]
        self.degree = np.asarray(degree)
        self.order = np.array(sorted(range(len(folded)), key=folded.__getitem__), dtype=np.int64)
        self.sorted = [folded[index] for index in self.order.tolist()]
        self.text = "\n" + "\n".join(folded) + "\n"
        lengths = np.array([len(name) + 1 for name in folded], dtype=np.int64)
        self.start = np.concatenate([[1], 1 + np.cumsum(lengths)])

    def find(self, wanted: str, most: int = MOST_FOUND) -> tuple[list[int], int]:
        """Return ids, best first, and how many there are.

        The exact name comes first, then names that begin so, words that do, and any other part;
        within each those with the most facts. The total counts at most some thousands.
        """
        query = fold(wanted.strip())
        if not query or "\n" in query:
            return [], 0
        low = bisect_left(self.sorted, query)
        high = bisect_left(self.sorted, query + "\U0010ffff")
        begins = self.order[low:high]
        exact = begins[: bisect_left(self.sorted, query + "\0", low, high) - low]
        chosen = [*self._frequent(exact, most), *self._frequent(begins[len(exact) :], most)]
        total = len(begins)
        if len(chosen) < most:
            inside, words = self._inside(query)
            inside, words = (np.setdiff1d(each, begins) for each in (inside, words))
            total += len(inside)
            chosen += self._frequent(words, most)
            chosen += self._frequent(np.setdiff1d(inside, words), most)
        return chosen[:most], total

    def _frequent(self, ids: np.ndarray, most: int) -> list[int]:
        order = np.lexsort((ids, -self.degree[ids]))[:most]
        found: list[int] = ids[order].tolist()
        return found

    def _inside(self, query: str) -> tuple[np.ndarray, np.ndarray]:
        """Return entities with the text anywhere, and those of them where a word begins so."""
        found = re.finditer(re.escape(query), self.text)
        places = [each.start() for each, _ in zip(found, range(_MOST_INSIDE), strict=False)]
        at = np.array(places, dtype=np.int64)
        ids = np.searchsorted(self.start, at, side="right") - 1
        begins = np.array([not self.text[place - 1].isalnum() for place in places], dtype=bool)
        return np.unique(ids), np.unique(ids[begins])
