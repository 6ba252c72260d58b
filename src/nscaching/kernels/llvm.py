"""What LLVM can do and Numba has no word for, as functions for compiled loops.

``prefetch``: a loop that reads rows in random order waits for memory at each of them, unless it
says early which rows come next. ``to_half``: numbers that are kept but seldom read take half the
room as float16. ``bits_of`` and ``float_of``: a float32 as an int32 and back, without memory
between, so that loops over them vectorise.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit
from numba.core import cgutils as untyped_codegen
from numba.core import types
from numba.extending import intrinsic

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


@njit(cache=True, nogil=True, error_model="numpy")
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
