"""Convolution on the CPU by the native kernels.

The handlers work on channels-last memory. Operands keep their logical NCHW shape and only ask XLA
for a channels-last layout, which its layout assignment then carries through the elementwise ops
between convolutions, so no data is transposed on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.kernels import native

_CHANNELS_LAST = (0, 2, 3, 1)
_AS_IS = (0, 1, 2, 3)


def _accepts(call: Call) -> bool:
    """Plain 2-D float32 convolutions of known sizes."""
    x, weight = call.types[0], call.types[1]
    return (
        isinstance(x, Aval)
        and isinstance(weight, Aval)
        and x.ndim == 4
        and all(c is None for c in call.casts[:2])
        and all(t.dtype is dt.float32 and t.is_static and t.size > 0 for t in (x, weight))
        and all(p >= 0 for pair in call.attrs["pads"] for p in pair)
    )


def _grad_accepts(call: Call) -> bool:
    return _accepts(call.attrs["forward"])


def _family(call: Call) -> str:
    """The handlers' name: one kernel per channel has its own, everything else is grouped."""
    weight = call.types[1]
    assert isinstance(weight, Aval)
    depthwise = weight.shape[1] == 1 and weight.shape[0] == call.attrs["groups"]
    return "bireme_depthwise" if depthwise else "bireme_conv"


def _call(name: str, shape: tuple[int, ...], a: Any, b: Any, layouts: Any, attrs: Any) -> Any:
    jax = jax_door.jax()
    (top, _), (left, _) = attrs["pads"]
    numbers = {
        "stride_h": attrs["stride"][0], "stride_w": attrs["stride"][1], "top": top, "left": left,
        "dil_h": attrs["dilation"][0], "dil_w": attrs["dilation"][1],
    }  # fmt: skip
    run = jax.ffi.ffi_call(
        name,
        jax.ShapeDtypeStruct(shape, np.float32),
        input_layouts=layouts[:2],
        output_layouts=layouts[2],
    )
    return run(a, b, **{k: np.int64(v) for k, v in numbers.items()})


def _first(x: Any, last: bool) -> Any:
    """Logical NCHW; on channels-last memory this moves nothing."""
    return x.transpose(0, 3, 1, 2) if last else x


def _back(x: Any, last: bool) -> Any:
    return x.transpose(0, 2, 3, 1) if last else x


@kernel("conv", name="native_conv", platform="cpu", accepts=_accepts, ready=native.available)
def _conv(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    last = call.attrs["last"]
    shape = call.outs[0].shape
    if last:
        shape = (shape[0], shape[3], shape[1], shape[2])
    layouts = (_CHANNELS_LAST, _AS_IS, _CHANNELS_LAST)
    out = _call(f"{_family(call)}_forward", shape, _first(x, last), weight, layouts, call.attrs)
    if bias is not None:
        out = out + bias.reshape(1, -1, 1, 1)
    return _back(out, last)


@kernel(
    "conv_grad", name="native_conv", platform="cpu", accepts=_grad_accepts, ready=native.available
)
def _conv_grad(call: Call, grad: Any, x: Any, weight: Any) -> Any:
    forward: Call = call.attrs["forward"]
    last, family = forward.attrs["last"], _family(forward)
    grad = _first(grad, last)
    x_shape, weight_shape = (t.shape for t in forward.types[:2] if t is not None)
    if last:
        x_shape = (x_shape[0], x_shape[3], x_shape[1], x_shape[2])
    results = []
    for which in call.attrs["needs"]:
        if which == 0:
            layouts = (_CHANNELS_LAST, _AS_IS, _CHANNELS_LAST)
            dx = _call(f"{family}_input_grad", x_shape, grad, weight, layouts, forward.attrs)
            results.append(_back(dx, last))
        elif which == 1:
            layouts = (_CHANNELS_LAST, _CHANNELS_LAST, _AS_IS)
            x = _first(x, last)
            results.append(
                _call(f"{family}_weight_grad", weight_shape, x, grad, layouts, forward.attrs)
            )
        else:
            results.append(grad.sum((0, 2, 3)))
    return tuple(results)
