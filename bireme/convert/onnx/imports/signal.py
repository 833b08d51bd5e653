"""Spectra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.core.tensor import Tensor
from bireme.ops.indexing import _gather
from bireme.ops.padding import _pad_constant

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value


def _waves(length: int, count: int, inverse: bool, dtype: Any) -> tuple[Tensor, Tensor]:
    """cos and sin of a discrete Fourier transform as matrices [length, count]."""
    angle = 2 * np.pi * ((np.arange(length)[:, None] * np.arange(count)[None]) % length) / length
    sign = 1.0 if inverse else -1.0
    return (
        paddle.to_tensor(np.cos(angle).astype(dtype)),
        paddle.to_tensor((sign * np.sin(angle)).astype(dtype)),
    )


def transform(re: Tensor, im: Tensor | None, length: int, count: int, inverse: bool) -> Tensor:
    """The spectrum over the last axis, with (real, imaginary) as a new last axis."""
    cos, sin = _waves(length, count, inverse, dtype_of(re))
    out_re, out_im = paddle.matmul(re, cos), paddle.matmul(re, sin)
    if im is not None:
        out_re = out_re - paddle.matmul(im, sin)
        out_im = out_im + paddle.matmul(im, cos)
    out = paddle.stack([out_re, out_im], -1)
    return out / length if inverse else out


def _sized(x: Tensor, axis: int, length: int) -> Tensor:
    size = shape_of(x)[axis]
    if size >= length:
        return x[(*[slice(None)] * axis, slice(0, length))]
    pairs = [(0, 0)] * x.ndim
    pairs[axis] = (0, length - size)
    return _pad_constant(x, paddle.zeros([], x.dtype), tuple(pairs))


@onnx_op("DFT", static=(1, 2))
def dft(
    n: NodeView, x: Tensor, length: Value | None = None, axis: np.ndarray | None = None
) -> Tensor:
    at = n.attr("axis", 1) if n.opset < 20 else (-2 if axis is None else int(np.ravel(axis)[0]))
    at %= x.ndim
    inverse, one_sided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    size = shape_of(x)[at] if length is None else int(np.ravel(length)[0])
    if inverse and one_sided:
        size = (shape_of(x)[at] - 1) * 2 if length is None else size
        x = _mirrored(_sized(x, at, size // 2 + 1), at, size)
    x = _sized(x, at, size)
    re = x[..., 0].moveaxis(at, -1)
    im = x[..., 1].moveaxis(at, -1) if shape_of(x)[-1] == 2 else None
    count = size // 2 + 1 if one_sided and not inverse else size
    out = transform(re, im, size, count, inverse)
    if inverse and one_sided:
        out = out[..., 0:1]
    return out.moveaxis(-2, at)


def _mirrored(x: Tensor, at: int, size: int) -> Tensor:
    """The whole spectrum of a real signal from its first half."""
    rest = size - (size // 2 + 1)
    index = paddle.to_tensor(np.arange(rest, 0, -1))
    tail = _gather(x, index, at)
    tail = tail * paddle.to_tensor(np.array([1.0, -1.0], dtype_of(x)))
    return paddle.concat([x, tail], at)


@onnx_op("STFT", static=(1, 3))
def stft(
    n: NodeView, x: Tensor, step: Value, window: Tensor | None = None, length: Value | None = None
) -> Tensor:
    hop = int(np.ravel(step)[0])
    size = shape_of(window)[0] if length is None else int(np.ravel(length)[0])
    frames = (shape_of(x)[1] - size) // hop + 1
    index = np.arange(frames)[:, None] * hop + np.arange(size)[None]
    parts = _gather(x, paddle.to_tensor(index), 1)  # [batch, frames, size, 1 or 2]
    re, im = parts[..., 0], parts[..., 1] if shape_of(x)[-1] == 2 else None
    if window is not None:
        re, im = re * window, None if im is None else im * window
    count = size // 2 + 1 if n.attr("onesided", 1) else size
    return transform(re, im, size, count, False)
