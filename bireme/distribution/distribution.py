"""What all distributions share: shapes, parameters as tensors, sampling without gradients."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

import bireme
from bireme.api.types import DTypeLike, TensorLike
from bireme.core import dtype as dt
from bireme.core.dtype import kind
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.op import op
from bireme.core.requirements import Holds
from bireme.core.tensor import Tensor
from bireme.ops.axes import ints


class Distribution:
    """A probability distribution over events of `event_shape`, one for each place of `batch_shape`.

    A subclass defines `rsample` (samples that carry gradients to the parameters) or `sample`, and
    `log_prob`; the others follow where they can.
    """

    def __init__(self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = ()) -> None:
        self._batch_shape = tuple(batch_shape)
        self._event_shape = tuple(event_shape)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one event; () for a distribution of numbers."""
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        raise self._lacks("mean")

    @property
    def variance(self) -> Tensor:
        raise self._lacks("variance")

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        """Samples of `shape` for each place of the batch, without a gradient."""
        with bireme.no_grad():
            return self.rsample(shape)

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        """Samples as a differentiable function of the parameters."""
        raise self._lacks("rsample")

    def entropy(self) -> Tensor:
        raise self._lacks("entropy")

    def kl_divergence(self, other: Distribution) -> Tensor:
        """How far `other` is from this distribution, in nats."""
        from bireme.distribution.kl import kl_divergence

        return kl_divergence(self, other)

    def log_prob(self, value: Tensor) -> Tensor:
        raise self._lacks("log_prob")

    def prob(self, value: Tensor) -> Tensor:
        """The density (or the probability) at `value`."""
        return self.log_prob(value).exp()

    def probs(self, value: Tensor) -> Tensor:
        """The same as `prob`."""
        return self.prob(value)

    def _lacks(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} defines no {what}")

    def _extend_shape(self, sample_shape: Sequence[int]) -> tuple[Any, ...]:
        """The shape of samples: what was asked for, then the batch, then the event."""
        return sample_sizes(sample_shape) + self._batch_shape + self._event_shape


def sample_sizes(shape: Sequence[int]) -> tuple[Any, ...]:
    """The sizes of a `shape` that samples were asked for in."""
    if not hasattr(shape, "__iter__"):
        raise TypeMismatch(
            f"[sample] shape must be a list or tuple of sizes. Received: {shape!r}; write [{shape}]"
        )
    return ints(shape, "shape")


_Family = TypeVar("_Family", bound=Distribution)


def parameters(
    owner: str, *values: Any, dtype: DTypeLike | None = None, mixed: bool = True
) -> list[Tensor]:
    """A distribution's parameters as tensors of one dtype.

    Numbers, lists and arrays take the dtype of the first tensor, else of a floating array, else
    `dtype`, else the default. With `mixed=False` either all or none of them may be tensors.
    """
    tensors = [v for v in values if isinstance(v, Tensor)]
    if len(tensors) == len(values):
        floating = next((t.dtype for t in tensors if t.dtype.is_floating), None)
        if floating is None:
            return tensors
        return [t.astype(floating) if kind(t.dtype) == "int" else t for t in tensors]
    if tensors and not mixed:
        raise InvalidArgument(
            f"[{owner}] the parameters must be all tensors or all numbers. Received: "
            f"{', '.join(type(v).__name__ for v in values)}; convert with paddle.to_tensor"
        )
    for v in values:
        if not isinstance(v, Tensor | numbers.Real | list | tuple | np.ndarray):
            raise TypeMismatch(
                f"[{owner}] a parameter must be a number, a list, an array or a Tensor. Received: "
                f"{type(v).__name__}"
            )
    arrays = [v for v in values if isinstance(v, np.ndarray) and v.dtype.kind == "f"]
    want = tensors[0].dtype if tensors else arrays[0].dtype if arrays else dtype
    want = dt.default_float() if want is None else dt.as_dtype(want)
    return [v if isinstance(v, Tensor) else bireme.to_tensor(v, dtype=want) for v in values]


def broadcast_parameters(owner: str, *values: Any, **options: Any) -> list[Tensor]:
    """As `parameters`, in their common shape."""
    made = parameters(owner, *values, **options)
    if len({tuple(t.shape) for t in made}) == 1:
        return made
    return bireme.broadcast_tensors(made)


def as_value(value: TensorLike, like: Tensor) -> Tensor:
    """What a user passes to `log_prob` and the like, in the dtype of a parameter."""
    if not isinstance(value, Tensor):
        return bireme.to_tensor(value, dtype=like.dtype)
    if value.dtype is not like.dtype and value.dtype.is_floating:
        warnings.warn(
            f"the values are {value.dtype.name} and the distribution's parameters are "
            f"{like.dtype.name}: the values are converted",
            stacklevel=3,
        )
    return value.astype(like.dtype)


def known(x: Tensor) -> np.ndarray | None:
    """The contents of a tensor if they are there already; None if looking would compute them."""
    buffer = x._value.buf
    return buffer if isinstance(buffer, np.ndarray) else None


def _fits(xp: Any, x: Any, positive: bool) -> Any:
    return xp.all(x > 0) if positive else xp.all(x >= 0)


def _says(owner: str, name: str, positive: bool) -> str:
    word = "positive" if positive else "nonnegative"
    return f"every element of {name} of {owner} must be {word}"


@op(
    name="distribution",
    infer=lambda x, **_: x,
    vjp=lambda xp, grad: (grad,),
    exact=True,
    requires=lambda x, owner, parameter, positive: [
        Holds(
            _says(owner, parameter, positive),
            lambda xp, inputs, out: _fits(xp, inputs[0], positive),
            before=True,
        )
    ],
)
def _checked(xp, x, owner="", parameter="x", positive=True):
    """x, whose elements are looked at when it is computed."""
    return x


def checked(owner: str, name: str, x: Tensor, positive: bool) -> Tensor:
    """A parameter that must be positive, or must not be negative: an error now if its contents
    are there, and otherwise when they are computed."""
    array = known(x)
    if array is None:
        return _checked(x, owner, name, positive)
    if not _fits(np, array, positive):
        raise InvalidArgument(f"[{owner}] {_says(owner, name, positive)}. Received: {array}")
    return x


def unit_uniform(shape: Sequence[Any], dtype: DTypeLike, low: float = 0.0) -> Tensor:
    """Uniform numbers in [low, 1)."""
    return bireme.uniform(shape, dtype=dtype, min=low, max=1.0)


def sum_rightmost(x: Tensor, n: int) -> Tensor:
    """The sum over the last n dimensions."""
    return x.sum(list(range(-n, 0))) if n > 0 else x


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds of a probability, or the logarithms of many."""
    return bireme.log(probs) - bireme.log1p(-probs) if is_binary else bireme.log(probs)


def same_kind(owner: _Family, other: Distribution) -> _Family:
    """`other`; complain about a divergence to another family."""
    if isinstance(other, type(owner)):
        return other
    raise TypeMismatch(
        f"[kl_divergence] other must be a {type(owner).__name__}. Received: "
        f"{type(other).__name__}; register a rule with paddle.distribution.register_kl"
    )


def same_batch(owner: Distribution, other: Distribution) -> None:
    if owner.batch_shape != other.batch_shape:
        raise InvalidArgument(
            f"[kl_divergence] both distributions must have the same batch_shape. Received: "
            f"{list(owner.batch_shape)} and {list(other.batch_shape)}"
        )


TINY = float(np.finfo(np.float32).tiny)


def finfo(x: Tensor) -> np.finfo:
    """The limits of x's dtype."""
    return np.finfo(x.dtype.numpy)


__all__ = ["Distribution"]
