"""Layer norm and RMS norm for inference on the CPU by native kernels.

XLA makes five passes over memory, and wakes its threads for each. In training these passes are
fused with their neighbours; between the native kernels of inference there is nothing to fuse.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door
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


@kernel(
    "rms_norm",
    name="native_rms_norm",
    platform="cpu",
    accepts=_accepts,
    ready=native.available,
    inference=True,
)
def _rms_norm(call: Call, x: Any, weight: Any) -> Any:
    jax = jax_door.jax()
    width = math.prod(x.shape[x.ndim - call.attrs["dims"] :])
    rows = x.reshape(-1, width)
    scale = jax.numpy.zeros(0, np.float32) if weight is None else weight.reshape(width)
    run = jax.ffi.ffi_call("bireme_rms_norm", jax.ShapeDtypeStruct(rows.shape, np.float32))
    return run(rows, scale, epsilon=np.float32(call.attrs["epsilon"])).reshape(x.shape)
