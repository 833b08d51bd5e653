"""Convolutions and linear layers together with what follows them element by element; channels
scaled by a net of their means.

The pass `fuse_products` makes these from constant weights, for kernels that do all of it on the
way to memory. The weight may be packed for such a kernel: panels [blocks, rows, block] of output
channels, or [taps, channels] where every channel has a kernel of its own. `kernel` then says what
shape it had. These lowerings take it apart again: they are what packed kernels are held to.
"""

from __future__ import annotations

from typing import Any

from bireme.core.aval import Aval, aval
from bireme.core.op import OPS, Call, op
from bireme.ops.conv import _conv_infer

Then = tuple[str, tuple[float, ...], float, float]  # activation, its numbers, factor, shift
NOTHING: Then = ("", (), 1.0, 0.0)


def _activated(xp: Any, x: Any, name: str, numbers: tuple[float, ...]) -> Any:
    body: Any = OPS[name].body if name else None
    return x if body is None else body(xp, x, *numbers)


def _finished(xp: Any, out: Any, added: Any, then: Then) -> Any:
    name, numbers, factor, shift = then
    if added is not None:
        out = out + added
    out = _activated(xp, out, name, numbers)
    return out if (factor, shift) == (1.0, 0.0) else out * factor + shift


def _columns(xp: Any, panels: Any, count: int) -> Any:
    """The matrix [rows, count] that was packed into panels."""
    blocks, rows, block = panels.shape
    return xp.reshape(xp.transpose(panels, (1, 0, 2)), (rows, blocks * block))[:, :count]


def _unpacked(xp: Any, weight: Any, kernel: tuple[int, ...]) -> Any:
    if not kernel:
        return weight
    out_channels, in_channels, *window = kernel
    if weight.ndim == 2:  # one kernel per channel
        return xp.reshape(xp.transpose(weight), kernel)
    columns = _columns(xp, weight, out_channels)
    return xp.transpose(xp.reshape(columns, (*window, in_channels, out_channels)), (3, 2, 0, 1))


def _fused_conv_infer(
    x: Aval,
    weight: Aval,
    bias: Aval,
    added: Aval | None,
    stride,
    pads,
    dilation,
    groups: int,
    last: bool,
    then: Then,
    kernel: tuple[int, ...],
) -> Aval:
    shape = aval(kernel, weight.dtype) if kernel else weight
    return _conv_infer(x, shape, bias, stride, pads, dilation, groups, last)


@op(
    name="fused_conv",
    inputs=("x", "weight", "bias", "added"),
    infer=_fused_conv_infer,
    differentiable=False,
)
def _fused_conv(
    xp,
    x,
    weight,
    bias,
    added,
    stride=(),
    pads=(),
    dilation=(),
    groups=1,
    last=False,
    then=NOTHING,
    kernel=(),
):
    """activation(conv(x, weight, bias) + added) * factor + shift."""
    body: Any = OPS["conv"].body
    weight = _unpacked(xp, weight, kernel)
    out = body(xp, x, weight, bias, stride, pads, dilation, groups, last)
    return _finished(xp, out, added, then)


def _fused_linear_infer(
    x: Aval, weight: Aval, bias: Aval, added: Aval | None, then: Then, kernel: tuple[int, ...]
) -> Aval:
    return aval((*x.shape[:-1], (kernel or weight.shape)[-1]), x.dtype)


@op(
    name="fused_linear",
    inputs=("x", "weight", "bias", "added"),
    infer=_fused_linear_infer,
    differentiable=False,
)
def _fused_linear(xp, x, weight, bias, added, then=NOTHING, kernel=()):
    """activation(x @ weight + bias + added) * factor + shift; `kernel` is [in, out]."""
    if kernel:
        weight = _columns(xp, weight, kernel[1])
    return _finished(xp, xp.matmul(x, weight) + bias, added, then)


def _squeeze_excite_infer(x: Aval, *rest: Any, **attrs: Any) -> Aval:
    return x


@op(
    name="squeeze_excite",
    inputs=("x", "first", "first_bias", "second", "second_bias"),
    infer=_squeeze_excite_infer,
    differentiable=False,
)
def _squeeze_excite(
    xp,
    x,
    first,
    first_bias,
    second,
    second_bias,
    inner=("", ()),
    outer=("", ()),
    plus=0.0,
    last=False,
):
    """x * (factor per channel + plus); the factors are two linear layers of the channels' means,
    each with an activation."""
    means = xp.mean(x, axis=(1, 2) if last else (2, 3))
    middle = _activated(xp, xp.matmul(means, first) + first_bias, *inner)
    factors = _activated(xp, xp.matmul(middle, second) + second_bias, *outer) + plus
    at = (slice(None), None, None) if last else (slice(None), slice(None), None, None)
    return x * factors[at]


def mean_axes(call: Call) -> tuple[int, ...] | None:
    """The dimensions over which a call takes whole means of images [N, C, H, W] or
    [N, H, W, C]: the pixels. None if it computes something else."""
    x, attrs = call.types[0], call.attrs
    if not isinstance(x, Aval) or x.ndim != 4:
        return None
    if call.op.name == "mean":
        given = attrs["axis"] if isinstance(attrs["axis"], tuple) else (attrs["axis"],)
        axes = () if None in given else tuple(sorted({a % 4 for a in given}))
    elif call.op.name == "avg_pool":
        axes = tuple(attrs["axes"])
        whole = [(x.shape[a], x.shape[a], 1) for a in axes]
        none = [(0, 0)] * len(axes)
        pads, divisor = attrs["pads"], attrs["divisor"]
        if [tuple(p) for p in attrs["plans"]] != whole or [tuple(p) for p in pads] != none:
            return None
        if not isinstance(divisor, tuple) or [tuple(p) for p in divisor] != none:
            return None
    else:
        return None
    return axes if axes in ((1, 2), (2, 3)) else None
