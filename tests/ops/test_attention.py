"""Attention against the real paddle: masks, causality, shared heads, dropout, both tiers."""

import numpy as np
import pytest

import bireme
from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.random import seed
from bireme.nn.functional.flash_attention import flash_attention, flash_attn_unpadded
from tests.ops.functional_oracle import BF, TIERS, both_tiers, check, rand, randint, tier

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
NAME = "scaled_dot_product_attention"


def qkv(q=(2, 5, 4, 8), k=(2, 5, 4, 8)):
    return rand(*q), rand(*k, seed=1), rand(*k, seed=2)


def test_plain():
    check(NAME, *qkv(), **CLOSE)


def test_scale():
    check(NAME, *qkv(), scale=0.3, tiers=("never",), **CLOSE)


def test_causal():
    check(NAME, *qkv(), is_causal=True, **CLOSE)


@pytest.mark.parametrize("shape", [(2, 4, 5, 5), (2, 1, 5, 5), (5, 5)])
def test_added_mask(shape):
    check(NAME, *qkv(), rand(*shape, seed=5), **CLOSE)


def test_boolean_mask():
    mask = randint(2, 1, 5, 5, high=2).astype(bool)
    mask[..., 0] = True
    check(NAME, *qkv(), mask, **CLOSE)


def test_lengths_differ():
    check(NAME, *qkv((2, 3, 4, 8), (2, 6, 4, 8)), tiers=("never",), **CLOSE)


def test_shared_heads():
    check(NAME, *qkv((2, 5, 4, 8), (2, 6, 2, 8)), **CLOSE)
    check(NAME, *qkv((2, 5, 4, 8), (2, 5, 1, 8)), is_causal=True, tiers=("never",), **CLOSE)


def test_without_batch():
    check(NAME, *qkv((5, 4, 8), (5, 4, 8)), tiers=("never",), **CLOSE)


def test_dropout_is_the_same_in_both_tiers_and_on_the_way_back():
    q, k, v = (bireme.to_tensor(a) for a in qkv())

    def run():
        seed(11)
        for t in (q, k, v):
            t.stop_gradient = False
            t.clear_gradient(False)
        out = BF.scaled_dot_product_attention(q, k, v, dropout_p=0.4)
        out.backward(bireme.to_tensor(rand(2, 5, 4, 8, seed=7)))
        return out, q.grad, k.grad, v.grad

    dropped = both_tiers(run)[0]
    plain = BF.scaled_dot_product_attention(q, k, v).numpy()
    assert np.abs(dropped - plain).max() > 0.01
    quiet = BF.scaled_dot_product_attention(q, k, v, dropout_p=0.4, training=False)
    np.testing.assert_array_equal(quiet.numpy(), plain)


def test_dropout_gradient_by_differences():
    q, k, v = (a.astype("float64") for a in qkv((1, 3, 2, 4), (1, 3, 2, 4)))
    weight = rand(1, 3, 2, 4, dtype="float64", seed=8)

    def loss(array):
        seed(5)
        out = BF.scaled_dot_product_attention(
            *(bireme.to_tensor(a) for a in (array, k, v)), dropout_p=0.3
        )
        return (out.numpy() * weight).sum()

    leaf = bireme.to_tensor(q, stop_gradient=False)
    seed(5)
    out = BF.scaled_dot_product_attention(
        leaf, bireme.to_tensor(k), bireme.to_tensor(v), dropout_p=0.3
    )
    out.backward(bireme.to_tensor(weight))
    along = rand(1, 3, 2, 4, dtype="float64", seed=9)
    slope = (loss(q + 1e-6 * along) - loss(q - 1e-6 * along)) / 2e-6
    np.testing.assert_allclose((leaf.grad.numpy() * along).sum(), slope, rtol=1e-5)


def test_half_precision():
    q, k, v = (bireme.to_tensor(a.astype("float16")) for a in qkv())
    want = BF.scaled_dot_product_attention(*(bireme.to_tensor(a) for a in qkv())).numpy()
    for mode in TIERS:
        with tier(mode):
            out = BF.scaled_dot_product_attention(q, k, v).numpy()
        assert out.dtype == np.float16
        np.testing.assert_allclose(out.astype("float32"), want, atol=3e-3)


def test_flash_names():
    q, k, v = (bireme.to_tensor(a) for a in qkv())
    out, weights = flash_attention(q, k, v, causal=True, return_softmax=True)
    want = BF.scaled_dot_product_attention(q, k, v, is_causal=True)
    np.testing.assert_array_equal(out.numpy(), want.numpy())
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, rtol=1e-5)
    assert flash_attention(q, k, v)[1] is None


@pytest.mark.parametrize("causal", [False, True])
def test_packed_sequences_are_separate(causal):
    q, k, v = (a.reshape(10, 4, 8) for a in qkv())
    starts = bireme.to_tensor(np.array([0, 4, 10]))
    tensors = [bireme.to_tensor(a) for a in (q, k, v)]
    (out,) = both_tiers(
        lambda: flash_attn_unpadded(*tensors, starts, starts, 6, 6, 8**-0.5, causal=causal)[0]
    )
    for lo, hi in ((0, 4), (4, 10)):
        alone = BF.scaled_dot_product_attention(
            *(bireme.to_tensor(a[None, lo:hi]) for a in (q, k, v)), is_causal=causal
        )
        np.testing.assert_allclose(out[lo:hi], alone.numpy()[0], rtol=1e-4, atol=1e-5)


def test_bad_input():
    q, k, v = (bireme.to_tensor(a) for a in qkv())
    with pytest.raises(ShapeMismatch, match="width"):
        BF.scaled_dot_product_attention(q, bireme.to_tensor(rand(2, 5, 4, 6)), v)
    with pytest.raises(ShapeMismatch, match="batch"):
        BF.scaled_dot_product_attention(q, bireme.to_tensor(rand(3, 5, 4, 8)), v)
    with pytest.raises(TypeMismatch, match="one dtype"):
        BF.scaled_dot_product_attention(q, k, bireme.to_tensor(rand(2, 5, 4, 8, dtype="float64")))
    three = bireme.to_tensor(rand(2, 5, 3, 8))
    with pytest.raises(ShapeMismatch, match="multiple"):
        BF.scaled_dot_product_attention(q, three, three)
    one = bireme.to_tensor(rand(2, 5, 1, 8))
    with pytest.raises(ShapeMismatch, match="enable_gqa"):
        BF.scaled_dot_product_attention(q, one, one, enable_gqa=False)
