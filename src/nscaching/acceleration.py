"""What this machine can run faster than plain torch."""

from __future__ import annotations

import importlib.util
import os

#: Whether the CPU kernels can be compiled; ``NSCACHING_PLAIN=1`` turns them off.
HAVE_NUMBA = importlib.util.find_spec("numba") is not None and not os.environ.get("NSCACHING_PLAIN")
