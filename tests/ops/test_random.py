"""Random tensors: repeatable, the same in both tiers, of the right distribution, type and shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import bireme as paddle
import bireme.nn.functional as F
from bireme.core import executor, trace
from bireme.host import config, jax_door
from bireme.ops import random as random_ops

# One line of the `both_tiers` fixture compiles a program for each row here.
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")

N = 20000


def full(value, dtype="float32", shape=(N,)):
    return paddle.full(list(shape), value, dtype)


MAKERS = {
    "rand": lambda: paddle.rand([3, 4]),
    "randn": lambda: paddle.randn([3, 4], "float64"),
    "uniform": lambda: paddle.uniform([3, 4], min=-2.0, max=5.0),
    "normal": lambda: paddle.normal(1.0, 2.0, [3, 4]),
    "normal_of_tensors": lambda: paddle.normal(full(1.0, shape=(3, 1)), full(2.0, shape=(4,))),
    "log_normal": lambda: paddle.log_normal(0.0, 1.0, [3]),
    "randint": lambda: paddle.randint(-3, 9, [3, 4], "int32"),
    "randint_0d": lambda: paddle.randint(9, shape=[]),
    "randperm": lambda: paddle.randperm(50),
    "bernoulli": lambda: paddle.bernoulli(full(0.3, shape=(50,))),
    "multinomial": lambda: paddle.multinomial(full(1.0, shape=(2, 9)), 4),
    "multinomial_again": lambda: paddle.multinomial(full(1.0, shape=(9,)), 40, True),
    "poisson": lambda: paddle.poisson(full(4.0, shape=(50,))),
    "binomial": lambda: paddle.binomial(full(9, "int64", (50,)), full(0.4, shape=(50,))),
    "standard_gamma": lambda: paddle.standard_gamma(full(0.7, shape=(50,))),
    "exponential_": lambda: full(0.0, shape=(50,)).exponential_(2.0),
    "cauchy_": lambda: full(0.0, shape=(50,)).cauchy_(),
    "geometric_": lambda: full(0.0, shape=(50,)).geometric_(0.3),
    "uniform_": lambda: full(0.0, shape=(50,)).uniform_(-1, 1),
    "normal_": lambda: full(0.0, shape=(50,)).normal_(3.0, 0.5),
    "bernoulli_": lambda: full(0.0, shape=(50,)).bernoulli_(0.3),
    "random_": lambda: full(0, "int64", (50,)).random_(7),
    "log_normal_": lambda: full(0.0, shape=(50,)).log_normal_(),
    "standard_normal": lambda: paddle.standard_normal([3, 4]),
    "rand_like": lambda: paddle.rand_like(full(0.0, shape=(50,))),
    "randn_like": lambda: paddle.randn_like(full(0.0, shape=(50,))),
    "randint_like": lambda: paddle.randint_like(full(0, "int64", (50,)), 9),
    "rrelu": lambda: F.rrelu(full(-1.0, shape=(50,)), 0.1, 0.9),
    "gumbel_softmax": lambda: F.gumbel_softmax(full(0.0, shape=(9, 5))),
    "dropout": lambda: F.dropout(full(1.0, shape=(50,))),
    "dropout1d": lambda: F.dropout1d(full(1.0, shape=(9, 5, 2))),
    "dropout2d": lambda: F.dropout2d(full(1.0, shape=(9, 5, 2, 2))),
    "dropout3d": lambda: F.dropout3d(full(1.0, shape=(9, 5, 2, 2, 2))),
    "alpha_dropout": lambda: F.alpha_dropout(full(1.0, shape=(50,))),
    "feature_alpha_dropout": lambda: F.feature_alpha_dropout(full(1.0, shape=(9, 5, 2))),
}


def _seeded(make):
    paddle.seed(1234)
    return make()


@pytest.mark.parametrize("name", MAKERS)
def test_same_numbers_in_both_tiers_and_again(name, both_tiers):
    first = both_tiers(lambda: _seeded(MAKERS[name]), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(_seeded(MAKERS[name]).numpy(), first, rtol=1e-5, atol=1e-6)
    assert MAKERS[name]().numpy().tolist() != first.tolist()


def test_types_and_shapes():
    assert paddle.rand([2, 3]).dtype is paddle.float32
    assert paddle.randn([2], "float64").dtype is paddle.float64
    assert paddle.randint(5).shape == [1]
    assert paddle.randint(5).dtype is paddle.int64
    assert paddle.randint_like(paddle.zeros([2, 2]), 5).dtype is paddle.float32
    assert paddle.multinomial(full(1.0, shape=(2, 9)), 4).shape == [2, 4]
    assert paddle.binomial(full(9, "int64"), full(0.5)).dtype is paddle.int64
    assert paddle.rand_like(paddle.zeros([2], "float64")).dtype is paddle.float64
    assert paddle.rand([0, 3]).shape == [0, 3]


@pytest.mark.parametrize(
    ("make", "cdf"),
    [
        (lambda: paddle.rand([N]), "uniform"),
        (lambda: paddle.randn([N]), "norm"),
        (lambda: paddle.rand_like(full(0.0)), "uniform"),
        (lambda: paddle.randn_like(full(0.0)), "norm"),
        (lambda: paddle.standard_normal([N]), "norm"),
        (lambda: paddle.normal(2.0, 3.0, [N]), stats.norm(2, 3).cdf),
        (lambda: paddle.normal(full(2.0), full(3.0)), stats.norm(2, 3).cdf),
        (lambda: full(0.0).normal_(2.0, 3.0), stats.norm(2, 3).cdf),
        (lambda: paddle.uniform([N], min=-2.0, max=5.0), stats.uniform(-2, 7).cdf),
        (lambda: full(0.0).uniform_(-2, 5), stats.uniform(-2, 7).cdf),
        (lambda: paddle.log_normal(0.0, 1.0, [N]), stats.lognorm(1).cdf),
        (lambda: -F.rrelu(full(-1.0), 0.1, 0.9), stats.uniform(0.1, 0.8).cdf),
        # Of two equal classes, the difference of two Gumbel draws is logistic.
        (lambda: F.gumbel_softmax(full(0.0, shape=(N, 2)))[:, 0], "uniform"),
        (lambda: full(0.0).exponential_(2.0), stats.expon(scale=0.5).cdf),
        (lambda: full(0.0).cauchy_(1.0, 2.0), stats.cauchy(1, 2).cdf),
        # As in Paddle, before it is rounded up to a number of trials.
        (lambda: full(0.0).geometric_(0.3), stats.expon(scale=-1 / np.log1p(-0.3)).cdf),
        (lambda: full(0.0).log_normal_(0.0, 1.0), stats.lognorm(1).cdf),
        (lambda: paddle.standard_gamma(full(0.5)), stats.gamma(0.5).cdf),
        (lambda: paddle.standard_gamma(full(4.0)), stats.gamma(4).cdf),
    ],
)
def test_continuous_distributions(make, cdf):
    assert stats.kstest(_seeded(make).numpy(), cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("make", "pmf"),
    [
        (lambda: paddle.poisson(full(0.5)), stats.poisson(0.5).pmf),
        (lambda: paddle.poisson(full(12.0)), stats.poisson(12).pmf),
        (lambda: paddle.binomial(full(10, "int64"), full(0.3)), stats.binom(10, 0.3).pmf),
        (lambda: paddle.randint(0, 7, [N]), lambda k: np.where(k < 7, 1 / 7, 0)),
        (lambda: paddle.randint_like(full(0, "int64"), 0, 7), lambda k: np.where(k < 7, 1 / 7, 0)),
        (lambda: full(0, "int64").random_(0, 7), lambda k: np.where(k < 7, 1 / 7, 0)),
        (lambda: paddle.bernoulli(full(0.3)), stats.bernoulli(0.3).pmf),
        (lambda: full(0.0).bernoulli_(0.3), stats.bernoulli(0.3).pmf),
        (lambda: F.dropout(full(0.7), 0.3), stats.bernoulli(0.7).pmf),
        (lambda: F.dropout1d(full(0.7, shape=(100, 200, 1)), 0.3), stats.bernoulli(0.7).pmf),
        (lambda: F.dropout2d(full(0.7, shape=(100, 200, 1, 1)), 0.3), stats.bernoulli(0.7).pmf),
        (lambda: F.dropout3d(full(0.7, shape=(100, 200, 1, 1, 1)), 0.3), stats.bernoulli(0.7).pmf),
        (
            lambda: paddle.multinomial(paddle.to_tensor([1.0, 2.0, 0.0, 5.0]), N, True),
            lambda k: np.array([1, 2, 0, 5, *[0] * 96])[k] / 8,
        ),
    ],
)
def test_discrete_distributions(make, pmf):
    drawn = np.rint(_seeded(make).numpy()).astype(int).reshape(-1)
    expected = pmf(np.arange(100)) * N
    seen = np.bincount(drawn, minlength=100)
    kept = expected > 5
    assert seen[expected == 0].sum() == 0
    chi = ((seen[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    assert stats.chi2.sf(chi, kept.sum()) > 1e-3


def test_drawing_without_replacement():
    weights = np.tile([1.0, 2.0, 0.0, 5.0], (N, 1)).astype("float32")
    drawn = _seeded(lambda: paddle.multinomial(paddle.to_tensor(weights), 3)).numpy()
    assert (np.sort(drawn, axis=1) == [0, 1, 3]).all()
    share = np.bincount(drawn[:, 0], minlength=4) / N
    np.testing.assert_allclose(share, [1 / 8, 2 / 8, 0, 5 / 8], atol=0.02)


def test_permutations_are_permutations():
    assert sorted(paddle.randperm(1000).tolist()) == list(range(1000))
    assert paddle.randperm(0).shape == [0]


def test_state_can_be_kept_and_put_back():
    paddle.seed(7)
    paddle.rand([3])
    state = paddle.get_rng_state()
    first = [paddle.rand([3]).numpy(), paddle.randn([3]).numpy()]
    paddle.set_rng_state(state)
    again = [paddle.rand([3]).numpy(), paddle.randn([3]).numpy()]
    np.testing.assert_array_equal(first, again)


def test_a_fixed_seed_is_a_fixed_draw():
    np.testing.assert_array_equal(
        paddle.uniform([5], seed=3).numpy(), paddle.uniform([5], seed=3).numpy()
    )


def test_new_keys_do_not_make_new_programs(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "never")
    trace.flush()
    counts = set()
    for _ in range(4):
        (paddle.rand([8]) * 2 + paddle.normal(0.0, 1.0, [8])).numpy()
        counts.add(executor.program_count())
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: paddle.rand([-1]), ValueError, "0 or more"),
        (lambda: paddle.rand([2], "int32"), TypeError, "floating"),
        (lambda: paddle.randint(5, 1), ValueError, "below high"),
        (lambda: paddle.randint(0), ValueError, "positive"),
        (lambda: paddle.randperm(-1), ValueError, "0 or more"),
        (lambda: paddle.multinomial(full(1.0, shape=(2,)), 3), ValueError, "at most"),
        (lambda: paddle.bernoulli(full(1, "int64")), TypeError, "floats"),
        (lambda: paddle.normal(), ValueError, "shape"),
        (lambda: paddle.seed("x"), TypeError, "integer"),
    ],
)
def test_errors_say_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_generator_of_ones_own():
    def drawn(generator):
        return paddle.zeros([20], dtype="int64").random_(0, 1000, generator=generator).tolist()

    first, second = (drawn(paddle.Generator().manual_seed(4)) for _ in range(2))
    assert first == second
    assert first != drawn(None)


def test_rounds_of_a_draw_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unrolled, a slice of them took XLA minutes on a GPU."""
    jax, body = jax_door.jax(), random_ops._standard_gamma.op.body

    def lines() -> int:
        def draw(x: Any) -> Any:
            return body(jax.numpy, x, 3, 4)

        return len(jax.jit(draw).lower(np.ones(5, "float32")).as_text().splitlines())

    before = lines()
    monkeypatch.setattr(random_ops, "_GAMMA_ROUNDS", 2)
    assert lines() == before


@pytest.mark.parametrize("of", ["gamma", "poisson", "binomial"])
def test_rounds_give_the_same_in_every_tier(of: str, both_tiers: Any) -> None:
    def draw() -> Any:
        paddle.seed(3)
        x = paddle.linspace(0.05, 30.0, 500)
        if of == "gamma":
            return paddle.standard_gamma(x)
        if of == "poisson":
            return paddle.poisson(x)
        return paddle.binomial(paddle.full([500], 40), x / 31.0)

    both_tiers(draw, rtol=1e-4)
