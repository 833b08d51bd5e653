"""Values that need no computation: constants and shapes, which may hold symbolic dimensions.

Ops over known values are worked out while a program is read, in NumPy on object arrays, so shape
arithmetic never becomes part of the graph and `reshape` sees dimensions, not tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.tensor import Tensor
from bireme.ops.creation import to_tensor
from bireme.ops.dimensions import dimensions
from bireme.ops.manipulation import reshape

if TYPE_CHECKING:
    import numpy.typing as npt

LARGEST = 4096  # elements; a larger constant is a tensor


@dataclass(slots=True, frozen=True)
class Known:
    """The contents (an object array of numbers and dimensions) and the dtype they stand for."""

    array: np.ndarray
    dtype: str

    @staticmethod
    def of(items: Sequence[Any], dtype: str, shape: tuple[int, ...] | None = None) -> Known:
        array = np.empty(len(items), object)
        array[:] = items
        return Known(array if shape is None else array.reshape(shape), dtype)

    @property
    def is_numeric(self) -> bool:
        """Whether there are no symbolic dimensions in it."""
        return all(isinstance(i, int | float | bool) for i in self.array.ravel())

    def tensor(self) -> Tensor:
        if self.is_numeric:
            # Through float64 or int64 first: an object array knows no bounds of its own.
            array = np.asarray(self.array.tolist()).reshape(self.array.shape)
            return to_tensor(array.astype(dt.as_dtype(self.dtype).numpy))
        flat = dimensions(tuple(self.array.ravel().tolist()), self.dtype)
        return reshape(flat, list(self.array.shape))


def settled(array: npt.ArrayLike, dtype: str) -> Known:
    """A result as a Known: Python numbers, integers where the dtype holds integers."""
    given = np.asarray(array, object)
    kind = dt.as_dtype(dtype)
    out = np.empty(given.shape, object)
    for at in np.ndindex(given.shape):
        out[at] = _number(given[at], kind)
    return Known(out, dtype)


def _number(value: Any, kind: dt.DType) -> Any:
    if not isinstance(value, int | float | bool | np.generic):
        return value  # a symbolic dimension
    if kind.name == "bool":
        return bool(value)
    if kind.is_integer:
        return int(value)  # towards zero
    return float(np.float32(value)) if kind.name == "float32" else float(value)


Fold = Callable[[Any, list[Known]], Any]
FOLDS: dict[str, Fold] = {}


def fold(*types: str) -> Callable[[Fold], Fold]:
    """Register how ops of these types work on known values.

    The function gets the step and the op's known inputs in slot order; it returns an array in the
    first input's dtype, a Known, a list of them, or None to leave the work to the op's rule.
    """

    def add(function: Fold) -> Fold:
        for kind in types:
            FOLDS[kind] = function
        return function

    return add


def _binary(compute: Callable[[Any, Any], Any], dtype: str | None = None) -> Fold:
    def run(step: Any, given: list[Known]) -> Any:
        x, y = given
        out = np.frompyfunc(compute, 2, 1)(x.array, y.array)
        return settled(out, dtype or x.dtype)

    return run


def _divide(x: Any, y: Any) -> Any:
    return x / y if isinstance(x, float) or isinstance(y, float) else x // y


for _kind, _compute in {
    "elementwise_add": lambda x, y: x + y,
    "elementwise_sub": lambda x, y: x - y,
    "elementwise_mul": lambda x, y: x * y,
    "elementwise_div": _divide,
    "elementwise_floordiv": lambda x, y: x // y,
    "elementwise_mod": lambda x, y: x % y,
    "elementwise_max": lambda x, y: x if x is y else max(x, y),
    "elementwise_min": lambda x, y: x if x is y else min(x, y),
}.items():
    fold(_kind)(_binary(_compute))

for _kind, _compute in {
    "less_than": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater_than": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "logical_and": lambda x, y: x and y,
    "logical_or": lambda x, y: x or y,
}.items():
    fold(_kind)(_binary(_compute, "bool"))


@fold("logical_not")
def _not(step: Any, given: list[Known]) -> Any:
    return settled(np.frompyfunc(lambda x: not x, 1, 1)(given[0].array), "bool")


@fold("assign", "share_data", "shadow_feed", "print")
def _same(step: Any, given: list[Known]) -> Any:
    return given[0]


@fold("cast")
def _cast(step: Any, given: list[Known]) -> Any:
    return settled(given[0].array, step.dtype("out_dtype") or given[0].dtype)


@fold("scale")
def _scale(step: Any, given: list[Known]) -> Any:
    factor, bias = step.number("scale", "ScaleTensor", default=1.0), step.attr("bias", 0.0)
    if not isinstance(factor, int | float):
        return None
    kind = dt.as_dtype(given[0].dtype)
    if kind.is_integer:
        if factor != int(factor) or bias != int(bias):
            return None
        factor, bias = int(factor), int(bias)
    x = given[0].array
    return x * factor + bias if step.attr("bias_after_scale", True) else (x + bias) * factor


@fold("concat")
def _concat(step: Any, given: list[Known]) -> Any:
    parts = [np.atleast_1d(k.array) for k in step.known_list("X")]
    return np.concatenate(parts, step.axis("axis", "AxisTensor"))


@fold("stack")
def _stack(step: Any, given: list[Known]) -> Any:
    return np.stack([k.array for k in step.known_list("X")], step.attr("axis", 0))


@fold("slice")
def _slice(step: Any, given: list[Known]) -> Any:
    x = step.raw("Input").array
    index: list[Any] = [slice(None)] * x.ndim
    starts = step.ints("starts", "StartsTensor", "StartsTensorList")
    ends = step.ints("ends", "EndsTensor", "EndsTensorList")
    for axis, start, end in zip(step.attr("axes"), starts, ends, strict=True):
        if not (isinstance(start, int) and isinstance(end, int)):
            return None
        index[axis] = slice(start, end)
    out = x[tuple(index)]
    dropped = tuple(step.attr("decrease_axis") or ())
    return np.squeeze(out, dropped) if dropped else out


@fold("reshape2", "reshape")
def _reshape(step: Any, given: list[Known]) -> Any:
    return step.raw("X").array.reshape(step.ints("shape", "ShapeTensor", "Shape"))


@fold("unsqueeze2", "unsqueeze")
def _unsqueeze(step: Any, given: list[Known]) -> Any:
    out = step.raw("X").array
    for axis in step.ints("axes", "AxesTensor", "AxesTensorList"):
        out = np.expand_dims(out, axis)
    return out


@fold("squeeze2", "squeeze")
def _squeeze(step: Any, given: list[Known]) -> Any:
    axes = step.ints("axes", "AxesTensor")
    return np.squeeze(step.raw("X").array, tuple(axes) or None)


@fold("gather")
def _gather(step: Any, given: list[Known]) -> Any:
    index = step.raw("Index")
    if not index.is_numeric:
        return None
    axis = step.axis("axis", "Axis")
    return np.take(step.raw("X").array, index.array.astype(np.int64), axis)


@fold("reduce_prod")
def _prod(step: Any, given: list[Known]) -> Any:
    x = given[0].array
    if x.ndim != 1:
        return None
    out = np.asarray(math.prod(x.tolist()), object)
    return out.reshape(1) if step.attr("keep_dim", False) else out


@fold("expand_v2")
def _expand(step: Any, given: list[Known]) -> Any:
    shape = step.ints("shape", "Shape", "expand_shapes_tensor")
    x = step.raw("X").array
    if not all(isinstance(d, int) for d in shape) or math.prod(shape) > LARGEST:
        return None
    lead = len(shape) - x.ndim
    full = [x.shape[i - lead] if d == -1 else d for i, d in enumerate(shape)]
    return np.broadcast_to(x, full)


@fold("transpose2")
def _transpose(step: Any, given: list[Known]) -> Any:
    return np.transpose(given[0].array, step.attr("axis"))
