"""Attention of padded lengths, with XLA's attention in the place of cuDNN's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bireme.kernels import gpu_attention_open

ROWS, WIDE = 5, 9  # an odd number: cuDNN trains on even ones alone
SCALE = np.float32(0.3)


def exact(q: Any, k: Any, v: Any, causal: bool) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * SCALE
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


def poisoned(x: Any) -> Any:
    """`x` in the corner of a longer array whose rest is no number."""
    wide = np.full((x.shape[0], WIDE, *x.shape[2:]), np.nan, np.float32)
    wide[:, : x.shape[1]] = x
    return wide


@pytest.mark.parametrize("causal", [True, False])
def test_values_and_gradients_do_not_see_the_padding(causal: bool) -> None:
    rng = np.random.default_rng(0)
    q, k, v, g = (rng.normal(size=(2, ROWS, 4, 8)).astype("float32") for _ in range(4))
    want, pull = jax.vjp(lambda *x: exact(*x, causal), q, k, v)
    padded = [poisoned(x) for x in (q, k, v)]
    count = np.int32(ROWS)
    found = gpu_attention_open.attend(causal, "xla", *padded, SCALE, count, count)
    np.testing.assert_allclose(found[:, :ROWS], want, rtol=1e-4, atol=1e-5)
    gradients = gpu_attention_open.pulled_back(
        causal, "xla", poisoned(g), *padded, SCALE, count, count
    )
    for have, wanted in zip(gradients, pull(g), strict=True):
        assert have.shape == (2, WIDE, 4, 8)
        np.testing.assert_allclose(have[:, :ROWS], wanted, rtol=1e-4, atol=1e-5)
