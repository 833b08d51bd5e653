"""Divergences by rule and by the Bregman formula, agreement of cdf and density, own classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import distribution as D


def t(*values: float, dtype: str = "float64") -> Any:
    return paddle.to_tensor(list(values), dtype=dtype)


PAIRS: dict[str, tuple[Any, Any]] = {
    "Normal": (lambda: D.Normal(t(0.5), t(1.5)), lambda: D.Normal(t(1.0), t(2.0))),
    "Gamma": (lambda: D.Gamma(t(2.0), t(1.5)), lambda: D.Gamma(t(3.0), t(2.0))),
    "Beta": (lambda: D.Beta(t(2.0), t(1.5)), lambda: D.Beta(t(3.0), t(2.0))),
    "Laplace": (lambda: D.Laplace(t(0.5), t(1.5)), lambda: D.Laplace(t(1.0), t(2.0))),
    "Exponential": (lambda: D.Exponential(t(0.5)), lambda: D.Exponential(t(1.0))),
    "Uniform": (lambda: D.Uniform(t(0.0), t(1.0)), lambda: D.Uniform(t(-1.0), t(2.0))),
    "Dirichlet": (lambda: D.Dirichlet(t(0.7, 2)), lambda: D.Dirichlet(t(1, 1.5))),
    "Cauchy": (lambda: D.Cauchy(t(0.5), t(1.5)), lambda: D.Cauchy(t(1.0), t(2.0))),
    "Chi2": (lambda: D.Chi2(t(3.0)), lambda: D.Chi2(t(4.0))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_divergence_is_the_mean_log_ratio(name: str) -> None:
    paddle.seed(2)
    p, q = (make() for make in PAIRS[name])
    drawn = p.sample([40000])
    if name in ("Beta",):
        drawn = drawn.reshape([-1, 1])
    estimate = float((p.log_prob(drawn) - q.log_prob(drawn)).mean())
    exact = float(D.kl_divergence(p, q).sum())
    assert exact == pytest.approx(estimate, abs=0.03)
    assert float(p.kl_divergence(q).sum()) == pytest.approx(exact)
    assert float(D.kl_divergence(p, p).sum()) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(
    "law",
    [D.Exponential(1.5), D.Gamma(2.0, 3.0), D.Beta(2.0, 3.0), D.Bernoulli(0.3),
     D.Dirichlet(paddle.to_tensor([1.0, 2.0]))],
    ids=lambda d: type(d).__name__,
)  # fmt: skip
def test_bregman_divergence_equals_the_rule(law: Any) -> None:
    other = {
        "Exponential": lambda: D.Exponential(0.5),
        "Gamma": lambda: D.Gamma(1.0, 0.5),
        "Beta": lambda: D.Beta(1.0, 0.5),
        "Bernoulli": lambda: D.Bernoulli(0.6),
        "Dirichlet": lambda: D.Dirichlet(paddle.to_tensor([3.0, 0.5])),
    }[type(law).__name__]()
    by_rule = D.kl_divergence(law, other)
    general = D.kl._bregman(law, other)
    np.testing.assert_allclose(general.numpy(), by_rule.numpy(), rtol=1e-4)


@pytest.mark.parametrize(
    ("law", "low", "high"),
    [(D.Laplace(0.5, 1.5), -40, 40), (D.Gumbel(0.5, 1.5), -20, 60), (D.Exponential(0.7), 0, 60),
     (D.ContinuousBernoulli(0.3), 0, 1), (D.StudentT(3.0, 0.0, 1.0), -400, 400)],
)  # fmt: skip
def test_densities_sum_to_one_and_cdf_is_their_integral(law: Any, low: float, high: float) -> None:
    x = np.linspace(low, high, 200001).astype(np.float32)
    density = law.prob(paddle.to_tensor(x)).numpy()
    below = np.cumsum(density) * (x[1] - x[0])
    assert below[-1] == pytest.approx(1, abs=3e-3)
    if hasattr(law, "cdf"):
        np.testing.assert_allclose(law.cdf(paddle.to_tensor(x)).numpy(), below, atol=3e-3)
    if hasattr(law, "icdf"):
        p = paddle.to_tensor(np.array([0.1, 0.5, 0.9], np.float32))
        np.testing.assert_allclose(law.cdf(law.icdf(p)).numpy(), p.numpy(), rtol=1e-4)


def test_a_rule_of_the_users_own_classes() -> None:
    class Base(D.Distribution):
        pass

    class Child(Base):
        pass

    with pytest.raises(NotImplementedError, match=r"Base, Base"):
        D.kl_divergence(Base(), Base())

    @D.register_kl(Base, Base)
    def rule(p: Any, q: Any) -> Any:
        return paddle.to_tensor(1.0)

    assert float(D.kl_divergence(Child(), Child())) == 1

    @D.register_kl(Child, Base)
    def nearer(p: Any, q: Any) -> Any:
        return paddle.to_tensor(2.0)

    assert float(D.kl_divergence(Child(), Child())) == 2

    @D.register_kl(Base, Child)
    def other(p: Any, q: Any) -> Any:
        return paddle.to_tensor(3.0)

    with pytest.warns(RuntimeWarning, match="two rules"):
        assert float(D.kl_divergence(Child(), Child())) == 2
    with pytest.raises(NotImplementedError, match=r"Gamma, Beta"):
        D.kl_divergence(D.Gamma(1.0, 1.0), D.Beta(1.0, 1.0))


def test_an_exponential_family_of_the_users_own() -> None:
    class Rate(D.ExponentialFamily):
        def __init__(self, rate: Any) -> None:
            self.rate = rate
            super().__init__(rate.shape)

        @property
        def _natural_parameters(self) -> Any:
            return (-self.rate,)

        def _log_normalizer(self, x: Any) -> Any:  # pyright: ignore
            return -(-x).log()

        @property
        def _mean_carrier_measure(self) -> float:
            return 0.0

    made = Rate(t(0.5, 2.0))
    np.testing.assert_allclose(made.entropy().numpy(), 1 - np.log([0.5, 2.0]))
    exact = D.kl_divergence(D.Exponential(t(0.5, 2.0)), D.Exponential(t(1.0, 1.0)))
    np.testing.assert_allclose(D.kl_divergence(made, Rate(t(1.0, 1.0))).numpy(), exact.numpy())


def test_second_derivatives() -> None:
    scale = t(1.5)
    scale.stop_gradient = False
    value = D.Gamma(scale, t(2.0)).log_prob(t(0.7)).sum()
    [first] = paddle.grad(value, [scale], create_graph=True)
    [second] = paddle.grad(first.sum(), [scale])
    from scipy.special import polygamma

    np.testing.assert_allclose(second.numpy(), -polygamma(1, 1.5), rtol=1e-6)


def test_a_training_step_with_a_distribution_is_captured() -> None:
    @paddle.jit.to_static(input_spec=[paddle.static.InputSpec([None, 3])])
    def loss(x: Any) -> Any:
        law = D.Normal(x, paddle.ones_like(x))
        return D.kl_divergence(law, D.Normal(paddle.zeros_like(x), paddle.ones_like(x))).sum(-1)

    for rows in (2, 5):
        np.testing.assert_allclose(loss(paddle.ones([rows, 3])).numpy(), np.full(rows, 1.5))


def test_transform_round_trips() -> None:
    x = paddle.to_tensor(np.random.default_rng(0).uniform(-1, 1, (4, 3)))
    for made in (
        D.ExpTransform(), D.SigmoidTransform(), D.TanhTransform(), D.StickBreakingTransform(),
        D.AffineTransform(t(1.0), t(-2.0)), D.ReshapeTransform((3,), (1, 3)),
        D.ChainTransform([D.ExpTransform(), D.PowerTransform(t(3.0))]),
    ):  # fmt: skip
        y = made.forward(x)
        np.testing.assert_allclose(made.inverse(y).numpy(), x.numpy(), rtol=1e-6, atol=1e-8)
        total = made.forward_log_det_jacobian(x) + made.inverse_log_det_jacobian(y)
        np.testing.assert_allclose(total.numpy(), 0, atol=1e-6)
        assert list(made.forward_shape([4, 3])) == list(y.shape)
        assert list(made.inverse_shape(list(y.shape))) == [4, 3]


def test_constraints_say_which_values_are_allowed() -> None:
    from bireme.distribution import constraint, variable

    points = paddle.to_tensor([[0.2, 0.8], [0.5, 0.6]])
    assert constraint.simplex(points).tolist() == [True, False]
    assert constraint.Range(0.3, 0.7)(points).tolist() == [[False, False], [True, True]]
    assert variable.Independent(variable.positive, 1).constraint(points - 0.5).tolist() == [
        False, True,
    ]  # fmt: skip
