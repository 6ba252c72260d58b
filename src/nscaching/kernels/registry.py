"""One dispatcher for all kernels.

A kernel is registered once, with a plain torch form that runs everywhere and, where they pay,
compiled forms: ``cpu`` (Numba) and ``gpu`` (Triton). All forms take and return torch tensors and
compute the same function. A call picks the form by the device of its first tensor; tensors of
double precision, on a CPU those of bfloat16, other devices and ``NSCACHING_PLAIN=1`` take the plain
form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from nscaching.kernels import availability

#: Kernels by name.
KERNELS: dict[str, Kernel] = {}
PLAIN, CPU, GPU = "plain", "cpu", "gpu"
_forced: list[str] = []


class Kernel:
    """One operation in all its forms; ``cpu`` and ``gpu`` are ``"module:function"``.

    A function of the kernel's own name need not be named.
    """

    def __init__(
        self, name: str, plain: Callable[..., Any], cpu: str | None, gpu: str | None
    ) -> None:
        self.name, self.plain = name, plain
        self.places = {CPU: cpu, GPU: gpu}
        self._forms: dict[str, Callable[..., Any]] = {PLAIN: plain}

    def __call__(self, *arguments: Any) -> Any:
        """Run the form that fits the arguments."""
        return self.form(form_for(arguments))(*arguments)

    def form(self, kind: str) -> Callable[..., Any]:
        """Return a form by its name; the plain one where there is no such form."""
        if kind not in self._forms:
            place = self.places[kind]
            if place is None:
                return self.plain
            module, _, function = place.partition(":")
            compiled = import_module(f"nscaching.kernels.{module}")
            self._forms[kind] = getattr(compiled, function or self.name)
        return self._forms[kind]


def register(
    name: str, plain: Callable[..., Any], *, cpu: str | None = None, gpu: str | None = None
) -> Kernel:
    """Add a kernel to the registry and return it."""
    KERNELS[name] = Kernel(name, plain, cpu, gpu)
    return KERNELS[name]


def compiled_for(device: torch.device) -> str:
    """Return which compiled form a device runs; the plain one where there is none."""
    if _forced:
        return _forced[-1]
    if device.type == "cuda" and availability.HAVE_TRITON:
        return GPU
    if device.type == "cpu" and availability.HAVE_NUMBA:
        return CPU
    return PLAIN


def form_for(arguments: tuple[Any, ...]) -> str:
    """Return which form runs for some arguments; tensors may stand in tuples."""
    first, half = None, False
    for each in arguments:  # one loop without generators: a step makes some ten calls
        for part in each if isinstance(each, tuple) else (each,):
            if not isinstance(part, Tensor):
                continue
            if part.dtype == torch.float64:
                return PLAIN
            half = half or part.dtype == torch.bfloat16
            first = part if first is None else first
    if first is None:
        return PLAIN
    kind = compiled_for(first.device)
    return PLAIN if kind == CPU and half else kind  # Numba has no bfloat16


@contextlib.contextmanager
def forced(kind: str) -> Iterator[None]:
    """Make every call take one form: for tests, which run GPU kernels by Triton's interpreter."""
    _forced.append(kind)
    try:
        yield
    finally:
        _forced.pop()
