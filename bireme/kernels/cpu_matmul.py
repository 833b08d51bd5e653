"""Bfloat16 products on the CPU by its own instructions.

XLA computes a bfloat16 product whose result is bfloat16 in float32: it converts both factors and
is slower than a float32 product. A float32 result of two bfloat16 matrices it makes with
AVX512-BF16, twice as fast. So the plain lowering runs here with products that have float32
results, which are rounded once, after the bias. XLA refuses some products of this kind with batch
dimensions when they run, so only matrices are multiplied this way, where a trial succeeded.
Transposed first factors (a weight's gradient) it converts even so: those have a native kernel.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.kernels import native

_NAME = "bfloat16_products"


@functools.cache
def has_instructions() -> bool:
    """Whether the CPU multiplies bfloat16 numbers itself, and XLA makes use of it."""
    try:
        with open("/proc/cpuinfo") as f:
            flags = next((line for line in f if line.startswith("flags")), "")
    except OSError:
        return False
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags.split()) and _works()


def _works() -> bool:
    jax = jax_door.jax()

    def products(a: Any, b: Any) -> list[Any]:
        return [_wide.matmul(x, y) for x in (a, a.T) for y in (b, b.T)]

    ones = np.ones((8, 8), dt.bfloat16.numpy)
    try:
        with jax.ensure_compile_time_eval():  # asked while a program is traced
            found = jax.jit(products)(ones, ones)
            return all((np.asarray(p) == 8).all() for p in found)
    except jax.errors.JaxRuntimeError:
        return False


class _WideProducts:
    """`jax.numpy` whose products of bfloat16 matrices are float32."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jax_door.jnp(), name)

    def matmul(self, a: Any, b: Any) -> Any:
        matrices = a.ndim == b.ndim == 2
        kind = np.float32 if matrices else None
        return jax_door.jnp().matmul(a, b, preferred_element_type=kind)


_wide = _WideProducts()


def _accepts(call: Call) -> bool:
    return call.outs[0].dtype is dt.bfloat16


def _lower(call: Call, *arrays: Any) -> Any:
    return call.op.lower(_wide, call, list(arrays)).astype(dt.bfloat16.numpy)


def _lower_grad(call: Call, *arrays: Any) -> Any:
    return call.op.lower(_wide, call, list(arrays))


def _takes_grads(call: Call) -> bool:
    forward: Call = call.attrs["forward"]
    x, weight, bias = forward.types
    return (
        _accepts(forward)
        and isinstance(x, Aval)
        and isinstance(weight, Aval)
        and call.types[0] is not None
        and 1 in call.attrs["needs"]
        and x.is_static
        and x.size > 0
        and weight.size > 0
        and (bias is None or (isinstance(bias, Aval) and bias.shape == weight.shape[1:]))
    )


@kernel(
    "linear_grad",
    name="native_bfloat16_linear",
    platform="cpu",
    accepts=_takes_grads,
    ready=native.has_bfloat16,
)
def _linear_grad(call: Call, grad: Any, *saved: Any) -> Any:
    """The weight's and the bias's gradients from one native call, x's by a product."""
    jax = jax_door.jax()
    forward: Call = call.attrs["forward"]
    kept = dict(zip(forward.saved_at, saved, strict=True))
    x, weight = forward.cast(jax.numpy, [kept.get(0), kept.get(1), None])[:2]
    types: Any = forward.types
    n_in, n_out = types[1].shape
    g = grad.reshape((-1, n_out))
    shapes = tuple(jax.ShapeDtypeStruct(s, np.float32) for s in ((n_in, n_out), (n_out,)))
    found = jax.ffi.ffi_call("bireme_bfloat16_weight_grads", shapes)(x.reshape((-1, n_in)), g)
    by_input = {1: found[0], 2: found[1]}
    if 0 in call.attrs["needs"]:
        by_input[0] = _wide.matmul(g, weight.T).reshape(types[0].shape)
    return tuple(by_input[i].astype(types[i].dtype.numpy) for i in call.attrs["needs"])


for _op in ("linear", "matmul"):
    kernel(_op, name=_NAME, platform="cpu", accepts=_accepts, ready=has_instructions)(_lower)
    kernel(
        f"{_op}_grad",
        name=_NAME,
        platform="cpu",
        accepts=lambda call: _accepts(call.attrs["forward"]),
        ready=has_instructions,
    )(_lower_grad)
