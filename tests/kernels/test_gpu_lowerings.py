"""The lowerings for GPUs, as far as a machine without one can check them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme.core import kernels, trace
from bireme.kernels import gpu_attention, gpu_matmul, install
from bireme.ops.attention import _attention

install()


def step_of(loss, wanted):
    """The recorded step that leads to `loss` and the gradients of `wanted`, per platform."""
    from bireme.core import jax_door
    from bireme.core.graph import Graph

    jnp = jax_door.jnp()
    recorded = trace.state.trace
    outputs = [loss._value.slot, *[t.grad._value.slot for t in wanted]]
    graph = Graph.from_code(recorded.code, [v.aval for v in recorded.leaves], outputs)
    leaves = [jnp.asarray(v.buf) for v in recorded.leaves]
    numbers = np.array(recorded.floats), np.array(recorded.ints)

    def run(platform: str) -> list[np.ndarray]:
        with kernels.lowering_for(platform):
            found = graph.evaluate(leaves, *numbers, lambda call, a: call.run(jnp, a))
        return [np.asarray(a, "float64") for a in found]

    return run


@pytest.mark.parametrize("form", ["matmul", "turned", "linear", "no_reshape", "ignored"])
def test_a_padded_vocabulary_changes_nothing(form, monkeypatch):
    """1031 words: the loss and all gradients, padded and plain."""
    monkeypatch.setattr(gpu_matmul, "_LARGE", 1)
    trace.flush()
    rng = np.random.default_rng(0)
    words = 1031

    def half(*shape):
        made = paddle.to_tensor(rng.standard_normal(shape).astype("float32")).astype("bfloat16")
        made.numpy()
        made = made.detach()
        made.stop_gradient = False
        return made

    x = half(3, 7, 32)
    w = half(words, 32) if form == "turned" else half(32, words)
    b = half(words)
    labels = rng.integers(0, words, (3, 7))
    if form == "ignored":
        labels[0] = 5
    wanted = [x, w, b] if form == "linear" else [x, w]
    if form == "linear":
        logits = paddle.nn.functional.linear(x, w, b)
    else:
        logits = paddle.matmul(x, w, transpose_y=form == "turned")
    y = paddle.to_tensor(labels)
    if form != "no_reshape":
        logits, y = logits.reshape([-1, words]), y.reshape([-1])
    loss = paddle.nn.functional.cross_entropy(
        logits, y, ignore_index=5 if form == "ignored" else -100
    )
    loss.backward()
    run = step_of(loss, wanted)
    before = kernels.uses["aligned_vocabulary"]
    padded = run("gpu")
    assert kernels.uses["aligned_vocabulary"] >= before + 3
    for got, want in zip(padded, run("none"), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-3)


def test_attention_is_left_to_cudnn_only_where_it_fits():
    def call(dtype="bfloat16", width=64, mask=None, causal=True, keys=16):
        q = paddle.zeros([2, 16, 4, width], dtype)
        k = paddle.zeros([2, keys, 4, width], dtype)
        op = _attention.op
        inputs = (q, k, k, mask, 0.125, None, None, None, None)
        return op.resolve(inputs, {"causal": causal}, None)

    assert gpu_attention._accepts(call())
    assert gpu_attention._accepts(call("float16", causal=False, keys=24))
    assert not gpu_attention._accepts(call("float32"))
    assert not gpu_attention._accepts(call(width=20))
    assert not gpu_attention._accepts(call(width=256))
    assert not gpu_attention._accepts(call(keys=24))  # causal with unequal lengths
    assert not gpu_attention._accepts(call(mask=paddle.zeros([2, 4, 16, 16])))
    assert not gpu_attention.available()


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


def test_rms_norm_with_kept_statistics():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 5, 16)).astype("float32")
    w = rng.standard_normal(16).astype("float32")
    args = [paddle.to_tensor(a, stop_gradient=False) for a in (x, w)]
    call = paddle.nn.functional.rms_norm(args[0], [16], args[1])._node.call
    for got, want in both_lowerings(call, [x, w], "kept_statistics"):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


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
