"""The Triton kernels without a GPU: Triton's interpreter runs them on the tensors of the CPU.

A kernel is interpreted if ``TRITON_INTERPRET`` is set while Triton and the kernel are imported. So
that happens here, once, and the variable is gone before any test runs or starts a process. Torch
imports Triton too, as soon as an optimiser is made; pytest reads this file before it runs a test.
"""

import importlib.util
import os
import sys
from importlib import import_module

import pytest
import torch

ROOMS = ("models", "optim", "sampling", "training")
GRADIENTS = ("bilinear", "translational", "rotation", "distances")
#: A part that Triton imports when it first runs a kernel, and that looks at the variable too.
LATE_PART = "triton.experimental.gluon"


def obstacle():
    """Say why the kernels cannot be interpreted in this process; None if they can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if torch.cuda.is_available():
        return "interpreted kernels would take the place of those that the GPU here runs"
    if "triton" in sys.modules:
        return "triton was imported before it could be told to interpret"
    return None


def interpreted_kernels():
    """Import the kernels of all rooms for the interpreter."""
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        if importlib.util.find_spec(LATE_PART) is not None:
            import_module(LATE_PART)
        for family in GRADIENTS:
            import_module(f"nscaching.models.gradients.{family}_gpu")
        import_module("nscaching.sampling.uniform_gpu")
        return {room: import_module(f"nscaching.{room}.gpu_kernels") for room in ROOMS}
    finally:
        del os.environ["TRITON_INTERPRET"]
        if before is not None:
            os.environ["TRITON_INTERPRET"] = before


OBSTACLE = obstacle()
KERNELS = interpreted_kernels() if OBSTACLE is None else {}


@pytest.fixture(autouse=True)
def kernels(request):
    """Return the kernels of the room that a module of tests is about (its ``ROOM``)."""
    if OBSTACLE is not None:
        pytest.skip(OBSTACLE)
    return KERNELS[request.module.ROOM]
