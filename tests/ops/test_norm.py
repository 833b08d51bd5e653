"""Normalisation against the real paddle: values, gradients, running statistics, both tiers."""

import itertools

import numpy as np
import pytest

import bireme
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from tests.ops.functional_oracle import BF, PF, TIERS, check, paddle, rand, tier

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
COLD = {**CLOSE, "tiers": ("never",)}


def batch_norm(lib, functional, x, training, affine=True, **options):
    """Everything that batch_norm gives: result, gradients, running statistics."""
    channels = x.shape[-1] if options.get("data_format") == "NHWC" else x.shape[1]
    leaf = lib.to_tensor(x, stop_gradient=False)
    mean = lib.to_tensor(rand(channels, seed=1))
    var = lib.to_tensor(rand(channels, seed=2, low=0.5, high=2.0))
    weight = bias = None
    if affine:
        weight = lib.to_tensor(rand(channels, seed=3), stop_gradient=False)
        bias = lib.to_tensor(rand(channels, seed=4), stop_gradient=False)
    out = functional.batch_norm(leaf, mean, var, weight, bias, training=training, **options)
    out.backward(lib.to_tensor(rand(*x.shape, seed=9)))
    found = [out, leaf.grad, mean, var]
    if affine:
        found += [weight.grad, bias.grad]
    return [f.numpy() for f in found]


@pytest.mark.parametrize("mode", TIERS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((4, 3, 5, 6), {}), ((8, 3), {"data_format": "NC"}), ((4, 3, 5), {"data_format": "NCL"}),
        ((4, 5, 6, 3), {"data_format": "NHWC", "momentum": 0.7}), ((2, 3, 2, 3, 2),
        {"data_format": "NCDHW", "epsilon": 1e-3}),
    ],
)  # fmt: skip
def test_batch_norm(shape, options, training, mode):
    x = rand(*shape) * 3 + 1
    want = batch_norm(paddle, PF, x, training, **options)
    with tier(mode):
        got = batch_norm(bireme, BF, x, training, **options)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("given", [None, True, False])
def test_use_global_stats_decides_instead_of_the_mode(training, given):
    x = rand(4, 3, 5, 5) * 3 + 1
    want = batch_norm(paddle, PF, x, training, use_global_stats=given)
    got = batch_norm(bireme, BF, x, training, use_global_stats=given)
    if given is False and not training:
        # The wheel's gradient is that of fixed statistics, which is not that of its result.
        ours = batch_norm(bireme, BF, x, True)
        for g, w in zip(got, ours, strict=True):
            np.testing.assert_array_equal(g, w)
        want, got = [want[i] for i in (0, 2, 3)], [got[i] for i in (0, 2, 3)]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5)


@pytest.mark.filterwarnings("ignore:When training, we now always track")
@pytest.mark.parametrize("name", ["BatchNorm1D", "BatchNorm2D", "BatchNorm3D"])
@pytest.mark.parametrize("given", [None, True, False])
def test_layers_in_both_modes(name, given):
    x = rand(4, 3, *[4] * int(name[9])) * 3 + 1
    for mode in ("train", "eval"):
        found = []
        for lib in (paddle, bireme):
            layer = getattr(lib.nn, name)(3, use_global_stats=given)
            getattr(layer, mode)()
            found.append([layer(lib.to_tensor(x)), layer._mean, layer._variance])
        for want, got in zip(*found, strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("mode", ["train", "eval", None])
def test_the_old_layer_in_all_its_modes(mode):
    x = rand(4, 3, 5, 5) * 3 + 1
    for flags in itertools.product([False, True], repeat=3):
        options = dict(
            zip(("is_test", "use_global_stats", "trainable_statistics"), flags, strict=True)
        )
        found = []
        for lib in (paddle, bireme):
            layer = lib.nn.BatchNorm(3, **options)
            if mode is not None:
                getattr(layer, mode)()
            found.append([layer(lib.to_tensor(x)), layer._mean, layer._variance])
        for want, got in zip(*found, strict=True):
            np.testing.assert_allclose(
                got.numpy(), want.numpy(), rtol=2e-4, atol=2e-5, err_msg=str(options)
            )


def test_batch_norm_without_affine_and_global_stats():
    x = rand(4, 3, 5, 5)
    for training, options in ((True, {}), (False, {}), (True, {"use_global_stats": True})):
        want = batch_norm(paddle, PF, x, training, affine=False, **options)
        got = batch_norm(bireme, BF, x, training, affine=False, **options)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5)


def test_batch_norm_keeps_digits_with_a_large_mean():
    x = bireme.to_tensor(rand(16, 2, 8, 8) + 3000)
    mean, var = bireme.to_tensor(np.zeros(2, "float32")), bireme.to_tensor(np.ones(2, "float32"))
    out = BF.batch_norm(x, mean, var, training=True).numpy()
    np.testing.assert_allclose(out.std((0, 2, 3)), 1, rtol=1e-2)


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (2, 3, 4, 6)])
def test_layer_norm(shape):
    check("layer_norm", rand(*shape) * 3, 6, rand(6), rand(6, seed=1), **CLOSE)


def test_layer_norm_options():
    check("layer_norm", rand(2, 3, 4, 6) * 3, [4, 6], rand(24), rand(24, seed=1), **COLD)
    check("layer_norm", rand(2, 3, 6) * 3, [6], epsilon=1e-3, **COLD)
    check("layer_norm", rand(2, 3, 6) * 3, [3, 6], rand(18), **COLD)


def test_rms_norm():
    def composed(x, shape, weight):  # the wheel has no CPU kernel for it
        return x / paddle.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight

    check("rms_norm", rand(2, 3, 6) * 3, 6, rand(6), theirs=composed, **CLOSE)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm(groups):
    x = rand(2, 4, 5, 3) * 3
    check("group_norm", x, groups, weight=rand(4), bias=rand(4, seed=1), **CLOSE)


def test_group_norm_layouts():
    check("group_norm", rand(2, 5, 3, 4) * 3, 2, weight=rand(4), bias=rand(4, seed=1),
          data_format="NHWC", **COLD)  # fmt: skip
    # Without a weight paddle's own gradient differs from the one with a weight of ones.
    ones = np.ones(4, "float32")
    check("group_norm", rand(2, 4, 5) * 3, 2, weight=ones, data_format="NCL", **COLD)


@pytest.mark.parametrize("shape", [(2, 3, 6), (2, 3, 4, 5), (2, 3, 2, 3, 4)])
def test_instance_norm(shape):
    check("instance_norm", rand(*shape) * 3, weight=rand(3), bias=rand(3, seed=1), **COLD)
    check("instance_norm", rand(*shape) * 3, **CLOSE)


def test_local_response_norm():
    check("local_response_norm", rand(2, 6, 4, 3), 5, **CLOSE)
    check("local_response_norm", rand(2, 6, 4), 4, alpha=0.3, beta=0.6, k=2.0, data_format="NCL",
          **COLD)  # fmt: skip
    check("local_response_norm", rand(2, 4, 3, 6), 3, alpha=0.3, data_format="NHWC", **COLD)


def test_half_precision_stays():
    x = bireme.to_tensor(rand(4, 6, dtype="float16"))
    for mode in TIERS:
        with tier(mode):
            assert BF.layer_norm(x, 6).numpy().dtype == np.float16
            assert BF.group_norm(x, 2, data_format="NC").numpy().dtype == np.float16


def test_bad_input():
    x = bireme.to_tensor(rand(2, 4, 3))
    with pytest.raises(ShapeMismatch, match="normalized_shape"):
        BF.layer_norm(x, 4)
    with pytest.raises(ShapeMismatch, match="weight"):
        BF.layer_norm(x, 3, bireme.to_tensor(rand(4)))
    with pytest.raises(ShapeMismatch, match="groups"):
        BF.group_norm(x, 3, data_format="NCL")
    with pytest.raises(InvalidArgument, match="data_format"):
        BF.group_norm(x, 2, data_format="HWC")
    four = bireme.to_tensor(rand(4))
    with pytest.raises(ShapeMismatch, match="running_mean"):
        BF.batch_norm(x, bireme.to_tensor(rand(3)), four, data_format="NCL")
    with pytest.raises(TypeMismatch, match="floating"):
        BF.batch_norm(bireme.to_tensor([[1, 2, 3, 4]]), four, four, data_format="NC")
    with pytest.raises(ShapeMismatch, match="3 dimensions"):
        BF.local_response_norm(bireme.to_tensor(rand(2, 2)), 3)
