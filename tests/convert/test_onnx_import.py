"""ONNX models as Layers: values against ONNX Runtime, gradients, open sizes, hostile files."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme.convert.onnx import OnnxError, interpreter
from bireme.core.errors import BiremeError, InvalidArgument
from tests.convert import onnx_nodes

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper, numpy_helper, T = onnx.helper, onnx.numpy_helper, onnx.TensorProto


def model(nodes, inputs, outputs, weights=None, opset=17, functions=()):
    """A ModelProto from (name, type, shape) triples and arrays by name."""
    graph = helper.make_graph(
        nodes, "test",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()],
    )  # fmt: skip
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("own", 1)],
        functions=list(functions),
    )
    made.ir_version = 8
    return made


def data(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def same(made, **given):
    """Both runtimes agree on these inputs."""
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    want = session.run(None, given)
    layer = paddle.onnx.load(made)
    have = layer(**{k: paddle.to_tensor(v) for k, v in given.items()})
    have = have if isinstance(have, list) else [have]
    for h, w in zip(have, want, strict=True):
        onnx_nodes.agree(h, w)
    return layer


def mlp(opset=17):
    return model(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "v"], ["y"]),
        ],
        [("x", T.FLOAT, ["n", 4])], [("y", T.FLOAT, ["n", 3])],
        {"w": data(8, 4), "b": data(8), "v": data(8, 3)}, opset,
    )  # fmt: skip


@pytest.mark.parametrize("opset", [9, 13, 21])
def test_values_and_names(opset) -> None:
    layer = same(mlp(opset), x=data(5, 4))
    assert layer.input_names == ["x"]
    assert layer.output_names == ["y"]
    assert sorted(layer.state_dict()) == ["b", "v", "w"]
    assert not layer.training


def test_file_bytes_and_proto_are_the_same(tmp_path) -> None:
    made = mlp()
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    x = paddle.to_tensor(data(2, 4))
    first, *others = (
        paddle.onnx.load(s)(x).numpy() for s in (str(path), path.read_bytes(), made)
    )  # fmt: skip
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_weights_train() -> None:
    layer = paddle.onnx.load(mlp())
    x = paddle.to_tensor(data(6, 4))
    optimizer = paddle.optimizer.SGD(0.05, parameters=layer.parameters())
    losses = []
    for _ in range(5):
        loss = (layer(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    w = layer.state_dict()["w"]
    assert not np.array_equal(w.numpy(), data(8, 4))


def test_shape_arithmetic_disappears_and_sizes_stay_open(tmp_path) -> None:
    """Flatten all but the first dimension, the long way round."""
    made = model(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n"]),
            helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
            helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
            helper.make_node("Reshape", ["x", "target"], ["f"]),
            helper.make_node("MatMul", ["f", "w"], ["y"]),
        ],
        [("x", T.FLOAT, ["batch", 2, 3])], [("y", T.FLOAT, ["batch", 4])],
        {
            "zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1]), "w": data(6, 4),
        },
    )  # fmt: skip
    layer = same(made, x=data(5, 2, 3))
    paddle.jit.save(layer, str(tmp_path / "m"), layer.input_specs())
    loaded = paddle.jit.load(str(tmp_path / "m"))
    ops = [n.call.op.name for n in loaded.saved_program().graph.nodes]
    assert ops == ["reshape", "matmul"]
    for n in (1, 7):
        x = paddle.to_tensor(data(n, 2, 3))
        np.testing.assert_allclose(loaded(x).numpy(), layer(x).numpy(), rtol=1e-6)


def branch(name, op, value):
    return helper.make_graph(
        [helper.make_node(op, ["x", value], [name])], name, [],
        [helper.make_tensor_value_info(name, T.FLOAT, None)],
    )  # fmt: skip


def test_a_choice_on_data(tmp_path) -> None:
    made = model(
        [
            helper.make_node("ReduceSum", ["x"], ["t"], keepdims=0),
            helper.make_node("Greater", ["t", "zero"], ["up"]),
            helper.make_node(
                "If", ["up"], ["y"], then_branch=branch("a", "Add", "w"),
                else_branch=branch("b", "Mul", "w"),
            ),
        ],
        [("x", T.FLOAT, [3])], [("y", T.FLOAT, [3])], {"zero": np.float32(0), "w": data(3)},
    )  # fmt: skip
    for sign in (1, -1):
        layer = same(made, x=sign * np.abs(data(3)))
    paddle.jit.save(layer, str(tmp_path / "m"), layer.input_specs())
    loaded = paddle.jit.load(str(tmp_path / "m"))
    for sign in (1, -1):
        x = paddle.to_tensor(sign * np.abs(data(3)))
        np.testing.assert_allclose(loaded(x).numpy(), layer(x).numpy())


def test_own_functions() -> None:
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)],
    )  # fmt: skip
    made = model(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")],
        [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])], functions=[twice],
    )  # fmt: skip
    same(made, x=data(2))


def test_statistics_are_buffers_and_one_opset_reads_constants_as_weights() -> None:
    nodes = [
        helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(data(3), "s")),
        helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"]),
    ]
    made = model(
        nodes, [("x", T.FLOAT, [2, 3, 4])], [("y", T.FLOAT, [2, 3, 4])],
        {"b": data(3, seed=1), "m": data(3, seed=2), "v": np.abs(data(3, seed=3))},
    )  # fmt: skip
    layer = same(made, x=data(2, 3, 4))
    assert sorted(n for n, _ in layer.named_parameters()) == ["b", "s"]
    assert sorted(n for n, _ in layer.named_buffers()) == ["m", "v"]


# --- data beside the model ------------------------------------------------------------------


def external(tmp_path, **changes):
    made = mlp()
    path = tmp_path / "m.onnx"
    onnx.save_model(
        made, str(path), save_as_external_data=True, location="m.data", size_threshold=0
    )
    loaded = onnx.load(str(path), load_external_data=False)
    for tensor in loaded.graph.initializer:
        for entry in tensor.external_data:
            entry.value = changes.get(entry.key, entry.value)
    path.write_bytes(loaded.SerializeToString())
    return path


def test_external_data(tmp_path) -> None:
    want = paddle.onnx.load(mlp())(paddle.to_tensor(data(2, 4)))
    have = paddle.onnx.load(external(tmp_path))(paddle.to_tensor(data(2, 4)))
    np.testing.assert_array_equal(have.numpy(), want.numpy())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"location": "../secret"}, "points outside"),
        ({"location": "/etc/passwd"}, "points outside"),
        ({"location": "gone.data"}, "is not there"),
        ({"offset": "999999"}, "which has"),
        ({"offset": "-8"}, "which has"),
        ({"length": "3"}, "bytes"),
        ({"length": "many"}, "described wrongly"),
    ],
)
def test_hostile_external_data(tmp_path, changes, message) -> None:
    with pytest.raises(OnnxError, match=message):
        paddle.onnx.load(external(tmp_path, **changes))


def test_external_data_needs_a_path(tmp_path) -> None:
    with pytest.raises(OnnxError, match="by its path"):
        paddle.onnx.load(external(tmp_path).read_bytes())


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("junk", [b"", b"\x00" * 50, b"not a model", b"\xff" * 9])
def test_not_a_model(junk) -> None:
    with pytest.raises(OnnxError, match="not an ONNX model"):
        paddle.onnx.load(junk)


def test_cut_off() -> None:
    whole = mlp().SerializeToString()
    for end in range(1, len(whole) - 1, 37):
        with pytest.raises((BiremeError, OnnxError)):
            paddle.onnx.load(whole[:end])(paddle.to_tensor(data(2, 4)))


def test_newer_opset() -> None:
    with pytest.raises(OnnxError, match=r"opset 99; 1 to \d+ can be read"):
        paddle.onnx.load(mlp(99))


def test_unknown_op_is_named() -> None:
    made = model(
        [helper.make_node("Frobnicate", ["x"], ["y"], name="it", domain="own")],
        [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])],
    )  # fmt: skip
    with pytest.raises(OnnxError, match=r"own\.Frobnicate.* 'it'"):
        paddle.onnx.load(made)


@pytest.mark.parametrize(
    ("op", "weights"),
    [
        ("ConstantOfShape", {"s": np.array([1 << 30, 1 << 30])}),
        ("Expand", {"x": np.zeros((), "float32"), "s": np.array([1 << 40])}),
        ("Tile", {"x": np.zeros((4,), "float32"), "s": np.array([1 << 40])}),
        ("Resize", {"x": np.zeros((1, 1, 4), "float32"), "r": np.zeros(0, "float32"),
                    "s": np.array([1, 1, 1e12], "float32")}),
        ("Range", {"a": np.array(0), "b": np.array(1 << 50), "c": np.array(1)}),
        ("Pad", {"x": np.zeros((4,), "float32"), "s": np.array([0, 1 << 40])}),
    ],
)  # fmt: skip
def test_results_too_large_to_hold(op, weights) -> None:
    names = list(weights)
    made = model(
        [helper.make_node(op, names, ["y"], name="big")], [("x0", T.FLOAT, [1])],
        [("y", T.FLOAT, None)], weights,
    )  # fmt: skip
    with pytest.raises(BiremeError, match=r"'big'.*(elements|bytes|cannot have the shape)"):
        paddle.onnx.load(made)(paddle.to_tensor(data(1)))


def test_a_declared_shape_without_its_data() -> None:
    made = mlp()
    made.graph.initializer[0].dims[0] = 1 << 40
    with pytest.raises(OnnxError, match="tensor 'w'"):
        paddle.onnx.load(made)


def test_endless_loop(monkeypatch) -> None:
    monkeypatch.setattr(interpreter, "MAX_STEPS", 5000)
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c2"]),
            helper.make_node("Identity", ["v"], ["v2"]),
        ],
        "body",
        [helper.make_tensor_value_info("i", T.INT64, []),
         helper.make_tensor_value_info("c", T.BOOL, []),
         helper.make_tensor_value_info("v", T.FLOAT, [1])],
        [helper.make_tensor_value_info("c2", T.BOOL, []),
         helper.make_tensor_value_info("v2", T.FLOAT, [1])],
    )  # fmt: skip
    made = model(
        [helper.make_node("Loop", ["", "yes", "x"], ["y"], name="spin", body=body)],
        [("x", T.FLOAT, [1])], [("y", T.FLOAT, [1])], {"yes": np.array(True)},
    )  # fmt: skip
    with pytest.raises(OnnxError, match="more than 5000 steps"):
        paddle.onnx.load(made)(paddle.to_tensor(data(1)))


def test_a_function_that_calls_itself() -> None:
    own = helper.make_function(
        "own", "Again", ["a"], ["b"],
        [helper.make_node("Again", ["a"], ["b"], domain="own")], [helper.make_opsetid("own", 1)],
    )  # fmt: skip
    made = model(
        [helper.make_node("Again", ["x"], ["y"], domain="own")],
        [("x", T.FLOAT, [1])], [("y", T.FLOAT, [1])], functions=[own],
    )  # fmt: skip
    with pytest.raises(OnnxError, match=r"deep|itself"):
        paddle.onnx.load(made)(paddle.to_tensor(data(1)))


def test_wrong_inputs() -> None:
    layer = paddle.onnx.load(mlp())
    with pytest.raises(InvalidArgument, match="takes x"):
        layer()
    with pytest.raises(InvalidArgument, match=r"unknown|names"):
        layer(paddle.to_tensor(data(1, 4)), z=paddle.to_tensor(data(1)))
    with pytest.raises(BiremeError, match=r"Gemm.*\[matmul\]"):
        layer(paddle.to_tensor(data(1, 5)))


# --- the onnx package's own tests ---------------------------------------------------------------

CASES = onnx_nodes.cases() if onnx_nodes.data_folder().is_dir() else []


def _check_share(cases, share) -> None:
    accepted = onnx_nodes.accepted_by_onnxruntime(cases)
    counted = [c for c in cases if f"{c.parent.name}/{c.name}" in accepted]
    failed = {c.name: onnx_nodes.reason(onnx_nodes.run_bireme, c) for c in counted}
    failed = {name: why for name, why in failed.items() if why is not None}
    assert len(failed) <= (1 - share) * len(counted), failed


@pytest.mark.skipif(not CASES, reason="this version of onnx has no node tests")
def test_node_tests() -> None:
    """Every 15th; `python -m tests.convert.onnx_nodes` runs them all."""
    _check_share(CASES[::15], 0.98)


@pytest.mark.slow
@pytest.mark.skipif(not CASES, reason="this version of onnx has no node tests")
def test_all_node_tests() -> None:
    _check_share(CASES, 0.98)


def test_command_line(tmp_path, capsys) -> None:
    from bireme import cli

    path = tmp_path / "m.onnx"
    path.write_bytes(mlp().SerializeToString())
    assert cli.main(["convert", str(path), str(tmp_path / "out")]) == 0
    x = paddle.to_tensor(data(3, 4))
    have = paddle.jit.load(str(tmp_path / "out" / "model"))(x)
    np.testing.assert_allclose(have.numpy(), paddle.onnx.load(path)(x).numpy())
    path.write_bytes(b"junk")
    assert cli.main(["convert", str(path), str(tmp_path / "out")]) == 1
    assert "not an ONNX model" in capsys.readouterr().err


def test_a_loop_on_data(tmp_path) -> None:
    """Double until the sum passes a bound: nobody knows how often before it runs."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["v2"]),
            helper.make_node("ReduceSum", ["v2"], ["t"], keepdims=0),
            helper.make_node("Less", ["t", "bound"], ["c2"]),
        ],
        "body",
        [helper.make_tensor_value_info("i", T.INT64, []),
         helper.make_tensor_value_info("c", T.BOOL, []),
         helper.make_tensor_value_info("v", T.FLOAT, [2])],
        [helper.make_tensor_value_info("c2", T.BOOL, []),
         helper.make_tensor_value_info("v2", T.FLOAT, [2])],
    )  # fmt: skip
    made = model(
        [helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)],
        [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])],
        {"yes": np.array(True), "bound": np.float32(100)},
    )  # fmt: skip
    layer = same(made, x=np.array([1, 2], "float32"))
    paddle.jit.save(layer, str(tmp_path / "m"), layer.input_specs())
    loaded = paddle.jit.load(str(tmp_path / "m"))
    for start in ([3, 4], [70, 1], [0.1, 0.2]):
        x = paddle.to_tensor(np.array(start, "float32"))
        np.testing.assert_allclose(loaded(x).numpy(), layer(x).numpy())


def test_there_and_back(tmp_path) -> None:
    """A branch and a loop over tensors survive export and import."""

    def function(x):
        def more(i, v):
            return v.sum() < 50

        def double(i, v):
            return i + 1, v * 2

        _, grown = paddle.static.nn.while_loop(more, double, [paddle.to_tensor(0), x])
        return paddle.static.nn.cond(x.sum() > 5, lambda: grown + 1, lambda: grown - 1)

    path = paddle.onnx.export(function, str(tmp_path / "m"), [paddle.static.InputSpec([2])])
    kinds = [n.op_type for n in onnx.load(path).graph.node]
    assert "If" in kinds
    assert "Loop" in kinds
    for start in ([1, 2], [3, 4]):
        x = np.array(start, "float32")
        layer = same(onnx.load(path), x=x)
        np.testing.assert_allclose(
            layer(paddle.to_tensor(x)).numpy(), function(paddle.to_tensor(x)).numpy()
        )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_raise_our_errors(draw) -> None:
    whole = bytearray(mlp().SerializeToString())
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(whole) - 1))
        whole[at] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(BiremeError):
        paddle.onnx.load(bytes(whole))(paddle.to_tensor(data(2, 4))).numpy()
