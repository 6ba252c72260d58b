"""One thread, as the graphs are tiny."""

from ..training.conftest import one_thread  # noqa: F401
