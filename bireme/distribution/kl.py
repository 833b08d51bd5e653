"""The Kullback-Leibler divergence: one rule per pair of classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from bireme.core.errors import TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distribution.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    ContinuousBernoulli,
    Geometric,
    Poisson,
)
from bireme.distribution.distribution import Distribution, sum_rightmost
from bireme.distribution.exponential_family import ExponentialFamily
from bireme.distribution.gamma_family import Beta, Dirichlet, Exponential, Gamma
from bireme.distribution.location_scale import Cauchy, Laplace, LogNormal, Normal, Uniform
from bireme.distribution.matrix import MultivariateNormal

Rule = Callable[[Any, Any], Tensor]
_RULES: dict[tuple[type, type], Rule] = {}


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """How far q is from p, in nats: the mean of log p - log q over samples of p."""
    return _rule_for(type(p), type(q))(p, q)


def register_kl(cls_p: type[Distribution], cls_q: type[Distribution]) -> Callable[[Rule], Rule]:
    """Say how to compute `kl_divergence` for two classes; as a decorator of `f(p, q)`."""
    for given in (cls_p, cls_q):
        if not (isinstance(given, type) and issubclass(given, Distribution)):
            raise TypeMismatch(
                f"[register_kl] both classes must be subclasses of Distribution. Received: "
                f"{given!r}"
            )

    def add(f: Rule) -> Rule:
        _RULES[cls_p, cls_q] = f
        return f

    return add


def _rule_for(p: type, q: type) -> Rule:
    """The rule of the nearest base classes; p decides before q."""
    found = [pair for pair in _RULES if issubclass(p, pair[0]) and issubclass(q, pair[1])]
    if not found:
        raise NotImplementedError(
            f"no rule for kl_divergence({p.__name__}, {q.__name__}); add one with "
            "paddle.distribution.register_kl"
        )
    steps_p, steps_q = p.__mro__.index, q.__mro__.index
    by_p = min(found, key=lambda pair: (steps_p(pair[0]), steps_q(pair[1])))
    by_q = min(found, key=lambda pair: (steps_q(pair[1]), steps_p(pair[0])))
    if _RULES[by_p] is not _RULES[by_q]:
        warnings.warn(
            f"kl_divergence({p.__name__}, {q.__name__}) fits two rules equally well; register "
            f"one for ({by_p[0].__name__}, {by_q[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _RULES[by_p]


def _by_method(p: Any, q: Any) -> Tensor:
    return p.kl_divergence(q)


for _kind in (
    Bernoulli,
    Binomial,
    Categorical,
    Cauchy,
    ContinuousBernoulli,
    Exponential,
    Gamma,
    Geometric,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    Poisson,
    Uniform,
):
    register_kl(_kind, _kind)(_by_method)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    total_p, total_q = p.alpha + p.beta, q.alpha + q.beta
    return (
        q._log_normalizer(q.alpha, q.beta)
        - p._log_normalizer(p.alpha, p.beta)
        + (p.alpha - q.alpha) * p.alpha.digamma()
        + (p.beta - q.beta) * p.beta.digamma()
        + (total_q - total_p) * total_p.digamma()
    )


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    mean_log = a.digamma() - a.sum(-1, keepdim=True).digamma()
    return q._log_normalizer(b) - p._log_normalizer(a) + ((a - b) * mean_log).sum(-1)


@register_kl(ExponentialFamily, ExponentialFamily)
def _bregman(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """For two of one class: the Bregman divergence of the log-normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"no rule for kl_divergence({type(p).__name__}, {type(q).__name__}); add one with "
            "paddle.distribution.register_kl"
        )
    natural, normalizer, slopes = p._bregman_parts()
    other = q._natural_parameters
    total = q._log_normalizer(*other) - normalizer
    for mine, theirs, slope in zip(natural, other, slopes, strict=True):
        total = total - sum_rightmost((theirs - mine) * slope, len(q.event_shape))
    return total


__all__ = ["kl_divergence", "register_kl"]
