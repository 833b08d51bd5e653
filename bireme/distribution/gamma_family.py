"""The gamma distribution and its relatives: exponential, chi-squared, beta, Dirichlet, Student."""

from __future__ import annotations

import math
from collections.abc import Sequence

import bireme
from bireme.api.types import Operand, TensorLike
from bireme.core.errors import ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.distribution.distribution import (
    TINY,
    Distribution,
    as_value,
    broadcast_parameters,
    checked,
    parameters,
    same_kind,
    unit_uniform,
)
from bireme.distribution.exponential_family import ExponentialFamily


class Exponential(ExponentialFamily):
    """The waiting time for an event that happens `rate` times in a unit of time."""

    def __init__(self, rate: TensorLike) -> None:
        [self.rate] = parameters("Exponential", rate, dtype="float32")
        self.dtype = self.rate.dtype
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        return -unit_uniform(self._extend_shape(shape), self.dtype, TINY).log() / self.rate

    def prob(self, value: Operand) -> Tensor:
        return self.rate * (-self.rate * value).exp()

    def log_prob(self, value: Operand) -> Tensor:
        return self.rate.log() - self.rate * value

    def entropy(self) -> Tensor:
        return 1.0 - self.rate.log()

    def cdf(self, value: Operand) -> Tensor:
        """The probability of less than `value`."""
        return 1.0 - (-self.rate * value).exp()

    def icdf(self, value: TensorLike) -> Tensor:
        """The number below which lies the probability `value`."""
        return -(-as_value(value, self.rate)).log1p() / self.rate

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another exponential distribution."""
        other = same_kind(self, other)
        ratio = other.rate / self.rate
        return ratio - ratio.log() - 1

    @property
    def _natural_parameters(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return -(-x).log()


class Gamma(ExponentialFamily):
    """The gamma distribution with a shape (`concentration`) and a rate."""

    def __init__(self, concentration: TensorLike, rate: TensorLike) -> None:
        made = parameters("Gamma", concentration, rate, dtype="float32", mixed=False)
        if not isinstance(concentration, Tensor):
            made = broadcast_parameters("Gamma", *made)
        self.concentration, self.rate = made
        self.dtype = self.concentration.dtype
        super().__init__(self.concentration.shape)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def log_prob(self, value: TensorLike) -> Tensor:
        a = self.concentration
        value = as_value(value, a)
        return a * self.rate.log() + (a - 1) * value.log() - self.rate * value - a.lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        """Samples; the gradient goes to the rate only, as in Paddle."""
        dims = self._extend_shape(shape)
        return bireme.standard_gamma(self.concentration.expand(dims)) / self.rate

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another gamma distribution."""
        other = same_kind(self, other)
        a, b = self.concentration, other.concentration
        return (
            b * (self.rate / other.rate).log()
            + b.lgamma()
            - a.lgamma()
            + (a - b) * a.digamma()
            + (other.rate - self.rate) * (a / self.rate)
        )

    @property
    def _natural_parameters(self) -> tuple[Tensor, ...]:
        return (self.concentration - 1, -self.rate)

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (x + 1).lgamma() + (x + 1) * (-y.reciprocal()).log()


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal variables."""

    def __init__(self, df: TensorLike) -> None:
        [self.df] = parameters("Chi2", df, dtype="float32")
        self.df = checked("Chi2", "df", self.df, positive=True)
        super().__init__(self.df * 0.5, bireme.full_like(self.df, 0.5))

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to a gamma distribution."""
        return Gamma.kl_divergence(Gamma(self.concentration, self.rate), other)


class Dirichlet(ExponentialFamily):
    """A distribution over vectors of probabilities."""

    def __init__(self, concentration: Tensor) -> None:
        if concentration.dim() < 1 or 0 in concentration.shape:
            raise ShapeMismatch(
                "[Dirichlet] concentration needs one dimension or more and an element or more. "
                f"Received: shape {concentration.shape}"
            )
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:])

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        total = a.sum(-1, keepdim=True)
        return a * (total - a) / (total.pow(2) * (total + 1))

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        with bireme.no_grad():
            drawn = bireme.standard_gamma(self.concentration.expand(self._extend_shape(shape)))
            return drawn / drawn.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        inside = (as_value(value, a).log() * (a - 1.0)).sum(-1)
        return inside + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        total = a.sum(-1)
        return (
            a.lgamma().sum(-1)
            - total.lgamma()
            - (a.shape[-1] - total) * total.digamma()
            - ((a - 1.0) * a.digamma()).sum(-1)
        )

    @property
    def _natural_parameters(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()


class Beta(ExponentialFamily):
    """A distribution over probabilities."""

    def __init__(self, alpha: TensorLike, beta: TensorLike) -> None:
        self.alpha, self.beta = broadcast_parameters("Beta", alpha, beta)
        self._dirichlet = Dirichlet(bireme.stack([self.alpha, self.beta], -1))
        super().__init__(self._dirichlet.batch_shape)

    @property
    def mean(self) -> Tensor:
        return self.alpha / (self.alpha + self.beta)

    @property
    def variance(self) -> Tensor:
        total = self.alpha + self.beta
        return self.alpha * self.beta / (total.pow(2) * (total + 1))

    def log_prob(self, value: Tensor) -> Tensor:
        value = as_value(value, self.alpha)
        return self._dirichlet.log_prob(bireme.stack([value, 1.0 - value], -1))

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        """Samples; a last dimension of 1 is dropped, as in Paddle."""
        drawn = self._dirichlet.sample(shape)[..., 0]
        return drawn.squeeze(-1) if drawn.dim() else drawn

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_parameters(self) -> tuple[Tensor, ...]:
        return (self.alpha, self.beta)

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.lgamma() + y.lgamma() - (x + y).lgamma()


class StudentT(Distribution):
    """The normal distribution with an uncertain variance: `df` says how well it is known."""

    def __init__(
        self, df: TensorLike, loc: TensorLike, scale: TensorLike, name: str | None = None
    ) -> None:
        self.name = name if name is not None else "StudentT"
        self.df, self.loc, self.scale = broadcast_parameters("StudentT", df, loc, scale)
        self.df = checked("StudentT", "df", self.df, positive=False)
        self.scale = checked("StudentT", "scale", self.scale, positive=False)
        self._chi2 = Gamma(0.5 * self.df, bireme.full_like(self.df, 0.5))
        super().__init__(self.df.shape)

    @property
    def mean(self) -> Tensor:
        return bireme.where(self.df > 1.0, self.loc, bireme.full_like(self.loc, math.nan))

    @property
    def variance(self) -> Tensor:
        df = self.df.detach()
        nan, inf = bireme.full_like(df, math.nan), bireme.full_like(df, math.inf)
        finite = bireme.where(df > 2.0, self.scale.pow(2) * df / (df - 2), nan)
        return bireme.where((df <= 2.0).logical_and(df > 1.0), inf, finite)

    def sample(self, shape: Sequence[int] = ()) -> Tensor:
        """Samples; like Paddle's they carry gradients to loc, scale and df."""
        noise = bireme.randn(self._extend_shape(shape), dtype=self.df.dtype)
        return self.loc + self.scale * (noise * (self._chi2.sample(shape) / self.df).rsqrt())

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        return self.sample(shape)

    def entropy(self) -> Tensor:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        spread = more * (more.digamma() - half.digamma())
        return self.scale.log() + spread + 0.5 * self.df.log() + log_beta

    def log_prob(self, value: Tensor) -> Tensor:
        y = (as_value(value, self.df) - self.loc) / self.scale
        half, more = 0.5 * self.df, 0.5 * (self.df + 1.0)
        constant = 0.5 * self.df.log() + 0.5 * math.log(math.pi) + half.lgamma() - more.lgamma()
        return -more * (y.pow(2) / self.df).log1p() - (self.scale.log() + constant)


__all__ = ["Beta", "Chi2", "Dirichlet", "Exponential", "Gamma", "StudentT"]
