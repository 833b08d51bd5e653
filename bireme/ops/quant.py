"""Quantisation: numbers as small integers times a scale, and training as if they were.

A weight [in, out] is kept as int8 [out, in] with one scale per output (or per group of inputs and
output); int4 packs the outputs 2 i and 2 i + 1 into the low and high half of a byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.linalg import matmul
from bireme.ops.math_unary import cast
from bireme.ops.nn_support import need_float, need_rank, one_of

ALGORITHMS = ("weight_only_int8", "weight_only_int4", "llm.int8")
_GROUPS = (-1, 64, 128)


def _away(xp: Any, x: Any) -> Any:
    """Rounded, halves away from zero."""
    return xp.sign(x) * xp.floor(xp.abs(x) + 0.5)


# --- fake quantisation --------------------------------------------------------------------------


def _fake_vjp(xp: Any, grad: Any) -> tuple[Any, None]:
    return grad, None  # straight through: rounding has no useful slope


@op(name="fake_quantize_dequantize", vjp=_fake_vjp, infer=lambda x, scale, bits: x)
def fake_quantize(xp, x, scale, bits=8):
    """x as `bits`-bit integers times scale / largest integer would represent it."""
    most = float((1 << (bits - 1)) - 1)
    clipped = xp.clip(x, -scale, scale)
    steps = _away(xp, clipped * (most / scale))
    return (steps * (scale / most)).astype(x.dtype)


def _along(xp: Any, scale: Any, ndim: int, axis: int) -> Any:
    if axis < 0 or scale.ndim == 0:
        return xp.reshape(scale, ()) if scale.ndim <= 1 and axis < 0 else scale
    return xp.reshape(scale, [-1 if i == axis else 1 for i in range(ndim)])


@op(name="quantize_linear", differentiable=False, infer=lambda x, scale, axis, bits: x)
def quantize_linear(xp, x, scale, axis=-1, bits=8):
    """Integers (in x's dtype) that stand for x: x / scale * largest, kept in range."""
    most = float((1 << (bits - 1)) - 1)
    steps = xp.round(x * (most / _along(xp, scale, x.ndim, axis)))  # halves to even, as Paddle's
    return xp.clip(steps, -most - 1, most).astype(x.dtype)


@op(name="dequantize_linear", infer=lambda x, scale, axis, bits: x)
def dequantize_linear(xp, x, scale, axis=-1, bits=8):
    """The numbers that `quantize_linear`'s integers stand for."""
    most = float((1 << (bits - 1)) - 1)
    return (x * (_along(xp, scale, x.ndim, axis) / most)).astype(x.dtype)


# --- weights ------------------------------------------------------------------------------------


def _check_group(function: str, group_size: int) -> None:
    one_of(function, "group_size", group_size, _GROUPS)


def _quantize_check(x: Aval, bits: int, group: int) -> None:
    need_float("x", x)
    need_rank("x", x, 2)
    if bits == 4 and x.shape[1] % 2 != 0:
        raise ShapeMismatch(f"int4 packs outputs in pairs; {x.shape[1]} outputs are an odd number")
    if group > 0 and x.shape[0] % group != 0:
        raise ShapeMismatch(f"{x.shape[0]} inputs do not divide into groups of {group}")


def _quantize_infer(x: Aval, bits: int, group: int) -> tuple[Aval, Aval]:
    inputs, outputs = x.shape
    stored = (outputs // 2 if bits == 4 else outputs, inputs)
    scale = (outputs,) if group < 0 else (inputs // group, outputs)
    return aval(stored, dt.int8), aval(scale, x.dtype)


@op(name="weight_quantize", differentiable=False, check=_quantize_check, infer=_quantize_infer)
def _weight_quantize(xp, x, bits=8, group=-1):
    inputs, outputs = x.shape
    most = 127.0 if bits == 8 else 7.0
    wide = x.astype(np.float32)
    parts = xp.reshape(wide, (1 if group < 0 else inputs // group, -1, outputs))
    scale = xp.max(xp.abs(parts), axis=1) / most  # [groups, outputs]
    safe = xp.where(scale > 0, scale, 1.0)[:, None]
    steps = xp.clip(_away(xp, parts / safe), -most, most)
    steps = xp.transpose(xp.reshape(steps, (inputs, outputs)), (1, 0)).astype(np.int8)
    if bits == 4:
        steps = (steps[0::2] & 15) | (steps[1::2] << 4)
    kept = scale[0] if group < 0 else scale
    return steps.astype(np.int8), kept.astype(x.dtype)


def weight_quantize(
    x: Tensor, algo: str = "weight_only_int8", arch: int | None = None, group_size: int = -1
) -> tuple[Tensor, Tensor]:
    """A weight [in, out] as integers and scales, for `weight_only_linear` or `llm_int8_linear`.

    `arch` names a GPU generation in Paddle; the layout here is one for every device.

        q, scale = weight_quantize(weight, "weight_only_int8")
        y = weight_only_linear(x, q, weight_scale=scale)
    """
    one_of("weight_quantize", "algo", algo, ALGORITHMS)
    _check_group("weight_quantize", group_size)
    return _weight_quantize(x, 4 if algo == "weight_only_int4" else 8, group_size)


def _dequantize_infer(x: Aval, scale: Aval, bits: int, group: int) -> Aval:
    outputs, inputs = x.shape
    return aval((inputs, outputs * 2 if bits == 4 else outputs), scale.dtype)


def _dequantize_check(x: Aval, scale: Aval, bits: int, group: int) -> None:
    need_rank("x", x, 2)
    if x.dtype is not dt.int8:
        raise TypeMismatch(
            f"a quantised weight is int8, as weight_quantize gives it, not {x.dtype.name}"
        )
    outputs = x.shape[0] * 2 if bits == 4 else x.shape[0]
    wanted = (outputs,) if group < 0 else (x.shape[1] // group, outputs)
    if tuple(scale.shape) != wanted:
        raise ShapeMismatch(f"the scale of this weight must have the shape {list(wanted)}")


@op(
    name="weight_dequantize",
    differentiable=False,
    check=_dequantize_check,
    infer=_dequantize_infer,
)
def _weight_dequantize(xp, x, scale, bits=8, group=-1):
    if bits == 4:  # shifting up and down again carries the sign
        halves = xp.stack([((x << 4).astype(np.int8) >> 4), x >> 4], axis=1)
        x = xp.reshape(halves, (-1, x.shape[1]))
    inputs = x.shape[1]
    steps = xp.transpose(x, (1, 0)).astype(np.float32)
    wide = scale.astype(np.float32)
    parts = xp.reshape(steps, (1 if group < 0 else inputs // group, -1, x.shape[0]))
    out = parts * (wide[None, None] if group < 0 else wide[:, None])
    return xp.reshape(out, (inputs, x.shape[0])).astype(scale.dtype)


def weight_dequantize(
    x: Tensor,
    scale: Tensor,
    algo: str = "weight_only_int8",
    out_dtype: DTypeLike = "float16",
    group_size: int = -1,
) -> Tensor:
    """The weight [in, out] that `weight_quantize` made integers of, up to rounding."""
    one_of("weight_dequantize", "algo", algo, ALGORITHMS)
    _check_group("weight_dequantize", group_size)
    bits = 4 if algo == "weight_only_int4" else 8
    return cast(_weight_dequantize(x, scale, bits, group_size), out_dtype)


def _need_scale(function: str, scale: Tensor | None) -> Tensor:
    if scale is None:
        raise InvalidArgument(
            f"[{function}] weight_scale must be given: the second result of weight_quantize"
        )
    return scale


def weight_only_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    weight_scale: Tensor | None = None,
    weight_dtype: DTypeLike = "int8",
    arch: int | None = None,
    group_size: int = -1,
) -> Tensor:
    """x @ weight + bias with a weight from `weight_quantize`; x keeps its precision."""
    kind = dt.as_dtype(weight_dtype).name if weight_dtype != "int4" else "int4"
    one_of("weight_only_linear", "weight_dtype", kind, ("int8", "int4"))
    _check_group("weight_only_linear", group_size)
    scale = _need_scale("weight_only_linear", weight_scale)
    full = _weight_dequantize(weight, scale, 4 if kind == "int4" else 8, group_size)
    out = matmul(x, cast(full, x.dtype))
    return out if bias is None else out + bias


def _int8_check(x: Aval, weight: Aval, scale: Aval, threshold: float) -> None:
    need_float("x", x)
    _dequantize_check(weight, scale, 8, -1)
    if x.shape[-1] != weight.shape[1]:
        raise ShapeMismatch(f"x has {x.shape[-1]} features, the weight takes {weight.shape[1]}")


@op(
    name="llm_int8_linear",
    differentiable=False,
    check=_int8_check,
    infer=lambda x, weight, scale, threshold: aval((*x.shape[:-1], weight.shape[0]), x.dtype),
)
def _llm_int8(xp, x, weight, scale, threshold=6.0):
    rows = xp.reshape(x, (-1, x.shape[-1])).astype(np.float32)
    large = xp.any(xp.abs(rows) > threshold, axis=0)  # features kept in full precision
    small = xp.where(large, 0.0, rows)
    peak = xp.max(xp.abs(small), axis=1, keepdims=True) / 127.0
    steps = _away(xp, small / xp.where(peak > 0, peak, 1.0)).astype(np.int32)
    turned = xp.transpose(weight, (1, 0))
    whole = xp.matmul(steps, turned.astype(np.int32)).astype(np.float32)
    share = scale.astype(np.float32)
    rest = xp.matmul(xp.where(large, rows, 0.0), turned.astype(np.float32))
    out = (whole * peak + rest) * share
    return xp.reshape(out, (*x.shape[:-1], weight.shape[0])).astype(x.dtype)


def llm_int8_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    weight_scale: Tensor | None = None,
    threshold: float = 6.0,
) -> Tensor:
    """x @ weight + bias in int8, but for features of x beyond `threshold`, which stay exact."""
    scale = _need_scale("llm_int8_linear", weight_scale)
    out = _llm_int8(x, weight, scale, float(threshold))
    return out if bias is None else out + bias


__all__ = [
    "dequantize_linear", "fake_quantize", "llm_int8_linear", "quantize_linear",
    "weight_dequantize", "weight_only_linear", "weight_quantize",
]  # fmt: skip
