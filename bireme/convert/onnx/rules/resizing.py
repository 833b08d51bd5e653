"""Resampling and transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.convert.onnx.rules import rule
from bireme.convert.onnx.rules.layers import _channels_first, _channels_last, _onnx_pads
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core.op import Call

_MODES = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}


@rule("interpolate")
def interpolate(
    w: Writer,
    call: Call,
    x: str,
    axes: Sequence[Any],
    sizes: Sequence[Any],
    scales: Sequence[Any],
    mode: str,
    align_corners: bool,
    align_mode: int,
    antialias: bool,
) -> str:
    if antialias:
        raise UnsupportedForm("[interpolate] antialias=True has no form in this opset")
    if align_corners:
        where = "align_corners"
    elif mode == "nearest" or (align_mode == 1 and mode != "bicubic"):
        where = "asymmetric"
    else:
        where = "half_pixel"
    extra = {"nearest_mode": "floor"} if mode == "nearest" else {}
    common: dict[str, Any] = {
        "mode": _MODES[mode],
        "coordinate_transformation_mode": where,
        **extra,
    }
    shape = list(call.outs[0].shape)
    if all(s > 0 for s in scales) and not align_corners:
        factors = np.ones(len(shape), np.float32)
        factors[list(axes)] = scales
        return w.emit("Resize", x, None, w.constant(factors, "float32"), **common)
    return w.emit("Resize", x, None, None, w.shape(shape), **common)


@rule("conv_transpose")
def conv_transpose(
    w: Writer,
    call: Call,
    x: str,
    weight: str,
    bias: str | None,
    space: Sequence[Any],
    stride: Sequence[Any],
    pads: Sequence[Any],
    dilation: Sequence[Any],
    groups: int,
    last: bool,
) -> str:
    shapes: list[Any] = [t.shape for t in call.types[:2]]  # pyright: ignore[reportOptionalMemberAccess]
    sizes = shapes[0][1:-1] if last else shapes[0][2:]
    missing = []
    for n, size, s, d, k, (low, high) in zip(
        space, sizes, stride, dilation, shapes[1][2:], pads, strict=True
    ):
        extra = n - ((size - 1) * s + d * (k - 1) + 1 - low - high)
        if type(extra) is not int and str(extra).lstrip("-").isdigit():
            extra = int(str(extra))
        if type(extra) is not int or not 0 <= extra < max(s, d):
            raise UnsupportedForm(f"[conv_transpose] a result of size {space} has no ONNX form")
        missing.append(extra)
    out = w.emit(
        "ConvTranspose",
        _channels_first(w, x, call) if last else x,
        weight,
        bias,
        strides=list(stride),
        dilations=list(dilation),
        pads=_onnx_pads(pads),
        output_padding=missing,
        group=groups,
    )
    return _channels_last(w, out, call) if last else out
