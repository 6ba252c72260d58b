"""How many threads a compiled loop runs on: waking a thread takes longer than a little work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

#: Numbers that one thread handles in about the 30 to 80 microseconds in which another wakes up.
LITTLE_WORK = 1 << 14


@contextmanager
def as_many_threads_as_pay(numbers: int) -> Iterator[None]:
    """Run compiled loops on this thread alone if they handle only so few numbers."""
    import numba

    before = numba.get_num_threads()
    if numbers > LITTLE_WORK or before == 1:
        yield
        return
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)
