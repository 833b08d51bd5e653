"""Convolution on the CPU by the native kernels.

The handlers work on channels-last memory. Operands keep their logical NCHW shape and only ask XLA
for a channels-last layout, which its layout assignment then carries through the elementwise ops
between convolutions, so no data is transposed on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.kernels import native
from bireme.kernels.native.calling import Result, ffi_call

# In which order memory holds the dimensions of what the handlers take and give.
_LAYOUTS = {"image": (0, 2, 3, 1), "other": (0, 2, 3, 1), "weight": (0, 1, 2, 3)}


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


def _family(call: Call) -> str:
    """The handlers' name: one kernel per channel has its own, everything else is grouped."""
    weight, groups = call.types[1], call.attrs["groups"]
    depthwise = isinstance(weight, Aval) and weight.shape[:2] == (groups, 1)
    return "bireme_depthwise" if depthwise else "bireme_conv"


def _call(call: Call, which: str, operands: dict[str, Any], results: dict[str, Any]) -> Any:
    """Run a handler: arrays by the letter of what they are, shapes of the results likewise."""
    attrs = call.attrs
    (top, _), (left, _) = attrs["pads"]
    numbers = {
        "stride_h": attrs["stride"][0],
        "stride_w": attrs["stride"][1],
        "top": top,
        "left": left,
        "dil_h": attrs["dilation"][0],
        "dil_w": attrs["dilation"][1],
    }
    types = [Result(shape) for shape in results.values()]
    run = ffi_call(
        f"{_family(call)}_{which}",
        types if len(types) > 1 else types[0],
        input_layouts=[_LAYOUTS[name] for name in operands],
        output_layouts=[_LAYOUTS[name] for name in results]
        if len(results) > 1
        else _LAYOUTS[next(iter(results))],
    )
    return run(*operands.values(), **{k: np.int64(v) for k, v in numbers.items()})


def _first(x: Any, last: bool) -> Any:
    """Logical NCHW; on channels-last memory this moves nothing."""
    return x.transpose(0, 3, 1, 2) if last else x


def _back(x: Any, last: bool) -> Any:
    return x.transpose(0, 2, 3, 1) if last else x


def _shape(t: Any, last: bool) -> tuple[int, ...]:
    n, *rest = t.shape
    return (n, rest[-1], *rest[:-1]) if last else t.shape


# What the handlers compute. `call` is the forward one: of `conv`, or of `conv_transpose`, whose
# result is what a convolution has as its input.


def _products(call: Call, x: Any, weight: Any, shape: tuple[int, ...]) -> Any:
    return _call(call, "forward", {"image": x, "weight": weight}, {"image": shape})


def _spread(call: Call, grad: Any, weight: Any, shape: tuple[int, ...]) -> Any:
    return _call(call, "input_grad", {"image": grad, "weight": weight}, {"image": shape})


def _weight_grad(call: Call, x: Any, grad: Any) -> Any:
    shape = _shape(call.types[1], False)
    return _call(call, "weight_grad", {"image": x, "other": grad}, {"weight": shape})


def _both_grads(call: Call, x: Any, grad: Any, weight: Any) -> Any:
    """In one handler, so that nothing reads the weight after its gradient is there."""
    shapes = {"image": x.shape, "weight": weight.shape}
    return _call(call, "grads", {"image": x, "other": grad, "weight": weight}, shapes)


def _forward_kernel(op: str, body: Any) -> None:
    """Register `body`, one of the above, as the forward pass of `op`."""

    @kernel(
        op,
        name="native_conv",
        platform="cpu",
        accepts=_accepts,
        ready=native.available,
        direct=native.arrived,
    )
    def _(call: Call, x: Any, weight: Any, bias: Any) -> Any:
        last = call.attrs["last"]
        out = body(call, _first(x, last), weight, _shape(call.outs[0], last))
        if bias is not None:
            out += bias.reshape(1, -1, 1, 1)
        return _back(out, last)


_forward_kernel("conv", _products)
_forward_kernel("conv_transpose", _spread)


def _grad_kernel(op: str) -> Any:
    return kernel(
        f"{op}_grad",
        name="native_conv",
        platform="cpu",
        accepts=lambda call: _accepts(call.attrs["forward"]),
        ready=native.available,
        direct=native.arrived,
    )


@_grad_kernel("conv")
def _conv_grad(call: Call, grad: Any, x: Any, weight: Any) -> Any:
    forward, needs = call.attrs["forward"], call.attrs["needs"]
    last = forward.attrs["last"]
    grad, x = _first(grad, last), None if x is None else _first(x, last)
    found: dict[int, Any] = {}
    if 0 in needs and 1 in needs:
        found[0], found[1] = _both_grads(forward, x, grad, weight)
    elif 0 in needs:
        found[0] = _spread(forward, grad, weight, _shape(forward.types[0], last))
    elif 1 in needs:
        found[1] = _weight_grad(forward, x, grad)
    return _in_order(found, needs, grad, last)


@_grad_kernel("conv_transpose")
def _conv_transpose_grad(call: Call, grad: Any, x: Any, weight: Any) -> Any:
    forward, needs = call.attrs["forward"], call.attrs["needs"]
    last = forward.attrs["last"]
    grad, x = _first(grad, last), _first(x, last)
    found: dict[int, Any] = {}
    if 0 in needs:
        found[0] = _products(forward, grad, weight, x.shape)
    if 1 in needs:
        found[1] = _weight_grad(forward, grad, x)
    return _in_order(found, needs, grad, last)


def _in_order(found: dict[int, Any], needs: Any, grad: Any, last: bool) -> tuple[Any, ...]:
    """The gradients that are needed, in the forward call's layout, the bias' among them."""
    if 0 in found:
        found[0] = _back(found[0], last)
    if 2 in needs:
        found[2] = grad.sum((0, 2, 3))
    return tuple(found[i] for i in needs)
