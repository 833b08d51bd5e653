"""The lowerings for GPUs, as far as a machine without one can check them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme.core import kernels, trace
from bireme.core.aval import aval_of
from bireme.core.graph import Graph, Node
from bireme.host import thresholds
from bireme.kernels import gpu_attention, install, nvidia, pallas_loss
from bireme.ops.attention import _attention
from tests.kernels.gpu_programs import lowered

install()


def step_of(loss, wanted):
    """The recorded step that leads to `loss` and the gradients of `wanted`, per platform."""
    from bireme.host import jax_door

    jnp = jax_door.jnp()
    recorded = trace.state.trace
    outputs = [loss._value.slot, *[t.grad._value.slot for t in wanted]]
    graph = Graph.from_code(recorded.code, [v.aval for v in recorded.leaves], outputs)
    leaves = [jnp.asarray(v.buf) for v in recorded.leaves]
    numbers = np.array(recorded.floats), np.array(recorded.ints)

    def run(platform: str) -> list[np.ndarray]:
        return [np.asarray(a, "float64") for a in lowered(graph, platform, *numbers, leaves)]

    return run


@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from(["matmul", "turned", "linear", "no_reshape", "ignored"]),
    st.integers(1, 3), st.integers(1, 5), st.integers(1, 24), st.integers(1, 150),
    st.sampled_from(["bfloat16", "float16"]),
)  # fmt: skip
@example("matmul", 3, 7, 32, 1031, "bfloat16")
@example("turned", 3, 7, 32, 1031, "bfloat16")
@example("linear", 3, 7, 32, 1031, "float16")
@example("no_reshape", 2, 4, 8, 65, "bfloat16")
@example("ignored", 2, 4, 8, 63, "bfloat16")
def test_a_padded_vocabulary_changes_nothing(form, batch, length, width, words, kind):
    """The loss and all gradients: in half precision and padded, in float64 and plain."""
    assume(words % 8)
    rng = np.random.default_rng(words)
    shapes = [(batch, length, width), (words, width) if form == "turned" else (width, words)]
    if form == "linear":
        shapes.append((words,))
    # Logits near one: of larger ones half precision knows too few digits for their exponentials.
    sizes = [width**-0.5, *[1.0] * (len(shapes) - 1)]
    halves = [
        paddle.to_tensor((rng.standard_normal(s) * f).astype("float32")).astype(kind)
        for s, f in zip(shapes, sizes, strict=True)
    ]
    # The same numbers in both precisions, whole in half precision.
    arrays = [h.astype("float64").numpy() for h in halves]
    labels = rng.integers(0, words, (batch, length))
    if form == "ignored":
        labels[0] = 0

    def recorded(dtype):
        trace.flush()
        wanted = []
        for array in arrays:
            made = paddle.to_tensor(array).astype(dtype)
            made.numpy()
            wanted.append(made.detach())
            wanted[-1].stop_gradient = False
        if form == "linear":
            logits = paddle.nn.functional.linear(*wanted)
        else:
            logits = paddle.matmul(*wanted, transpose_y=form == "turned")
        y = paddle.to_tensor(labels)
        if form != "no_reshape":
            logits, y = logits.reshape([-1, words]), y.reshape([-1])
        loss = paddle.nn.functional.cross_entropy(
            logits, y, ignore_index=0 if form == "ignored" else -100
        )
        loss.backward()
        return step_of(loss, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "GPU_VOCABULARY", 1)
        before = kernels.uses["aligned_vocabulary"]
        padded = recorded(kind)("gpu")
        assert kernels.uses["aligned_vocabulary"] >= before + 2
    for got, want in zip(padded, recorded("float64")("none"), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=3e-2, atol=2e-2 * np.abs(want).max() + 1e-6)


@settings(max_examples=15, deadline=None)
@given(
    lead=st.lists(st.integers(1, 4), min_size=1, max_size=2),
    words=st.integers(1, 150),
    form=st.sampled_from(["mean", "sum", "none", "ignored", "kept dimension", "hopeless", "wrong"]),
    kind=st.sampled_from(["float32", "bfloat16", "padded"]),
    seed=st.integers(0, 100),
)
@example([3], 64, "mean", "float32", 0)
@example([2, 3], 65, "ignored", "padded", 0)
def test_the_loss_in_one_pass(lead, words, form, kind, seed):
    rng = np.random.default_rng(seed)
    logits = 4 * rng.standard_normal((*lead, words))
    if form == "hopeless":
        logits[..., : words // 2] = -np.inf  # whole pieces of a row without a chance
    narrow = "float32" if kind == "float32" else "bfloat16"
    logits = paddle.to_tensor(logits).astype(narrow).astype("float64").numpy()
    labels = rng.integers(words // 2 if form == "hopeless" else 0, words, lead)
    if form == "wrong":
        labels.flat[0], labels.flat[-1] = words + 3, -1
    shape = (*lead, 1) if form == "kept dimension" else lead
    reduction = form if form in ("sum", "none") else "mean"

    def recorded(dtype, platform):
        trace.flush()
        x = paddle.to_tensor(logits).astype(dtype)
        x.numpy()
        x = x.detach()
        x.stop_gradient = False
        scores = x
        if kind == "padded" and form != "hopeless":  # known to be cut from a wider array
            scores = paddle.matmul(x, paddle.eye(words, dtype=dtype))
        with paddle.amp.auto_cast(enable=dtype == "bfloat16", dtype="bfloat16"):
            loss = paddle.nn.functional.cross_entropy(
                scores, paddle.to_tensor(labels.reshape(shape)), reduction=reduction,
                ignore_index=int(labels.flat[0]) if form == "ignored" else -100,
            )  # fmt: skip
        loss.sum().backward()
        return step_of(loss, [x])(platform)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvidia, "available", lambda: True)
        patch.setattr(nvidia, "interpreted", lambda: True)
        patch.setattr(thresholds, "GPU_LOSS_CLASSES", 1)
        patch.setattr(pallas_loss, "_SUM", (16, 4))
        patch.setattr(pallas_loss, "_SLOPE", (16, 4))
        patch.setattr(thresholds, "GPU_VOCABULARY", 1)
        before = kernels.uses["one_pass_loss"]
        got = recorded(narrow, "gpu")
        assert kernels.uses["one_pass_loss"] == before + 2
    tolerance = 1e-5 if kind == "float32" else 1e-2
    for one, want in zip(got, recorded("float64", "none"), strict=True):
        assert one.shape == want.shape
        atol = tolerance * max(1e-3, np.nan_to_num(np.abs(want)).max())
        np.testing.assert_allclose(one, want, rtol=tolerance, atol=atol)


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
    assert not nvidia.available()


@settings(max_examples=12, deadline=None)
@given(st.booleans(), st.integers(1, 9), st.integers(1, 9))
@example(True, 7, 7)
@example(False, 7, 4)
@example(False, 1, 5)
def test_attention_pads_odd_lengths(causal, rows, length):
    """As it is called for cuDNN, which refuses odd lengths in training, against plain products."""
    import jax

    length = rows if causal else length
    rng = np.random.default_rng(rows * 10 + length)
    q, k, v = (rng.standard_normal((2, n, 3, 8)).astype("float32") for n in (rows, length, length))
    inputs = (*map(paddle.to_tensor, (q, k, v)), None, 0.3, None, None, None, None)
    call = _attention.op.resolve(inputs, {"causal": causal}, None)
    asked = []
    real = jax.nn.dot_product_attention

    def seen(query, key, value, **kwargs):
        asked.append((query.shape[1], key.shape[1]))
        return real(query, key, value, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jax.nn, "dot_product_attention", seen)
        attend = gpu_attention._function(call, np.float32(0.3), "xla")
        out, pull = jax.vjp(attend, q, k, v)
    assert all(n % 2 == 0 for n in asked[0])
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * 0.3
    if causal:
        scores = np.where(np.tril(np.ones((rows, rows), bool)), scores, -np.inf)
    plain = lambda q, k, v: jax.nn.dot_product_attention(  # noqa: E731
        q, k, v, scale=0.3, is_causal=causal, implementation="xla"
    )
    wanted, wanted_pull = jax.vjp(plain, q, k, v)
    grad = rng.standard_normal(out.shape).astype("float32")
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(out, np.einsum("bhqk,bkhd->bqhd", weights, v), atol=2e-5)
    np.testing.assert_allclose(out, wanted, atol=2e-5)
    for found, expected in zip(pull(grad), wanted_pull(grad), strict=True):
        np.testing.assert_allclose(found, expected, atol=3e-5)


def both_lowerings(call, arrays, name: str, grad_of=None):
    """(with the GPU's kernel, plain) results of a Call and of its gradient."""
    from bireme.host import jax_door

    jnp = jax_door.jnp()
    grad_call = call.gradient(grad_of or tuple(range(len(arrays))), (True,))
    saved = [i for i in call.saved_at if i >= 0]

    rng = np.random.default_rng(5)
    out = call.outs[0]
    # Not all ones: the sums of a normalisation's gradient would be zero.
    arrays = [*arrays, rng.standard_normal(out.shape).astype(out.dtype.numpy)]
    refs = [-1 - i if t is not None else None for i, t in enumerate(call.types)]
    given = [i for i, a in enumerate(arrays) if a is not None]
    places = {-1 - i: -1 - n for n, i in enumerate(given)}
    args = [places.get(r) for r in refs]
    graph = Graph([aval_of(arrays[i]) for i in given])
    graph.nodes = [
        Node(call, tuple(args), 0),
        Node(grad_call, (-len(given), *[args[i] for i in saved]), len(call.outs)),
    ]
    graph.outputs = [0, *graph.nodes[1].results]

    def run(platform: str) -> list[np.ndarray]:
        before = kernels.uses[name]
        found = lowered(graph, platform, (), (), [jnp.asarray(arrays[i]) for i in given])
        assert (kernels.uses[name] > before) == (platform == "gpu")
        return [np.asarray(a, "float64") for a in found]

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

    def pool(x):
        return paddle.nn.functional.max_pool2d(x, kernel, stride, padding)

    assert_equals_plain("gathered_max_pool", pool, [x], 1e-6)


def assert_equals_plain(name, function, arrays, tolerance):
    """`function` with the GPU's kernel against the plain one in float64, gradients too."""

    def call_of(dtype):
        tensors = [paddle.to_tensor(a.astype(dtype), stop_gradient=False) for a in arrays]
        return function(*tensors)._node.call

    runs = []
    for dtype, platform in (("float32", "gpu"), ("float64", "none")):
        call = call_of(dtype)
        given = [a.astype(dtype) for a in arrays] + [None] * (len(call.types) - len(arrays))
        both = both_lowerings(call, given, name, tuple(range(len(arrays))))
        runs.append([pair[platform == "none"] for pair in both])
    for got, want in zip(*runs, strict=True):
        atol = tolerance * max(1.0, np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=atol)


def assert_norm_equals_plain(norm, arrays):
    assert_equals_plain("kept_statistics", norm, arrays, 1e-4)


rows = st.lists(st.integers(1, 7), min_size=1, max_size=3)


@settings(max_examples=6, deadline=None)
@given(rows, st.integers(1, 40), st.booleans(), st.floats(-2, 2), st.integers(0, 100))
def test_rms_norm_with_kept_statistics(lead, width, weighted, centre, seed):
    rng = np.random.default_rng(seed)
    arrays = [centre + rng.standard_normal((*lead, width)), rng.standard_normal(width)]

    def norm(x, weight=None):
        return paddle.nn.functional.rms_norm(x, [width], weight)

    assert_norm_equals_plain(norm, arrays if weighted else arrays[:1])


@settings(max_examples=6, deadline=None)
@given(rows, st.integers(2, 40), st.booleans(), st.floats(-2, 2), st.integers(0, 100))
def test_layer_norm_with_kept_statistics(lead, width, weighted, centre, seed):
    rng = np.random.default_rng(seed)
    arrays = [centre + rng.standard_normal((*lead, width)), *rng.standard_normal((2, width))]

    def norm(x, weight=None, bias=None):
        # A large epsilon: two numbers that are near each other would only be known to a few digits.
        return paddle.nn.functional.layer_norm(x, width, weight, bias, epsilon=1e-2)

    assert_norm_equals_plain(norm, arrays if weighted else arrays[:1])


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms_of_an_empty_batch_are_plain(name):
    x = paddle.zeros([0, 8])
    x.stop_gradient = False
    call = getattr(paddle.nn.functional, name)(x, [8])._node.call
    assert kernels.choose(call, "gpu") is None


@pytest.mark.parametrize(
    ("shape", "window", "layout"),
    [
        ((2, 3, 8, 12), (4, 4), "NCHW"),
        ((2, 3, 9, 7), (4, 2), "NCHW"),  # a rest that no window reaches
        ((2, 9, 7, 3), (4, 2), "NHWC"),
    ],
)
@pytest.mark.parametrize("frozen", [(), ("x",), ("weight",)])
def test_windows_that_do_not_overlap_are_a_product(shape, window, layout, frozen):
    rng = np.random.default_rng(0)
    channels = shape[1] if layout == "NCHW" else shape[3]
    arrays = {
        "x": rng.standard_normal(shape), "weight": rng.standard_normal((5, channels, *window)),
        "bias": rng.standard_normal(5),
    }  # fmt: skip
    tensors = {k: paddle.to_tensor(a.astype("float32")) for k, a in arrays.items()}
    trace.flush()
    for name, t in tensors.items():
        t.stop_gradient = name in frozen
    before = kernels.uses["patch_product"]
    y = paddle.nn.functional.conv2d(
        tensors["x"], tensors["weight"], tensors["bias"], stride=window, data_format=layout
    )
    loss = (y * y * 0.5).sum()
    loss.backward()
    run = step_of(loss, [t for t in tensors.values() if not t.stop_gradient])
    for ours, plain in zip(run("gpu"), run("none"), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=2e-5, atol=2e-5)
    assert kernels.uses["patch_product"] == before + 2
