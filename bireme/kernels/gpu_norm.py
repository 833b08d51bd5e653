"""Layer and root-mean-square norm on GPUs: rows' statistics are written once and read again.

The compiler alone computes them again in each of the gradient's kernels, and keeps a float32 copy
of the whole activation for the sums over rows. Norms of large float32 residual sums run with those
sums as one kernel (see pallas_norm), and so do their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.graph import Node
from bireme.core.kernels import fusion, kernel
from bireme.core.op import Call
from bireme.host import jax_door, thresholds
from bireme.host.arrays import Array, Namespace
from bireme.kernels import nvidia, pallas_norm
from bireme.kernels.fusing import Fuser, fused_op, is_value
from bireme.kernels.gpu_sums import Sum, TermRef, terms_of
from bireme.kernels.pallas_norm import Term
from bireme.ops import norm
from bireme.ops.nn_support import wide

_NAME = "kept_statistics"


@dataclass(frozen=True)
class Statistics:
    """Of a norm's rows: factor and mean (None if it does not matter), both [rows, 1]; and the half
    precision in which the residual sum's branches work, if any."""

    factor: int
    mean: int | None
    narrow: dt.DType | None = None


# --- norms that leave their statistics ---------------------------------------------------------


def _rows(xp: Namespace, x: Array, dims: int) -> Array:
    return wide(xp, norm._flat(xp, x, dims))


def _kept(xp: Namespace, *arrays: Array) -> tuple[Any, ...]:
    """The arrays, which the compiler writes and does not compute again."""
    return tuple(jax_door.jax().lax.optimization_barrier(arrays))


def _vector(x: Aval, dims: int) -> Aval:
    width = 1
    for n in x.shape[x.ndim - dims :]:
        width *= n
    return aval((x.size // width, 1), dt.float64 if x.dtype is dt.float64 else dt.float32)


def _normed_types(
    x: Aval, weight: Array | None, bias: Array | None, dims: int, epsilon: float, centred: bool
) -> tuple[Aval, ...]:
    return x, *[_vector(x, dims)] * (1 + centred)


@fused_op("norm_and_statistics", ("x", "weight", "bias"), _normed_types)
def norm_and_statistics(
    xp: Namespace,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    dims: int,
    epsilon: float,
    centred: bool,
) -> tuple[Any, ...]:
    """The norm, and of each row what it was multiplied by and its mean (if `centred`)."""
    return _with_statistics(xp, x, weight, bias, dims, epsilon, centred)


def _with_statistics(
    xp: Namespace,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    dims: int,
    epsilon: float,
    centred: bool,
) -> tuple[Any, ...]:
    rows = _rows(xp, x, dims)
    if centred:
        mean, variance = norm._moments(xp, rows, (1,))
        mean, factor = _kept(xp, mean, norm._rsqrt(xp, variance + epsilon))
        return _result(xp, x, rows, factor, mean, weight, bias), factor, mean
    square = xp.mean(rows * rows, axis=1, keepdims=True)
    (factor,) = _kept(xp, norm._rsqrt(xp, square + epsilon))
    return _result(xp, x, rows, factor, None, weight, bias), factor


def _result(
    xp: Namespace,
    x: Array,
    rows: Array,
    factor: Array | None,
    mean: Array | None,
    weight: Array | None,
    bias: Array | None,
) -> Array:
    out = rows if mean is None else rows - mean
    out = _scaled(xp, out * factor, weight)
    if bias is not None:
        out = out + xp.reshape(wide(xp, bias), (-1,))
    return xp.reshape(out.astype(x.dtype), x.shape)


def _scaled(xp: Namespace, unit: Array, weight: Array | None) -> Array:
    return unit if weight is None else unit * xp.reshape(wide(xp, weight), (-1,))


@fused_op("normalized", ("x", "factor", "mean", "weight", "bias"), lambda x, *rest, dims: x)
def normalized(
    xp: Namespace,
    x: Array,
    factor: Array,
    mean: Array | None,
    weight: Array | None,
    bias: Array | None,
    dims: int,
) -> Array:
    """The norm of `x` by its rows' statistics."""
    return _result(xp, x, _rows(xp, x, dims), factor, mean, weight, bias)


def _gradient_types(
    grad: Aval,
    x: Aval,
    weight: Array | None,
    factor: Aval,
    mean: Array | None,
    types: tuple[Aval, ...],
    **rest: Any,
) -> tuple[Aval, ...]:
    return types


@fused_op("norm_gradient", ("grad", "x", "weight", "factor", "mean"), _gradient_types)
def norm_gradient(
    xp: Namespace,
    grad: Array,
    x: Array,
    weight: Array | None,
    factor: Array,
    mean: Array | None,
    types: tuple[Aval, ...],
    needs: tuple[int, ...],
    dims: int,
) -> tuple[Any, ...]:
    """The gradients of x, weight and bias that are in `needs`, by the rows' statistics."""
    made = _gradients(xp, grad, x, weight, factor, mean, dims)
    return tuple(
        [
            xp.reshape(made[i], t.shape).astype(t.dtype.numpy)
            for i, t in zip(needs, types, strict=True)
        ]
    )


def _gradients(
    xp: Namespace,
    grad: Array,
    x: Array,
    weight: Array | None,
    factor: Array,
    mean: Array | None,
    dims: int,
) -> list[Any]:
    rows, pull = _rows(xp, x, dims), _rows(xp, grad, dims)
    unit = (rows if mean is None else rows - mean) * factor
    scaled = _scaled(xp, pull, weight)
    if mean is None:
        slope = xp.mean(scaled * unit, axis=1, keepdims=True)
        by_x = factor * (scaled - unit * slope)
    else:
        by_x = norm._pull(xp, scaled, unit, factor, (1,))
    return [by_x, xp.sum(pull * unit, axis=0), xp.sum(pull, axis=0)]


# --- norms in one kernel with the sums around them ----------------------------------------------


def _sum_types(
    arrays: list[Aval],
    biases: Any,
    weight: Array | None,
    bias: Array | None,
    narrow: dt.DType | None,
    centred: bool,
    **rest: Any,
) -> tuple[Aval, ...]:
    total = aval(arrays[0].shape, dt.float32)
    out = aval(total.shape, narrow or dt.float32)
    return total, out, *[_vector(total, 1)] * (1 + centred)


@fused_op("norm_of_sum", ("*arrays", "*biases", "weight", "bias"), _sum_types)
def norm_of_sum(
    xp: Namespace,
    arrays: list[Array],
    biases: list[Array],
    weight: Array | None,
    bias: Array | None,
    narrow: dt.DType | None,
    centred: bool,
    biased: tuple[bool, ...],
    epsilon: float,
) -> tuple[Any, ...]:
    """The float32 sum of `arrays` (each with its bias, if `biased`), its norm in `narrow` or
    float32, and of each row what it was multiplied by and its mean (if `centred`)."""
    total = _summed(xp, _terms(arrays, biases, biased))
    out, *found = _with_statistics(xp, total, weight, bias, 1, epsilon, centred)
    return total, out.astype((narrow or dt.float32).numpy), *found


def _terms(arrays: Sequence[Array], biases: Sequence[Array], biased: Sequence[bool]) -> list[Term]:
    left = list(biases)
    return [Term(a, left.pop(0) if b else None) for a, b in zip(arrays, biased, strict=True)]


def _summed(xp: Namespace, terms: list[Term]) -> Any:
    parts = [t.array if t.bias is None else t.array + t.bias for t in terms]
    return sum([p.astype(xp.float32) for p in parts[1:]], parts[0].astype(xp.float32))


def _flat(terms: list[Term], width: int) -> list[Term]:
    return [Term(t.array.reshape(-1, width), t.bias) for t in terms]


@kernel("norm_of_sum", name=_NAME, platform="gpu", ready=lambda: nvidia.available())
def _norm_of_sum(call: Call, *flat: Any) -> Any:
    arrays, biases, weight, bias = call.group(flat)
    attrs, shape = call.attrs, call.outs[0].shape
    total, out, mean, factor = pallas_norm.forward(
        _flat(_terms(arrays, biases, attrs["biased"]), shape[-1]),
        weight,
        bias,
        centred=attrs["centred"],
        epsilon=attrs["epsilon"],
        dtype=call.outs[1].dtype.numpy,
        interpret=nvidia.interpreted(),
    )
    found = (factor,) if mean is None else (factor, mean)
    return total.reshape(shape), out.reshape(shape), *found


def _added_types(
    arrays: list[Aval],
    biases: Any,
    residual: Aval,
    x: Aval,
    weight: Aval,
    factor: Array | None,
    mean: Array | None,
    narrow: dt.DType | None,
    **rest: Any,
) -> tuple[Aval, ...]:
    sums = [aval(x.shape[-1:], dt.float32)] * (1 if mean is None else 2)
    return residual, *([aval(x.shape, narrow)] if narrow else []), *sums


@fused_op(
    "norm_gradient_and_sum",
    ("*arrays", "*biases", "residual", "x", "weight", "factor", "mean"),
    _added_types,
)
def norm_gradient_and_sum(
    xp: Namespace,
    arrays: list[Array],
    biases: list[Array],
    residual: Array,
    x: Array,
    weight: Array,
    factor: Array,
    mean: Array | None,
    narrow: dt.DType | None,
    biased: tuple[bool, ...],
) -> tuple[Any, ...]:
    """`residual` plus the gradient at a norm's input, in float32 and in `narrow` (if given), and
    those of its weight and (if there is a mean) bias; `arrays` sum up to that of its result."""
    grad = _summed(xp, _terms(arrays, biases, biased))
    by_x, *sums = _gradients(xp, grad, x, weight, factor, mean, 1)
    total = residual + by_x.reshape(x.shape)
    rounded = [total.astype(narrow.numpy)] if narrow else []
    return total, *rounded, *sums[: 1 if mean is None else 2]


@kernel("norm_gradient_and_sum", name=_NAME, platform="gpu", ready=lambda: nvidia.available())
def _norm_gradient_and_sum(call: Call, *flat: Any) -> Any:
    arrays, biases, residual, x, weight, factor, mean = call.group(flat)
    width, narrow = x.shape[-1], call.attrs["narrow"]
    total, rounded, by_weight, by_bias = pallas_norm.backward(
        _flat(_terms(arrays, biases, call.attrs["biased"]), width),
        residual.reshape(-1, width),
        x.reshape(-1, width),
        weight,
        mean,
        factor,
        narrow=None if narrow is None else narrow.numpy,
        interpret=nvidia.interpreted(),
    )
    found = [a.reshape(x.shape) for a in (total, rounded) if a is not None]
    return *found, by_weight, *([] if by_bias is None else [by_bias])


# --- rules ---------------------------------------------------------------------------------------


def _accepts(call: Call) -> bool:
    x = call.types[0]
    return isinstance(x, Aval) and x.is_static and x.size > 0


def _in_one_kernel(call: Call) -> bool:
    x: Any = call.types[0]
    return (
        x.dtype is dt.float32
        and x.size >= thresholds.GPU_NORM
        and call.attrs["dims"] == 1
        and pallas_norm.fits(x.size // x.shape[-1], x.shape[-1])
        and nvidia.available()
    )


def _arguments(terms: list[TermRef]) -> tuple[list[int], list[int], tuple[bool, ...]]:
    biases = [t.bias for t in terms if t.bias is not None]
    return [t.array for t in terms], biases, tuple([t.bias is not None for t in terms])


def _of_sum(
    f: Fuser, call: Call, x: int, weight: int | None, bias: int | None
) -> tuple[int, int, Statistics] | None:
    """The norm with the sum that it is of, that sum and the statistics; or None."""
    if f.fact(x, Sum) is None or not _in_one_kernel(call):
        return None
    terms = terms_of(f, x)
    dtypes = [f.type_of(t.array).dtype for t in terms]
    narrow = next((d for d in dtypes if d is not dt.float32), None)
    arrays, biases, biased = _arguments(terms)
    total, out, factor, *mean = f.emit(
        norm_of_sum,
        [arrays, biases, weight, bias],
        narrow=narrow,
        centred=_is_centred(call),
        biased=biased,
        epsilon=call.attrs["epsilon"],
    )
    f.replace(x, total)
    found = Statistics(factor, mean[0] if mean else None, narrow)
    if narrow is not None:
        # Readers in half precision take the rounded result; others compute it.
        statistics = [found.factor, found.mean]
        (exact,) = f.emit(normalized, [total, *statistics, weight, bias], dims=1)
        f.rounded(exact, out)
        out = exact
    return out, total, found


def _is_centred(call: Call) -> bool:
    return call.op.name == "layer_norm"


def _norm(f: Fuser, node: Node) -> list[int]:
    call, (x, weight, *rest) = f.without_casts(node)
    bias = rest[0] if rest else None
    known = _of_sum(f, node.call, x, weight, bias)
    if known is None:
        out, factor, *mean = f.emit(
            norm_and_statistics,
            [x, weight, bias],
            dims=call.attrs["dims"],
            epsilon=call.attrs["epsilon"],
            centred=_is_centred(call),
        )
        known = out, x, Statistics(factor, mean[0] if mean else None)
    out, of, found = known
    f.kept[node.call, of] = found
    return [out]


def _norm_grad(f: Fuser, node: Node) -> list[int]:
    forward: Call = node.call.attrs["forward"]
    grad, x, weight = node.args
    found: Statistics | None = f.kept.get((forward, x))
    if found is None or not is_value(grad) or not is_value(x):
        return f.copy(node)
    needs: tuple[int, ...] = node.call.attrs["needs"]
    results = f.emit(
        norm_gradient,
        [grad, x, weight, found.factor, found.mean],
        types=node.call.outs,
        needs=needs,
        dims=forward.attrs["dims"],
    )
    if needs[0] == 0 and is_value(weight) and _in_one_kernel(forward):
        f.facts[results[0]] = NormGradient(grad, x, weight, found, tuple(results[1:]), needs[1:])
    return results


@dataclass(frozen=True)
class NormGradient:
    """The gradient at a norm's input, which is about to be added to the residual stream's."""

    grad: int
    x: int
    weight: int
    found: Statistics
    others: tuple[int, ...]  # the gradients of weight and bias, of those in `needs`
    needs: tuple[int, ...]
    used: list[bool] = field(default_factory=list)

    def plus(self, f: Fuser, other: int) -> int | None:
        """The sum with it, in one kernel (see gpu_sums)."""
        if self.used:
            return None
        self.used.append(True)
        found = self.found
        arrays, biases, biased = _arguments(terms_of(f, self.grad))
        total, *made = f.emit(
            norm_gradient_and_sum,
            [arrays, biases, other, self.x, self.weight, found.factor, found.mean],
            narrow=found.narrow,
            biased=biased,
        )
        if found.narrow is not None:
            f.rounded(total, made.pop(0))
        for i, result in zip(self.needs, self.others, strict=True):
            f.replace(result, f.cast(made[i - 1], f.type_of(result).dtype))
        return total


def _alone(call: Call, x: Any, weight: Array | None, bias: Array | None = None) -> Any:
    """A norm of which nothing else is seen."""
    dims, epsilon = call.attrs["dims"], call.attrs["epsilon"]
    found = _with_statistics(jax_door.jnp(), x, weight, bias, dims, epsilon, _is_centred(call))
    return found[0]


for _op in ("layer_norm", "rms_norm"):
    kernel(_op, name=_NAME, platform="gpu", accepts=_accepts, fuse=_norm)(_alone)
    fusion(
        f"{_op}_grad",
        name=_NAME,
        platform="gpu",
        accepts=lambda call: _accepts(call.attrs["forward"]),
    )(_norm_grad)
