"""Samplers draw from the distribution they claim, repeat with a seed, and carry gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import bireme as paddle
from bireme import distribution as D

N = 4000


def t(*values: float) -> Any:
    return paddle.to_tensor(list(values), dtype="float32")


# A distribution of two batch entries; what SciPy calls each of them.
CONTINUOUS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "Normal": (lambda: D.Normal(t(0, 3), t(1, 2)), lambda i: stats.norm([0, 3][i], [1, 2][i])),
    "LogNormal": (
        lambda: D.LogNormal(t(0, 1), t(1, 0.5)),
        lambda i: stats.lognorm([1, 0.5][i], scale=np.exp([0, 1][i])),
    ),
    "Uniform": (
        lambda: D.Uniform(t(0, -3), t(1, 2)),
        lambda i: stats.uniform([0, -3][i], [1, 5][i]),
    ),
    "Laplace": (
        lambda: D.Laplace(t(0, 3), t(1, 2)),
        lambda i: stats.laplace([0, 3][i], [1, 2][i]),
    ),
    "Gumbel": (
        lambda: D.Gumbel(t(0, 3), t(1, 2)),
        lambda i: stats.gumbel_r([0, 3][i], [1, 2][i]),
    ),
    "Cauchy": (lambda: D.Cauchy(t(0, 3), t(1, 2)), lambda i: stats.cauchy([0, 3][i], [1, 2][i])),
    "Exponential": (
        lambda: D.Exponential(t(0.5, 4)),
        lambda i: stats.expon(scale=1 / [0.5, 4][i]),
    ),
    "Gamma": (
        lambda: D.Gamma(t(0.4, 3), t(2, 0.5)),
        lambda i: stats.gamma([0.4, 3][i], scale=1 / [2, 0.5][i]),
    ),
    "Chi2": (lambda: D.Chi2(t(1, 5)), lambda i: stats.chi2([1, 5][i])),
    "Beta": (
        lambda: D.Beta(t(0.5, 2), t(1, 3)),
        lambda i: stats.beta([0.5, 2][i], [1, 3][i]),
    ),
    "StudentT": (
        lambda: D.StudentT(t(3, 10), t(0, 1), t(1, 2)),
        lambda i: stats.t([3, 10][i], [0, 1][i], [1, 2][i]),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_samples(name: str) -> None:
    make, oracle = CONTINUOUS[name]
    paddle.seed(11)
    drawn = make().sample([N]).numpy()
    assert drawn.shape == (N, 2)
    assert drawn.dtype == np.float32
    for i in range(2):
        assert stats.kstest(drawn[:, i], oracle(i).cdf).pvalue > 1e-4
    assert abs(np.corrcoef(stats.rankdata(drawn[:, 0]), stats.rankdata(drawn[:, 1]))[0, 1]) < 0.08
    paddle.seed(11)
    np.testing.assert_array_equal(make().sample([N]).numpy(), drawn)


DISCRETE: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "Bernoulli": (lambda: D.Bernoulli(t(0.2, 0.7)), lambda i: stats.bernoulli([0.2, 0.7][i])),
    "Binomial": (
        lambda: D.Binomial(t(6, 10), t(0.2, 0.7)),
        lambda i: stats.binom([6, 10][i], [0.2, 0.7][i]),
    ),
    "Geometric": (
        lambda: D.Geometric(t(0.3, 0.6)),
        lambda i: stats.geom([0.3, 0.6][i], loc=-1),
    ),
    "Poisson": (lambda: D.Poisson(t(0.7, 4)), lambda i: stats.poisson([0.7, 4][i])),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_samples(name: str) -> None:
    make, oracle = DISCRETE[name]
    paddle.seed(5)
    drawn = make().sample([N]).numpy()
    for i in range(2):
        law = oracle(i)
        counts = np.arange(40)
        expected = law.pmf(counts) * N
        likely = expected > 5
        got = np.array([(drawn[:, i] == k).sum() for k in counts])
        rest = N - expected[likely].sum()
        observed = np.append(got[likely], N - got[likely].sum())
        wanted = np.append(expected[likely], rest)
        keep = wanted > 0.5
        observed, wanted = observed[keep], wanted[keep] * observed[keep].sum() / wanted[keep].sum()
        assert stats.chisquare(observed, wanted).pvalue > 1e-4


def test_categorical_and_multinomial_frequencies() -> None:
    paddle.seed(3)
    logits = paddle.to_tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 0.0]])
    want = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(-1, keepdims=True)
    drawn = D.Categorical(logits).sample([N]).numpy()
    assert drawn.shape == (N, 2)
    for i in range(2):
        np.testing.assert_allclose(np.bincount(drawn[:, i], minlength=3) / N, want[i], atol=0.03)
    counts = D.Multinomial(5, paddle.to_tensor([0.2, 0.3, 0.5])).sample([N]).numpy()
    assert (counts.sum(-1) == 5).all()
    np.testing.assert_allclose(counts.mean(0), [1.0, 1.5, 2.5], atol=0.08)
    assert D.Categorical(logits).sample().shape == [2]


def test_dirichlet_moments() -> None:
    paddle.seed(3)
    law = D.Dirichlet(t(0.5, 2, 4))
    drawn = law.sample([N]).numpy()
    np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(drawn.mean(0), law.mean.numpy(), atol=0.02)
    np.testing.assert_allclose(drawn.var(0), law.variance.numpy(), atol=0.01)


def test_multivariate_normal_covariance() -> None:
    paddle.seed(3)
    cov = np.array([[2.0, 0.5], [0.5, 1.0]], np.float32)
    drawn = D.MultivariateNormal(t(1, -1), covariance_matrix=paddle.to_tensor(cov)).sample([N])
    np.testing.assert_allclose(np.cov(drawn.numpy().T), cov, atol=0.15)
    precise = D.MultivariateNormal(t(1, -1), precision_matrix=paddle.to_tensor(np.linalg.inv(cov)))
    np.testing.assert_allclose(np.cov(precise.sample([N]).numpy().T), cov, atol=0.15)


@pytest.mark.parametrize("method", ["onion", "cvine"])
@pytest.mark.parametrize("dim", [2, 4])
def test_lkj_cholesky_samples_are_factors_of_correlations(method: str, dim: int) -> None:
    paddle.seed(3)
    factor = D.LKJCholesky(dim, t(1.0, 2.5), method).sample([500]).numpy()
    assert factor.shape == (500, 2, dim, dim)
    np.testing.assert_allclose(np.triu(factor, 1), 0)
    matrices = factor @ factor.swapaxes(-1, -2)
    np.testing.assert_allclose(np.diagonal(matrices, axis1=-2, axis2=-1), 1, rtol=1e-4)
    # Each correlation is a beta variable of concentration eta - 1 + dim / 2, on (-1, 1).
    for i, eta in enumerate((1.0, 2.5)):
        shape = eta - 1 + dim / 2
        entry = (matrices[:, i, dim - 1, 0] + 1) / 2
        assert stats.kstest(entry, stats.beta(shape, shape).cdf).pvalue > 1e-4


def test_complex_normal() -> None:
    paddle.seed(3)
    law = D.Normal(paddle.to_tensor(1 + 2j), paddle.to_tensor(2.0))
    drawn = law.sample([N]).numpy()
    assert drawn.dtype == np.complex64
    assert abs(drawn.mean() - (1 + 2j)) < 0.15
    assert abs(np.var(drawn) - 4) < 0.3


def test_samples_carry_gradients_where_they_can() -> None:
    paddle.seed(3)
    loc, scale = t(0.5, 1.0), t(1.0, 2.0)
    loc.stop_gradient = scale.stop_gradient = False
    for made in (D.Normal(loc, scale), D.Laplace(loc, scale), D.Gumbel(loc, scale),
                 D.Cauchy(loc, scale), D.LogNormal(loc, scale)):  # fmt: skip
        loc.clear_gradient(False)
        scale.clear_gradient(False)
        drawn = made.rsample([3])
        drawn.sum().backward()
        assert loc.grad is not None
        assert scale.grad is not None
        if not isinstance(made, D.LogNormal):
            np.testing.assert_allclose(loc.grad.numpy(), 3)
            want = ((drawn - loc) / scale).sum(0)
            np.testing.assert_allclose(scale.grad.numpy(), want.numpy(), rtol=1e-3, atol=1e-4)
    assert D.Laplace(loc, scale).sample([2]).stop_gradient
    assert D.Gamma(scale, scale).sample([2]).stop_gradient
    odds = D.Bernoulli(paddle.to_tensor([0.2, 0.8])).rsample([N], temperature=0.1)
    share = paddle.nn.functional.sigmoid(odds).numpy().mean(0)
    np.testing.assert_allclose(share, [0.2, 0.8], atol=0.05)


def test_the_same_samples_in_both_tiers(both_tiers: Callable[..., Any]) -> None:
    def draw() -> Any:
        paddle.seed(9)
        made = (D.Normal(t(0.0), t(1.0)), D.Laplace(t(0.5), t(1.0)),
                D.Categorical(t(0.1, 1.0, 2.0)))  # fmt: skip
        return [m.sample([20]) for m in made]

    both_tiers(draw, atol=1e-4)


def test_a_seed_given_to_the_call_fixes_the_sample() -> None:
    law = D.Normal(0.0, 1.0)
    np.testing.assert_array_equal(law.sample([5], seed=7).numpy(), law.sample([5], seed=7).numpy())
    law = D.Uniform(0.0, 1.0)
    np.testing.assert_array_equal(law.sample([5], seed=7).numpy(), law.sample([5], seed=7).numpy())
