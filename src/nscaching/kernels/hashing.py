"""Random numbers by hashing: the same on every device and in every kernel.

The noise of a cache update is a function of a seed, the row and the position in the row
(SplitMix64, one stream per row). So a kernel makes its own noise where it needs it, the plain path
makes the same, and two triples of a batch that share a row compute the same update.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nscaching.kernels.registry import kernel

GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
#: Positions from here on give Gumbel noise; those below choose fresh entities.
NOISE_STREAM = 1 << 20


def new_seed(generator: torch.Generator) -> Tensor:
    """Draw a seed. Shape: (1,), int64, on the generator's device."""
    return torch.randint(
        -(1 << 63), (1 << 63) - 1, (1,), generator=generator, device=generator.device
    )


def unsigned(seed: Tensor) -> np.uint64:
    """Return the bits of a seed as the kernels of the CPU take them."""
    return np.uint64(int(seed) & (1 << 64) - 1)


def hashed_bits(seed: Tensor, rows: Tensor, first: int, count: int) -> Tensor:
    """Return 64 random bits for each row and position. Shapes: (1,), (b,) -> (b, count), int64."""
    stream = _mix(seed + rows.long() * _signed(GOLDEN))
    positions = torch.arange(first + 1, first + count + 1, device=rows.device)
    return _mix(stream.unsqueeze(1) + positions * _signed(GOLDEN))


@kernel(gpu="cache_gpu")
def hashed_entities(seed: Tensor, rows: Tensor, count: int, num_entities: int) -> Tensor:
    """Return uniform entity ids for each row, with replacement. Shape: (b, count)."""
    return to_entities(hashed_bits(seed, rows, 0, count), num_entities)


def to_entities(bits: Tensor, num_entities: int | Tensor) -> Tensor:
    """Turn 64 random bits each into uniform entity ids."""
    return (_shifted(bits, 33) * num_entities) >> 31


def hashed_gumbel(seed: Tensor, rows: Tensor, count: int) -> Tensor:
    """Return standard Gumbel noise for each row. Shape: (b, count), float32."""
    # 23 bits and a half are exact in float32, so the uniform is never 0 or 1 and the noise finite.
    bits = _shifted(hashed_bits(seed, rows, NOISE_STREAM, count), 41)
    uniform = (bits.float() + 0.5) * 2.0**-23
    return -torch.log(-torch.log(uniform))


def _mix(bits: Tensor) -> Tensor:
    bits = (bits ^ _shifted(bits, 30)) * _signed(MIX_1)
    bits = (bits ^ _shifted(bits, 27)) * _signed(MIX_2)
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Shift right as if unsigned."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _signed(constant: int) -> int:
    return constant - (1 << 64) if constant >= 1 << 63 else constant
