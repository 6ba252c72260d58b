"""Choosing the device of a run, and how much memory it has."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from nscaching.errors import UserError


def pick_device(name: str) -> torch.device:
    """Return the device for ``auto``, ``cpu``, ``cuda`` or ``mps``; refuse one that is absent."""
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(device for device, there in present.items() if there)
    if not present.get(name, False):
        usable = ", ".join(device for device, there in present.items() if there)
        raise UserError(f"device '{name}' is not available here; use auto or one of: {usable}.")
    return torch.device(name)


def free_bytes(device: torch.device) -> int | None:
    """Return the memory that a device still has, None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = [size for size in (_free_on_host(), _free_in_container()) if size is not None]
    return min(found, default=None)


def _free_on_host() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:  # a Mac says only how much there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _free_in_container(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what the limit of a control group leaves; pages it can drop count as free."""
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        fields = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        return limit - used + next(int(size) for name, size in fields if name == "inactive_file")
    except (OSError, ValueError, StopIteration):  # no group, or the limit is "max"
        return None
