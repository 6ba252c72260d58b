"""One dispatcher for all kernels.

A kernel is a function in plain torch, which runs everywhere, decorated with the modules that have
its compiled forms where they pay: ``cpu`` (Numba) and ``gpu`` (Triton). All forms have its name,
take and return torch tensors and compute the same. A call picks the form by the device of its first
tensor; tensors of double precision, on a CPU those of bfloat16, other devices and
``NSCACHING_PLAIN=1`` take the plain form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from nscaching.kernels import availability

P = ParamSpec("P")
R = TypeVar("R")

#: Kernels by name.
KERNELS: dict[str, Kernel[..., Any]] = {}
PLAIN, CPU, GPU = "plain", "cpu", "gpu"
_forced: list[str] = []


class Kernel(Generic[P, R]):
    """One operation in all its forms; ``modules`` have the compiled ones."""

    def __init__(self, plain: Callable[P, R], modules: dict[str, str | None]) -> None:
        self.name, self.plain, self.modules = plain.__name__, plain, modules
        self._forms: dict[str, Callable[P, R]] = {PLAIN: plain}

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Run the form that fits the arguments."""
        return self.form(form_for(arguments))(*arguments, **named)

    def form(self, kind: str) -> Callable[P, R]:
        """Return a form by its name; the plain one where there is no such form."""
        if kind not in self._forms:
            module = self.modules[kind]
            if module is None:
                return self.plain
            compiled = import_module(f"nscaching.kernels.{module}")
            self._forms[kind] = getattr(compiled, self.name)
        return self._forms[kind]


def kernel(
    *, cpu: str | None = None, gpu: str | None = None
) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Make the decorated function the plain form of a kernel, and its name that of all forms."""

    def register(plain: Callable[P, R]) -> Kernel[P, R]:
        made = Kernel(plain, {CPU: cpu, GPU: gpu})
        KERNELS[made.name] = made
        return made

    return register


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
