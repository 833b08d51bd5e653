"""Activations against the real paddle: values, gradients, dtypes, both tiers."""

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError, InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.random import seed
from tests.ops.functional_oracle import BF, both_tiers, check, rand

PLAIN = [
    "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
    "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "silu", "softmax", "softplus",
    "softshrink", "softsign", "swish", "tanhshrink", "thresholded_relu", "swiglu", "glu",
]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_defaults(name):
    check(name, rand(3, 4, 6) * 7)


@pytest.mark.parametrize("name", ["gelu", "softmax", "elu", "log_sigmoid"])
def test_float64(name):
    check(name, rand(3, 4, dtype="float64") * 7, tiers=("never",), rtol=1e-7)


@pytest.mark.parametrize("name", ["gelu", "softmax", "relu", "silu"])
def test_float16_stays(name):
    (out,) = both_tiers(lambda: getattr(BF, name)(bireme.to_tensor(rand(3, 4, dtype="float16"))))
    assert out.dtype == np.float16


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("celu", {"alpha": 0.4}), ("elu", {"alpha": 0.4}), ("gelu", {"approximate": True}),
        ("hardshrink", {"threshold": 1.0}), ("hardsigmoid", {"slope": 0.3, "offset": 0.2}),
        ("hardtanh", {"min": -2.0, "max": 0.5}), ("leaky_relu", {"negative_slope": 0.3}),
        ("selu", {"scale": 1.5, "alpha": 0.5}), ("softplus", {"beta": 2, "threshold": 3}),
        ("softshrink", {"threshold": 1.0}), ("softmax", {"axis": 1}), ("log_softmax", {"axis": 0}),
        ("softmax", {"axis": 1, "dtype": "float64"}), ("glu", {"axis": 1}),
        ("thresholded_relu", {"threshold": 0.5, "value": 2.0}), ("rrelu", {"training": False}),
    ],
)  # fmt: skip
def test_options(name, options):
    check(name, rand(3, 4, 6) * 4, **options)


def test_numbers_at_the_corners():
    x = np.array([-3, -1, -0.5, 0, 0.5, 1, 3, 6], "float32")
    for name in ("relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "leaky_relu",
                 "hardshrink", "softshrink", "elu", "thresholded_relu"):  # fmt: skip
        check(name, x, tiers=("never",))
    large = np.array([-1e4, -100, 100, 1e4], "float32")
    for name in ("softplus", "mish", "silu", "log_sigmoid", "gelu", "softmax"):
        check(name, large, tiers=("never",), grads=name != "silu")  # paddle's slope is NaN


def test_scalars():
    check("softmax", np.array(3.0, "float32"))
    check("relu", np.array(3.0, "float32"))


def test_maxout():
    check("maxout", rand(2, 4, 6, 3), groups=2)
    check("maxout", rand(2, 4, 5, 6), groups=3, axis=-1)


def test_prelu():
    check("prelu", rand(2, 4, 3), rand(4))
    check("prelu", rand(2, 4, 3), rand(1))
    check("prelu", rand(2, 3, 5, 4), rand(4), data_format="NHWC")
    with pytest.raises(ShapeMismatch, match="per channel"):
        BF.prelu(bireme.to_tensor(rand(2, 4)), bireme.to_tensor(rand(3)))


def test_swiglu_of_two():
    check("swiglu", rand(3, 4), rand(3, 4, seed=1))


@pytest.mark.parametrize(
    "name", ["relu", "elu", "hardtanh", "leaky_relu", "softmax", "thresholded_relu"]
)
def test_in_place(name):
    x = bireme.to_tensor(rand(3, 4) * 3)
    want = getattr(BF, name)(x).numpy()
    made = getattr(BF, name + "_")(x)
    assert made is x
    np.testing.assert_array_equal(x.numpy(), want)


def test_rrelu_draws_slopes_in_range():
    x = bireme.to_tensor(np.full((50, 60), -1, "float32"), stop_gradient=False)
    (out,) = both_tiers(lambda: (seed(3), BF.rrelu(x, 0.2, 0.4))[1])
    assert (-out >= 0.2).all()
    assert (-out <= 0.4).all()
    assert abs(-out.mean() - 0.3) < 0.01
    y = BF.rrelu(x, 0.2, 0.4)
    y.backward(bireme.to_tensor(np.ones((50, 60), "float32")))
    np.testing.assert_allclose(x.grad.numpy(), -y.numpy(), rtol=1e-6)


def test_gumbel_softmax():
    logits = bireme.to_tensor(np.log(np.array([[0.1, 0.2, 0.7]] * 4000, "float32")))
    (hard,) = both_tiers(lambda: (seed(5), BF.gumbel_softmax(logits, hard=True))[1])
    np.testing.assert_array_equal(hard.sum(-1), 1)
    np.testing.assert_allclose(hard.mean(0), [0.1, 0.2, 0.7], atol=0.03)
    soft = BF.gumbel_softmax(logits, temperature=0.5).numpy()
    np.testing.assert_allclose(soft.sum(-1), 1, rtol=1e-5)
    x = bireme.to_tensor(rand(4, 5), stop_gradient=False)
    BF.gumbel_softmax(x, hard=True).backward(bireme.to_tensor(rand(4, 5, seed=2)))
    assert np.isfinite(x.grad.numpy()).all()
    assert (x.grad.numpy() != 0).any()


def _slope(name, x, weight):
    leaf = bireme.to_tensor(x, stop_gradient=False)
    (first,) = bireme.grad([getattr(BF, name)(leaf)], [leaf], [weight], create_graph=True)
    return leaf, first


@pytest.mark.parametrize("name", ["gelu", "silu", "softmax", "elu", "mish", "log_softmax"])
def test_second_derivative(name):
    x = rand(3, 4, dtype="float64") * 2
    weight = bireme.to_tensor(rand(3, 4, dtype="float64", seed=4))
    along = rand(3, 4, dtype="float64", seed=6)
    leaf, first = _slope(name, x, weight)
    (second,) = bireme.grad([first], [leaf], [bireme.to_tensor(along)])
    eps = 1e-5
    ahead, behind = (_slope(name, x + s * eps * along, weight)[1].numpy() for s in (1, -1))
    # The Hessian is symmetric, so its product with `along` is the gradient's change along it.
    np.testing.assert_allclose(second.numpy(), (ahead - behind) / (2 * eps), atol=1e-7)


def test_bad_input():
    ints = bireme.to_tensor([1, 2, 3])
    for name in ("gelu", "softmax", "silu", "elu"):
        with pytest.raises(TypeMismatch, match="floating"):
            getattr(BF, name)(ints)
    x = bireme.to_tensor(rand(3, 5))
    with pytest.raises(BiremeError, match="axis"):
        BF.softmax(x, axis=2)
    with pytest.raises(ShapeMismatch, match="even"):
        BF.glu(x)
    with pytest.raises(ShapeMismatch, match="groups"):
        BF.maxout(x, 2)
    with pytest.raises(InvalidArgument, match="lower"):
        BF.rrelu(x, 0.5, 0.2)
    with pytest.raises(InvalidArgument, match="threshold"):
        BF.softshrink(x, -1)
    with pytest.raises(TypeMismatch, match="to_tensor"):
        BF.relu(np.ones(3))
