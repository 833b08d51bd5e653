"""`paddle.distribution`: probability distributions, their transforms and divergences."""

from bireme.distribution import constraint, kl, transform, variable
from bireme.distribution.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    ContinuousBernoulli,
    Geometric,
    Multinomial,
    Poisson,
)
from bireme.distribution.distribution import Distribution
from bireme.distribution.exponential_family import ExponentialFamily
from bireme.distribution.gamma_family import Beta, Chi2, Dirichlet, Exponential, Gamma, StudentT
from bireme.distribution.kl import kl_divergence, register_kl
from bireme.distribution.location_scale import Cauchy, Gumbel, Laplace, LogNormal, Normal, Uniform
from bireme.distribution.matrix import LKJCholesky, MultivariateNormal
from bireme.distribution.transform import (
    AbsTransform,
    AffineTransform,
    ChainTransform,
    ExpTransform,
    IndependentTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
)
from bireme.distribution.transformed_distribution import Independent, TransformedDistribution

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy",
    "ChainTransform", "Chi2", "ContinuousBernoulli", "Dirichlet", "Distribution", "ExpTransform",
    "Exponential", "ExponentialFamily", "Gamma", "Geometric", "Gumbel", "Independent",
    "IndependentTransform", "LKJCholesky", "Laplace", "LogNormal", "Multinomial",
    "MultivariateNormal", "Normal", "Poisson", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "StackTransform", "StickBreakingTransform",
    "StudentT", "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "constraint",
    "kl", "kl_divergence", "register_kl", "transform", "variable",
]  # fmt: skip
