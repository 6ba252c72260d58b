"""How CPU kernels are compiled (on first use, and kept on disk), and what they are made of.

At the end is what LLVM can do and Numba has no word for, as functions for compiled loops.
``prefetch``: a loop that reads rows in random order waits for memory at each of them, unless it
says early which rows come next. ``to_half``: numbers that are kept but seldom read take half the
room as float16. ``bits_of`` and ``float_of``: a float32 as an int32 and back, without memory
between, so that loops over them vectorise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils as untyped_codegen
from numba.core import types
from numba.extending import intrinsic
from torch import Tensor

Array = np.ndarray[Any, Any]
#: A kernel: its ``prange`` runs on all threads.
parallel: Any = njit(parallel=True, fastmath=True, cache=True, nogil=True, error_model="numpy")
#: A part of kernels.
inline: Any = njit(fastmath=True, cache=True, nogil=True, error_model="numpy")
#: The same with strict arithmetic, for kernels that handle infinities or must repeat bit for bit.
exact_parallel: Any = njit(parallel=True, cache=True, nogil=True, error_model="numpy")
exact_inline: Any = njit(cache=True, nogil=True, error_model="numpy")
#: A part of a loop over short rows: a call for each would take as long as the row.
inside: Any = njit(fastmath=True, cache=True, nogil=True, error_model="numpy", forceinline=True)


@exact_inline  # fast arithmetic may assume that there are no infinities
def unless_padding(score: Any, entity: int) -> Any:
    """Return a score, or minus infinity where the id is padding."""
    return score if entity >= 0 else np.float32(-np.inf)


@inline
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), for any x."""
    return np.float32(max(x, np.float32(0)) + math.log1p(math.exp(-abs(x))))


@inline
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return np.float32(1) / (np.float32(1) + np.float32(math.exp(-x)))


def arrays(*tensors: Tensor) -> list[Array]:
    """Return tensors as NumPy arrays that share their memory."""
    return [
        (tensor.detach() if tensor.requires_grad else tensor).contiguous().numpy()
        for tensor in tensors
    ]


# What LLVM can do ---------------------------------------------------------------------------------

#: Bytes that come from memory together.
LINE_BYTES = 64
_codegen: Any = untyped_codegen
_FOR_READING, _KEEP_CLOSE, _DATA = 0, 3, 1


def _prefetch(context: Any, table: Any, row: Any, byte: Any) -> Any:
    """Ask for the line at a byte of a row of a two-dimensional array; never wrong, only useless."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = target.make_array(signature.args[0])(target, builder, arguments[0])
        start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        stride = _codegen.unpack_tuple(builder, array.strides)[0]
        place = builder.gep(start, [builder.add(builder.mul(arguments[1], stride), arguments[2])])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        ask = _codegen.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(ask, [place, *(number(n) for n in (_FOR_READING, _KEEP_CLOSE, _DATA))])
        return target.get_dummy_value()

    return types.void(table, types.int64, types.int64), generate


#: ``prefetch(table, row, byte)``, for use in compiled functions only.
prefetch: Any = intrinsic(_prefetch)


@exact_inline
def fetch_row(table: Any, row: int) -> None:
    """Ask for all lines of a row, for use in compiled functions."""
    for byte in range(0, table.shape[1] * table.itemsize, LINE_BYTES):
        prefetch(table, row, byte)


def _to_half(context: Any, number: Any) -> Any:
    """Return the bits of the float16 nearest to a float32."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


#: ``to_half(x)``, for use in compiled functions only.
to_half: Any = intrinsic(_to_half)


def _bits_of(context: Any, number: Any) -> Any:
    """Return the bits of a float32 as an int32."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


def _float_of(context: Any, bits: Any) -> Any:
    """Return the float32 that has these bits."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


#: ``bits_of(x)`` and ``float_of(bits)``, for use in compiled functions only.
bits_of: Any = intrinsic(_bits_of)
float_of: Any = intrinsic(_float_of)
