"""Kernels for generation on a GPU, interpreted: against their compositions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme import passes
from bireme.core import kernels
from bireme.core.dtype import int64
from bireme.host import thresholds
from bireme.kernels import fusing, nvidia, pallas_decode
from bireme.kernels.pallas_decode import Rows, multiply, tile_for
from bireme.nn import functional as F
from bireme.nn.generation.ops import cache_attend, linears
from tests.kernels.gpu_programs import decoding


def rms(x, scale, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * scale


@settings(max_examples=12, deadline=None)
@given(
    rows=st.integers(1, 4),
    inner=st.sampled_from([16, 48, 320]),
    widths=st.lists(st.sampled_from([16, 48, 64]), min_size=1, max_size=3),
    normed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_products_in_parts(rows, inner, widths, normed, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, inner))
    weights = [rng.standard_normal((inner, n)) for n in widths]
    scale = rng.standard_normal(inner) if normed else None
    given_scale = None if scale is None else jnp.asarray(scale, jnp.float32)
    single = [jnp.asarray(w, jnp.float32) for w in weights]
    products, array = multiply(
        Rows(jnp.asarray(x, jnp.float32)), single, tile_for(inner, widths), jnp.float32,
        scale=given_scale, epsilon=1e-3, interpret=True,
    )  # fmt: skip
    assert array is None
    expected = x if scale is None else rms(x, scale, 1e-3)
    for product, weight in zip(products, weights, strict=True):
        np.testing.assert_allclose(product.value(), expected @ weight, rtol=2e-4, atol=2e-4)

    # What was left in parts is read by the next product, added to an array.
    last, width = products[-1], widths[-1]
    base, again = rng.standard_normal((rows, width)), rng.standard_normal((width, 32))
    (second,), whole = multiply(
        Rows(jnp.asarray(base, jnp.float32), last), [jnp.asarray(again, jnp.float32)],
        tile_for(width, [32]), jnp.float32, interpret=True,
    )  # fmt: skip
    total = base + expected @ weights[-1]
    np.testing.assert_allclose(whole, total, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(second.value(), total @ again, rtol=2e-3, atol=2e-3)


def test_a_width_that_no_tile_fits_is_refused():
    assert tile_for(100, [64]) is None
    assert tile_for(64, [64, 40]) is None


@settings(max_examples=20, deadline=None)
@given(
    groups=st.integers(1, 3),
    share=st.integers(1, 4),
    size=st.sampled_from([16, 32]),
    blocks=st.integers(1, 5),
    places=st.lists(st.integers(0, 90), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
)
def test_attention_to_a_cache(groups, share, size, blocks, places, seed):
    rng = np.random.default_rng(seed)
    batch, length = len(places), 16 * blocks

    def normal(*shape):
        return rng.standard_normal(shape)

    query, key, value = (
        normal(batch, 1, groups * share, size),
        *(normal(batch, 1, groups, size) for _ in "kv"),
    )
    keys, values = (normal(batch, length, groups, size) for _ in "kv")
    # A place over the end is the last one, as in XLA.
    given_all = [query, key, value, keys, values, np.asarray(places)]
    kept = [np.minimum(places, length - 1) if a is given_all[-1] else a for a in given_all]
    expected = cache_attend(*[paddle.to_tensor(a) for a in kept])
    single = [a.astype("float32") for a in given_all[:5]]
    found = pallas_decode.attend(
        *[jnp.asarray(a) for a in (*[b[:, 0] for b in single[:3]], *single[3:])],
        jnp.asarray(places), size**-0.5, interpret=True,
    )  # fmt: skip
    np.testing.assert_allclose(found[0], expected[0].numpy()[:, 0], rtol=2e-5, atol=2e-6)
    for mine, theirs in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(mine, theirs.numpy().astype("float32"))


def test_attention_to_a_cache_is_masked_attention():
    rng = np.random.default_rng(4)
    q = paddle.to_tensor(rng.standard_normal((2, 3, 4, 8)))
    k, v = (paddle.to_tensor(rng.standard_normal((2, 3, 2, 8))) for _ in range(2))
    keys, values = (paddle.to_tensor(rng.standard_normal((2, 10, 2, 8))) for _ in range(2))
    for tensor in (q, k, v, keys, values):
        tensor.stop_gradient = False
    place = paddle.to_tensor([4, 2])
    out, new_keys, new_values = cache_attend(q, k, v, keys, values, place)
    own = place.reshape([-1, 1]) + paddle.arange(3)
    mask = paddle.arange(10).reshape([1, 1, 1, -1]) <= own.unsqueeze([1, 3])
    expected = F.scaled_dot_product_attention(q, new_keys, new_values, mask)
    np.testing.assert_allclose(out.numpy(), expected.numpy(), rtol=1e-9)
    out.sum().backward()
    assert k.grad is not None
    assert np.isfinite(k.grad.numpy()).all()


def evaluated(graph, inputs, platform):
    floats = np.zeros(graph.n_floats)
    for number, value in graph.numbers.items():
        floats[number.index] = value

    def program(*leaves):
        return fusing.evaluator(graph, fused)(floats, (), *leaves)

    with kernels.lowering_for(platform) as chosen:
        fused = fusing.fused(graph, platform, chosen=chosen)
        return jax.jit(program)(*inputs), chosen


def test_a_block_of_a_language_model(monkeypatch):
    monkeypatch.setattr(nvidia, "available", lambda: True)
    monkeypatch.setattr(nvidia, "interpreted", lambda: True)
    monkeypatch.setattr(thresholds, "GPU_DECODE_WEIGHT", 1)
    captured = decoding()
    graph = captured.graph
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1, 1, 64)), jnp.bfloat16)
    inputs = [None] * len(graph.inputs)
    for i, contents in graph.constants.items():
        inputs[i] = contents
    order = captured.op.given
    inputs[order[0]] = x
    for i, tensor in zip(order[1:], captured.outer, strict=True):
        inputs[i] = jnp.asarray(tensor.numpy())
    merged = passes.run(graph, ["merge_products"])
    names = [n.call.op.name for n in merged.nodes]
    assert names.count("linears") == 4
    assert names.count("linear") == 4
    merged.check()
    expected, _ = evaluated(graph, inputs, "none")
    same, _ = evaluated(merged, inputs, "none")
    found, chosen = evaluated(merged, inputs, "gpu")
    assert chosen["linears", "decode"] == 4
    for result in (same, found):
        np.testing.assert_allclose(
            np.asarray(result[0], "float32"), np.asarray(expected[0], "float32"), rtol=0.03,
            atol=0.03,
        )  # fmt: skip


def test_products_of_one_input():
    x = paddle.ones([2, 3])
    weights = [paddle.full([3, n], float(n)) for n in (2, 4)]
    first, second = linears(x, weights)
    np.testing.assert_array_equal(first.numpy(), np.full((2, 2), 6.0))
    np.testing.assert_array_equal(second.numpy(), np.full((2, 4), 12.0))
    with pytest.raises(ValueError, match="every weight"):
        linears(x, [paddle.ones([4, 2])])
    cache, new = paddle.ones([1, 8, 2, 4]), paddle.ones([1, 1, 2, 4])
    with pytest.raises(ValueError, match="multiple of the cache's heads"):
        cache_attend(paddle.ones([1, 1, 3, 4]), new, new, cache, cache, paddle.zeros([1], int64))
