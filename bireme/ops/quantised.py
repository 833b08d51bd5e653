"""Linear layers and tables whose weights stay in quantised blocks (block_formats.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.requirements import InRange
from bireme.host.arrays import Namespace
from bireme.ops.block_formats import BLOCK_FORMATS, BlockFormat
from bireme.ops.nn_support import need_integer, wide


def _format_of(blocks: Aval, form: str) -> BlockFormat:
    found = BLOCK_FORMATS.get(form)
    if found is None:
        raise InvalidArgument(f"no block format {form!r}. Known: {', '.join(BLOCK_FORMATS)}")
    if blocks.ndim != 2 or blocks.dtype is not dt.uint8 or blocks.shape[1] % found.size:
        raise ShapeMismatch(
            f"'blocks' must be uint8 [rows, a multiple of {found.size} bytes] for {form}, not "
            f"{blocks.dtype.name} {list(blocks.shape)}"
        )
    return found


def width_of(blocks: Aval, form: str) -> int:
    """How many numbers a row of blocks holds."""
    found = _format_of(blocks, form)
    return blocks.shape[1] // found.size * found.count


def unpacked(xp: Namespace, blocks: Any, form: str) -> Any:
    """The numbers of blocks [rows, bytes] as float32 [rows, width]."""
    found = BLOCK_FORMATS[form]
    numbers = found.unpack(xp, xp.reshape(blocks, (-1, found.size)))
    return xp.reshape(numbers, (blocks.shape[0], blocks.shape[1] // found.size * found.count))


def _linear_check(x: Aval, blocks: Aval, bias: Aval | None, form: str) -> None:
    width = width_of(blocks, form)
    if x.ndim == 0 or x.shape[-1] != width:
        raise ShapeMismatch(
            f"the last dimension of x, {list(x.shape)}, must equal the {width} numbers of a row "
            f"of {form} blocks"
        )
    if bias is not None and bias.shape != (blocks.shape[0],):
        raise ShapeMismatch(
            f"'bias' must be a vector of {blocks.shape[0]} numbers, not {list(bias.shape)}"
        )
    if bias is not None and bias.dtype is not x.dtype:
        raise TypeMismatch(
            f"x and bias must have one dtype, not {x.dtype.name} and {bias.dtype.name}"
        )


def _linear_vjp(xp: Any, grad: Any, blocks: Any, types: Any, needs: Any, form: str) -> Any:
    rows = xp.reshape(wide(xp, grad), (-1, blocks.shape[0]))
    grad_x = grad_bias = None
    if needs[0]:
        grad_x = xp.reshape(xp.matmul(rows, unpacked(xp, blocks, form)), types[0].shape)
    if needs[2]:
        grad_bias = xp.sum(rows, axis=0)
    return grad_x, None, grad_bias


@op(
    inputs=("x", "blocks", "bias"),
    vjp=_linear_vjp,
    infer=lambda x, blocks, bias, form: aval((*x.shape[:-1], blocks.shape[0]), x.dtype),
    check=_linear_check,
    takes={"x": "f", "blocks": "i", "bias": "f"},
)
def quantised_linear(xp, x, blocks, bias=None, form="Q4_0"):
    """x by the transpose of the weight [out_features, in_features] that is kept in `blocks`
    [out_features, bytes], plus bias.

    The native kernels round each 32 numbers of x to 8 bits, as llama.cpp does.
    """
    weight = unpacked(xp, blocks, form)
    out = xp.matmul(xp.reshape(wide(xp, x), (-1, weight.shape[1])), weight.T)
    if bias is not None:
        out = out + wide(xp, bias)
    return xp.reshape(out.astype(x.dtype), (*x.shape[:-1], weight.shape[0]))


def _rows_check(x: Aval, blocks: Aval, form: str) -> None:
    need_integer("x", x)
    _format_of(blocks, form)


@op(
    inputs=("x", "blocks"),
    differentiable=False,
    infer=lambda x, blocks, form: aval((*x.shape, width_of(blocks, form)), dt.float32),
    check=_rows_check,
    requires=lambda x, blocks, form: [InRange("x", 0, blocks.shape[0] - 1)],
)
def quantised_rows(xp, x, blocks, form="Q4_0"):
    """Rows by number of the table that is kept in `blocks`, as float32."""
    rows = xp.take(blocks, xp.reshape(x, (-1,)), axis=0)
    return xp.reshape(unpacked(xp, rows, form).astype(np.float32), (*x.shape, -1))
