"""The gradients of a linear layer on the CPU from one native call.

XLA's product for the weight's gradient is slow for some shapes, and it copies donated weights that
their own update would overwrite too early. Forward products stay XLA's.
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

_LEAST_WORK = 1 << 22  # multiplications; below it a call costs more than it saves


def _accepts(call: Call) -> bool:
    forward: Call = call.attrs["forward"]
    x, weight, bias = forward.types
    if not (isinstance(x, Aval) and isinstance(weight, Aval)) or call.types[0] is None:
        return False
    return (
        1 in call.attrs["needs"]
        and x.dtype is dt.float32
        and x.is_static
        and weight.is_static
        and all(c is None for c in forward.casts)
        and (bias is None or (isinstance(bias, Aval) and bias.shape == weight.shape[1:]))
        and x.size * weight.shape[1] >= _LEAST_WORK
    )


@kernel(
    "linear_grad",
    name="native_linear",
    platform="cpu",
    accepts=_accepts,
    ready=native.available,
)
def _linear_grad(call: Call, grad: Any, *saved: Any) -> Any:
    jax = jax_door.jax()
    forward: Call = call.attrs["forward"]
    needs = call.attrs["needs"]
    kept = dict(zip(forward.saved_at, saved, strict=True))
    n_in, n_out = forward.types[1].shape  # type: ignore[union-attr]
    x, g = kept[0].reshape((-1, n_in)), grad.reshape((-1, n_out))
    shapes = tuple(
        jax.ShapeDtypeStruct(shape, np.float32) for shape in (x.shape, (n_in, n_out), (n_out,))
    )
    if 0 in needs:
        found = jax.ffi.ffi_call("bireme_linear_grads", shapes)(x, g, kept[1])
        by_input = (found[0].reshape(forward.types[0].shape), *found[1:])  # type: ignore[union-attr]
    else:
        found = jax.ffi.ffi_call("bireme_linear_weight_grads", shapes[1:])(x, g)
        by_input = (None, *found)
    return tuple(by_input[i] for i in needs)
