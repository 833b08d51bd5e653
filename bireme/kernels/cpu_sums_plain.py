"""Sums over the pixels of images on the CPU without native kernels.

If an array is summed over its last axes, XLA gives it a layout with those axes last, and with it
everything up to the next convolution, which then transposes to and fro. So squeeze-and-excitation
sums over images whose last axis is the channels: the mean, and the gradient of its factors.
"""

from __future__ import annotations

from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.kernels import native
from bireme.ops.fused_products import mean_axes


def _is_image(t: Any) -> bool:
    return (
        isinstance(t, Aval) and t.dtype is dt.float32 and t.ndim == 4 and t.is_static and t.size > 0
    )


def _sum(x: Any) -> Any:
    """[N, C, H, W] to [N, C]"""
    n, channels = x.shape[:2]
    return x.transpose(0, 2, 3, 1).reshape(n, -1, channels).sum(1)


def _is_mean(call: Call) -> bool:
    return _is_image(call.types[0]) and call.casts[0] is None and mean_axes(call) == (2, 3)


def _mean(call: Call, x: Any) -> Any:
    return (_sum(x) / (x.shape[2] * x.shape[3])).reshape(call.outs[0].shape)


for _op in ("mean", "avg_pool"):
    kernel(_op, name="rows_mean", platform="cpu", accepts=_is_mean, ready=native.unavailable)(_mean)


def _factor(call: Call) -> int | None:
    """Which input of a product has one number for each channel of the other's images."""
    for image, factor in ((0, 1), (1, 0)):
        x, y = call.types[image], call.types[factor]
        if not (isinstance(x, Aval) and isinstance(y, Aval) and _is_image(x) and _is_image(y)):
            return None
        if x.shape[2:] != (1, 1) and y.shape == (*x.shape[:2], 1, 1):
            return factor
    return None


def _accepts(call: Call) -> bool:
    forward: Call = call.attrs["forward"]
    return not any(forward.casts) and _factor(forward) in call.attrs["needs"]


@kernel(
    "multiply_grad", name="rows_scale", platform="cpu", accepts=_accepts, ready=native.unavailable
)
def _multiply_grad(call: Call, grad: Any, *saved: Any) -> Any:
    forward: Call = call.attrs["forward"]
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    factor = _factor(forward)
    return tuple(
        _sum(grad * by_place[1 - i])[:, :, None, None] if i == factor else grad * by_place[1 - i]
        for i in call.attrs["needs"]
    )
