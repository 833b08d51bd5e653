"""Linear layers in bfloat16 on CPUs with bfloat16 products (AVX512-BF16).

XLA computes a bfloat16 product in float32 unless its result is float32, and a product with a
transposed first factor (a weight's gradient) in float32 even then.
"""

from __future__ import annotations

from typing import Any

from bireme.core import dtype as dt
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door, thresholds
from bireme.kernels import native
from bireme.kernels.cpu_linear import gradients, takes_matrices, wants_weight

_NAME = "native_bfloat16"


def _accepts(call: Call) -> bool:
    return (
        call.outs[0].dtype is dt.bfloat16
        and takes_matrices(call, thresholds.CPU_BFLOAT16_WORK)
        # Two of them make a word.
        and all(d % 2 == 0 for d in call.types[1].shape)  # type: ignore[union-attr]
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
    return wants_weight(call) and _accepts(call.attrs["forward"])


@kernel("linear_grad", name=_NAME, platform="cpu", accepts=_takes_grads, ready=native.has_bfloat16)
def _linear_grad(call: Call, grad: Any, *saved: Any) -> Any:
    return gradients(call, grad, saved, "bireme_bfloat16_grads", "bireme_bfloat16_weight_grads")
