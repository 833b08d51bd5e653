"""Linear maps, embeddings, one-hot codes, distances and the like."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.keywords import put
from bireme.api.public import namespace
from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.dims import is_dim_expression
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.requirements import InRange
from bireme.core.tensor import Tensor
from bireme.ops.axes import dimension_in
from bireme.ops.contents import Result, reads_contents
from bireme.ops.math_unary import conj_of
from bireme.ops.nn_support import need_float, need_integer, scatter_add, wide
from bireme.ops.open_sizes import surely
from bireme.ops.row_gradients import by_rows
from bireme.ops.row_marks import noted

public = namespace("paddle.nn.functional")

# --- linear -------------------------------------------------------------------------------------


def _rows(xp: Any, x: Any, width: Any) -> Any:
    """`x` as a matrix: on a CPU one large 2-D product beats a batched one by far."""
    return x if x.ndim == 2 else xp.reshape(x, (-1, width))


def _linear_check(x: Aval, weight: Aval, bias: Aval | None) -> None:
    if weight.ndim != 2:
        raise ShapeMismatch(
            f"'weight' must be a matrix [in_features, out_features], not {list(weight.shape)}"
        )
    if x.ndim == 0 or x.shape[-1] != weight.shape[0]:
        raise ShapeMismatch(
            f"the last dimension of x, {list(x.shape)}, must equal weight's first, "
            f"{weight.shape[0]}; Paddle keeps weights as [in_features, out_features]"
        )
    if bias is not None and not (
        bias.ndim <= 1 and all(d in (1, weight.shape[1]) for d in bias.shape)
    ):
        raise ShapeMismatch(
            f"'bias' must be a vector of out_features = {weight.shape[1]} numbers, not "
            f"{list(bias.shape)}"
        )
    for other in (weight, bias):
        if other is not None and other.dtype is not x.dtype:
            to = x.dtype if x.dtype.differentiable else other.dtype
            raise TypeMismatch(
                f"x, weight and bias must have one dtype, not {x.dtype.name} and "
                f"{other.dtype.name}; cast one with .astype('{to.name}')"
            )


def _linear_infer(x: Aval, weight: Aval, bias: Aval | None) -> Aval:
    return aval((*x.shape[:-1], weight.shape[1]), x.dtype)


def _linear_vjp(xp: Any, grad: Any, x: Any, weight: Any, types: Any, needs: Any) -> tuple[Any, ...]:
    n_in, n_out = types[1].shape
    grad_rows = _rows(xp, grad, n_out)
    grad_x = grad_weight = grad_bias = None
    if needs[0]:
        grad_x = xp.reshape(xp.matmul(grad_rows, conj_of(xp, weight.T)), types[0].shape)
    if needs[1]:
        grad_weight = xp.matmul(conj_of(xp, _rows(xp, x, n_in).T), grad_rows)
    if needs[2]:
        # As a product: a plain sum over rows is fused with whatever made `grad` and computes
        # all of that a second time.
        ones = xp.ones((1, grad_rows.shape[0]), grad_rows.dtype)
        grad_bias = xp.matmul(ones, grad_rows)[0]
    return grad_x, grad_weight, grad_bias


@public
@op(
    inputs=("x", "weight", "bias"),
    vjp=_linear_vjp,
    infer=_linear_infer,
    check=_linear_check,
    takes="ifc",
    amp="white",
    used_by={"x": ("weight",), "weight": ("x",)},
)
def linear(xp, x, weight, bias=None):
    """x @ weight + bias over the last dimension; weight is [in_features, out_features]."""
    out = xp.matmul(_rows(xp, x, weight.shape[0]), weight)
    if bias is not None:
        out = out + bias
    return out if x.ndim == 2 else xp.reshape(out, (*x.shape[:-1], weight.shape[1]))


def _bilinear_check(x1: Aval, x2: Aval, weight: Aval, bias: Aval | None) -> None:
    if weight.ndim != 3 or x1.ndim != 2 or x2.ndim != 2:
        raise ShapeMismatch(
            "x1 and x2 must be matrices [batch, features] and weight [out, features1, features2]"
        )
    if (x1.shape[1], x2.shape[1]) != weight.shape[1:]:
        raise ShapeMismatch("the features of x1 and x2 must be weight's second and third dimension")


@public
@op(inputs=("x1", "x2", "weight", "bias"), check=_bilinear_check, amp="white", takes="fc")
def bilinear(xp, x1, x2, weight, bias=None):
    """x1 @ weight[k] @ x2 for every output k, plus bias."""
    out = xp.einsum("bi,kij,bj->bk", *(wide(xp, a) for a in (x1, weight, x2))).astype(x1.dtype)
    return out if bias is None else out + bias


# --- embedding ----------------------------------------------------------------------------------


def _embedding_check(x: Aval, weight: Aval, padding_idx: int, by_frequency: bool) -> None:
    need_integer("x", x)
    if weight.ndim != 2:
        raise ShapeMismatch(f"'weight' must be a matrix [rows, width], not {list(weight.shape)}")


def _embedding_infer(x: Aval, weight: Aval, padding_idx: int, by_frequency: bool) -> Aval:
    return aval((*x.shape, weight.shape[1]), weight.dtype)


def _embedding_vjp(
    xp: Any, grad: Any, x: Any, types: Any, padding_idx: int, by_frequency: bool
) -> tuple[Any, ...]:
    weight = types[1]
    index = xp.reshape(x, (-1,))
    rows = wide(xp, xp.reshape(grad, (-1, weight.shape[1])))
    if padding_idx >= 0:
        rows = rows * (index != padding_idx)[:, None].astype(rows.dtype)
    if by_frequency:
        count = scatter_add(
            xp, xp.zeros((weight.shape[0],), rows.dtype), index, xp.ones(index.shape, rows.dtype)
        )
        rows = rows / xp.take(count, index)[:, None]
    return None, scatter_add(xp, xp.zeros(weight.shape, rows.dtype), index, rows)


@op(
    name="embedding",
    vjp=_embedding_vjp,
    infer=_embedding_infer,
    check=_embedding_check,
    requires=lambda x, weight, **_: [InRange("x", 0, weight.shape[0] - 1)],
    inputs=("x", "weight"),
    exact=True,
)
def _embedding(xp, x, weight, padding_idx=-1, by_frequency=False):
    """Rows of `weight` by number; the row `padding_idx` reads as zeros."""
    out = xp.take(weight, x, axis=0)
    if padding_idx >= 0:
        out = out * (x != padding_idx)[..., None].astype(out.dtype)
    return out


def _rows_check(weight: Aval, *rest: Any) -> None:
    if weight.ndim != 2:
        raise ShapeMismatch(f"'weight' must be a matrix [rows, width], not {list(weight.shape)}")


@op(differentiable=False, check=_rows_check)
def _renormalized_rows(xp, weight, x, max_norm, norm_type):
    """`weight` with those rows that `x` names scaled down to a norm of at most `max_norm`."""
    norms = xp.sum(xp.abs(weight) ** norm_type, axis=1, keepdims=True) ** (1.0 / norm_type)
    used = scatter_add(
        xp, xp.zeros((weight.shape[0],), np.int32), xp.reshape(x, (-1,)), np.int32(1)
    )
    scale = xp.where((norms > max_norm) & (used > 0)[:, None], max_norm / (norms + 1e-7), 1.0)
    return (weight * scale).astype(weight.dtype)


@public(also={"input": "x"})
def embedding(
    x: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    sparse: bool = False,
    scale_grad_by_freq: bool = False,
    name: str | None = None,
) -> Tensor:
    """Rows of `weight` by number.

    Rows at `padding_idx` are zeros and get no gradient. With `max_norm` the rows in use are
    scaled down in place first. With `sparse=True` the gradient is that of the rows in use: SGD,
    Adagrad and optimizers with `lazy_mode=True` touch no others, and whoever reads `weight.grad`
    finds the whole of it.
    """
    empty_row = -1
    if padding_idx is not None:
        rows = weight._value.aval.shape[0]
        if surely(lambda: padding_idx < -rows or padding_idx >= rows):
            raise InvalidArgument(
                f"[embedding] padding_idx must be in [{-rows}, {rows - 1}]. Received: {padding_idx}"
            )
        empty_row = padding_idx % rows
    if max_norm is not None:
        scaled = _renormalized_rows(weight, x, float(max_norm), float(norm_type))
        weight._put(scaled._value)
    if scale_grad_by_freq and sparse:
        raise InvalidArgument("[embedding] scale_grad_by_freq=True needs sparse=False")
    made = _embedding(x, weight, empty_row, scale_grad_by_freq)
    return noted(by_rows(made), x, weight, empty_row) if sparse else made


@op(
    name="one_hot",
    differentiable=False,
    infer=lambda x, num_classes: aval((*x.shape, num_classes), dt.default_float()),
    check=lambda x, num_classes: need_integer("x", x),
    requires=lambda x, num_classes: [InRange("x", 0, num_classes - 1)],
    inputs=("x",),
)
def _one_hot(xp, x, num_classes=1):
    return (x[..., None] == xp.arange(num_classes, dtype=x.dtype)).astype(dt.default_float().numpy)


@public(also={"input": "x"})
@reads_contents(
    lambda x, num_classes=-1, name=None: Result([*x._value.aval.shape, None], dt.default_float())
)
def one_hot(x: Tensor, num_classes: int = -1, name: str | None = None) -> Tensor:
    """Ones at the classes that `x` names; -1 takes the largest class in `x` as the last one."""
    if num_classes.__class__ is not int:
        num_classes = int(num_classes)
    if num_classes == -1:
        num_classes = int(x.numpy().max()) + 1
    return _one_hot(x, num_classes)


# --- distances ----------------------------------------------------------------------------------


@op(promote="binary")
def _cosine_similarity(xp, x1, x2, axis=1, eps=1e-8):
    x1, x2 = xp.broadcast_arrays(x1, x2)  # a 1 along `axis` stands for as many equal numbers
    dot = xp.sum(x1 * x2, axis=axis)
    n1 = xp.sum(x1 * x1, axis=axis)
    n2 = xp.sum(x2 * x2, axis=axis)
    return dot / xp.sqrt(xp.maximum(n1 * n2, eps * eps))


@public(also={"dim": "axis"}, takes="fc")
def cosine_similarity(x1: Tensor, x2: Tensor, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between `x1` and `x2` along `axis`."""
    return _cosine_similarity(
        x1, x2, dimension_in(axis, max(x1.ndim, x2.ndim), "cosine_similarity"), eps
    )


def _vector_norm(xp: Any, x: Any, p: float, axis: int, keepdim: bool) -> Any:
    size = xp.abs(x)
    if p == float("inf"):
        return xp.max(size, axis=axis, keepdims=keepdim)
    if p == float("-inf"):
        return xp.min(size, axis=axis, keepdims=keepdim)
    if p == 0:
        return xp.sum((size != 0).astype(x.dtype), axis=axis, keepdims=keepdim)
    if p == 1:
        return xp.sum(size, axis=axis, keepdims=keepdim)
    if p == 2:
        return xp.sqrt(xp.sum(x * x, axis=axis, keepdims=keepdim))
    return xp.sum(size**p, axis=axis, keepdims=keepdim) ** (1.0 / p)


def _normalize_vjp(xp: Any, grad: Any, x: Any, p: float, axis: int, epsilon: float) -> tuple[Any]:
    norm = _vector_norm(xp, x, p, axis, True)
    bound = xp.maximum(norm, epsilon)
    pull = -xp.sum(grad * x, axis=axis, keepdims=True) / (bound * bound)
    pull = xp.where(norm > epsilon, pull, 0.0)
    # d|x|_p / dx = sign(x) |x|^(p-1) / |x|_p^(p-1)
    if p == 2:
        slope = x / bound
    elif p == 1:
        slope = xp.sign(x)
    elif p in (float("inf"), float("-inf")):
        peak = xp.abs(x) == norm
        slope = xp.sign(x) * peak / xp.sum(peak, axis=axis, keepdims=True)
    elif p == 0:
        slope = xp.zeros_like(x)
    else:
        slope = xp.sign(x) * (xp.abs(x) / bound) ** (p - 1)
    return (grad / bound + pull * slope,)


@op(name="normalize", vjp=_normalize_vjp, infer="elementwise", inputs=("x",))
def _normalize(xp, x, p=2.0, axis=1, epsilon=1e-12):
    return x / xp.maximum(_vector_norm(xp, x, p, axis, True), epsilon)


@public(also={"input": "x", "dim": "axis", "eps": "epsilon"}, takes="fc")
def normalize(
    x: Tensor,
    p: float = 2,
    axis: int = 1,
    epsilon: float = 1e-12,
    out: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """`x` divided by its p-norm along `axis`, or by `epsilon` where the norm is smaller."""
    ndim = x.ndim
    axis = dimension_in(axis, ndim, "normalize")
    made = _normalize(x, float(p), axis, float(epsilon))
    return made if out is None else put(out, made, "normalize")


@op(promote="binary")
def _pairwise_distance(xp, x, y, p=2.0, epsilon=1e-6, keepdim=False):
    x, y = (xp.reshape(a, (1,)) if a.ndim == 0 else a for a in (x, y))
    return _vector_norm(xp, x - y + epsilon, p, -1, keepdim)


@public(also={"x1": "x", "eps": "epsilon", "x2": "y"}, takes="bfc")
def pairwise_distance(
    x: Tensor,
    y: Tensor,
    p: float = 2.0,
    epsilon: float = 1e-6,
    keepdim: bool = False,
    name: str | None = None,
) -> Tensor:
    """The p-norm of x - y + epsilon along the last dimension."""
    return _pairwise_distance(x, y, float(p), epsilon, keepdim)


# --- labels and masks ---------------------------------------------------------------------------


def _smooth_check(label: Aval, prior_dist: Aval | None, epsilon: Any) -> None:
    if label.ndim == 0:
        raise ShapeMismatch("a 0-d label has no classes")


@op(
    inputs=("label", "prior_dist", "epsilon"),
    vjp=lambda xp, grad, epsilon: (grad * (1 - epsilon), None, None),
    infer=lambda label, prior_dist, epsilon: label,
    check=_smooth_check,
)
def _label_smooth(xp, label, prior_dist, epsilon):
    if prior_dist is None:
        return label * (1 - epsilon) + epsilon / label.shape[-1]
    return label * (1 - epsilon) + epsilon * prior_dist


@public(takes="fc")
def label_smooth(
    label: Tensor,
    prior_dist: Tensor | None = None,
    epsilon: float = 0.1,
    name: str | None = None,
) -> Tensor:
    """(1 - epsilon) * label + epsilon * prior; the prior is uniform unless given."""
    if not 0.0 <= epsilon <= 1.0:
        raise InvalidArgument(f"[label_smooth] epsilon must be in [0, 1]. Received: {epsilon}")
    if prior_dist is not None:
        need_float("prior_dist", prior_dist)
    return _label_smooth(label, prior_dist, float(epsilon))


@op(
    name="sequence_mask",
    differentiable=False,
    inputs=("x",),
    infer=lambda x, maxlen, dtype: aval((*x.shape, maxlen), dtype),
    check=lambda x, maxlen, dtype: need_integer("x", x),
)
def _sequence_mask(xp, x, maxlen=1, dtype=dt.int64):
    return (xp.arange(maxlen, dtype=x.dtype) < x[..., None]).astype(dtype.numpy)


def _mask_result(x: Tensor, maxlen: Any = None, dtype: Any = "int64", name: Any = None) -> Result:
    return Result([*x._value.aval.shape, None], dt.as_dtype(dtype))


@reads_contents(_mask_result)
def _mask_of_tensor_size(x: Tensor, maxlen: Tensor | None, dtype: DTypeLike) -> Tensor:
    if maxlen is None:
        size = int(x.numpy().max()) if x.size else 0
    else:
        size = int(maxlen)
    return _sequence_mask(x, size, dt.as_dtype(dtype))


@public
def sequence_mask(
    x: Tensor, maxlen: int | None = None, dtype: DTypeLike = "int64", name: str | None = None
) -> Tensor:
    """Ones at the first x[i] of `maxlen` places, zeros after; `maxlen` is max(x) by default."""
    if maxlen is None or isinstance(maxlen, Tensor):
        return _mask_of_tensor_size(x, maxlen, dtype)
    size = maxlen if is_dim_expression(maxlen) else int(maxlen)
    return _sequence_mask(x, size, dt.as_dtype(dtype))


def _gather_tree_numpy(xp: Any, ids: Any, parents: Any) -> Any:
    steps, batch, beams = ids.shape
    out = np.empty_like(ids)
    at = np.broadcast_to(np.arange(beams), (batch, beams)).astype(np.int64)
    for t in range(steps - 1, -1, -1):
        out[t] = np.take_along_axis(ids[t], at, axis=1)
        at = np.take_along_axis(parents[t], at, axis=1).astype(np.int64)
    return out


def _gather_tree_check(ids: Aval, parents: Aval) -> None:
    if ids.ndim != 3 or ids.shape != parents.shape:
        raise ShapeMismatch("ids and parents must both be [time, batch, beam], of one shape")


@public
@op(
    differentiable=False,
    numpy=_gather_tree_numpy,
    infer=lambda ids, parents: ids,
    takes="i",
    check=_gather_tree_check,
    requires=lambda ids, parents: [InRange("parents", 0, parents.shape[2] - 1)],
)
def gather_tree(xp, ids, parents):
    """Whole beam-search sequences from the ids and parents [time, batch, beam] of every step."""
    from bireme.host import jax_door

    def step(at: Any, row: Any) -> Any:
        words, up = row
        return (
            xp.take_along_axis(up, at, axis=1).astype(np.int64),
            xp.take_along_axis(words, at, axis=1),
        )

    start = xp.broadcast_to(xp.arange(ids.shape[2], dtype=np.int64), ids.shape[1:])
    return jax_door.jax().lax.scan(step, start, (ids, parents), reverse=True)[1]
