"""The lowerings for GPUs, as far as a machine without one can check them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme.core import kernels
from bireme.kernels import gpu_attention, gpu_matmul, install

install()


@pytest.mark.parametrize("turned", [False, True])
def test_padded_products_are_the_products(turned, monkeypatch):
    """A weight of 1031 columns, forward and both gradients, against the plain lowering."""
    monkeypatch.setattr(gpu_matmul, "_LARGE", 1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 70, 96)).astype("float32")
    w = rng.standard_normal((1031, 96) if turned else (96, 1031)).astype("float32")

    def run(platform: str) -> list[np.ndarray]:
        from bireme.core import jax_door

        jnp = jax_door.jnp()
        call = paddle.matmul.op.resolve(  # type: ignore[attr-defined]
            (paddle.to_tensor(x).astype("bfloat16"), paddle.to_tensor(w).astype("bfloat16")),
            {"transpose_x": False, "transpose_y": turned},
            None,
        )
        arrays = [jnp.asarray(x, "bfloat16"), jnp.asarray(w, "bfloat16")]
        grad_call = call.op.grad_op.call_for(call, (0, 1), (True,))
        with kernels.lowering_for(platform):
            out = call.run(jnp, arrays)
            grads = grad_call.run(jnp, [jnp.ones_like(out), *arrays])
        return [np.asarray(a, "float32") for a in (out, *grads)]

    before = kernels.uses["aligned_products"]
    padded = run("gpu")
    assert kernels.uses["aligned_products"] == before + 2
    for got, want in zip(padded, run("none"), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=1e-2)


def test_attention_is_left_to_cudnn_only_where_it_fits():
    def call(dtype="bfloat16", width=64, mask=None, causal=True, keys=16):
        q = paddle.zeros([2, 16, 4, width], dtype)
        k = paddle.zeros([2, keys, 4, width], dtype)
        op = paddle.ops.attention._attention.op
        inputs = (q, k, k, mask, 0.125, None, None, None, None)
        return op.resolve(inputs, {"causal": causal}, None)

    assert gpu_attention._accepts(call())
    assert gpu_attention._accepts(call("float16", causal=False, keys=24))
    assert not gpu_attention._accepts(call("float32"))
    assert not gpu_attention._accepts(call(width=20))
    assert not gpu_attention._accepts(call(width=256))
    assert not gpu_attention._accepts(call(keys=24))  # causal with unequal lengths
    assert not gpu_attention._accepts(call(mask=paddle.zeros([2, 4, 16, 16])))
    assert not gpu_attention._available()


def both_lowerings(call, arrays, name: str, grad_of=None):
    """(with the GPU's kernel, plain) results of a Call and of its gradient."""
    from bireme.core import jax_door

    jnp = jax_door.jnp()
    grad_call = call.op.grad_op.call_for(call, grad_of or tuple(range(len(arrays))), (True,))
    saved = [i for i in call.saved_at if i >= 0]

    def run(platform: str) -> list[np.ndarray]:
        inputs = [None if a is None else jnp.asarray(a) for a in arrays]
        before = kernels.uses[name]
        with kernels.lowering_for(platform):
            out = call.run(jnp, inputs)
            # Not all ones: the sums of a normalisation's gradient would be zero.
            pull = jnp.asarray(np.random.default_rng(5).standard_normal(out.shape), out.dtype)
            grads = grad_call.run(jnp, [pull, *[inputs[i] for i in saved]])
        assert (kernels.uses[name] > before) == (platform == "gpu")
        return [np.asarray(a, "float64") for a in (out, *grads)]

    return zip(run("gpu"), run("none"), strict=True)


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(3, 9),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 4),
    padding=st.integers(0, 2),
    seed=st.integers(0, 100),
)
def test_gathered_max_pool_gradients(size, kernel, stride, padding, seed):
    assume(padding <= kernel // 2 and size + 2 * padding >= kernel)
    rng = np.random.default_rng(seed)
    # Few different values: equal maxima must go to the first, as in the plain rule.
    x = rng.integers(0, 4, (2, 3, size, size + 1)).astype("float32")
    tensor = paddle.to_tensor(x, stop_gradient=False)
    out = paddle.nn.functional.max_pool2d(tensor, kernel, stride, padding)
    call = out._node.call
    assert call.op.name == "max_pool"
    for got, want in both_lowerings(call, [x], "gathered_max_pool"):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weighted", [True, False])
def test_layer_norm_with_kept_statistics(weighted):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 5, 16)).astype("float32")
    w = rng.standard_normal(16).astype("float32")
    args = [paddle.to_tensor(a, stop_gradient=False) for a in (x, w, w)]
    norm = paddle.nn.functional.layer_norm
    out = norm(args[0], 16, args[1], args[2]) if weighted else norm(args[0], 16)
    arrays = [x, w, w + 1] if weighted else [x]
    call = out._node.call
    if not weighted:
        arrays += [None, None]
    for got, want in both_lowerings(call, arrays, "kept_statistics", None if weighted else (0,)):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
