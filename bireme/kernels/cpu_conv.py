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
    weight, groups = call.types[1], call.attrs["groups"]
    depthwise = isinstance(weight, Aval) and weight.shape[:2] == (groups, 1)
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


def _shape(t: Any, last: bool) -> tuple[int, ...]:
    n, *rest = t.shape
    return (n, rest[-1], *rest[:-1]) if last else t.shape


# The three handlers. `call` is the forward one: of `conv`, or of `conv_transpose`, whose result is
# what a convolution has as its input.


def _products(call: Call, x: Any, weight: Any, shape: tuple[int, ...]) -> Any:
    layouts = (_CHANNELS_LAST, _AS_IS, _CHANNELS_LAST)
    return _call(f"{_family(call)}_forward", shape, x, weight, layouts, call.attrs)


def _spread(call: Call, grad: Any, weight: Any, shape: tuple[int, ...]) -> Any:
    layouts = (_CHANNELS_LAST, _AS_IS, _CHANNELS_LAST)
    return _call(f"{_family(call)}_input_grad", shape, grad, weight, layouts, call.attrs)


def _weight_grad(call: Call, x: Any, grad: Any) -> Any:
    layouts = (_CHANNELS_LAST, _CHANNELS_LAST, _AS_IS)
    shape = _shape(call.types[1], False)
    return _call(f"{_family(call)}_weight_grad", shape, x, grad, layouts, call.attrs)


def _forward_kernel(op: str, body: Any) -> None:
    """Register `body`, one of the above, as the forward pass of `op`."""

    @kernel(op, name="native_conv", platform="cpu", accepts=_accepts, ready=native.available)
    def _(call: Call, x: Any, weight: Any, bias: Any) -> Any:
        last = call.attrs["last"]
        out = body(call, _first(x, last), weight, _shape(call.outs[0], last))
        if bias is not None:
            out = out + bias.reshape(1, -1, 1, 1)
        return _back(out, last)


def _grad_kernel(op: str, transposed: bool) -> None:
    @kernel(
        f"{op}_grad",
        name="native_conv",
        platform="cpu",
        accepts=_grad_accepts,
        ready=native.available,
    )
    def _(call: Call, grad: Any, x: Any, weight: Any) -> Any:
        forward: Call = call.attrs["forward"]
        last = forward.attrs["last"]
        grad = _first(grad, last)
        results = []
        for which in call.attrs["needs"]:
            if which == 0:
                body = _products if transposed else _spread
                found = body(forward, grad, weight, _shape(forward.types[0], last))
                results.append(_back(found, last))
            elif which == 1:
                pair = (grad, _first(x, last)) if transposed else (_first(x, last), grad)
                results.append(_weight_grad(forward, *pair))
            else:
                results.append(grad.sum((0, 2, 3)))
        return tuple(results)


_forward_kernel("conv", _products)
_forward_kernel("conv_transpose", _spread)
_grad_kernel("conv", transposed=False)
_grad_kernel("conv_transpose", transposed=True)
