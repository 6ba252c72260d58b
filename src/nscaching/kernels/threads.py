"""How many threads a compiled loop runs on: waking a thread takes longer than a little work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from nscaching.errors import UserError
from nscaching.kernels.availability import HAVE_NUMBA

#: Numbers that one thread handles in about the 30 to 80 microseconds in which another wakes up.
LITTLE_WORK = 1 << 14


class _Threads:
    """Whether this process has started threads, or is the fork of one that had."""

    started = False
    lost = False


def _after_fork() -> None:
    _Threads.lost = _Threads.lost or _Threads.started


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)


def refuse_lost_threads() -> None:
    """Refuse to compute in the fork of a process that had: its threads are not there any more.

    OpenMP would end the process without a word of what to do, or wait forever.
    """
    if _Threads.lost:
        raise UserError(
            "This process was forked from one that had trained or evaluated already, and threads "
            "do not survive a fork. Start it with multiprocessing.get_context('spawn'), or train "
            "only in the processes that are forked."
        )
    _Threads.started = True


def loops_may_overlap() -> bool:
    """Tell whether threads may run compiled loops at once: Numba's own layer ends the process."""
    if not HAVE_NUMBA:
        return True
    import numba

    numba.get_num_threads()  # which starts the layer
    layer = numba.threading_layer()  # type: ignore[attr-defined]
    return layer in ("omp", "tbb")


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
