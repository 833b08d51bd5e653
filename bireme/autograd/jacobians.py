"""Jacobians and Hessians whose rows are computed when they are asked for.

y = paddle.tanh(x)                        # x: [N]
paddle.autograd.jacobian(y, x)[0]         # one row: one backward pass
paddle.autograd.hessian(loss, x)[:]       # all of it
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from bireme.autograd.functional import grad
from bireme.core.errors import IndexOutOfRange, InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.creation import zeros_like
from bireme.ops.joining import concat
from bireme.ops.manipulation import reshape

Tensors = Tensor | list[Tensor] | tuple[Tensor, ...]


def listed(xs: Tensors) -> list[Tensor]:
    """One tensor or several, as a list."""
    return list(xs) if isinstance(xs, list | tuple) else [xs]


def pull_back(ys: Tensors, xs: list[Tensor], v: Tensors | None = None) -> list[Tensor]:
    """The gradients of `ys` by each of `xs`, themselves differentiable; zeros where there is
    no connection."""
    outputs = listed(ys)
    linked = [i for i, y in enumerate(outputs) if not y.stop_gradient]
    weights = None if v is None else [listed(v)[i] for i in linked]
    found: list[Any] = [None] * len(xs)
    if linked:
        found = grad(
            [outputs[i] for i in linked], xs, weights, create_graph=True, allow_unused=True
        )
    return [_zeros(x) if g is None else g for g, x in zip(found, xs, strict=True)]


def _zeros(x: Tensor) -> Tensor:
    made = zeros_like(x)
    made.stop_gradient = x.stop_gradient
    return made


class Rows:
    """The derivatives of flat `ys` by flat `xs`, row by row.

    Without a batch the matrix is [ys, xs]; with one it is [batch, ys, xs], and the samples of
    a batch do not mix, so one backward pass still gives one row of every sample.
    """

    def __init__(self, ys: list[Tensor], xs: list[Tensor], batched: bool):
        self.xs = xs
        self.axis = 1 if batched else 0
        self.ys = self._flat(ys)
        width = sum(_size(x.shape[self.axis :]) for x in xs)
        self.shape = (*(self.ys.shape[:1] if batched else ()), self.ys.shape[-1], width)
        self._made: dict[int, Tensor] = {}

    def _flat(self, tensors: list[Tensor]) -> Tensor:
        lead = [tensors[0].shape[0]] if self.axis else []
        parts = [reshape(t, [*lead, -1]) for t in tensors]
        return parts[0] if len(parts) == 1 else concat(parts, -1)

    def row(self, k: int) -> Tensor:
        """[xs], or [batch, xs]."""
        if k not in self._made:
            one = self.ys[:, k] if self.axis else self.ys[k]
            self._made[k] = self._flat(pull_back(one, self.xs))
        return self._made[k]

    def pick(self, index: tuple[Any, ...]) -> Tensor:
        """The part of the matrix at `index`; only the rows in it are computed."""
        index = _normal(index, self.shape)
        which = index[self.axis]
        others = (*index[: self.axis], *index[self.axis + 1 :])
        if isinstance(which, int):
            return self.row(which)[others]
        rows = [reshape(self.row(k), self._one_row()) for k in range(*which.indices(10**9))]
        part = rows[0] if len(rows) == 1 else concat(rows, self.axis)
        return part[(*index[: self.axis], slice(None), *index[self.axis + 1 :])]

    def _one_row(self) -> list[Any]:
        shape = list(self.shape)
        shape[self.axis] = 1
        return shape


def _size(shape: Sequence[Any]) -> Any:
    total: Any = 1
    for d in shape:
        total = total * d
    return total


def _normal(index: tuple[Any, ...], shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """An index for each dimension, counted from the front."""
    if any(i is Ellipsis for i in index):
        raise IndexOutOfRange("[jacobian] takes integers and slices. Received: an ellipsis")
    if len(index) > len(shape):
        raise IndexOutOfRange(
            f"[jacobian] the matrix has {len(shape)} dimensions. Received: {len(index)} indices"
        )
    whole = (*index, *[slice(None)] * (len(shape) - len(index)))
    found: list[Any] = []
    for i, size in zip(whole, shape, strict=True):
        if isinstance(i, slice):
            found.append(slice(*i.indices(size)))
        elif isinstance(i, int) and -size <= i < size:
            found.append(i + size if i < 0 else i)
        elif isinstance(i, int):
            raise IndexOutOfRange(f"[jacobian] the dimension has {size} entries. Received: {i}")
        else:
            raise TypeMismatch(
                f"[jacobian] takes integers and slices. Received: {type(i).__name__}"
            )
    return tuple(found)


class Jacobian:
    """The derivatives of `ys` by `xs`; index it, or compute with it as with a tensor.

    `ys` and `xs` are 0-d or 1-d, or with a batch 1-d or 2-d. A 0-d side has no dimension in the
    matrix: the Jacobian of a number by a vector is a vector.
    """

    def __init__(self, ys: Tensor, xs: Tensor, is_batched: bool = False):
        lowest = 1 if is_batched else 0
        for name, t in (("ys", ys), ("xs", xs)):
            if not lowest <= t.ndim <= lowest + 1:
                raise ShapeMismatch(
                    f"[jacobian] {name} must have {lowest} or {lowest + 1} dimensions"
                    f"{' with a batch' if is_batched else ''}. Received: {t.shape}"
                )
        self._rows = Rows([ys], [xs], is_batched)
        self._has = (*[True] * lowest, ys.ndim > lowest, xs.ndim > lowest)
        self._whole: Tensor | None = None

    @property
    def shape(self) -> list[int]:
        """The dimensions of the matrix."""
        return [d for d, kept in zip(self._rows.shape, self._has, strict=True) if kept]

    def __getitem__(self, index: Any) -> Tensor:
        given = list(index) if isinstance(index, tuple) else [index]
        if len(given) > sum(self._has):
            raise IndexOutOfRange(
                f"[jacobian] the matrix has {sum(self._has)} dimensions. Received: {index!r}"
            )
        full = [(given.pop(0) if given else slice(None)) if kept else 0 for kept in self._has]
        return self._rows.pick(tuple(full))

    def _evaluate_all(self) -> Tensor:
        if self._whole is None:
            full = tuple([slice(None) if kept else 0 for kept in self._has])
            self._whole = self._rows.pick(full)
        return self._whole

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"Jacobian has no attribute {name!r}")
        return getattr(self._evaluate_all(), name)

    __hash__ = object.__hash__


def _value(x: Any) -> Any:
    return x._evaluate_all() if isinstance(x, Jacobian) else x


def _binary(function: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: function(_value(self), _value(other))


def _reflected(function: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: function(_value(other), _value(self))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Jacobian, f"__{_name}__", _binary(getattr(operator, _name)))
    setattr(Jacobian, f"__r{_name}__", _reflected(getattr(operator, _name)))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Jacobian, f"__{_name}__", _binary(getattr(operator, _name)))


class Hessian(Jacobian):
    """The second derivatives of one number (per sample of a batch)."""


def jacobian(ys: Tensors, xs: Tensors, batch_axis: int | None = None) -> Jacobian | tuple[Any, ...]:
    """The derivatives of `ys` by `xs`, row by row as they are asked for.

    For several `ys` or `xs` a tuple, for several of both a tuple of tuples. With batch_axis=0
    the first dimension of both is a batch whose samples do not depend on each other.
    """
    if batch_axis not in (None, 0):
        raise InvalidArgument(f"[jacobian] batch_axis must be None or 0. Received: {batch_axis!r}")
    return _derivatives(Jacobian, ys, xs, batch_axis is not None)


def _derivatives(kind: type[Jacobian], ys: Any, xs: Any, batched: bool) -> Any:
    if isinstance(ys, list | tuple):
        return tuple([_derivatives(kind, y, xs, batched) for y in ys])
    target = _value(ys)
    if isinstance(xs, list | tuple):
        return tuple([kind(target, x, batched) for x in xs])
    return kind(target, xs, batched)


def hessian(ys: Tensor, xs: Tensors, batch_axis: int | None = None) -> Jacobian | tuple[Any, ...]:
    """The second derivatives of `ys`, which holds one number (or one per sample), by `xs`."""
    if batch_axis not in (None, 0):
        raise InvalidArgument(f"[hessian] batch_axis must be None or 0. Received: {batch_axis!r}")
    lead = 0 if batch_axis is None else 1
    if _size(ys.shape[lead:]) != 1:
        raise ShapeMismatch(
            f"[hessian] ys must hold one number{' per sample' if lead else ''}. Received: "
            f"{ys.shape}"
        )
    first: Any = jacobian(reshape(ys, [-1] if lead else []), xs, batch_axis)
    return _derivatives(Hessian, first, xs, batch_axis is not None)
