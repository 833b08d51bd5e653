"""Convolutions whose windows do not overlap, on GPUs: cut into patches, they are one product.

That is how vision transformers read their images. A product needs no search for an algorithm, and
the slow one that a convolution gets without a search takes longer than the rest of the net.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.host.arrays import Array
from bireme.kernels import PATCH_PRODUCT


def _accepts(call: Call) -> bool:
    x, weight = call.types[:2]
    if not (isinstance(x, Aval) and isinstance(weight, Aval) and x.is_static):
        return False
    attrs = call.attrs
    window = weight.shape[2:]
    return (
        prod(window) > 1
        and tuple(attrs["stride"]) == window
        and not any(map(any, attrs["pads"]))
        and all(d == 1 for d in attrs["dilation"])
        and attrs["groups"] == 1
        and x.size > 0
    )


def _function(last: bool) -> Callable[..., Any]:
    def convolved(x: Array, weight: Array, bias: Array | None = None) -> Any:
        jnp = jax_door.jnp()
        if not last:
            x = jnp.moveaxis(x, 1, -1)
        count, window = len(weight.shape) - 2, weight.shape[2:]
        cells = [n // k for n, k in zip(x.shape[1:-1], window, strict=True)]
        x = x[(slice(None), *[slice(n * k) for n, k in zip(cells, window, strict=True)])]
        split = [size for pair in zip(cells, window, strict=True) for size in pair]
        x = x.reshape((x.shape[0], *split, x.shape[-1]))
        # [batch, *cells, channels, *window]: rows of the product in the order of the weight.
        at = [0, *range(1, 2 * count, 2), 2 * count + 1, *range(2, 2 * count + 1, 2)]
        rows = jnp.transpose(x, at).reshape((x.shape[0], *cells, -1))
        out = rows @ weight.reshape((weight.shape[0], -1)).T
        out = out if bias is None else out + bias
        return out if last else jnp.moveaxis(out, -1, 1)

    return convolved


@kernel("conv", name=PATCH_PRODUCT, platform="gpu", accepts=_accepts)
def _conv(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    return _function(call.attrs["last"])(x, weight, bias)


@kernel(
    "conv_grad",
    name=PATCH_PRODUCT,
    platform="gpu",
    accepts=lambda call: _accepts(call.attrs["forward"]),
)
def _conv_grad(call: Call, grad: Any, *saved: Any) -> tuple[Any, ...]:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    needs: tuple[int, ...] = call.attrs["needs"]
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    flat = forward.cast(jnp, [by_place.get(i) for i in range(len(forward.types))])
    # The product is linear in each input, so what a gradient does not need may be anything.
    inputs = [
        jnp.zeros(t.shape, grad.dtype) if a is None and isinstance(t, Aval) else a
        for a, t in zip(flat, forward.types, strict=True)
    ]
    present = [i for i, a in enumerate(inputs) if a is not None]
    convolved = _function(forward.attrs["last"])
    _, pull = jax_door.jax().vjp(convolved, *[inputs[i] for i in present])
    grads = dict(zip(present, pull(grad), strict=True))
    types: Any = forward.types
    return tuple(grads[i].astype(types[i].dtype.numpy) for i in needs)
