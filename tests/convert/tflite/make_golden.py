"""Writes the models in `golden/` by TensorFlow 2.21, with what LiteRT 2.3 makes of them. The tests
do without both:

    python tests/convert/tflite/make_golden.py convert      # needs tensorflow-cpu
    python tests/convert/tflite/make_golden.py run          # needs ai-edge-litert
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import numpy as np

GOLDEN = pathlib.Path(__file__).parent / "golden"
RNG = np.random.default_rng(4)


def _of(*shape: int) -> Any:
    return RNG.normal(0, 0.4, shape).astype("float32")


def convert() -> None:
    import tensorflow as tf

    kernels = [_of(3, 3, 3, 8), _of(3, 3, 8, 1), _of(1, 1, 8, 8), _of(2, 2, 4, 8)]
    dense, bias, alpha = _of(128, 5), _of(8), _of(1, 1, 8)

    def pictures(x: Any, last: Any = tf.nn.softmax) -> Any:
        y = tf.nn.relu6(tf.nn.conv2d(x, kernels[0], 2, "SAME") + bias)
        y = tf.nn.depthwise_conv2d(y, kernels[1], [1, 1, 1, 1], "SAME", dilations=[2, 2]) + y
        y = tf.maximum(y, 0.0) + alpha * tf.minimum(y, 0.0)
        y = tf.nn.conv2d(tf.pad(y, [[0, 0], [1, 0], [0, 1], [0, 0]]), kernels[2], 1, "VALID")
        y = tf.nn.max_pool2d(y, 3, 2, "SAME") + tf.nn.avg_pool2d(y, 3, 2, "SAME")
        return last(tf.matmul(tf.reshape(y, [-1, 128]), dense))

    image = tf.TensorSpec([None, 11, 11, 3], tf.float32, name="image")
    save(tf, "pictures", pictures, [image])
    save(tf, "half", pictures, [image], half=True)
    fixed = tf.TensorSpec([1, 11, 11, 3], tf.float32, name="image")
    # Without the softmax, of which one step of its input is several.
    save(tf, "int8", lambda image: pictures(image, tf.identity), [fixed], whole=tf.int8)
    save(tf, "uint8", lambda image: pictures(image, tf.identity), [fixed], whole=tf.uint8)

    def shapes(x: Any, index: Any) -> Any:
        n = tf.shape(x)[0]
        y = tf.nn.conv2d_transpose(x, kernels[3], tf.constant([1, 8, 10, 4]), 2, "SAME")
        small = tf.image.resize(y, [5, 7]), tf.image.resize(y, [13, 3], "nearest")
        old = tf.compat.v1.image.resize_bilinear(x, [9, 9], align_corners=True)
        flipped = tf.reverse(
            tf.pad(x[:, :-1:2, ::-1], [[0, 0], [1, 1], [2, 0], [0, 0]], "REFLECT"), [1]
        )
        a, b = tf.split(x, 2, axis=3)
        rows = tf.gather(tf.reshape(a - b, [n, -1, 4]), index, axis=1)
        best = tf.argmax(rows, axis=1, output_type=tf.int32)
        hot = tf.one_hot(best, 3, 2.0, -1.0)
        top, places = tf.math.top_k(rows, 2)
        total = tf.cumsum(rows, 1, exclusive=True) + tf.tile(
            tf.reduce_sum(rows, 1, True), [1, 3, 1]
        )
        norm = tf.math.l2_normalize(rows, -1) * tf.math.rsqrt(tf.reduce_mean(tf.square(rows)) + 1)
        chosen = tf.where(rows > 0, tf.exp(-rows), tf.math.log(1 - rows))
        packed = tf.stack([tf.reduce_max(rows), tf.reduce_min(rows), tf.cast(n, tf.float32)])
        blocks = tf.nn.depth_to_space(x, 2)
        folded = tf.space_to_batch(x[:, :4, :4], [2, 2], [[0, 0], [2, 2]])
        return [*small, old, flipped, hot, top, places, total, norm, chosen, packed, blocks, folded]

    save(
        tf,
        "shapes",
        shapes,
        [
            tf.TensorSpec([1, 4, 5, 8], tf.float32, name="x"),
            tf.TensorSpec([3], tf.int32, name="index"),
        ],
    )

    def branches(x: Any) -> Any:
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)
        return tf.while_loop(lambda i, v: i < 4, lambda i, v: [i + 1, v * 0.5 + 1], [0, y])[1]

    save(tf, "branches", branches, [tf.TensorSpec([2, 3], tf.float32, name="x")])


def save(
    tf: Any, name: str, function: Any, specs: Any, half: bool = False, whole: Any = None
) -> None:
    module = tf.Module()
    module.call = tf.function(function, input_signature=specs)
    concrete = module.call.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)
    if half or whole:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if half:
        converter.target_spec.supported_types = [tf.float16]
    if whole:
        shape = specs[0].shape
        converter.representative_dataset = lambda: ([_of(*shape)] for _ in range(30))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = whole
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"{name}.tflite").write_bytes(converter.convert())


def run() -> None:
    from ai_edge_litert.interpreter import Interpreter

    for path in sorted(GOLDEN.glob("*.tflite")):
        interpreter = Interpreter(str(path))
        arrays: dict[str, np.ndarray] = {}
        for i, found in enumerate(interpreter.get_input_details()):
            shape, dtype = found["shape"], np.dtype(found["dtype"])
            if dtype.kind == "f":
                made = RNG.normal(0, 0.5, shape).astype(dtype)
            elif dtype.itemsize == 1:
                edges = np.iinfo(dtype)
                made = RNG.integers(edges.min, edges.max + 1, shape).astype(dtype)
            else:
                made = RNG.integers(0, 9, shape).astype(dtype)
            arrays[f"input{i}"] = made
        interpreter.allocate_tensors()
        for i, found in enumerate(interpreter.get_input_details()):
            interpreter.set_tensor(found["index"], arrays[f"input{i}"])
        interpreter.invoke()
        for i, found in enumerate(interpreter.get_output_details()):
            arrays[f"result{i}"] = interpreter.get_tensor(found["index"])
        np.savez_compressed(path.with_suffix(".npz"), allow_pickle=False, **arrays)


if __name__ == "__main__":
    {"convert": convert, "run": run}[sys.argv[1]]()
