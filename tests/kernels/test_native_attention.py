"""Native attention against the plain lowering in float64, on random shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme as paddle
import bireme.nn.functional as F
from bireme.core import executor, kernels
from tests.kernels.kernel_oracle import (
    MARKS,
    assert_kernel_equals_plain,
    compiled,
    gradients,
    many,
)

__all__ = ["compiled"]  # a fixture
pytestmark = MARKS
NAME = "native_attention"


def _arrays(batch, queries, keys, heads, group, width, value_width, seed=0):
    rng = np.random.default_rng(seed + queries * 31 + keys)
    return [
        rng.normal(size=shape).astype(np.float32)
        for shape in (
            (batch, queries, heads * group, width),
            (batch, keys, heads, width),
            (batch, keys, heads, value_width),
        )
    ]


def _masks(kind, batch, heads, queries, keys):
    rng = np.random.default_rng(queries * 7 + keys)
    shape = [(1, 1, 1, keys), (batch, 1, queries, keys), (batch, heads, queries, keys),
             (queries, 1)][kind % 4]  # fmt: skip
    if kind >= 4:
        mask = rng.random(shape) < 0.7
        mask[..., 0] = True  # no query without a key
        return paddle.to_tensor(mask)
    return paddle.to_tensor(rng.normal(size=shape).astype(np.float32))


@many(30)
@given(
    st.integers(1, 3), st.integers(16, 150), st.integers(1, 300), st.integers(1, 3),
    st.integers(1, 3), st.integers(1, 70), st.integers(1, 70),
    st.sampled_from([None, "causal", *range(8)]),
)  # fmt: skip
def test_attention(batch, queries, keys, heads, group, width, value_width, mask):
    given_mask = None
    if isinstance(mask, int):
        given_mask = _masks(mask, batch, heads * group, queries, keys)

    def run(q, k, v):
        m = given_mask
        if m is not None and m.dtype != paddle.bool:
            m = m.astype(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, m, is_causal=mask == "causal")

    arrays = _arrays(batch, queries, keys, heads, group, width, value_width)
    # With few keys the gradient of the scores is a difference of nearly equal numbers.
    assert_kernel_equals_plain(NAME, run, arrays, rtol=1e-3)


@many(8)
@given(st.integers(16, 100), st.integers(1, 200), st.integers(1, 3), st.booleans())
def test_dropout_draws_what_the_plain_lowering_draws(queries, keys, heads, causal):
    def run(q, k, v):
        paddle.seed(queries)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=causal)

    assert_kernel_equals_plain(NAME, run, _arrays(2, queries, keys, heads, 2, 17, 17), rtol=1e-3)


def test_a_query_without_keys_is_not_a_number_as_in_the_plain_lowering():
    q, k, v = (paddle.to_tensor(a) for a in _arrays(1, 16, 20, 1, 1, 8, 8))
    mask = np.ones((16, 20), bool)
    mask[3] = False
    with_kernel = F.scaled_dot_product_attention(q, k, v, paddle.to_tensor(mask)).numpy()
    with kernels.disabled(NAME):
        plain = F.scaled_dot_product_attention(q, k, v, paddle.to_tensor(mask)).numpy()
    assert np.isnan(plain[0, 3]).all()
    assert not np.isnan(plain[0, 4:]).any()
    np.testing.assert_allclose(with_kernel, plain, rtol=1e-4, atol=1e-5)


def test_the_first_tile_of_keys_may_be_hidden():
    q, k, v = (paddle.to_tensor(a) for a in _arrays(1, 16, 300, 1, 1, 8, 8))
    mask = np.zeros((16, 300), bool)
    mask[:, 200:] = True
    out = F.scaled_dot_product_attention(q, k, v, paddle.to_tensor(mask)).numpy()
    seen = F.scaled_dot_product_attention(q, k[:, 200:], v[:, 200:]).numpy()
    np.testing.assert_allclose(out, seen, rtol=1e-4, atol=1e-5)


def test_large_scores_do_not_overflow():
    q, k, v = (paddle.to_tensor(a) for a in _arrays(1, 30, 150, 2, 1, 16, 16))
    out = F.scaled_dot_product_attention(q * 40.0, k * 40.0, v).numpy()
    with kernels.disabled():
        exact = F.scaled_dot_product_attention(
            *(x.astype("float64") for x in (q * 40.0, k * 40.0, v))
        ).numpy()
    np.testing.assert_allclose(out, exact, rtol=1e-3, atol=1e-3)


def test_one_query_and_key_under_two_masks():
    """Each application finds its own rows' sums again."""
    masks = [_masks(1, 1, 2, 20, 30), _masks(2, 1, 2, 20, 30)]

    def run(q, k, v):
        a, b = (m.astype(q.dtype) for m in masks)
        first = F.scaled_dot_product_attention(q, k, v, a)
        return first + 2 * F.scaled_dot_product_attention(q, k, v, b)

    assert_kernel_equals_plain(NAME, run, _arrays(1, 20, 30, 2, 1, 8, 8))


def test_a_gradient_of_the_mask_uses_the_plain_lowering():
    arrays = _arrays(1, 20, 30, 2, 1, 8, 8)
    mask = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    executor.clear_programs()
    found = gradients(F.scaled_dot_product_attention, [*arrays, mask])
    with kernels.disabled():
        plain = gradients(F.scaled_dot_product_attention, [*arrays, mask])
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_a_gradient_in_a_later_program():
    """The forward pass ran in a program of its own: the rows' sums are computed again."""
    tensors = [paddle.to_tensor(a, stop_gradient=False) for a in _arrays(1, 20, 30, 2, 1, 8, 8)]
    out = F.scaled_dot_product_attention(*tensors)
    out.numpy()
    (out * out).sum().backward()
    found = [t.grad.numpy() for t in tensors]
    with kernels.disabled():
        plain = gradients(F.scaled_dot_product_attention, [t.numpy() for t in tensors])[1:]
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_second_derivatives():
    def second():
        q, k, v = (paddle.to_tensor(a, stop_gradient=False)
                   for a in _arrays(1, 17, 20, 1, 2, 8, 8))  # fmt: skip
        out = F.scaled_dot_product_attention(q, k, v)
        (first,) = paddle.grad((out**2).sum(), q, create_graph=True)
        return [g.numpy() for g in paddle.grad((first**2).sum(), [q, k, v])]

    found = second()
    with kernels.disabled():
        plain = second()
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_half_precision(kind):
    arrays = _arrays(2, 24, 30, 2, 1, 16, 16)

    def run(q, k, v):
        return F.scaled_dot_product_attention(*(x.astype(kind) for x in (q, k, v))).astype(q.dtype)

    before = kernels.uses[NAME]
    found = gradients(run, arrays)
    assert kernels.uses[NAME] == before + 2
    with kernels.disabled():
        plain = gradients(F.scaled_dot_product_attention, arrays)
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.1, atol=0.1)


def test_an_empty_batch_and_a_single_query_use_the_plain_lowering():
    before = kernels.uses[NAME]
    empty = F.scaled_dot_product_attention(*(paddle.zeros([0, 20, 2, 8]) for _ in range(3)))
    assert empty.numpy().shape == (0, 20, 2, 8)
    one = paddle.ones([1, 1, 2, 8])
    np.testing.assert_allclose(F.scaled_dot_product_attention(one, one, one).numpy(), 1.0)
    assert kernels.uses[NAME] == before
