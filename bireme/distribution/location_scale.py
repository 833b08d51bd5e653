"""Distributions with a location and a scale, and the uniform one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme
from bireme.api.types import TensorLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.core.op import broadcast_shapes
from bireme.core.tensor import Tensor
from bireme.distribution.distribution import (
    TINY,
    Distribution,
    as_value,
    broadcast_parameters,
    finfo,
    parameters,
    same_kind,
    sample_sizes,
    unit_uniform,
)
from bireme.distribution.transform import ExpTransform
from bireme.distribution.transformed_distribution import TransformedDistribution
from bireme.ops.random import gaussian

_COMPLEX = (complex, np.complexfloating)


class Normal(Distribution):
    """The normal distribution; with a complex `loc` the circular complex one."""

    loc: Tensor
    scale: Tensor

    def __init__(self, loc: TensorLike, scale: TensorLike, name: str | None = None) -> None:
        self.name = name if name is not None else "Normal"
        if isinstance(loc, list | tuple):
            loc = np.asarray(loc)
            loc = loc.astype(np.complex64 if loc.dtype.kind == "c" else np.float32)
        if isinstance(loc, Tensor) or not _is_complex(loc):
            self._complex_gaussian = False
            if isinstance(loc, Tensor) and loc.dtype.is_complex:
                self._complex_gaussian = True
                if not isinstance(scale, Tensor):
                    scale = bireme.to_tensor(scale, dtype=_real_part(loc.dtype))
            pair = broadcast_parameters if not isinstance(loc, Tensor) else parameters
            self.loc, self.scale = pair("Normal", loc, scale, dtype="float32", mixed=False)
        else:
            self._complex_gaussian = True
            self.loc = bireme.to_tensor(loc, dtype=_complex_type(loc))
            real = _real_part(self.loc.dtype)
            self.scale = scale if isinstance(scale, Tensor) else bireme.to_tensor(scale, dtype=real)
        self.dtype = self.loc.dtype
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2)

    def sample(self, shape: Sequence[int] = (), seed: int = 0) -> Tensor:
        """Samples; like Paddle's they carry gradients. A seed other than 0 fixes them."""
        both = broadcast_shapes(tuple(self.loc.shape), tuple(self.scale.shape))
        dims = sample_sizes(shape) + both
        if self._complex_gaussian:
            real = _real_part(self.dtype)
            seeds = (seed, seed + 1) if seed else (0, 0)
            across, up = (gaussian(dims, 0.0, math.sqrt(0.5), s, dtype=real) for s in seeds)
            noise = bireme.complex(across, up)
        else:
            noise = gaussian(dims, 0.0, 1.0, seed, dtype=self.dtype)
        return noise * self.scale + self.loc

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        return self.sample(shape)

    def entropy(self) -> Tensor:
        zeros = bireme.zeros(self.loc.shape, dtype=self.scale.dtype)
        if self._complex_gaussian:
            return 1.0 + math.log(math.pi) + 2.0 * (self.scale + zeros).log()
        return 0.5 + 0.5 * math.log(2 * math.pi) + (self.scale + zeros).log()

    def log_prob(self, value: Tensor) -> Tensor:
        away = as_value(value, self.loc) - self.loc
        variance = self.scale * self.scale
        if self._complex_gaussian:
            return -(away.conj() * away) / variance - (2.0 * self.scale.log() + math.log(math.pi))
        constant = 0.5 * math.log(2.0 * math.pi)
        return -(away * away) / (2.0 * variance) - (self.scale.log() + constant)

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another normal distribution."""
        other = same_kind(self, other)
        if self._complex_gaussian != other._complex_gaussian:
            raise InvalidArgument(
                "[kl_divergence] both normal distributions must be real or both complex. "
                f"Received: {self.loc.dtype.name} and {other.loc.dtype.name}"
            )
        ratio = (self.scale / other.scale).pow(2)
        away = (self.loc - other.loc) / other.scale
        if self._complex_gaussian:
            return ratio + away.conj() * away - 1.0 - ratio.log()
        return 0.5 * ratio + 0.5 * (away * away - 1.0 - ratio.log())


def _is_complex(x: Any) -> bool:
    return isinstance(x, _COMPLEX) or (isinstance(x, np.ndarray) and x.dtype.kind == "c")


def _complex_type(x: Any) -> str:
    return "complex128" if getattr(x, "dtype", None) == np.complex128 else "complex64"


def _real_part(dtype: dt.DType) -> str:
    return "float64" if dtype is dt.complex128 else "float32"


class LogNormal(TransformedDistribution):
    """exp of a normal variable."""

    _base: Normal

    def __init__(self, loc: TensorLike, scale: TensorLike) -> None:
        base = Normal(loc, scale)
        self.loc, self.scale = base.loc, base.scale
        super().__init__(base, [ExpTransform()])

    @property
    def mean(self) -> Tensor:
        return (self._base.mean + self._base.variance / 2).exp()

    @property
    def variance(self) -> Tensor:
        variance = self._base.variance
        return variance.expm1() * (2 * self._base.mean + variance).exp()

    def entropy(self) -> Tensor:
        return self._base.entropy() + self._base.mean

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another log-normal distribution."""
        other = same_kind(self, other)
        return self._base.kl_divergence(other._base)


class Uniform(Distribution):
    """Equal density everywhere in (low, high)."""

    def __init__(self, low: TensorLike, high: TensorLike, name: str | None = None) -> None:
        self.name = name if name is not None else "Uniform"
        pair = parameters if isinstance(low, Tensor) else broadcast_parameters
        self.low, self.high = pair("Uniform", low, high, dtype="float32", mixed=False)
        self.dtype = self.low.dtype
        super().__init__(self.low.shape)

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).pow(2) / 12

    def sample(self, shape: Sequence[int] = (), seed: int = 0) -> Tensor:
        """Samples; like Paddle's they carry gradients. A seed other than 0 fixes them."""
        both = broadcast_shapes(tuple(self.low.shape), tuple(self.high.shape))
        unit = bireme.uniform(
            sample_sizes(shape) + both, dtype=self.dtype, min=0.0, max=1.0, seed=seed
        )
        return unit * (self.high - self.low) + self.low

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        return self.sample(shape)

    def _inside(self, value: Tensor) -> Tensor:
        value = as_value(value, self.low)
        return (self.low < value).logical_and(value < self.high).astype(value.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._inside(value).log() - (self.high - self.low).log()

    def prob(self, value: Tensor) -> Tensor:
        return self._inside(value) / (self.high - self.low)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another uniform distribution; infinite where it does not cover this."""
        other = same_kind(self, other)
        ratio = ((other.high - other.low) / (self.high - self.low)).log()
        covered = (other.low <= self.low).logical_and(other.high >= self.high)
        return bireme.where(covered, ratio, bireme.full_like(ratio, math.inf))


class Laplace(Distribution):
    """A peak at `loc` with exponential tails on both sides."""

    def __init__(self, loc: TensorLike, scale: TensorLike) -> None:
        self.loc, self.scale = broadcast_parameters("Laplace", loc, scale)
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def _away(self, value: Any) -> Tensor:
        return as_value(value, self.scale) - self.loc

    def log_prob(self, value: TensorLike) -> Tensor:
        return -(2 * self.scale).log() - self._away(value).abs() / self.scale

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()

    def cdf(self, value: TensorLike) -> Tensor:
        """The probability of less than `value`."""
        away = self._away(value)
        return 0.5 - 0.5 * away.sign() * (-away.abs() / self.scale).expm1()

    def icdf(self, value: TensorLike) -> Tensor:
        """The number below which lies the probability `value`."""
        term = as_value(value, self.scale) - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        eps = float(finfo(self.loc).eps)
        unit = bireme.uniform(
            self._extend_shape(shape), dtype=self.loc.dtype, min=-1 + eps / 2, max=1 - eps / 2
        )
        return self.loc - self.scale * unit.sign() * (-unit.abs()).log1p()

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another Laplace distribution."""
        other = same_kind(self, other)
        away = (self.loc - other.loc).abs()
        first = (self.scale * (-away / self.scale).exp() + away) / other.scale
        return first + (other.scale / self.scale).log() - 1


class Gumbel(TransformedDistribution):
    """The distribution of the largest of many numbers."""

    def __init__(self, loc: TensorLike, scale: TensorLike) -> None:
        self.loc, self.scale = broadcast_parameters("Gumbel", loc, scale)
        top = float(1 - np.finfo(np.float32).eps)
        self.base_dist = Uniform(bireme.full_like(self.loc, TINY), bireme.full_like(self.loc, top))
        self.transforms = ()
        super().__init__(self.base_dist, self.transforms)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * np.euler_gamma

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (math.pi**2 / 6)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def _reversed(self, value: Tensor) -> Tensor:
        return (self.loc - as_value(value, self.loc)) / self.scale

    def prob(self, value: Tensor) -> Tensor:
        return self.log_prob(value).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        y = self._reversed(value)
        return y - y.exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of less than `value`."""
        return (-self._reversed(value).exp()).exp()

    def entropy(self) -> Tensor:
        return self.scale.log() + 1 + np.euler_gamma

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        return Distribution.sample(self, shape)

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        return self.loc - self.scale * (-self.base_dist.sample(shape).log()).log()


class Cauchy(Distribution):
    """The ratio of two normal variables: tails so heavy that there is no mean."""

    def __init__(self, loc: TensorLike, scale: TensorLike, name: str | None = None) -> None:
        self.name = name if name is not None else "Cauchy"
        self.loc, self.scale = broadcast_parameters("Cauchy", loc, scale)
        self.dtype = self.loc.dtype
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:
        raise InvalidArgument("[Cauchy] the distribution has no mean; its median is loc")

    @property
    def variance(self) -> Tensor:
        raise InvalidArgument("[Cauchy] the distribution has no variance")

    @property
    def stddev(self) -> Tensor:
        raise InvalidArgument("[Cauchy] the distribution has no standard deviation")

    def sample(self, shape: Sequence[int] = (), name: str | None = None) -> Tensor:
        return super().sample(shape)

    def rsample(self, shape: Sequence[int] = (), name: str | None = None) -> Tensor:
        unit = unit_uniform(self._extend_shape(shape), self.dtype)
        return self.loc + self.scale * (math.pi * (unit - 0.5)).tan()

    def _standard(self, value: Tensor) -> Tensor:
        return (as_value(value, self.loc) - self.loc) / self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._standard(value).square().log1p() - (math.log(math.pi) + self.scale.log())

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of less than `value`."""
        return self._standard(value).atan() / math.pi + 0.5

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another Cauchy distribution."""
        other = same_kind(self, other)
        both = (self.scale + other.scale).pow(2) + (self.loc - other.loc).pow(2)
        return both.log() - (4 * self.scale * other.scale).log()


__all__ = ["Cauchy", "Gumbel", "Laplace", "LogNormal", "Normal", "Uniform"]
