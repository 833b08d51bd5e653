"""Small graphs of TensorFlow, one per op, with inputs and results: `cases()` of make_golden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

R = np.random.default_rng(0)
raw = tf.raw_ops
Case = tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]
C: list[Case] = []


def f(*shape: int) -> np.ndarray:
    return R.normal(size=shape).astype("float32")


def p(*shape: int) -> np.ndarray:
    return R.uniform(0.1, 0.9, size=shape).astype("float32")


def i(high: int, *shape: int) -> np.ndarray:
    return R.integers(0, high, size=shape).astype("int32")


def add(name: str, function: Callable[..., Any], *xs: np.ndarray) -> None:
    C.append((name, function, xs))


for n in (
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "floor",
    "log",
    "log1p",
    "negative",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "lgamma",
    "digamma",
):
    add(n, getattr(tf.math, n), p(3, 4))
for n in ["acosh"]:
    add(n, getattr(tf.math, n), 1 + p(3, 4))
for n in (
    "asinh",
    "atanh",
    "erf",
    "softplus",
    "softsign",
    "reciprocal",
    "is_nan",
    "is_inf",
    "is_finite",
):
    add(n, getattr(tf.math, n) if hasattr(tf.math, n) else getattr(tf.nn, n), p(3, 4))
for n in ["relu", "relu6", "elu", "selu", "leaky_relu", "softmax", "log_softmax", "gelu", "silu"]:
    add(n, getattr(tf.nn, n), f(3, 4) * 4)
for n in (
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "pow",
    "atan2",
    "squared_difference",
    "floordiv",
    "floormod",
    "divide_no_nan",
    "multiply_no_nan",
    "xlogy",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
):
    add(n, getattr(tf.math, n), p(3, 4), p(4))
for n in ["floordiv", "floormod", "truncatediv", "truncatemod", "add", "multiply"]:
    add(
        n + "_int",
        getattr(tf, n, None) or getattr(tf.math, n),
        R.integers(-9, 9, (3, 4)).astype("int32"),
        np.array([2, -3, 4, 5], "int32"),
    )
add(
    "logical",
    lambda a, b: (
        tf.logical_and(a > 0, b > 0),
        tf.logical_or(a > 0, b > 0),
        tf.logical_not(a > 0),
        tf.math.logical_xor(a > 0, b > 0),
    ),
    f(3, 4),
    f(3, 4),
)
for n in ["sum", "mean", "max", "min", "prod"]:
    add(
        "reduce_" + n,
        lambda x, n=n: (
            getattr(tf, "reduce_" + n)(x, [1]),
            getattr(tf, "reduce_" + n)(x, [0, -1], keepdims=True),
            getattr(tf, "reduce_" + n)(x),
        ),
        f(2, 3, 4),
    )
add("any_all", lambda x: (tf.reduce_any(x > 0, 1), tf.reduce_all(x > 0, [0, 1])), f(2, 3, 4))
add(
    "std_var",
    lambda x: (
        tf.math.reduce_std(x, 1),
        tf.math.reduce_variance(x),
        tf.math.reduce_euclidean_norm(x, 1),
        tf.reduce_logsumexp(x, 1),
    ),
    f(2, 3, 4),
)
add("arg", lambda x: (tf.argmax(x, 1), tf.argmin(x, -1, output_type=tf.int32)), f(2, 3, 4))
add(
    "cumsum",
    lambda x: (
        tf.cumsum(x, 1),
        tf.cumsum(x, 1, exclusive=True),
        tf.cumsum(x, 0, reverse=True),
        tf.cumsum(x, 1, exclusive=True, reverse=True),
    ),
    f(2, 3, 4),
)
add(
    "cumprod",
    lambda x: (
        tf.math.cumprod(x, 1),
        tf.math.cumprod(x, 1, exclusive=True),
        tf.math.cumprod(x, 0, reverse=True),
        tf.math.cumprod(x, 1, exclusive=True, reverse=True),
    ),
    f(2, 3, 4),
)
add(
    "matmul",
    lambda a, b: (
        tf.matmul(a, b),
        tf.matmul(a, a, transpose_b=True),
        tf.matmul(a, a, transpose_a=True),
    ),
    f(3, 4),
    f(4, 5),
)
add(
    "batch_matmul",
    lambda a, b: (
        tf.matmul(a, b),
        tf.matmul(a, a, transpose_b=True),
        tf.matmul(a, a, adjoint_a=True),
    ),
    f(2, 1, 3, 4),
    f(3, 4, 5),
)
add(
    "einsum",
    lambda a, b: (
        tf.einsum("abc,cde->abde", a, b),
        tf.einsum("...c,cde->...de", a, b),
        tf.einsum("abc->ca", a),
        tf.einsum("abc,abd->a", a, a[:, :, :2]),
    ),
    f(2, 3, 4),
    f(4, 2, 3),
)
add("bias", lambda x, b: (tf.nn.bias_add(x, b),), f(2, 3, 4), f(4))
for pad in ("SAME", "VALID", [[0, 0], [1, 2], [0, 1], [0, 0]]):
    add(
        "conv_%s" % (pad if isinstance(pad, str) else "EXPL"),
        lambda x, w, pad=pad: (
            tf.nn.conv2d(x, w, [1, 2, 1, 1], pad),
            tf.nn.conv2d(x, w, 1, pad, dilations=2),
        ),
        f(2, 9, 8, 3),
        f(3, 2, 3, 5),
    )
add(
    "depthwise",
    lambda x, w: (
        tf.nn.depthwise_conv2d(x, w, [1, 2, 2, 1], "SAME"),
        tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "VALID"),
        tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME", dilations=[2, 2]),
    ),
    f(2, 9, 8, 3),
    f(3, 3, 3, 2),
)
add(
    "conv_transpose",
    lambda x, w: (
        tf.nn.conv2d_transpose(x, w, [2, 10, 8, 5], 2, "SAME"),
        tf.nn.conv2d_transpose(x, w, [2, 11, 9, 5], [1, 2, 2, 1], "VALID"),
    ),
    f(2, 5, 4, 3),
    f(3, 3, 5, 3),
)
add(
    "conv3d",
    lambda x, w: (tf.nn.conv3d(x, w, [1, 2, 1, 1, 1], "SAME"),),
    f(1, 5, 6, 7, 2),
    f(3, 2, 2, 2, 4),
)
add(
    "conv3dt",
    lambda x, w: (tf.nn.conv3d_transpose(x, w, [1, 10, 12, 14, 3], 2, "SAME"),),
    f(1, 5, 6, 7, 2),
    f(3, 2, 2, 3, 2),
)
add(
    "conv1d",
    lambda x, w: (
        tf.nn.conv1d(x, w, 2, "SAME"),
        tf.nn.conv1d_transpose(x, tf.transpose(w, [0, 2, 1])[:, :, :], [2, 18, 4], 2, "SAME"),
    ),
    f(2, 9, 3),
    f(3, 3, 4),
)
add(
    "pool",
    lambda x: (
        tf.nn.max_pool2d(x, 3, 2, "SAME"),
        tf.nn.avg_pool2d(x, 3, 2, "SAME"),
        tf.nn.avg_pool2d(x, [2, 3], [1, 2], "VALID"),
        tf.nn.max_pool2d(x, 2, 2, "VALID"),
    ),
    f(2, 9, 8, 3),
)
add(
    "pool3d",
    lambda x: (tf.nn.max_pool3d(x, 2, 2, "SAME"), tf.nn.avg_pool3d(x, 3, 2, "SAME")),
    f(1, 5, 6, 7, 2),
)
for v in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"):
    add(
        v,
        lambda x, a, b, c, d, v=v: (
            getattr(raw, v)(
                x=x, scale=a, offset=b, mean=c, variance=d, is_training=False, epsilon=0.01
            ).y,
            getattr(raw, v)(
                x=x, scale=a, offset=b, mean=c[:0], variance=d[:0], is_training=True, epsilon=0.01
            ).y,
        ),
        f(2, 4, 5, 3),
        f(3),
        f(3),
        f(3),
        p(3),
    )
for kw in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
    n = "_".join(kw) or "plain"
    add(
        "bilinear_" + n,
        lambda x, kw=kw: (
            raw.ResizeBilinear(images=x, size=[7, 11], **kw),
            raw.ResizeBilinear(images=x, size=[3, 2], **kw),
        ),
        f(2, 5, 6, 3),
    )
    add(
        "nearest_" + n,
        lambda x, kw=kw: (
            raw.ResizeNearestNeighbor(images=x, size=[7, 11], **kw),
            raw.ResizeNearestNeighbor(images=x, size=[3, 2], **kw),
        ),
        f(2, 5, 6, 3),
    )
    add(
        "bicubic_" + n,
        lambda x, kw=kw: (
            raw.ResizeBicubic(images=x, size=[7, 11], **kw),
            raw.ResizeBicubic(images=x, size=[3, 2], **kw),
        ),
        f(2, 5, 6, 3),
    )
add(
    "area",
    lambda x: (raw.ResizeArea(images=x, size=[7, 11]), raw.ResizeArea(images=x, size=[3, 2])),
    f(2, 5, 6, 3),
)
bx = np.array(
    [[0.1, 0.2, 0.8, 0.9], [0.5, 0.5, 0.6, 0.7], [-0.2, 0, 1.2, 1], [0.9, 0.8, 0.1, 0.2]], "float32"
)
add(
    "crop",
    lambda x, b: (
        tf.image.crop_and_resize(x, b, [0, 1, 0, 1], [3, 4]),
        tf.image.crop_and_resize(
            x, b, [0, 1, 0, 1], [1, 4], method="nearest", extrapolation_value=2.0
        ),
    ),
    f(2, 8, 9, 3),
    bx,
)
add(
    "space",
    lambda x: (
        tf.nn.space_to_depth(x, 2),
        tf.nn.depth_to_space(x, 2),
        tf.space_to_batch(x, [2, 2], [[0, 0], [1, 1]]),
        tf.batch_to_space(tf.concat([x, x], 0), [2, 2], [[1, 0], [0, 1]]),
    ),
    f(2, 4, 6, 4),
)
add(
    "patches",
    lambda x: tf.image.extract_patches(x, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 2, 1], "VALID"),
    f(2, 8, 9, 3),
)
add(
    "patches_same",
    lambda x: tf.image.extract_patches(x, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 1, 1], "SAME"),
    f(2, 8, 9, 3),
)
add(
    "reshape",
    lambda x: (
        tf.reshape(x, [2, -1]),
        tf.reshape(x, [-1]),
        tf.reshape(x, tf.concat([tf.shape(x)[:1], [-1]], 0)),
        tf.squeeze(x[:1, :1]),
        tf.squeeze(x[:1], [0]),
        tf.expand_dims(x, -1),
        tf.transpose(x, [2, 0, 1]),
    ),
    f(2, 3, 4),
)
add(
    "slices",
    lambda x: (
        x[0],
        x[:, 1],
        x[1:, :2],
        x[..., 1],
        x[:, tf.newaxis, ::2],
        x[::-1],
        x[-1, -2:],
        x[:, :-1, 1:3],
        tf.slice(x, [0, 1, 0], [-1, 2, 2]),
        x[1:2, ..., tf.newaxis, 3],
    ),
    f(2, 3, 4),
)
add(
    "concat",
    lambda a, b: (
        tf.concat([a, b], 1),
        tf.stack([a, a], -1),
        tf.unstack(a, axis=1)[1],
        tf.split(b, 2, 1)[1],
        tf.split(b, [1, 3], 1)[1],
        tf.split(b, [1, -1], 1)[1],
    ),
    f(2, 3),
    f(2, 4),
)
add(
    "pads",
    lambda x: (
        tf.pad(x, [[1, 0], [0, 2]]),
        tf.pad(x, [[1, 0], [0, 2]], constant_values=3.0),
        tf.pad(x, [[1, 0], [0, 2]], "REFLECT"),
        tf.pad(x, [[1, 0], [0, 2]], "SYMMETRIC"),
    ),
    f(3, 4),
)
add(
    "tile",
    lambda x: (
        tf.tile(x, [2, 3]),
        tf.broadcast_to(x, [2, 3, 4]),
        tf.repeat(x, 2, axis=1),
        tf.reverse(x, [1]),
        tf.roll(x, [1, 2], [0, 1]),
    ),
    f(3, 4),
)
add(
    "revseq",
    lambda x: (
        tf.reverse_sequence(x, [1, 3, 2], seq_axis=1, batch_axis=0),
        tf.reverse_sequence(x, [1, 3, 2, 2], seq_axis=0, batch_axis=1),
    ),
    f(3, 4, 2),
)
add(
    "fill",
    lambda x: (
        tf.fill([2, 3], x[0, 0]),
        tf.ones_like(x),
        tf.zeros_like(x),
        tf.range(2, 9, 3),
        tf.linspace(x[0, 0], x[0, 1], 5),
        tf.one_hot([1, 0, 2], 4),
        tf.one_hot([1, 0, 2], 4, 2.0, -1.0, axis=0),
    ),
    f(3, 4),
)
add(
    "shapes",
    lambda x: (
        tf.shape(x),
        tf.size(x),
        tf.rank(x),
        tf.shape(x, out_type=tf.int64)[1],
        tf.cast(tf.cast(tf.shape(x)[0], tf.float32) * 0.5, tf.int32),
    ),
    f(3, 4),
)
add(
    "gather",
    lambda x, k: (
        tf.gather(x, k),
        tf.gather(x, k, axis=1),
        tf.gather(x, k % 3, axis=2, batch_dims=0),
        tf.gather_nd(x, [[0, 1], [1, 2]]),
    ),
    f(4, 4, 4),
    i(4, 2, 3),
)
add(
    "gather_batch",
    lambda x, k: (tf.gather(x, k, batch_dims=1), tf.gather(x, k, axis=2, batch_dims=1)),
    f(2, 4, 5),
    i(4, 2, 3),
)
add(
    "scatter",
    lambda x, u: (
        tf.scatter_nd([[1], [3], [1]], u, [5, 2]),
        tf.tensor_scatter_nd_update(x, [[1], [3], [0]], u),
        tf.tensor_scatter_nd_add(x, [[1], [3], [1]], u),
        tf.tensor_scatter_nd_sub(x, [[1], [3], [1]], u),
    ),
    f(5, 2),
    f(3, 2),
)
add(
    "select",
    lambda x, y: (
        tf.where(x > 0, x, y),
        tf.where([True, False, True], x[:, 0], y[:, 0]),
        raw.Select(condition=[True, False, True], x=x, y=y),
        tf.clip_by_value(x, -0.5, 0.5),
    ),
    f(3, 4),
    f(3, 4),
)
add("nonzero", lambda x: tf.where(x > 0), f(3, 4))
add("boolmask", lambda x: tf.boolean_mask(x, x[:, 0] > 0), f(5, 4))
add(
    "topk",
    lambda x: (
        tf.nn.top_k(x, 2).values,
        tf.nn.top_k(x, 2).indices,
        tf.sort(x),
        tf.argsort(x, direction="DESCENDING"),
    ),
    f(3, 4),
)
add("unique", lambda x: tf.unique(x), i(4, 9))
add(
    "stitch",
    lambda x: (
        tf.dynamic_stitch([[0, 2], [1]], [x[:2], x[2:3]]),
        tf.math.unsorted_segment_sum(x, [0, 1, 0], 3),
        tf.math.segment_sum(x, [0, 0, 1]),
        tf.math.segment_mean(x, [0, 0, 1]),
    ),
    f(3, 4),
)
add(
    "search",
    lambda x: (
        tf.searchsorted(tf.sort(x), x[:, :2]),
        tf.searchsorted(tf.sort(x), x[:, :2], side="right"),
        raw.Bucketize(input=x, boundaries=[-1.0, 0.0, 1.0]),
        tf.math.in_top_k([1, 2, 0], x, 2),
    ),
    f(3, 4),
)
add(
    "band",
    lambda x: (
        tf.linalg.band_part(x, 1, 0),
        tf.linalg.band_part(x, -1, 1),
        tf.linalg.diag(x),
        tf.linalg.diag_part(x),
        tf.linalg.set_diag(x, x[:, 0]),
    ),
    f(2, 4, 4),
)
add(
    "lrn",
    lambda x: (
        tf.nn.lrn(x, 2, 1.0, 0.1, 0.5),
        tf.nn.l2_loss(x),
        tf.nn.l2_normalize(x, -1),
        tf.add_n([x, x, x]),
    ),
    f(2, 3, 3, 6),
)
add(
    "fft",
    lambda x: (
        tf.abs(tf.signal.rfft(x)),
        tf.signal.irfft(tf.signal.rfft(x)),
        tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64))),
        tf.abs(tf.signal.stft(x, 8, 4)),
        tf.math.angle(tf.signal.rfft(x, [12])),
    ),
    f(2, 32),
)
add(
    "fakequant",
    lambda x: (
        tf.quantization.fake_quant_with_min_max_args(x, -1, 2),
        tf.quantization.fake_quant_with_min_max_vars(x, -1.3, 2.1, num_bits=4, narrow_range=True),
        tf.quantization.fake_quant_with_min_max_vars_per_channel(
            x, [-1.0, -0.5, -2.0, -1], [1.0, 0.7, 2.0, 3.0]
        ),
    ),
    f(3, 4),
)
sc = p(2, 20).astype("float32")
b2 = R.uniform(0, 1, (20, 4)).astype("float32")
b2[:, 2:] = b2[:, :2] + p(20, 2) * 0.5
add(
    "nms",
    lambda b, s: (
        tf.image.non_max_suppression(b, s[0], 8, 0.4, 0.2),
        *tf.image.non_max_suppression_with_scores(b, s[0], 8, 0.4, 0.2, 0.5),
        *tf.image.non_max_suppression_padded(b, s[0], 10, 0.3, 0.2, pad_to_max_output_size=True),
    ),
    b2,
    sc,
)
add(
    "nms_combined",
    lambda b, s: tuple(
        tf.image.combined_non_max_suppression(
            b[None, :, None], tf.transpose(s)[None], 5, 8, 0.4, 0.2
        )
    ),
    b2,
    sc,
)
add(
    "cast",
    lambda x: (
        tf.cast(x * 9, tf.int32),
        tf.cast(x, tf.float16),
        tf.cast(x > 0, tf.float32),
        tf.cast(x * 3, tf.uint8),
    ),
    p(3, 4),
)
add("if_", lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1), f(3, 4))
add(
    "if_lists",
    lambda x: tf.cond(
        tf.reduce_sum(x) < 0, lambda: (x * 2, tf.constant(3)), lambda: (x - 1, tf.constant(4))
    ),
    f(3, 4),
)
add(
    "case",
    lambda x: tf.switch_case(
        tf.cast(tf.abs(x[0, 0]) * 3, tf.int32), [lambda: x, lambda: x * 2, lambda: x * 3]
    ),
    f(3, 4),
)
add(
    "while_",
    lambda x: tf.while_loop(
        lambda i, y: i < 5,
        lambda i, y: (i + 1, y * 1.1 + tf.cast(i, tf.float32)),
        [tf.constant(0), x],
    ),
    f(3, 4),
)
add(
    "while_data",
    lambda x: tf.while_loop(lambda y: tf.reduce_sum(y) < 50.0, lambda y: (y * 1.3 + 1,), [x]),
    f(3, 4),
)
add(
    "while_grow",
    lambda x: tf.while_loop(
        lambda i, y: i < 3,
        lambda i, y: (i + 1, tf.concat([y, y[:1]], 0)),
        [tf.constant(0), x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 4])],
    ),
    f(3, 4),
)


def arr(x):
    ta = tf.TensorArray(tf.float32, size=4)
    _, ta, s = tf.while_loop(
        lambda i, t, s: i < 4,
        lambda i, t, s: (i + 1, t.write(i, x[i] + s), s + x[i]),
        [0, ta, tf.zeros([3])],
    )
    return ta.stack(), s, ta.read(2)


add("array", arr, f(4, 3))


def nested(x):
    def body(i, y):
        _, y = tf.while_loop(
            lambda j, y: j < i,
            lambda j, y: (j + 1, y + tf.cond(tf.reduce_sum(y) > 0, lambda: x, lambda: -x)),
            [0, y],
        )
        return i + 1, y

    return tf.while_loop(lambda i, y: i < 4, body, [0, x])


add("nested", nested, f(3, 4))
add(
    "map_fn", lambda x: (tf.map_fn(lambda r: r * 2 + 1, x), tf.scan(lambda a, r: a + r, x)), f(4, 3)
)
add(
    "layernorm",
    lambda x: (
        tf.nn.batch_normalization(
            x, *[tf.nn.moments(x, [-1], keepdims=True)[k] for k in (0, 1)], None, None, 1e-6
        ),
    ),
    f(2, 3, 4),
)
