"""Invertible functions with a known Jacobian, which make new distributions of old ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import bireme
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import broadcast_shapes
from bireme.core.tensor import Tensor
from bireme.distribution import constraint, variable
from bireme.distribution.distribution import sum_rightmost
from bireme.distribution.transform_base import (
    Transform,
    Type,
    require_tensor,
    require_transforms,
    shape_given,
)
from bireme.nn import functional as F


class AbsTransform(Transform):
    """y = |x|. Not injective: `inverse` gives both (-y, y)."""

    _type = Type.SURJECTION

    def _forward(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return -y, y

    def _inverse_log_det_jacobian(self, y: Tensor) -> tuple[Tensor, Tensor]:
        zero = bireme.zeros([], dtype=y.dtype)
        return zero, zero

    @property
    def _codomain(self) -> variable.Variable:
        return variable.positive


class AffineTransform(Transform):
    """y = loc + scale * x."""

    _type = Type.BIJECTION

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        self._loc = require_tensor("AffineTransform", "loc", loc)
        self._scale = require_tensor("AffineTransform", "scale", scale)

    @property
    def loc(self) -> Tensor:
        return self._loc

    @property
    def scale(self) -> Tensor:
        return self._scale

    def _forward(self, x: Tensor) -> Tensor:
        return self._loc + self._scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self._loc) / self._scale

    def _forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        return self._scale.abs().log()

    def _forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return broadcast_shapes(tuple(shape), tuple(self._loc.shape), tuple(self._scale.shape))

    _inverse_shape = _forward_shape


class ChainTransform(Transform):
    """Several transforms, the first one first."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        require_transforms("ChainTransform", transforms)
        self.transforms = transforms

    def _is_injective(self) -> bool:
        return all(t._is_injective() for t in self.transforms)

    def _forward(self, x: Tensor) -> Tensor:
        for t in self.transforms:
            x = t.forward(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for t in reversed(self.transforms):
            y = t.inverse(y)
        return y

    def _forward_log_det_jacobian(self, x: Tensor) -> Any:
        total: Any = 0.0
        rank = self._domain.event_rank
        for t in self.transforms:
            extra = rank - t._domain.event_rank
            total = total + sum_rightmost(t.forward_log_det_jacobian(x), extra)
            x = t.forward(x)
            rank += t._codomain.event_rank - t._domain.event_rank
        return total

    def _forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        for t in self.transforms:
            shape = t.forward_shape(shape)
        return shape

    def _inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        for t in reversed(self.transforms):
            shape = t.inverse_shape(shape)
        return shape

    @property
    def _domain(self) -> variable.Variable:
        first = self.transforms[0]._domain
        rank = self.transforms[-1]._codomain.event_rank
        for t in reversed(self.transforms):
            rank -= t._codomain.event_rank - t._domain.event_rank
            rank = max(rank, t._domain.event_rank)
        return variable.Independent(first, rank - first.event_rank)

    @property
    def _codomain(self) -> variable.Variable:
        last = self.transforms[-1]._codomain
        rank = self.transforms[0]._domain.event_rank
        for t in self.transforms:
            rank += t._codomain.event_rank - t._domain.event_rank
            rank = max(rank, t._codomain.event_rank)
        return variable.Independent(last, rank - last.event_rank)


class ExpTransform(Transform):
    """y = exp(x)."""

    _type = Type.BIJECTION

    @property
    def _codomain(self) -> variable.Variable:
        return variable.positive

    def _forward(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def _forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        return x


class IndependentTransform(Transform):
    """A transform with its last batch dimensions counted as part of the event."""

    def __init__(self, base: Transform, reinterpreted_batch_rank: int) -> None:
        if not isinstance(base, Transform):
            raise TypeMismatch(
                f"[IndependentTransform] base must be a Transform. Received: {type(base).__name__}"
            )
        if reinterpreted_batch_rank <= 0:
            raise InvalidArgument(
                "[IndependentTransform] reinterpreted_batch_rank must be positive. Received: "
                f"{reinterpreted_batch_rank}"
            )
        self._base = base
        self._reinterpreted_batch_rank = reinterpreted_batch_rank

    def _is_injective(self) -> bool:
        return self._base._is_injective()

    def _forward(self, x: Tensor) -> Tensor:
        return self._base.forward(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._base.inverse(y)

    def _forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        inner = self._base.forward_log_det_jacobian(x)
        return sum_rightmost(inner, self._reinterpreted_batch_rank)

    def _forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return self._base.forward_shape(shape)

    def _inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return self._base.inverse_shape(shape)

    @property
    def _domain(self) -> variable.Variable:
        return variable.Independent(self._base._domain, self._reinterpreted_batch_rank)

    @property
    def _codomain(self) -> variable.Variable:
        return variable.Independent(self._base._codomain, self._reinterpreted_batch_rank)


class PowerTransform(Transform):
    """y = x ** power."""

    _type = Type.BIJECTION

    def __init__(self, power: Tensor) -> None:
        self._power = require_tensor("PowerTransform", "power", power)

    @property
    def power(self) -> Tensor:
        return self._power

    @property
    def _codomain(self) -> variable.Variable:
        return variable.positive

    def _forward(self, x: Tensor) -> Tensor:
        return x.pow(self._power)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self._power)

    def _forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        return (self._power * x.pow(self._power - 1)).abs().log()

    def _forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return broadcast_shapes(tuple(shape), tuple(self._power.shape))

    _inverse_shape = _forward_shape


class ReshapeTransform(Transform):
    """Events of one shape as events of another one of the same size."""

    _type = Type.BIJECTION

    def __init__(self, in_event_shape: Sequence[int], out_event_shape: Sequence[int]) -> None:
        self._in_event_shape = tuple(shape_given(self, in_event_shape))
        self._out_event_shape = tuple(shape_given(self, out_event_shape))
        if math.prod(self._in_event_shape) != math.prod(self._out_event_shape):
            raise InvalidArgument(
                "[ReshapeTransform] both event shapes must have the same number of elements. "
                f"Received: {list(in_event_shape)} and {list(out_event_shape)}"
            )

    @property
    def in_event_shape(self) -> tuple[int, ...]:
        return self._in_event_shape

    @property
    def out_event_shape(self) -> tuple[int, ...]:
        return self._out_event_shape

    @property
    def _domain(self) -> variable.Variable:
        return variable.Independent(variable.real, len(self._in_event_shape))

    @property
    def _codomain(self) -> variable.Variable:
        return variable.Independent(variable.real, len(self._out_event_shape))

    def _forward(self, x: Tensor) -> Tensor:
        batch = x.shape[: x.dim() - len(self._in_event_shape)]
        return x.reshape([*batch, *self._out_event_shape])

    def _inverse(self, y: Tensor) -> Tensor:
        batch = y.shape[: y.dim() - len(self._out_event_shape)]
        return y.reshape([*batch, *self._in_event_shape])

    def _forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return _exchange_event(shape, self._in_event_shape, self._out_event_shape)

    def _inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return _exchange_event(shape, self._out_event_shape, self._in_event_shape)

    def _forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        return bireme.zeros(x.shape[: x.dim() - len(self._in_event_shape)], dtype=x.dtype)


def _exchange_event(
    shape: Sequence[int], old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...]:
    batch = len(shape) - len(old)
    if batch < 0 or tuple(shape[batch:]) != old:
        raise ShapeMismatch(
            f"[ReshapeTransform] the shape must end with the event shape {list(old)}. Received: "
            f"{list(shape)}"
        )
    return (*shape[:batch], *new)


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x))."""

    @property
    def _codomain(self) -> variable.Variable:
        return variable.Variable(False, 0, constraint.Range(0.0, 1.0))

    def _forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log() - (-y).log1p()

    def _forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class SoftmaxTransform(Transform):
    """y = softmax(x) over the last dimension; not injective."""

    _type = Type.OTHER

    @property
    def _domain(self) -> variable.Variable:
        return variable.Independent(variable.real, 1)

    @property
    def _codomain(self) -> variable.Variable:
        return variable.Variable(False, 1, constraint.simplex)

    def _forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, axis=-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def _forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return _vector_shape(self, shape)

    _inverse_shape = _forward_shape


def _vector_shape(owner: Transform, shape: Sequence[int]) -> Sequence[int]:
    if len(shape) < 1:
        raise ShapeMismatch(
            f"[{type(owner).__name__}] events are vectors: the shape needs one dimension or more. "
            f"Received: {list(shape)}"
        )
    return shape


class StackTransform(Transform):
    """One transform for each slice along an axis."""

    def __init__(self, transforms: Sequence[Transform], axis: int = 0) -> None:
        require_transforms("StackTransform", transforms)
        if not transforms or not isinstance(axis, int):
            raise TypeMismatch(
                "[StackTransform] needs one transform or more and an integer axis. Received: "
                f"{len(transforms)} transforms, axis {axis!r}"
            )
        self._transforms = transforms
        self._axis = axis

    def _is_injective(self) -> bool:
        return all(t._is_injective() for t in self._transforms)

    @property
    def transforms(self) -> Sequence[Transform]:
        return self._transforms

    @property
    def axis(self) -> int:
        return self._axis

    def _each(self, method: str, x: Tensor) -> Tensor:
        if not -x.dim() <= self._axis < x.dim() or x.shape[self._axis] != len(self._transforms):
            raise ShapeMismatch(
                f"[StackTransform] the input needs {len(self._transforms)} slices along axis "
                f"{self._axis}, one per transform. Received: shape {x.shape}"
            )
        parts = zip(bireme.unstack(x, self._axis), self._transforms, strict=True)
        return bireme.stack([getattr(t, method)(part) for part, t in parts], self._axis)

    def _forward(self, x: Tensor) -> Tensor:
        return self._each("forward", x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._each("inverse", y)

    def _forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        return self._each("forward_log_det_jacobian", x)

    @property
    def _domain(self) -> variable.Variable:
        return variable.Stack([t._domain for t in self._transforms], self._axis)

    @property
    def _codomain(self) -> variable.Variable:
        return variable.Stack([t._codomain for t in self._transforms], self._axis)


class StickBreakingTransform(Transform):
    """Real vectors to points of the simplex with one more coordinate, by breaking a stick."""

    _type = Type.BIJECTION

    def _forward(self, x: Tensor) -> Tensor:
        z = F.sigmoid(x - _log_pieces_left(x, x.shape[-1] + 1))
        edge = bireme.ones([*x.shape[:-1], 1], dtype=x.dtype)
        left = bireme.concat([edge, (1 - z).cumprod(-1)], axis=-1)
        return bireme.concat([z, edge], axis=-1) * left

    def _inverse(self, y: Tensor) -> Tensor:
        taken = y[..., :-1]
        left = 1 - taken.cumsum(-1)
        return taken.log() - left.log() + _log_pieces_left(taken, y.shape[-1])

    def _forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        y = self.forward(x)
        x = x - _log_pieces_left(x, x.shape[-1] + 1)
        return (-x + F.log_sigmoid(x) + y[..., :-1].log()).sum(-1)

    def _forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return (*_vector_shape(self, shape)[:-1], shape[-1] + 1)

    def _inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return (*_vector_shape(self, shape)[:-1], shape[-1] - 1)

    @property
    def _domain(self) -> variable.Variable:
        return variable.Independent(variable.real, 1)

    @property
    def _codomain(self) -> variable.Variable:
        return variable.Variable(False, 1, constraint.simplex)


def _log_pieces_left(x: Tensor, pieces: Any) -> Tensor:
    """log of how many pieces the rest of the stick still makes, at each break."""
    done = bireme.ones([x.shape[-1]], dtype=x.dtype).cumsum(-1)
    return (pieces - done).log()


class TanhTransform(Transform):
    """y = tanh(x)."""

    _type = Type.BIJECTION

    @property
    def _codomain(self) -> variable.Variable:
        return variable.Variable(False, 0, constraint.Range(-1.0, 1.0))

    def _forward(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def _forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


__all__ = [
    "AbsTransform", "AffineTransform", "ChainTransform", "ExpTransform", "IndependentTransform",
    "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
    "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
]  # fmt: skip
