"""Distributions of functions of random variables, and batches counted as events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distribution.distribution import Distribution, sum_rightmost
from bireme.distribution.transform import ChainTransform
from bireme.distribution.transform_base import Transform, require_transforms


def _require_distribution(owner: str, base: Any) -> None:
    if not isinstance(base, Distribution):
        raise TypeMismatch(
            f"[{owner}] base must be a Distribution. Received: {type(base).__name__}"
        )


class Independent(Distribution):
    """A distribution with its last batch dimensions counted as part of the event.

    Independent(Normal(zeros, ones), 1)   # a vector of independent normal numbers
    """

    def __init__(self, base: Distribution, reinterpreted_batch_rank: int) -> None:
        _require_distribution("Independent", base)
        rank = len(base.batch_shape)
        if not 0 < reinterpreted_batch_rank <= rank:
            raise InvalidArgument(
                f"[Independent] reinterpreted_batch_rank must be from 1 to {rank}, the dimensions "
                f"of the base's batch. Received: {reinterpreted_batch_rank}"
            )
        self._base = base
        self._reinterpreted_batch_rank = reinterpreted_batch_rank
        shape = base.batch_shape + base.event_shape
        cut = rank - reinterpreted_batch_rank
        super().__init__(shape[:cut], shape[cut:])

    @property
    def mean(self) -> Tensor:
        return self._base.mean

    @property
    def variance(self) -> Tensor:
        return self._base.variance

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        return self._base.sample(shape)

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        return self._base.rsample(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self._base.log_prob(value), self._reinterpreted_batch_rank)

    def entropy(self) -> Tensor:
        return sum_rightmost(self._base.entropy(), self._reinterpreted_batch_rank)


class TransformedDistribution(Distribution):
    """The distribution of `transforms` applied, in order, to a variable of `base`."""

    def __init__(self, base: Distribution, transforms: Sequence[Transform]) -> None:
        _require_distribution("TransformedDistribution", base)
        require_transforms("TransformedDistribution", transforms)
        self._base = base
        self._transforms = transforms
        if not transforms:
            super().__init__(base.batch_shape, base.event_shape)
            return
        chain = ChainTransform(transforms)
        shape = base.batch_shape + base.event_shape
        needed = chain._domain.event_rank
        if len(shape) < needed:
            raise ShapeMismatch(
                f"[TransformedDistribution] the base needs {needed} dimensions or more for these "
                f"transforms. Received: shape {list(shape)}"
            )
        made = tuple(chain.forward_shape(shape))
        rank = chain._codomain.event_rank + max(len(base.event_shape) - needed, 0)
        super().__init__(made[: len(made) - rank], made[len(made) - rank :])

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        return self._forward(self._base.sample(shape))

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        return self._forward(self._base.rsample(shape))

    def _forward(self, x: Tensor) -> Tensor:
        for t in self._transforms:
            x = t.forward(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        total: Any = 0.0
        rank = len(self.event_shape)
        for t in reversed(self._transforms):
            x = t.inverse(value)
            rank += t._domain.event_rank - t._codomain.event_rank
            slope = t.forward_log_det_jacobian(x)
            total = total - sum_rightmost(slope, rank - t._domain.event_rank)
            value = x
        base = self._base.log_prob(value)
        return total + sum_rightmost(base, rank - len(self._base.event_shape))


__all__ = ["Independent", "TransformedDistribution"]
