"""Asking the processor for a row of a table before it is needed, from within a Numba loop.

A loop that reads rows in random order waits for memory at each of them, unless it says early which
rows come next. Numba has no word for that; LLVM, on which it stands, has ``llvm.prefetch``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
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
