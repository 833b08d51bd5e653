"""Distributions of counts and choices, and the continuous relative of the Bernoulli one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme
from bireme.api.types import TensorLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distribution.distribution import (
    TINY,
    Distribution,
    as_value,
    finfo,
    parameters,
    probs_to_logits,
    same_batch,
    same_kind,
    sample_sizes,
    unit_uniform,
)
from bireme.distribution.exponential_family import ExponentialFamily
from bireme.nn import functional as F


def _clipped(probs: Tensor) -> Tensor:
    """Probabilities kept off 0 and 1, where the logarithms are infinite."""
    eps = float(finfo(probs).eps)
    return probs.clip(eps, 1 - eps)


class Bernoulli(ExponentialFamily):
    """1 with the probability `probs`, else 0."""

    def __init__(self, probs: TensorLike, name: str | None = None) -> None:
        self.name = name or "Bernoulli"
        [given] = parameters("Bernoulli", probs)
        self.dtype = given.dtype
        self.probs = _clipped(given)  # pyright: ignore[reportIncompatibleMethodOverride]  # Paddle's attribute of this name
        self.logits = probs_to_logits(self.probs, is_binary=True)
        super().__init__(self.probs.shape)

    probs: Tensor

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        with bireme.no_grad():
            return bireme.bernoulli(self.probs.expand(self._extend_shape(shape)))

    def rsample(self, shape: Sequence[int] = (), temperature: float = 1.0) -> Tensor:
        """Log-odds with logistic noise, over the temperature: their sigmoid tends to samples."""
        noise = unit_uniform(self._extend_shape(shape), self.dtype)
        odds = probs_to_logits(self.probs, is_binary=True)
        return (probs_to_logits(noise, is_binary=True) + odds) / temperature

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of `value` or less."""
        probs, value = bireme.broadcast_tensors([self.probs, as_value(value, self.probs)])
        zeros, ones = bireme.zeros_like(probs), bireme.ones_like(probs)
        return bireme.where(value < 0, zeros, bireme.where(value < 1, ones - probs, ones))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = bireme.broadcast_tensors([self.logits, as_value(value, self.probs)])
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another Bernoulli distribution."""
        other = same_kind(self, other)
        a, b = self.logits, other.logits
        one = F.sigmoid(a) * (F.softplus(-b) - F.softplus(-a))
        zero = F.sigmoid(-a) * (F.softplus(b) - F.softplus(a))
        return one + zero

    @property
    def _natural_parameters(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return F.softplus(x)


class ContinuousBernoulli(Distribution):
    """Numbers in [0, 1] with a density in proportion to p^x (1 - p)^(1 - x).

    Between `lims`, where the formulas lose their digits, a Taylor expansion takes over.
    """

    probs: Tensor

    def __init__(self, probs: float | Tensor, lims: tuple[float, float] = (0.499, 0.501)) -> None:
        if isinstance(probs, float | int):
            probs = bireme.to_tensor([probs], dtype=dt.default_float())
        self.dtype = probs.dtype
        self.lims = bireme.to_tensor(lims, dtype=self.dtype)
        self.probs = _clipped(probs)  # pyright: ignore[reportIncompatibleMethodOverride]
        super().__init__(self.probs.shape)

    def _outside(self) -> Tensor:
        """Where the exact formulas hold."""
        return (self.probs <= self.lims[0]).logical_or(self.probs > self.lims[1])

    def _cut_probs(self) -> Tensor:
        return bireme.where(self._outside(), self.probs, self.lims[0].expand_as(self.probs))

    def _log_constant(self) -> Tensor:
        p = self._cut_probs()
        low = bireme.where(p <= 0.5, p, bireme.zeros_like(p))
        high = bireme.where(p >= 0.5, p, bireme.ones_like(p))
        below = bireme.where(p <= 0.5, (-2.0 * low).log1p(), (2.0 * high - 1.0).log())
        exact = (2.0 * _atanh(1.0 - 2.0 * p).abs()).log() - below
        x = (self.probs - 0.5).square()
        near = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return bireme.where(self._outside(), exact, near)

    @property
    def mean(self) -> Tensor:
        p = self._cut_probs()
        exact = p / (2.0 * p - 1.0) + 1.0 / (2.0 * _atanh(1.0 - 2.0 * p))
        x = self.probs - 0.5
        return bireme.where(self._outside(), exact, 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        p = self._cut_probs()
        odds = (-p).log1p() - p.log()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).square() + 1.0 / odds.square()
        x = (self.probs - 0.5).square()
        return bireme.where(self._outside(), exact, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(unit_uniform(self._extend_shape(shape), self.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        value = as_value(value, self.probs)
        inside = value * self.probs.log() + (1.0 - value) * (1 - self.probs).log()
        eps = float(finfo(self.probs).eps)
        return self._log_constant() + inside.nan_to_num(neginf=-eps)

    def entropy(self) -> Tensor:
        log_p, log_q = self.probs.log(), (-self.probs).log1p()
        value = -self._log_constant() + self.mean * (log_q - log_p) - log_q
        return bireme.where(self.probs == 0.5, bireme.zeros_like(value), value)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of less than `value`."""
        value = as_value(value, self.probs)
        p = self._cut_probs()
        exact = (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = bireme.where(self._outside(), exact, value)
        return bireme.where(
            value <= 0.0,
            bireme.zeros_like(inside),
            bireme.where(value >= 1.0, bireme.ones_like(inside), inside),
        )

    def icdf(self, value: Tensor) -> Tensor:
        """The number below which lies the probability `value`."""
        value = as_value(value, self.probs)
        p = self._cut_probs()
        top = (value * (2.0 * p - 1.0) - p).log1p() - (-p).log1p()
        return bireme.where(self._outside(), top / (p.log() - (-p).log1p()), value)

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another continuous Bernoulli distribution."""
        other = same_kind(self, other)
        same_batch(self, other)
        log_q, log_rest = other.probs.log(), (-other.probs).log1p()
        cross = other._log_constant() + self.mean * (log_q - log_rest) + log_rest
        return -self.entropy() - cross


def _atanh(x: Tensor) -> Tensor:
    return 0.5 * (x.log1p() - (-x).log1p())


class Binomial(Distribution):
    """Successes among `total_count` trials of probability `probs`."""

    probs: Tensor

    def __init__(self, total_count: TensorLike, probs: TensorLike) -> None:
        if not isinstance(probs, Tensor):
            probs = bireme.to_tensor(probs, dtype=dt.default_float())
        self.dtype = probs.dtype
        count = as_value(total_count, probs)
        self.total_count, self.probs = bireme.broadcast_tensors([count, probs])  # pyright: ignore[reportIncompatibleMethodOverride]
        super().__init__(self.total_count.shape)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        dims = self._extend_shape(shape)
        with bireme.no_grad():
            count = self.total_count.expand(dims).astype("int32")
            return bireme.binomial(count, self.probs.expand(dims)).astype(self.dtype)

    def _support(self) -> Tensor:
        """Every possible count, along a new first dimension: as long as the largest says."""
        top = int(self.total_count.max().item())
        values = bireme.arange(1 + top, dtype=self.dtype)
        return values.reshape([-1] + [1] * len(self.batch_shape))

    def entropy(self) -> Tensor:
        log_prob = self.log_prob(self._support())
        return -(log_prob.exp() * log_prob).sum(0)

    def log_prob(self, value: Tensor) -> Tensor:
        value = as_value(value, self.probs)
        n = self.total_count
        ways = (n + 1.0).lgamma() - (n - value + 1.0).lgamma() - (value + 1.0).lgamma()
        probs = _clipped(self.probs)
        eps = float(finfo(probs).eps)
        found = ways + value * probs.log() + (n - value) * (1 - probs).log()
        return found.nan_to_num(neginf=-eps)

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another binomial distribution, summed over the counts."""
        other = same_kind(self, other)
        support = self._support()
        mine = self.log_prob(support)
        return (mine.exp() * (mine - other.log_prob(support))).sum(0)


class Categorical(Distribution):
    """A choice among categories.

    As in Paddle, `logits` are weights for `probs` and `log_prob` (they are divided by their sum)
    and log-weights for `sample`, `entropy` and `kl_divergence`.
    """

    def __init__(self, logits: TensorLike, name: str | None = None) -> None:
        self.name = name if name is not None else "Categorical"
        [self.logits] = parameters("Categorical", logits, dtype="float32")
        self.dtype = self.logits.dtype
        self._prob = self.logits / self.logits.sum(-1, keepdim=True)
        super().__init__(self.logits.shape[:-1])

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        """Numbers of categories, as int64."""
        dims = sample_sizes(shape)
        chances = F.softmax(self.logits, axis=-1)
        flat = chances.reshape([-1, chances.shape[-1]])
        with bireme.no_grad():
            drawn = bireme.multinomial(flat, math.prod(dims), True)
        return drawn.transpose([1, 0]).reshape([*dims, *self.logits.shape[:-1]])

    def _log_chances(self) -> Tensor:
        return F.log_softmax(self.logits, axis=-1)

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another choice; like Paddle's with a last dimension of 1."""
        other = same_kind(self, other)
        mine = self._log_chances()
        return (mine.exp() * (mine - other._log_chances())).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        mine = self._log_chances()
        return -(mine.exp() * mine).sum(-1)

    def prob(self, value: Tensor) -> Tensor:
        return self.probs(value)

    def probs(self, value: Tensor) -> Tensor:
        """The probabilities of the categories `value`."""
        chances = self._prob
        if chances.dim() == 1:
            return bireme.gather(chances, value.reshape([-1])).reshape(value.shape)
        if value.dim() == 1:
            value = value.reshape([1] * (chances.dim() - 1) + [-1])
        return bireme.take_along_axis(chances, value, axis=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.probs(value).log()


class Multinomial(Distribution):
    """How often each category comes up in `total_count` choices."""

    probs: Tensor

    def __init__(self, total_count: int, probs: Tensor) -> None:
        if not isinstance(total_count, int) or total_count < 1:
            raise InvalidArgument(
                f"[Multinomial] total_count must be a positive integer. Received: {total_count!r}"
            )
        if probs.dim() < 1:
            raise ShapeMismatch(
                f"[Multinomial] probs needs one dimension or more. Received: shape {probs.shape}"
            )
        self.probs = probs / probs.sum(-1, keepdim=True)  # pyright: ignore[reportIncompatibleMethodOverride]
        self.total_count = total_count
        self._categorical = Categorical(probs_to_logits(probs))
        super().__init__(probs.shape[:-1], probs.shape[-1:])

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        value = as_value(value, self.probs)
        logits, value = bireme.broadcast_tensors([self.probs.log(), value])
        impossible = (value == 0).logical_and(logits.isinf())
        logits = bireme.where(impossible, bireme.zeros_like(logits), logits)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return ways + (value * logits).sum(-1)

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        drawn = self._categorical.sample([self.total_count, *sample_sizes(shape)])
        return F.one_hot(drawn, self.probs.shape[-1]).astype(self.probs.dtype).sum(0)

    def entropy(self) -> Tensor:
        n = self.total_count
        dtype = self.probs.dtype
        count = bireme.arange(1, n + 1, dtype=dtype).reshape([-1] + [1] * self.probs.dim())
        odds = probs_to_logits(self.probs, is_binary=True)
        # log of the binomial probabilities of each count of each category
        norm = n * F.relu(odds) + n * (-odds.abs()).exp().log1p() - math.lgamma(n + 1)
        log_pmf = count * odds - (count + 1).lgamma() - (n - count + 1).lgamma() - norm
        repeats = (log_pmf.exp() * (count + 1).lgamma()).sum([0, -1])
        return n * self._categorical.entropy() - math.lgamma(n + 1) + repeats


class Geometric(Distribution):
    """Failures before the first success of probability `probs`."""

    probs: Tensor

    def __init__(self, probs: TensorLike) -> None:
        if not isinstance(probs, Tensor | float | int | np.number):
            raise TypeMismatch(
                f"[Geometric] probs must be a number or a Tensor. Received: {type(probs).__name__}"
            )
        [self.probs] = parameters("Geometric", probs, dtype="float32")  # pyright: ignore[reportIncompatibleMethodOverride]
        super().__init__(self.probs.shape)

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def pmf(self, k: TensorLike) -> Tensor:
        """The probability of k failures."""
        return (1.0 - self.probs).pow(_count(k, self.probs)) * self.probs

    def log_pmf(self, k: TensorLike) -> Tensor:
        """The logarithm of `pmf`."""
        return self.pmf(k).log()

    def log_prob(self, value: TensorLike) -> Tensor:
        return self.log_pmf(value)

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        unit = unit_uniform(self._extend_shape(shape), self.probs.dtype, TINY)
        return (unit.log() / (-self.probs).log1p()).floor()

    def entropy(self) -> Tensor:
        rest = 1.0 - self.probs
        return -(rest * rest.log() + self.probs * self.probs.log()) / self.probs

    def cdf(self, k: TensorLike) -> Tensor:
        """The probability of k failures or fewer."""
        return 1.0 - (1.0 - self.probs).pow(_count(k, self.probs) + 1)

    def kl_divergence(self, other: Distribution) -> Tensor:
        """Paddle's figure: the divergence of one trial, not of the whole wait."""
        other = same_kind(self, other)
        p, q = self.probs, other.probs
        return p * (p / q).log() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).log()


def _count(k: Any, like: Tensor) -> Any:
    if isinstance(k, Tensor):
        return as_value(k, like)
    if not isinstance(k, int | np.integer):
        raise TypeMismatch(
            f"[Geometric] k must be an integer or a Tensor. Received: {type(k).__name__}"
        )
    return int(k)


class Poisson(Distribution):
    """How often something happens that happens `rate` times on average."""

    def __init__(self, rate: float | Tensor) -> None:
        if isinstance(rate, float | int):
            rate = bireme.to_tensor([rate], dtype=dt.default_float())
        self.rate = rate
        self.dtype = rate.dtype
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        with bireme.no_grad():
            return bireme.poisson(self.rate.expand(self._extend_shape(shape)))

    def _support(self, *rates: Tensor) -> Tensor:
        """Counts up to 30 standard deviations above the largest rate, along a new dimension."""
        top = max(float(r.max().item()) for r in rates)
        values = bireme.arange(0, int(top + 30 * math.sqrt(max(top, 1.0))), dtype=self.dtype)
        return values.reshape([-1] + [1] * len(self.batch_shape))

    def entropy(self) -> Tensor:
        log_prob = self.log_prob(self._support(self.rate))
        found = -(log_prob.exp() * log_prob).sum(0)
        return found * (self.rate != 0.0).astype(self.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        value = as_value(value, self.rate)
        eps = float(finfo(self.rate).eps)
        found = -self.rate + value * self.rate.log() - (value + 1).lgamma()
        return found.nan_to_num(neginf=-eps)

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another Poisson distribution, summed over the counts."""
        other = same_kind(self, other)
        same_batch(self, other)
        support = self._support(self.rate, other.rate)
        mine = self.log_prob(support)
        return (mine.exp() * (mine - other.log_prob(support))).sum(0)


__all__ = [
    "Bernoulli", "Binomial", "Categorical", "ContinuousBernoulli", "Geometric", "Multinomial",
    "Poisson",
]  # fmt: skip
