"""ONNX nodes in any order, branches that sizes rule out, and models in predictors."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import bireme as paddle
from bireme import inference, jit
from bireme.convert.onnx.layer import OnnxLayer
from bireme.convert.onnx.reader import OnnxError
from bireme.core.errors import CaptureError
from bireme.static import InputSpec

onnx = pytest.importorskip("onnx")


def model(text: str) -> bytes:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]>\n{text}'
    ).SerializeToString()


UNSORTED = """
agraph (float[n, 3] x) => (float[n, 3] y) {
  y = If (some) <
    then_branch = g1 () => (float[n, 3] a) { a = Add (b, twice) b = Neg (x) },
    else_branch = g2 () => (float[n, 3] c) { c = Identity (x) }
  >
  some = Greater (total, zero)
  twice = Add (x, x)
  total = ReduceSum <keepdims = 0> (x)
  zero = Constant <value_float = 0.0> ()
}
"""


def test_nodes_in_any_order(tmp_path: pathlib.Path) -> None:
    layer = OnnxLayer(model(UNSORTED))
    x = paddle.to_tensor([[1.0, 2.0, 3.0]])
    assert layer(x).tolist() == [[1.0, 2.0, 3.0]]
    assert layer(-2 * x).tolist() == [[-2.0, -4.0, -6.0]]
    (tmp_path / "m.onnx").write_bytes(model(UNSORTED))
    predictor = inference.create_predictor(inference.Config(str(tmp_path / "m.onnx")))
    assert predictor.get_input_names() == ["x"]
    assert predictor.get_output_names() == ["y"]
    for rows in (1, 4):
        handle = predictor.get_input_handle("x")
        handle.copy_from_cpu(np.ones((rows, 3), "float32"))
        predictor.run()
        made = predictor.get_output_handle("y").copy_to_cpu()
        np.testing.assert_array_equal(made, np.ones((rows, 3), "float32"))


def test_nodes_in_a_circle() -> None:
    text = "agraph (float[3] x) => (float[3] y) { y = Add (x, z) z = Neg (y) }"
    with pytest.raises(OnnxError, match="its own result"):
        OnnxLayer(model(text))(paddle.ones([3]))


ONE_BRANCH = """
agraph (float[n, 4] x, bool wide) => (float[n, m] y) {
  y = If (wide) <
    then_branch = g1 () => (float[n, m] a) {
      two = Constant <value_ints = [-1, 2]> ()
      a = Reshape (x, two)
    },
    else_branch = g2 () => (float[n, m] c) {
      k = Constant <value_ints = [2, 7]> ()
      c = Reshape (x, k)
    }
  >
}
"""


def test_a_branch_that_the_sizes_rule_out(tmp_path: pathlib.Path) -> None:
    layer = OnnxLayer(model(ONE_BRANCH))
    x = paddle.ones([3, 4])
    assert layer(x, paddle.to_tensor(True)).shape == [6, 2]
    with pytest.raises(OnnxError, match="do not allow"):
        layer(x, paddle.to_tensor(False))
    jit.save(layer, str(tmp_path / "m"), [InputSpec([3, 4]), InputSpec([], "bool")])
    saved = jit.load(str(tmp_path / "m"))
    assert saved(x, paddle.to_tensor(True)).tolist() == [[1.0, 1.0]] * 6
    assert np.isnan(saved(x, paddle.to_tensor(False)).numpy()).all()


ASKS = """
agraph (float[n, 2] x) => (float[a, b] y) {
  size = Shape <end = 1> (x)
  one = Constant <value_ints = [1]> ()
  is_one = Equal (size, one)
  y = If (is_one) <
    then_branch = g1 () => (float[a, b] p) { p = Neg (x) },
    else_branch = g2 () => (float[a, b] q) { q = Add (x, x) }
  >
}
"""


def test_a_question_about_an_open_size(tmp_path: pathlib.Path) -> None:
    layer = OnnxLayer(model(ASKS))
    assert layer(paddle.ones([1, 2])).tolist() == [[-1.0, -1.0]]
    assert layer(paddle.ones([2, 2])).tolist() == [[2.0, 2.0]] * 2
    with pytest.raises(CaptureError, match="only a run can tell"):
        jit.save(layer, str(tmp_path / "m"), [InputSpec([None, 2])])
    jit.save(layer, str(tmp_path / "m"), [InputSpec([1, 2])])
    assert jit.load(str(tmp_path / "m"))(paddle.ones([1, 2])).tolist() == [[-1.0, -1.0]]
