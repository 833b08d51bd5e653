"""Writes `golden/models.tar.xz` by TensorFlow. The tests do without it:

python -m tests.convert.tensorflow.make_golden
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import tarfile
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

from tests.convert.tensorflow.op_cases import C, R, f

v1 = tf.compat.v1
GOLDEN = pathlib.Path(__file__).parent / "golden"


def ops(folder: pathlib.Path) -> None:
    """A graph for each op."""
    for name, function, xs in C:
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in xs]
        graph = tf.function(function).get_concrete_function(*specs)
        results = tf.nest.flatten(graph(*[tf.constant(x) for x in xs]))
        outputs = [t.name for t in tf.nest.flatten(graph.outputs)]
        (folder / f"{name}.pb").write_bytes(graph.graph.as_graph_def().SerializeToString())
        arrays = {f"x{k}": x for k, x in enumerate(xs)}
        arrays |= {f"y{k}": y.numpy() for k, y in enumerate(results)}
        inputs = [t.name for t in graph.inputs[: len(xs)]]
        np.savez(folder / f"{name}.npz", inputs=inputs, outputs=outputs, **arrays)


# --- control flow of TensorFlow 1, and its checkpoints ---------------------------------------


def branches(x: Any) -> Any:
    w = v1.get_variable("w", initializer=f(4, 4))
    return tf.cond(
        tf.reduce_sum(x) > 0,
        lambda: tf.matmul(x, w),
        lambda: x - 1 + tf.cond(x[0, 0] > 0, lambda: w[0] * 3, lambda: w[1] * 5.0),
    )


def nested(x: Any) -> Any:
    w = v1.get_variable("w", initializer=f(4) * 0.3)

    def body(i: Any, y: Any) -> Any:
        def inner(j: Any, y: Any) -> Any:
            return j + 1, y + tf.cond(tf.reduce_sum(y) > 0, lambda: x * w, lambda: -x)

        return i + 1, tf.while_loop(lambda j, y: j < i, inner, [0, y])[1]

    return tf.while_loop(lambda i, y: i < 4, body, [0, x])[1]


def recurrent(x: Any) -> Any:
    w = v1.get_variable("rnn/w", initializer=f(7, 12) * 0.5)
    b = v1.get_variable("rnn/b", initializer=f(12))
    v1.get_variable("unused", initializer=f(3))
    steps = tf.transpose(tf.reshape(tf.tile(x, [1, 5]), [-1, 5, 4]), [1, 0, 2])
    given = tf.TensorArray(tf.float32, size=5).unstack(steps)
    made = tf.TensorArray(tf.float32, size=5)
    start = tf.zeros([tf.shape(x)[0], 3])

    def body(t: Any, made: Any, h: Any, c: Any) -> Any:
        mixed = tf.matmul(tf.concat([given.read(t), h], 1), w) + b
        i, j, g, o = tf.split(mixed, 4, 1)
        c = tf.sigmoid(g + 1) * c + tf.sigmoid(i) * tf.tanh(j)
        h = tf.tanh(c) * tf.sigmoid(o)
        return t + 1, made.write(t, h), h, c

    _, made, h, _ = tf.while_loop(lambda t, *_: t < 5, body, [0, made, start, start])
    return tf.transpose(made.stack(), [1, 0, 2]) + h[:, None]


def old_graphs(folder: pathlib.Path) -> None:
    v1.disable_eager_execution()
    v1.disable_control_flow_v2()
    nets: list[tuple[str, Callable[[Any], Any], int, bool]] = [
        ("branches", branches, 1, False),
        ("nested", nested, 2, False),
        ("recurrent", recurrent, 2, True),
    ]
    for name, net, version, resources in nets:
        (v1.enable_resource_variables if resources else v1.disable_resource_variables)()
        v1.reset_default_graph()
        with v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 4], name="x")
            y = tf.identity(net(x), name="out")
            session.run(v1.global_variables_initializer())
            given = f(3, 4)
            results = {"y0": session.run(y, {x: given}), "y1": session.run(y, {x: -given})}
            np.savez(folder / f"{name}.npz", x=given, **results)
            v1.train.Saver(write_version=version).save(session, str(folder / name))
            frozen = v1.graph_util.convert_variables_to_constants(
                session, session.graph_def, ["out"]
            )
            (folder / f"{name}.pb").write_bytes(frozen.SerializeToString())
            (folder / f"{name}.pbtxt").write_text(str(frozen))
            if name == "branches":
                continue
            tfjs(folder / f"{name}_js", frozen)


def tfjs(folder: pathlib.Path, graph: Any) -> None:
    """The files of TensorFlow.js, with weights of one byte each for what is large."""
    folder.mkdir()
    described, data = [], b""
    for node in graph.node:
        if node.op != "Const":
            continue
        array = tf.make_ndarray(node.attr["value"].tensor)
        node.attr["value"].tensor.Clear()
        node.attr["value"].tensor.dtype = tf.as_dtype(array.dtype).as_datatype_enum
        entry: dict[str, Any] = {"name": node.name, "shape": list(array.shape)}
        entry["dtype"] = str(array.dtype)
        if array.ndim == 2 and array.dtype == np.float32:
            low, scale = float(array.min()), float(np.ptp(array) / 255)
            entry["quantization"] = {"dtype": "uint8", "min": low, "scale": scale}
            array = np.round((array - low) / scale).astype("uint8")
        data += array.tobytes()
        described.append(entry)
    half = len(data) // 2
    (folder / "shard1.bin").write_bytes(data[:half])
    (folder / "shard2.bin").write_bytes(data[half:])
    manifest = [{"paths": ["shard1.bin", "shard2.bin"], "weights": described}]
    topology = json_format.MessageToDict(graph)
    model = {"format": "graph-model", "modelTopology": topology, "weightsManifest": manifest}
    (folder / "model.json").write_text(json.dumps(model))


# --- SavedModel -------------------------------------------------------------------------------


class Net(tf.Module):
    """Two signatures, variables of one name, a function inside, a loop over a list."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(f(3, 3, 2, 4), name="conv/kernel")
        self.moments = [tf.Variable(f(4), trainable=False), tf.Variable(f(4) ** 2, trainable=False)]
        self.same = [tf.Variable(f(4), name="same"), tf.Variable(f(4), name="same")]
        self.cell = tf.Variable(f(6, 2) * 0.5, name="cell")
        self.table = tf.Variable(f(9, 4), name="table")

    @tf.function(input_signature=[tf.TensorSpec([None, 6, 5, 2], tf.float32, name="image")])
    def look(self, image: Any) -> dict[str, Any]:
        y = tf.nn.conv2d(image, self.kernel, 2, "SAME")
        y, *_ = tf.compat.v1.nn.fused_batch_norm(
            y, *self.same, *self.moments, is_training=False, epsilon=0.1
        )
        y = tf.image.resize(tf.nn.relu(y), [5, 7])
        return {"map": y, "mean": tf.reduce_mean(y, [1, 2])}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, name="words"),
            tf.TensorSpec([], tf.float32, name="scale"),
        ]
    )
    def read(self, words: Any, scale: Any) -> Any:
        x = tf.gather(self.table, words)
        made = tf.TensorArray(tf.float32, size=tf.shape(x)[1])
        state = tf.zeros([tf.shape(x)[0], 2])
        for t in tf.range(tf.shape(x)[1]):
            state = tf.tanh(tf.matmul(tf.concat([x[:, t], state], 1), self.cell)) * scale
            made = made.write(t, state)
        return tf.transpose(made.stack(), [1, 0, 2])


def saved_model(folder: pathlib.Path) -> None:
    net = Net()
    image, words = f(2, 6, 5, 2), R.integers(0, 9, (2, 4)).astype("int32")
    made = net.look(image)
    result = net.read(words, np.float32(0.5))
    arrays = {"image": image, "words": words, "read": result.numpy()}
    np.savez(folder / "saved.npz", map=made["map"].numpy(), mean=made["mean"].numpy(), **arrays)
    signatures = {"serving_default": net.look, "read": net.read}
    tf.saved_model.save(net, str(folder / "saved"), signatures=signatures)


def code(folder: pathlib.Path) -> None:
    """A graph that calls a function of Python."""

    def own(x: Any) -> Any:
        return tf.numpy_function(lambda v: v + 1, [x], tf.float32)

    graph = tf.function(own).get_concrete_function(tf.TensorSpec([2], tf.float32))
    (folder / "code.pb").write_bytes(graph.graph.as_graph_def().SerializeToString())


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part in ("ops", "nets"):
            (folder / part).mkdir()
        ops(folder / "ops")
        saved_model(folder / "nets")
        code(folder / "nets")
        old_graphs(folder / "nets")
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w:xz", preset=9) as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.name not in ("checkpoint", "fingerprint.pb"):
                    info = tarfile.TarInfo(os.fspath(path.relative_to(folder)))
                    info.size = path.stat().st_size
                    archive.addfile(info, io.BytesIO(path.read_bytes()))
        (GOLDEN / "models.tar.xz").write_bytes(made.getvalue())


if __name__ == "__main__":
    main()
