"""LookAhead, ModelAverage and the quasi-Newton minimisers, next to the real ones."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
import bireme.incubate.optimizer as ours_optimizer
from bireme.incubate.optimizer import functional

# What the real wheel says about its own LookAhead.
pytestmark = pytest.mark.filterwarnings("ignore:Op `increment` is executed:DeprecationWarning")

X = np.random.default_rng(3).normal(size=(16, 4)).astype("float32")
Y = (X @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")).astype("float32")


def make(lib):
    net = lib.nn.Linear(4, 1)
    net.weight.set_value(np.full((4, 1), 0.1, "float32"))
    net.bias.set_value(np.zeros(1, "float32"))
    return net


def loss_of(lib, net):
    return ((net(lib.to_tensor(X)) - lib.to_tensor(Y)) ** 2).mean()


def incubate(lib):
    return ours_optimizer if lib is bireme else lib.incubate


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("alpha", [0.5, 0.2])
@pytest.mark.parametrize("way", ["step", "minimize"])
def test_lookahead(paddle, k, alpha, way):
    curves = []
    for lib in (paddle, bireme):
        net = make(lib)
        inner = lib.optimizer.Momentum(0.05, parameters=net.parameters())
        optimizer = incubate(lib).LookAhead(inner, alpha=alpha, k=k)
        seen = []
        for _ in range(7):
            loss = loss_of(lib, net)
            loss.backward()
            optimizer.step() if way == "step" else optimizer.minimize(loss)
            optimizer.clear_grad()
            seen.append(net.weight.numpy())
        curves.append(seen)
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-4, atol=1e-6)


def test_lookahead_goes_on_from_its_state():
    def start():
        net = make(bireme)
        inner = bireme.optimizer.Adam(0.05, parameters=net.parameters())
        return net, ours_optimizer.LookAhead(inner, k=3)

    def run(net, optimizer, steps):
        for _ in range(steps):
            loss_of(bireme, net).backward()
            optimizer.step()
            optimizer.clear_grad()

    net, optimizer = start()
    run(net, optimizer, 4)
    state, weights = optimizer.state_dict(), [p.numpy() for p in net.parameters()]
    saved = {k: v.numpy() if hasattr(v, "numpy") else v for k, v in state.items()}
    run(net, optimizer, 4)
    with bireme.utils.unique_name.guard():
        again, other = start()
    for p, q, value in zip(again.parameters(), net.parameters(), weights, strict=True):
        p.set_value(value)
        p.name = q.name
    other.set_state_dict(saved)
    run(again, other, 4)
    np.testing.assert_allclose(again.weight.numpy(), net.weight.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"alpha": 2.0}, "alpha"), ({"k": 0}, "positive int"), ({"k": 1.5}, "positive int")],
)
def test_lookahead_refuses(options, message):
    inner = bireme.optimizer.SGD(0.1, make(bireme).parameters())
    with pytest.raises(ValueError, match=message):
        ours_optimizer.LookAhead(inner, **options)
    with pytest.raises(TypeError, match="inner_optimizer"):
        ours_optimizer.LookAhead(None)


@pytest.mark.parametrize(
    ("rate", "low", "high"), [(0.15, 2, 4), (0.5, 2, 100), (1.0, 3, 3), (0.15, 10000, 10000)]
)
def test_model_average(paddle, rate, low, high):
    found = []
    for lib in (paddle, bireme):
        net = make(lib)
        sgd = lib.optimizer.SGD(0.05, parameters=net.parameters())
        average = incubate(lib).ModelAverage(
            rate, parameters=net.parameters(), min_average_window=low, max_average_window=high
        )
        seen = []
        for _ in range(9):
            loss_of(lib, net).backward()
            sgd.step()
            average.step()
            sgd.clear_grad()
            average.clear_grad()
            with average.apply():
                seen.append(net.weight.numpy())
            seen.append(net.weight.numpy())
        with average.apply(need_restore=False):
            pass
        seen.append(net.weight.numpy())
        average.restore()
        seen.append(net.weight.numpy())
        found.append(seen)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6)


def test_model_average_state():
    net = make(bireme)
    average = ours_optimizer.ModelAverage(1.0, net.parameters(), 2, 3)
    for _ in range(4):
        loss_of(bireme, net).backward()
        average.minimize(None)
    other = ours_optimizer.ModelAverage(1.0, net.parameters(), 2, 3)
    other.set_state_dict(average.state_dict())
    with average.apply():
        first = net.weight.numpy()
    with other.apply():
        np.testing.assert_allclose(net.weight.numpy(), first)
    with pytest.raises(ValueError, match="executor"), average.apply(executor=1):
        pass


def quadratic(lib):
    scale = lib.to_tensor(np.array([1.0, 10.0, 0.5]))
    return lambda x: (scale * (x - 2.0) ** 2).sum()


def rosenbrock(lib):
    return lambda x: (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize("function", [quadratic, rosenbrock], ids=["quadratic", "rosenbrock"])
@pytest.mark.parametrize("method", ["minimize_bfgs", "minimize_lbfgs"])
def test_minimisers(paddle, function, method):
    start = np.array([-1.0, 1.5, 0.5])
    results = []
    for lib in (paddle, bireme):
        home = functional if lib is bireme else lib.incubate.optimizer.functional
        found = getattr(home, method)(
            function(lib),
            lib.to_tensor(start),
            max_iters=200,
            tolerance_grad=1e-6,
            dtype="float64",
        )
        results.append([np.asarray(r.numpy()) for r in found])
    theirs, ours = results
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert ours[0].all() or not theirs[0].all()
    if theirs[0].all():  # Paddle's BFGS gives up on Rosenbrock's valley
        np.testing.assert_allclose(ours[2], theirs[2], atol=1e-4)
        np.testing.assert_allclose(ours[3], theirs[3], atol=1e-6)
    np.testing.assert_allclose(ours[2], 2.0 if function is quadratic else 1.0, atol=1e-4)
    assert np.abs(ours[4]).max() < 1e-5
    if function is quadratic and method == "minimize_bfgs":
        np.testing.assert_allclose(np.diag(ours[5]), [0.5, 0.05, 1.0], rtol=0.2)


def test_minimisers_in_float32_and_from_an_estimate():
    target = bireme.to_tensor([1.0, -3.0])
    estimate = bireme.to_tensor([[2.0, 0.0], [0.0, 1.0]])
    for method in (functional.minimize_bfgs, functional.minimize_lbfgs):
        found = method(
            lambda x: ((x - target) ** 4).sum() + ((x - target) ** 2).sum(),
            bireme.zeros([2]),
            initial_inverse_hessian_estimate=estimate,
            tolerance_grad=1e-4,
        )
        assert bool(found[0])
        assert found[2].dtype is bireme.float32
        np.testing.assert_allclose(found[2].numpy(), target.numpy(), atol=1e-3)
    # A start at the minimum stays there.
    done = functional.minimize_lbfgs(lambda x: (x**2).sum(), bireme.zeros([3]))
    assert bool(done[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int32"}, "dtype"),
        ({"line_search_fn": "hope"}, "line_search_fn"),
        ({"initial_inverse_hessian_estimate": np.array([[1.0, 2.0], [0.0, 1.0]])}, "symmetric"),
        ({"initial_inverse_hessian_estimate": np.array([[-1.0, 0.0], [0.0, 1.0]])}, "definite"),
        ({"initial_position": 3}, "1-D Tensor"),
    ],
)
def test_minimisers_refuse(options, message):
    options = {"initial_position": bireme.zeros([2]), **options}
    for method in (functional.minimize_bfgs, functional.minimize_lbfgs):
        with pytest.raises(ValueError, match=message):
            method(lambda x: x.sum(), **options)
