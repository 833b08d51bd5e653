"""The gradients of a linear layer on the CPU from one native call.

XLA's product for the weight's gradient is slow for some shapes, and it copies donated weights that
their own update would overwrite too early. Forward products stay XLA's.
"""

from __future__ import annotations

from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import thresholds
from bireme.host.arrays import Array
from bireme.kernels import native
from bireme.kernels.native.calling import Result, ffi_call, in_dtype, namespace


def takes_matrices(forward: Call, least_work: int, small_work: int = 0) -> bool:
    """Whether a linear layer is one of whole matrices, with at least or at most so many
    multiplications (but not none)."""
    x, weight, bias = forward.types
    if not (isinstance(x, Aval) and isinstance(weight, Aval) and x.is_static and weight.is_static):
        return False
    if bias is not None and not (isinstance(bias, Aval) and bias.shape == weight.shape[1:]):
        return False
    work = x.size * weight.shape[1]
    return work >= least_work or 0 < work <= small_work


def wants_weight(call: Call) -> bool:
    """Whether the gradient of the weight is among those that a gradient's call is to compute."""
    return call.types[0] is not None and 1 in call.attrs["needs"]


def gradients(
    call: Call, grad: Array, saved: tuple[Any, ...], handler: str, of_weight: str
) -> tuple[Any, ...]:
    """The gradients that `call` is to compute, by `handler`, or `of_weight` without the input's."""
    forward: Call = call.attrs["forward"]
    needs = call.attrs["needs"]
    kept = dict(zip(forward.saved_at, saved, strict=True))
    x, weight = forward.cast(namespace(grad), [kept.get(0), kept.get(1), None])[:2]
    types: Any = forward.types
    n_in, n_out = types[1].shape
    x, g = x.reshape((-1, n_in)), grad.reshape((-1, n_out))
    sums = tuple(Result(s) for s in ((n_in, n_out), (n_out,)))
    if 0 in needs:
        shapes = (Result(x.shape, x.dtype), *sums)
        found = ffi_call(handler, shapes)(x, g, weight)
        by_input = (found[0].reshape(types[0].shape), *found[1:])
    else:
        by_input = (None, *ffi_call(of_weight, sums)(x, g))
    return tuple(in_dtype(by_input[i], types[i].dtype.numpy) for i in needs)


def _accepts(call: Call) -> bool:
    forward: Call = call.attrs["forward"]
    x = forward.types[0]
    return (
        wants_weight(call)
        and isinstance(x, Aval)
        and x.dtype is dt.float32
        and all(c is None for c in forward.casts)
        and takes_matrices(forward, thresholds.CPU_LINEAR_WORK, thresholds.CPU_LINEAR_SMALL_WORK)
    )


@kernel(
    "linear_grad",
    name="native_linear",
    platform="cpu",
    accepts=_accepts,
    ready=native.available,
    direct=native.arrived,
)
def _linear_grad(call: Call, grad: Any, *saved: Any) -> Any:
    return gradients(call, grad, saved, "bireme_linear_grads", "bireme_linear_weight_grads")
