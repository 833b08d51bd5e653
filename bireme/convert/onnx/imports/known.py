"""The same ops over known values, in NumPy.

Shapes are computed here, also symbolic ones (arrays of objects), and so are the types that tensors
do not have: strings and 4-bit or exotic 8-bit numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.onnx.imports import folds
from bireme.convert.onnx.imports.shapes import (
    broadcast_target,
    sizes,
    slice_plan,
    split_sizes,
    target_shape,
)
from bireme.convert.onnx.reader import check_known, check_size
from bireme.convert.onnx.writer import onnx_package
from bireme.convert.sizes import same_size
from bireme.core.dtype import as_dtype
from bireme.core.errors import BiremeError

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value, Values


@functools.cache
def has_tensors(dtype: np.dtype) -> bool:
    """Whether there are tensors of this NumPy dtype."""
    if np.dtype(dtype).kind in "OUST":
        return False
    try:
        as_dtype(np.dtype(dtype))
    except (BiremeError, TypeError, ValueError):
        return False
    return True


def _text(value: Any) -> str:
    """A number as ONNX writes it."""
    if isinstance(value, float | np.floating):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "INF" if value > 0 else "-INF"
        return f"{float(value):.7g}"
    return str(value)


def cast_known(x: np.ndarray, dtype: np.dtype, saturate: bool = True) -> np.ndarray:
    """A cast between any two of ONNX's types."""
    dtype = np.dtype(dtype)
    if is_symbolic(x):
        if dtype.kind == "i":
            return x
        raise _not_foldable()
    if dtype.kind in "OUST":
        made = [v if isinstance(v, str) else _text(v) for v in x.ravel()]
        return np.array(made, object).reshape(x.shape)
    if x.dtype.kind in "OUST":
        parse: Any = float if dtype.kind not in "iu" else lambda v: int(float(v))
        return np.array([parse(v) for v in x.ravel()], np.float64).astype(dtype).reshape(x.shape)
    if dtype.name.startswith("float") and dtype.itemsize == 1:
        return onnx_package().numpy_helper.saturate_cast(x, dtype) if saturate else x.astype(dtype)
    if dtype.name in ("int4", "uint4", "int2", "uint2") and x.dtype.kind not in "iu":
        return np.round(x.astype(np.float32)).astype(np.int32).astype(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype.kind in "iu" and x.dtype.kind not in "iub":
            return np.trunc(x.astype(np.float64)).astype(np.int64).astype(dtype)
        return x.astype(dtype)


def is_symbolic(x: Value) -> bool:
    """Whether a known value holds sizes that are open."""
    return x.dtype == object and any(not isinstance(i, str) for i in x.ravel().tolist())


def _not_foldable() -> Exception:
    from bireme.convert.onnx.interpreter import NotFoldable

    return NotFoldable()


def _trunc_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return x // y if x.dtype == object or y.dtype == object else x / y
    if not np.all(y):
        raise _not_foldable()
    exact = np.abs(x) // np.abs(y)
    return (exact * np.sign(x) * np.sign(y)).astype(x.dtype)


def _equal(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """An open size equals a number only where that is certain either way."""
    if is_symbolic(x) or is_symbolic(y):
        return np.asarray(np.frompyfunc(same_size, 2, 1)(x, y))
    return np.equal(x, y)


def _mod(n: NodeView, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.fmod(x, y) if n.attr("fmod", 0) else np.mod(x, y)


_NUMPY: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _trunc_divide,
    "Neg": np.negative, "Abs": np.abs, "Floor": np.floor, "Ceil": np.ceil, "Sqrt": np.sqrt,
    "Equal": _equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Or": np.logical_or,
    "Not": np.logical_not, "Where": np.where,
}  # fmt: skip


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    def fold(n: NodeView, *xs: Any) -> Any:
        _bounded(*xs)
        if n.opset < 7:
            raise _not_foldable()
        if any(x.dtype.kind == "f" and x.dtype.itemsize < 4 for x in xs):
            raise _not_foldable()
        _bounded_together(*xs)
        with np.errstate(all="ignore"):
            made = np.asarray(function(*xs))
        return made.astype(bool) if function in _TESTS and made.dtype == object else made

    return fold


_TESTS = (_equal, np.less, np.greater, np.less_equal, np.greater_equal)


def _bounded(*xs: np.ndarray) -> None:
    """Large arrays are work for tensors."""
    if any(x.size > 1 << 16 for x in xs):
        raise _not_foldable()


def _bounded_together(*xs: np.ndarray) -> None:
    """Small arrays may make a large one: a column and a row."""
    if math.prod(np.broadcast_shapes(*[x.shape for x in xs])) > 1 << 16:
        raise _not_foldable()


for _name, _function in _NUMPY.items():
    folds(_name)(_checked(_function))
folds("Max")(_checked(lambda *xs: functools.reduce(np.maximum, xs)))
folds("Min")(_checked(lambda *xs: functools.reduce(np.minimum, xs)))


@folds("Mod")
def mod(n: NodeView, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "iuO":
        raise _not_foldable()
    return _mod(n, x, y)


@folds("Reshape")
def reshape(n: NodeView, x: np.ndarray, shape: Value | None = None) -> np.ndarray:
    shape = n.attr("shape") if shape is None else shape
    wanted = target_shape(n, x.shape, shape)
    if any(type(d) is not int for d in wanted):
        raise _not_foldable()
    return x.reshape(wanted)


@folds("Transpose")
def transpose(n: NodeView, x: np.ndarray) -> np.ndarray:
    return x.transpose(n.attr("perm"))


@folds("Squeeze")
def squeeze(n: NodeView, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    chosen = n.attr("axes") if axes is None else sizes(axes)
    return x.squeeze() if chosen is None else x.squeeze(tuple(chosen))


@folds("Unsqueeze")
def unsqueeze(n: NodeView, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    return np.expand_dims(x, tuple(n.attr("axes") if axes is None else sizes(axes)))


@folds("Concat")
def concat(n: NodeView, *xs: np.ndarray) -> np.ndarray:
    return np.concatenate(xs, n.attr("axis"))


@folds("Slice")
def slice_(
    n: NodeView,
    x: np.ndarray,
    starts: Value | None = None,
    ends: Value | None = None,
    axes: Value | None = None,
    steps: Value | None = None,
) -> np.ndarray:
    where: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in slice_plan(n, x.ndim, starts, ends, axes, steps):
        if type(start) is not int or type(end) is not int:
            raise _not_foldable()
        first, last, by = slice(start, end, step).indices(x.shape[axis])
        where[axis] = slice(first, last if last >= 0 else None, by)
    return x[tuple(where)]


@folds("Gather")
def gather(n: NodeView, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    if index.dtype == object:
        raise _not_foldable()
    axis = n.attr("axis", 0)
    check_known([*index.shape, *x.shape[:axis], *x.shape[axis:][1:]], x.dtype.itemsize)
    return np.asarray(np.take(x, index, axis))


@folds("GatherElements")
def gather_elements(n: NodeView, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    _bounded(x, index)
    if x.shape != index.shape:
        raise _not_foldable()
    return np.take_along_axis(x, index, n.attr("axis", 0))


@folds("Split")
def split(n: NodeView, x: np.ndarray, parts: Value | None = None) -> Values:
    axis = n.attr("axis", 0)
    lengths = split_sizes(n, x.shape[axis], parts, axis)
    return tuple(np.split(x, np.cumsum(lengths)[:-1].astype(int), axis))


@folds("Expand")
def expand(n: NodeView, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    wanted = broadcast_target(x.shape, shape)
    check_size(wanted, x.dtype.itemsize, "the result")
    if any(type(d) is not int for d in wanted) or math.prod(wanted) > 1 << 16:
        raise _not_foldable()
    return np.broadcast_to(x, wanted).copy()


@folds("Tile")
def tile(n: NodeView, x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
    if repeats.dtype == object or x.size * math.prod(repeats.tolist()) > 1 << 16:
        raise _not_foldable()
    return np.tile(x, repeats)


@folds("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")
def reduce(n: NodeView, x: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    from bireme.convert.onnx.imports.reductions import reduced_axes

    _bounded(x)
    if x.dtype.kind not in "iO" or not x.size:
        raise _not_foldable()
    over = reduced_axes(n, x.ndim, axes)
    if over is None:
        return x
    function: Any = {
        "ReduceSum": np.sum,
        "ReduceProd": np.prod,
        "ReduceMax": np.max,
        "ReduceMin": np.min,
    }[n.kind]
    made = np.asarray(function(x, axis=tuple(over), keepdims=bool(n.attr("keepdims", 1))))
    return made if x.dtype == object else made.astype(x.dtype)


@folds("ScatterND")
def scatter_nd(n: NodeView, x: np.ndarray, index: np.ndarray, updates: np.ndarray) -> np.ndarray:
    _bounded(x)
    if n.attr("reduction", "none") != "none" or index.dtype == object:
        raise _not_foldable()
    out = x.astype(object) if updates.dtype == object else x.copy()
    out[tuple(np.moveaxis(index, -1, 0))] = updates
    return out


@folds("CumSum")
def cumsum(n: NodeView, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    _bounded(x)
    if n.attr("exclusive", 0) or n.attr("reverse", 0) or x.dtype.kind not in "iO":
        raise _not_foldable()
    return np.cumsum(x, int(np.ravel(axis)[0]), dtype=x.dtype)
