"""Linear layers in bfloat16 on CPUs that multiply such numbers themselves (AVX512-BF16).

XLA computes a bfloat16 product in float32 unless its result is float32, and one with a transposed
first factor, a weight's gradient, even then.
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

_NAME = "native_bfloat16"
_LEAST_WORK = 1 << 20  # multiplications; below it a call costs more than it saves


def _accepts(call: Call) -> bool:
    x, weight, bias = call.types
    if not (isinstance(x, Aval) and isinstance(weight, Aval)):
        return False
    return (
        call.outs[0].dtype is dt.bfloat16
        and x.is_static
        and weight.is_static
        and (bias is None or (isinstance(bias, Aval) and bias.shape == weight.shape[1:]))
        # Two of them make a word.
        and weight.shape[0] % 2 == weight.shape[1] % 2 == 0
        and x.size * weight.shape[1] >= _LEAST_WORK
    )


@kernel("linear", name=_NAME, platform="cpu", accepts=_accepts, ready=native.has_bfloat16)
def _linear(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    jax = jax_door.jax()
    n_in, n_out = weight.shape
    rows = x.reshape((-1, n_in))
    if bias is None:
        bias = jax.numpy.zeros((0,), x.dtype)
    shape = jax.ShapeDtypeStruct((rows.shape[0], n_out), x.dtype)
    found = jax.ffi.ffi_call("bireme_bfloat16_linear", shape)(rows, weight, bias)
    return found.reshape((*x.shape[:-1], n_out))


def _takes_grads(call: Call) -> bool:
    return (
        call.types[0] is not None and 1 in call.attrs["needs"] and _accepts(call.attrs["forward"])
    )


@kernel("linear_grad", name=_NAME, platform="cpu", accepts=_takes_grads, ready=native.has_bfloat16)
def _linear_grad(call: Call, grad: Any, *saved: Any) -> Any:
    jax = jax_door.jax()
    forward: Call = call.attrs["forward"]
    needs = call.attrs["needs"]
    kept = dict(zip(forward.saved_at, saved, strict=True))
    x, weight = forward.cast(jax.numpy, [kept.get(0), kept.get(1), None])[:2]
    types: Any = forward.types
    n_in, n_out = types[1].shape
    x, g = x.reshape((-1, n_in)), grad.reshape((-1, n_out))
    sums = tuple(jax.ShapeDtypeStruct(s, np.float32) for s in ((n_in, n_out), (n_out,)))
    if 0 in needs:
        shapes = (jax.ShapeDtypeStruct(x.shape, x.dtype), *sums)
        found = jax.ffi.ffi_call("bireme_bfloat16_grads", shapes)(x, g, weight)
        by_input = (found[0].reshape(types[0].shape), *found[1:])
    else:
        by_input = (None, *jax.ffi.ffi_call("bireme_bfloat16_weight_grads", sums)(x, g))
    return tuple(by_input[i].astype(types[i].dtype.numpy) for i in needs)
