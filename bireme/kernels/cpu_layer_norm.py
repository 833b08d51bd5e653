"""Layer norm of inference on the CPU by a native kernel.

XLA makes five passes over memory of it, with its threads woken for each. In training these are
fused with what is around them; between the native kernels of inference there is nothing to fuse.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.kernels import native


def _accepts(call: Call) -> bool:
    x = call.types[0]
    return (
        isinstance(x, Aval)
        and x.is_static
        and x.size > 0
        and all(c is None for c in call.casts)
        and all(t is None or (isinstance(t, Aval) and t.dtype is dt.float32) for t in call.types)
    )


@kernel(
    "layer_norm",
    name="native_layer_norm",
    platform="cpu",
    accepts=_accepts,
    ready=native.available,
    inference=True,
)
def _layer_norm(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    jax = jax_door.jax()
    jnp = jax.numpy
    width = math.prod(x.shape[x.ndim - call.attrs["dims"] :])
    rows = x.reshape(-1, width)
    weight = jnp.ones(width, np.float32) if weight is None else weight.reshape(width)
    bias = jnp.zeros(width, np.float32) if bias is None else bias.reshape(width)
    run = jax.ffi.ffi_call("bireme_layer_norm", jax.ShapeDtypeStruct(rows.shape, np.float32))
    return run(rows, weight, bias, epsilon=np.float32(call.attrs["epsilon"])).reshape(x.shape)
