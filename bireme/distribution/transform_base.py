"""What all transforms share: the calls that check their input, and the kinds of functions."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distribution import variable
from bireme.distribution.distribution import Distribution


class Type(enum.Enum):
    """What kind of function a transform is."""

    BIJECTION = "bijection"
    INJECTION = "injection"
    SURJECTION = "surjection"
    OTHER = "other"

    @classmethod
    def is_injective(cls, kind: Type) -> bool:
        return kind in (cls.BIJECTION, cls.INJECTION)


class Transform:
    """A function of random variables: `forward`, `inverse` and the Jacobian's log-determinant.

    A subclass defines `_forward`, `_inverse` and one of `_forward_log_det_jacobian` and
    `_inverse_log_det_jacobian`; `_domain` and `_codomain` say how many dimensions an event has,
    `_forward_shape` and `_inverse_shape` what happens to shapes.
    """

    _type = Type.INJECTION

    def __init__(self) -> None:
        pass

    def _is_injective(self) -> bool:
        return Type.is_injective(self._type)

    def __call__(self, input: Any) -> Any:
        """A transformed distribution, a chain of transforms, or `forward` of a tensor."""
        if isinstance(input, Distribution):
            from bireme.distribution.transformed_distribution import TransformedDistribution

            return TransformedDistribution(input, [self])
        if isinstance(input, Transform):
            from bireme.distribution.transform import ChainTransform

            return ChainTransform([self, input])
        return self.forward(input)

    def forward(self, x: Tensor) -> Tensor:
        """y for x."""
        return self._forward(self._checked("forward", "x", x, self._domain.event_rank))

    def inverse(self, y: Tensor) -> Any:
        """x for y."""
        return self._inverse(self._checked("inverse", "y", y, self._codomain.event_rank))

    def forward_log_det_jacobian(self, x: Tensor) -> Tensor:
        """log |det dy/dx| at x."""
        self._checked("forward_log_det_jacobian", "x", x, self._domain.event_rank)
        if not self._is_injective():
            raise NotImplementedError(
                f"{type(self).__name__} is not injective: its forward map has no Jacobian "
                "determinant"
            )
        if hasattr(self, "_forward_log_det_jacobian"):
            return self._forward_log_det_jacobian(x)  # type: ignore[attr-defined]
        if hasattr(self, "_inverse_log_det_jacobian"):
            return -self._inverse_log_det_jacobian(self.forward(x))  # type: ignore[attr-defined]
        raise self._lacks_jacobian()

    def inverse_log_det_jacobian(self, y: Tensor) -> Any:
        """log |det dx/dy| at y."""
        self._checked("inverse_log_det_jacobian", "y", y, self._codomain.event_rank)
        if hasattr(self, "_inverse_log_det_jacobian"):
            return self._inverse_log_det_jacobian(y)  # type: ignore[attr-defined]
        if hasattr(self, "_forward_log_det_jacobian"):
            return -self._forward_log_det_jacobian(self._inverse(y))  # type: ignore[attr-defined]
        raise self._lacks_jacobian()

    def forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        """The shape of y for the shape of x."""
        return self._forward_shape(shape_given(self, shape))

    def inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        """The shape of x for the shape of y."""
        return self._inverse_shape(shape_given(self, shape))

    @property
    def _domain(self) -> variable.Variable:
        return variable.real

    @property
    def _codomain(self) -> variable.Variable:
        return variable.real

    def _forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} defines no _forward")

    def _inverse(self, y: Tensor) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no _inverse")

    def _forward_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return shape

    def _inverse_shape(self, shape: Sequence[int]) -> Sequence[int]:
        return shape

    def _lacks_jacobian(self) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} must define _forward_log_det_jacobian or "
            "_inverse_log_det_jacobian"
        )

    def _checked(self, method: str, name: str, value: Any, rank: int) -> Tensor:
        what = f"{type(self).__name__}.{method}"
        require_tensor(what, name, value)
        if value.dim() < rank:
            raise ShapeMismatch(
                f"[{what}] {name} needs {rank} dimensions or more. Received: shape {value.shape}"
            )
        return value


def require_tensor(what: str, name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeMismatch(
            f"[{what}] {name} must be a Tensor. Received: {type(value).__name__}; convert it "
            "with paddle.to_tensor"
        )
    return value


def shape_given(owner: Transform, shape: Any) -> Sequence[int]:
    if not isinstance(shape, Sequence):
        raise TypeMismatch(
            f"[{type(owner).__name__}] a shape must be a list or tuple of integers. Received: "
            f"{type(shape).__name__}"
        )
    return shape


def require_transforms(owner: str, transforms: Any) -> None:
    if not isinstance(transforms, Sequence) or not all(
        isinstance(t, Transform) for t in transforms
    ):
        raise TypeMismatch(
            f"[{owner}] transforms must be a list of Transforms. Received: {transforms!r}"
        )
