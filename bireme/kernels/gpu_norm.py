"""Layer and root-mean-square norm on GPUs: rows' statistics are written once and read again.

The compiler alone computes them again in each of the gradient's kernels, and keeps a float32 copy
of the whole activation for the sums over rows. Norms of large float32 residual sums run with those
sums as one kernel (see pallas_norm), and so do their gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import (
    annotate,
    annotate_rounded,
    annotation_of,
    keep_residual,
    residual_of,
    substitute,
)
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.kernels import nvidia, pallas_norm
from bireme.kernels.gpu_sums import Sum, addends_of, term_of
from bireme.ops import norm
from bireme.ops.nn_support import wide

_NAME = "kept_statistics"
_LARGE = 1 << 20  # elements from which on a kernel of its own pays


@dataclass(frozen=True)
class Statistics:
    """Of a norm's rows: mean (None if it does not matter) and factor, both [rows, 1]; and the half
    precision in which the residual sum's branches work, if any."""

    mean: Any
    factor: Any
    narrow: Any = None


def _accepts(call: Call) -> bool:
    x = call.types[0]
    return isinstance(x, Aval) and x.is_static and x.size > 0


def _rows(call: Call, x: Any) -> Any:
    jnp = jax_door.jnp()
    return wide(jnp, norm._flat(jnp, x, call.attrs["dims"]))


def _in_one_kernel(call: Call) -> bool:
    x: Any = call.types[0]
    return (
        x.dtype is dt.float32
        and x.size >= _LARGE
        and call.attrs["dims"] == 1
        and pallas_norm.fits(x.size // x.shape[-1], x.shape[-1])
        and nvidia.available()
    )


def _result(call: Call, rows: Any, found: Statistics, weight: Any, bias: Any) -> Any:
    jnp = jax_door.jnp()
    x: Any = call.types[0]
    out = rows if found.mean is None else rows - found.mean
    out = _scaled(out * found.factor, weight)
    if bias is not None:
        out = out + jnp.reshape(wide(jnp, bias), (-1,))
    return jnp.reshape(out.astype(x.dtype.numpy), x.shape)


def _of_sum(call: Call, x: Any, weight: Any, bias: Any, centred: bool) -> Any:
    """The norm with the sum that it is of, or None."""
    if not isinstance(annotation_of(x), Sum) or not _in_one_kernel(call):
        return None
    terms = [term_of(a, x.shape[-1]) for a in addends_of(x)]
    narrow = next((t.array.dtype for t in terms if t.array.dtype != x.dtype), None)
    total, out, mean, factor = pallas_norm.forward(
        terms, weight, bias, centred=centred, epsilon=call.attrs["epsilon"],
        dtype=x.dtype if narrow is None else narrow, interpret=nvidia.interpreted(),
    )  # fmt: skip
    whole = total.reshape(x.shape)
    substitute(x, whole)
    found = Statistics(mean, factor, narrow)
    keep_residual(call, (whole,), found)
    out = out.reshape(x.shape)
    if narrow is None:
        return out
    # Readers in half precision take the rounded result; others compute it.
    exact = _result(call, total, found, weight, bias)
    annotate_rounded(exact, out)
    return exact


def _scaled(unit: Any, weight: Any) -> Any:
    jnp = jax_door.jnp()
    return unit if weight is None else unit * jnp.reshape(wide(jnp, weight), (-1,))


def _fitted(call: Call, by_input: dict[int, Any]) -> tuple[Any, ...]:
    """The gradients that are wanted, in their inputs' shapes and types."""
    jnp = jax_door.jnp()
    results = []
    for i in call.attrs["needs"]:
        t: Any = call.attrs["forward"].types[i]
        results.append(jnp.reshape(by_input[i], t.shape).astype(t.dtype.numpy))
    return tuple(results)


@dataclass(frozen=True)
class NormGradient:
    """The gradient at a norm's input, which is about to be added to the residual stream's."""

    call: Call
    grad: Any
    x: Any
    weight: Any
    found: Statistics
    results: tuple[Any, ...]
    used: list[bool] = field(default_factory=list)

    def plus(self, other: Any) -> Any:
        """The sum with it, in one kernel (see gpu_sums)."""
        if self.used:
            return None
        self.used.append(True)
        width = self.x.shape[-1]
        total, narrow, by_weight, by_bias = pallas_norm.backward(
            [term_of(a, width) for a in addends_of(self.grad)],
            other.reshape(-1, width),
            self.x.reshape(-1, width),
            self.weight,
            self.found.mean,
            self.found.factor,
            narrow=self.found.narrow,
            interpret=nvidia.interpreted(),
        )
        sums = {1: by_weight, 2: by_bias}
        for i, result in list(zip(self.call.attrs["needs"], self.results, strict=True))[1:]:
            substitute(result, sums[i].astype(result.dtype))
        total = total.reshape(self.x.shape)
        if narrow is not None:
            annotate_rounded(total, narrow.reshape(self.x.shape))
        return total


def _offered(
    call: Call, grad: Any, x: Any, weight: Any, found: Statistics, results: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The gradients, known as what they are where one kernel could make them."""
    if call.attrs["needs"][0] == 0 and weight is not None and _in_one_kernel(call.attrs["forward"]):
        annotate(results[0], NormGradient(call, grad, x, weight, found, results))
    return results


@kernel("layer_norm", name=_NAME, platform="gpu", accepts=_accepts)
def _layer_norm(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    jax = jax_door.jax()
    jnp = jax.numpy
    out = _of_sum(call, x, weight, bias, centred=True)
    if out is not None:
        return out
    rows = _rows(call, x)
    mean, variance = norm._moments(jnp, rows, (1,))
    factor = norm._rsqrt(jnp, variance + call.attrs["epsilon"])
    found = Statistics(*jax.lax.optimization_barrier((mean, factor)))
    keep_residual(call, (x,), found)
    return _result(call, rows, found, weight, bias)


@kernel(
    "layer_norm_grad",
    name=_NAME,
    platform="gpu",
    accepts=lambda call: _accepts(call.attrs["forward"]),
)
def _layer_norm_grad(call: Call, grad: Any, x: Any, weight: Any) -> Any:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    found = residual_of(forward, (x,))
    if found is None:
        return call.op.lower(jnp, call, [grad, x, weight])
    unit = (_rows(forward, x) - found.mean) * found.factor
    pull = _rows(forward, grad)
    scaled = _scaled(pull, weight)
    by_input = {
        0: norm._pull(jnp, scaled, unit, found.factor, (1,)),
        1: jnp.sum(pull * unit, axis=0),
        2: jnp.sum(pull, axis=0),
    }
    return _offered(call, grad, x, weight, found, _fitted(call, by_input))


@kernel("rms_norm", name=_NAME, platform="gpu", accepts=_accepts)
def _rms_norm(call: Call, x: Any, weight: Any) -> Any:
    jax = jax_door.jax()
    jnp = jax.numpy
    out = _of_sum(call, x, weight, None, centred=False)
    if out is not None:
        return out
    rows = _rows(call, x)
    square = jnp.mean(rows * rows, axis=1, keepdims=True)
    factor = jax.lax.optimization_barrier(norm._rsqrt(jnp, square + call.attrs["epsilon"]))
    found = Statistics(None, factor)
    keep_residual(call, (x,), found)
    return _result(call, rows, found, weight, None)


@kernel(
    "rms_norm_grad",
    name=_NAME,
    platform="gpu",
    accepts=lambda call: _accepts(call.attrs["forward"]),
)
def _rms_norm_grad(call: Call, grad: Any, x: Any, weight: Any) -> Any:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    found = residual_of(forward, (x,))
    if found is None:
        return call.op.lower(jnp, call, [grad, x, weight])
    unit = _rows(forward, x) * found.factor
    pull = _rows(forward, grad)
    scaled = _scaled(pull, weight)
    slope = jnp.mean(scaled * unit, axis=1, keepdims=True)
    by_input = {0: found.factor * (scaled - unit * slope), 1: jnp.sum(pull * unit, axis=0)}
    return _offered(call, grad, x, weight, found, _fitted(call, by_input))
