"""paddle.distribution: densities, moments, divergences and transforms, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.parity.table import I, T, V, case_fn, raises_fn

P = {"low": 0.2, "high": 0.8}  # probabilities
R = {"low": 0.5, "high": 3.0}  # rates and scales
X = {"low": -2.0, "high": 2.0}
LOOSE = {"_rtol": 2e-4, "_atol": 2e-4}
# Paddle crashes in the gradient of a broadcast of which one result is not used.
CRASHES = {"_paddle_grad": False}
# Not smooth, or (a covariance) not to be moved in one entry alone.
STEPS = {"_finite_difference": False}


def _asked(name: str, method: str, value: bool) -> Callable[..., Any]:
    """Builds `name` from all tensors but (where a value is wanted) the last, and asks it."""

    def run(p: Any, *tensors: Any) -> Any:
        given, rest = (tensors[:-1], tensors[-1:]) if value else (tensors, ())
        made = getattr(p.distribution, name)(*given)
        found = getattr(made, method)
        return found(*rest) if callable(found) else found

    return run


def _rows(
    name: str, params: list[Any], value: Any, plain: str = "", asked: str = "", **options: Any
) -> None:
    for method in plain.split():
        case_fn(f"{name}.{method}", _asked(name, method, False), *params, **LOOSE, **options)
    for method in asked.split():
        case_fn(f"{name}.{method}", _asked(name, method, True), *params, value, **LOOSE, **options)


def _divergence(name: str) -> Callable[..., Any]:
    def run(p: Any, *tensors: Any) -> Any:
        make = getattr(p.distribution, name)
        half = len(tensors) // 2
        first, second = make(*tensors[:half]), make(*tensors[half:])
        return p.distribution.kl_divergence(first, second)

    return run


LOC, SCALE = T(2, 3, **X), T(2, 3, **R)
ALL = "mean variance entropy"

_rows("Normal", [LOC, SCALE], T(2, 3), ALL, "log_prob prob probs")
_rows("Normal", [LOC, SCALE], T(4, 2, 3), "", "log_prob")
_rows("LogNormal", [LOC, SCALE], T(2, 3, **R), ALL, "log_prob prob probs")
_rows("Uniform", [T(2, 3, low=-1, high=0), T(2, 3, low=1, high=2)], T(2, 3, low=-2.5, high=2.5),
      "entropy", "log_prob probs", **STEPS)  # fmt: skip
_rows("Laplace", [LOC, SCALE], T(2, 3), ALL + " stddev", **CRASHES)
_rows("Laplace", [LOC, SCALE], T(2, 3), "", "log_prob prob cdf")
_rows("Laplace", [LOC, SCALE], T(2, 3, **P), "", "icdf")
_rows("Gumbel", [LOC, SCALE], T(2, 3), ALL + " stddev", "log_prob prob cdf")
_rows("Cauchy", [LOC, SCALE], T(2, 3), "entropy", "log_prob prob cdf")
BITS = V([[0, 1, 1], [1, 0, 1]])
_rows("Bernoulli", [T(2, 3, **P)], BITS, "mean variance")
_rows("Bernoulli", [T(2, 3, **P)], BITS, "", "log_prob prob cdf", **CRASHES)
_rows("Bernoulli", [T(2, 3, **P)], BITS, "entropy", _paddle_grad=False)  # zero in Paddle
_rows("ContinuousBernoulli", [V([0.1, 0.3, 0.4995, 0.8], grad=True)], T(4, **P), ALL,
      "log_prob prob cdf icdf")  # fmt: skip
_rows(
    "Binomial", [V([3.0, 5.0, 9.0], grad=True), T(3, **P)], V([1.0, 4.0, 9.0]), ALL,
    "log_prob prob", **STEPS,
)  # fmt: skip
_rows("Categorical", [T(4, low=0.2, high=2)], I(3, high=4), "entropy", "log_prob probs")
_rows("Categorical", [T(2, 4, low=0.2, high=2)], I(3, high=4), "entropy", "log_prob probs")
_rows("Categorical", [T(2, 4, low=0.2, high=2)], I(2, 2, high=4), "", "log_prob")
FAILURES = V([[0.0, 1, 2], [3, 4, 1]])
_rows("Geometric", [T(2, 3, **P)], FAILURES, "mean entropy", "pmf log_pmf cdf")
_rows("Geometric", [T(2, 3, **P)], FAILURES, "variance stddev", _paddle_grad=False)  # Paddle: none
_rows("Poisson", [T(2, 3, **R)], V([[0.0, 1, 2], [3, 4, 9]]), ALL, "log_prob prob")
_rows("Exponential", [SCALE], T(2, 3, **R), ALL, "log_prob prob cdf")
_rows("Exponential", [SCALE], T(2, 3, **P), "", "icdf")
_rows("Gamma", [SCALE, SCALE], T(2, 3, **R), ALL, "log_prob prob")
_rows("Chi2", [SCALE], T(2, 3, **R), ALL, "log_prob prob")
_rows("Beta", [SCALE, SCALE], T(2, 3, **P), ALL, "log_prob prob")
_rows("Dirichlet", [SCALE], V([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]], grad=True), ALL, "log_prob prob")
STUDENT = [T(3, low=2.5, high=5), T(3), T(3, **R)]
_rows("StudentT", STUDENT, T(3), ALL, **CRASHES)
_rows("StudentT", STUDENT, T(3), "", "log_prob prob")

for _name, _params in {
    "Normal": (LOC, SCALE, T(2, 3, **X), T(2, 3, **R)),
    "LogNormal": (LOC, SCALE, T(2, 3, **X), T(2, 3, **R)),
    "Laplace": (LOC, SCALE, T(2, 3, **X), T(2, 3, **R)),
    "Cauchy": (LOC, SCALE, T(2, 3, **X), T(2, 3, **R)),
    "Bernoulli": (T(3, **P), T(3, **P)),
    "ContinuousBernoulli": (T(3, **P), T(3, **P)),
    "Binomial": (V([3.0, 5], grad=True), T(2, **P), V([3.0, 5], grad=True), T(2, **P)),
    "Categorical": (T(2, 4), T(2, 4)),
    "Geometric": (T(3, **P), T(3, **P)),
    "Poisson": (T(3, **R), T(3, **R)),
    "Exponential": (T(3, **R), T(3, **R)),
    "Gamma": (T(3, **R), T(3, **R), T(3, **R), T(3, **R)),
    "Beta": (T(3, **R), T(3, **R), T(3, **R), T(3, **R)),
    "Dirichlet": (T(2, 3, **R), T(2, 3, **R)),
}.items():
    _options = STEPS if _name == "Binomial" else {}
    case_fn(f"kl-{_name}", _divergence(_name), *_params, **LOOSE, **_options)

# --- vectors and matrices ---------------------------------------------------------------------

COV = V([[2.0, 0.5], [0.5, 1.0]], grad=True)
TRIL = V([[1.4, 0.0], [0.3, 0.9]], grad=True)


def _mvn(p: Any, kind: str, loc: Any, matrix: Any) -> Any:
    return p.distribution.MultivariateNormal(loc, **{kind: matrix})


for _kind, _matrix in {
    "covariance_matrix": COV, "precision_matrix": COV, "scale_tril": TRIL
}.items():  # fmt: skip
    # Paddle's gradient by the precision matrix is noise.
    _options = {**LOOSE, **STEPS, "_paddle_grad": _kind != "precision_matrix"}
    for _method in ("mean", "variance", "entropy"):
        case_fn(
            f"MultivariateNormal.{_method}-{_kind}",
            lambda p, loc, m, k=_kind, a=_method: (
                f() if callable(f := getattr(_mvn(p, k, loc, m), a)) else f
            ),
            T(2), _matrix, **_options,
        )  # fmt: skip
    case_fn(f"MultivariateNormal.log_prob-{_kind}",
            lambda p, loc, m, x, k=_kind: _mvn(p, k, loc, m).log_prob(x),
            T(3, 2), _matrix, T(3, 2), **_options)  # fmt: skip
case_fn("kl-MultivariateNormal",
        lambda p, a, m, b, t: p.distribution.kl_divergence(
            _mvn(p, "covariance_matrix", a, m), _mvn(p, "covariance_matrix", b, t)),
        T(2), COV, T(2), V([[1.4, 0.3], [0.3, 0.9]], grad=True), **LOOSE, **STEPS)  # fmt: skip
for _method in ("mean", "variance", "entropy"):
    case_fn(f"Multinomial.{_method}",
            lambda p, x, a=_method: (
                f() if callable(f := getattr(p.distribution.Multinomial(4, x), a)) else f),
            T(2, 3, **P), **LOOSE)  # fmt: skip
case_fn("Multinomial.log_prob",
        lambda p, x, v: p.distribution.Multinomial(4, x).log_prob(v),
        T(3, **P), V([[1, 2, 1], [0, 0, 4]], "int64"), **LOOSE, **CRASHES)  # fmt: skip
case_fn("LKJCholesky.log_prob",
        lambda p, a, v: p.distribution.LKJCholesky(3, a).log_prob(v),
        T(2, **R), V([[1.0, 0, 0], [0.3, 0.95, 0], [0.2, 0.5, 0.84]], grad=True),
        **LOOSE)  # fmt: skip

# --- numbers, arrays, dtypes ------------------------------------------------------------------

case_fn("Normal-numbers", lambda p: p.distribution.Normal(1, 2.0).log_prob(p.to_tensor(0.5)))
case_fn("Normal-lists", lambda p: p.distribution.Normal([1.0, 2.0], [0.5, 3.0]).entropy())
case_fn("Normal-float64", lambda p, a, b: p.distribution.Normal(a, b).entropy(),
        T(3, dtype="float64"), T(3, dtype="float64", **R))  # fmt: skip
case_fn("Uniform-numbers", lambda p: p.distribution.Uniform(1, 2.0).log_prob(p.to_tensor(1.5)))
case_fn("Bernoulli-number", lambda p: p.distribution.Bernoulli(0.3).entropy())
case_fn("Poisson-number", lambda p: p.distribution.Poisson(3.0).log_prob(p.to_tensor([2.0])))
case_fn("Beta-numbers", lambda p: p.distribution.Beta(0.5, 2.0).entropy())
case_fn("complex-Normal-log_prob",
        lambda p, a, s, x: p.distribution.Normal(a, s).log_prob(x).real(),
        T(3, dtype="complex64"), T(3, **R), T(3, dtype="complex64"), **LOOSE)  # fmt: skip
case_fn("complex-Normal-entropy", lambda p, a, s: p.distribution.Normal(a, s).entropy(),
        T(3, dtype="complex64", grad=False), T(3, **R), **LOOSE)  # fmt: skip
case_fn("Beta.sample-shape", lambda p, a: p.distribution.Beta(a, a).sample([4]), T(1, **R),
        _check_value=False)  # fmt: skip
case_fn("Categorical.sample", lambda p, a: p.distribution.Categorical(a).sample([4, 2]), T(3, 5),
        _check_value=False)  # fmt: skip
case_fn("Multinomial.sample", lambda p, a: p.distribution.Multinomial(5, a).sample([4]),
        T(3, 5, **P), _check_value=False)  # fmt: skip

# --- Independent, TransformedDistribution -----------------------------------------------------

case_fn("Independent.log_prob",
        lambda p, a, s, x: p.distribution.Independent(p.distribution.Normal(a, s), 1).log_prob(x),
        LOC, SCALE, T(2, 3), **LOOSE)  # fmt: skip
case_fn("Independent.entropy",
        lambda p, a, s: p.distribution.Independent(p.distribution.Normal(a, s), 2).entropy(),
        LOC, SCALE, **LOOSE)  # fmt: skip
case_fn("Transformed.log_prob",
        lambda p, a, s, x: p.distribution.TransformedDistribution(
            p.distribution.Normal(a, s),
            [p.distribution.TanhTransform(),
             p.distribution.AffineTransform(p.to_tensor(1.0), p.to_tensor(2.0))]).log_prob(x),
        LOC, SCALE, T(2, 3, low=-0.5, high=2.5), **LOOSE)  # fmt: skip
case_fn("Transformed-stick",
        lambda p, a, s, x: p.distribution.TransformedDistribution(
            p.distribution.Normal(a, s), [p.distribution.StickBreakingTransform()]).log_prob(x),
        LOC, SCALE, V([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]], grad=True),
        **LOOSE)  # fmt: skip
case_fn("Transformed-shapes",
        lambda p, a: list(p.distribution.TransformedDistribution(
            p.distribution.Normal(a, a), [p.distribution.StickBreakingTransform()]).event_shape),
        SCALE)  # fmt: skip

# --- transforms -------------------------------------------------------------------------------


def _transform(make: Callable[[Any], Any], method: str) -> Callable[..., Any]:
    return lambda p, x: getattr(make(p.distribution), method)(x)


def _affine(d: Any) -> Any:
    import bireme

    p = bireme if d is bireme.distribution else __import__("paddle")
    return d.AffineTransform(p.to_tensor([1.0, 2.0, 3.0]), p.to_tensor([2.0, -1.0, 0.5]))


def _power(d: Any) -> Any:
    import bireme

    p = bireme if d is bireme.distribution else __import__("paddle")
    return d.PowerTransform(p.to_tensor(2.0))


_MADE: dict[str, tuple[Callable[[Any], Any], dict[str, float]]] = {
    "affine": (_affine, X),
    "exp": (lambda d: d.ExpTransform(), R),
    "power": (_power, R),
    "sigmoid": (lambda d: d.SigmoidTransform(), P),
    "tanh": (lambda d: d.TanhTransform(), P),
    "chain": (lambda d: d.ChainTransform([_affine(d), d.TanhTransform()]), P),
    "independent": (lambda d: d.IndependentTransform(d.ExpTransform(), 1), R),
    "reshape": (lambda d: d.ReshapeTransform((3,), (3, 1)), X),
    "stack": (lambda d: d.StackTransform([d.ExpTransform(), _power(d)], 0), R),
    "stick": (lambda d: d.StickBreakingTransform(), P),
}
for _label, (_make, _range) in _MADE.items():
    case_fn(f"{_label}.forward", _transform(_make, "forward"), T(2, 3, **_range), **LOOSE)
    case_fn(f"{_label}.forward_log_det_jacobian", _transform(_make, "forward_log_det_jacobian"),
            T(2, 3, **_range), _finite_difference=False, **LOOSE)  # fmt: skip
    _shape = (2, 3, 1) if _label == "reshape" else (2, 3)
    if _label != "stick":
        case_fn(f"{_label}.inverse", _transform(_make, "inverse"), T(*_shape, **_range), **LOOSE)
        case_fn(f"{_label}.inverse_log_det_jacobian",
                _transform(_make, "inverse_log_det_jacobian"),
                T(*_shape, **_range), _finite_difference=False, **LOOSE)  # fmt: skip
case_fn("stick.inverse", _transform(lambda d: d.StickBreakingTransform(), "inverse"),
        V([[0.1, 0.2, 0.3, 0.4]], grad=True), **LOOSE)  # fmt: skip
case_fn("softmax.forward", _transform(lambda d: d.SoftmaxTransform(), "forward"), T(2, 3), **LOOSE)
case_fn("softmax.inverse", _transform(lambda d: d.SoftmaxTransform(), "inverse"), T(2, 3, **P))
case_fn("abs.forward", _transform(lambda d: d.AbsTransform(), "forward"), T(2, 3))
case_fn("abs.inverse", _transform(lambda d: d.AbsTransform(), "inverse"), T(2, 3, **P))
case_fn("reshape.forward_shape",
        lambda p: list(p.distribution.ReshapeTransform((2, 3), (6,)).forward_shape(
            (5, 2, 3))))  # fmt: skip
case_fn("stick.inverse_shape",
        lambda p: list(p.distribution.StickBreakingTransform().inverse_shape((5, 4))))  # fmt: skip
case_fn("call-of-a-distribution",
        lambda p, a, s, x: p.distribution.ExpTransform()(p.distribution.Normal(a, s)).log_prob(x),
        LOC, SCALE, T(2, 3, **R), **LOOSE)  # fmt: skip

raises_fn("Normal-mixed", lambda p, a: p.distribution.Normal(a, 1.0), T(3))
raises_fn("Independent-rank", lambda p, a: p.distribution.Independent(
    p.distribution.Normal(a, a), 3), T(3))  # fmt: skip
raises_fn("Independent-no-base", lambda p: p.distribution.Independent(1.0, 1))
raises_fn("Cauchy-mean", lambda p: p.distribution.Cauchy(0.0, 1.0).mean)
raises_fn("Multinomial-count", lambda p, a: p.distribution.Multinomial(0, a), T(3, **P))
raises_fn("Dirichlet-scalar", lambda p, a: p.distribution.Dirichlet(a), T(**P))
raises_fn("Mvn-two-matrices", lambda p, a, m: p.distribution.MultivariateNormal(
    a, covariance_matrix=m, scale_tril=m), T(2), COV)  # fmt: skip
raises_fn("Mvn-vector", lambda p, a: p.distribution.MultivariateNormal(
    a, covariance_matrix=a), T(2))  # fmt: skip
raises_fn("LKJ-dim", lambda p: p.distribution.LKJCholesky(1, 1.0))
raises_fn("LKJ-method", lambda p: p.distribution.LKJCholesky(2, 1.0, "box"))
raises_fn("Chi2-negative", lambda p, a: p.distribution.Chi2(a).df, V([1.0, -1.0]))
raises_fn(
    "StudentT-negative", lambda p, a: p.distribution.StudentT(a, a, a).df, V([1.0, -1.0])
)  # fmt: skip
raises_fn("Affine-number", lambda p: p.distribution.AffineTransform(1.0, 2.0))
raises_fn("transform-number", lambda p: p.distribution.ExpTransform().forward(1.0))
raises_fn("reshape-sizes", lambda p: p.distribution.ReshapeTransform((2, 3), (5,)))
raises_fn("reshape-shape", lambda p: p.distribution.ReshapeTransform((2, 3), (6,)).forward_shape(
    (3, 2)))  # fmt: skip
raises_fn("stack-size", lambda p, x: p.distribution.StackTransform(
    [p.distribution.ExpTransform()], 0).forward(x), T(2, 3))  # fmt: skip
raises_fn("register_kl-no-class", lambda p: p.distribution.register_kl(int, int))
