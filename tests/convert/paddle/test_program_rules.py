"""Each ProgramDesc op gives what the real Paddle gives for the same one-op program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import bireme
from bireme.convert.paddle.interpreter import RULES
from bireme.convert.paddle.model import read_buffers
from tests.convert.paddle.real import agree, program_desc, run_files


class Row(NamedTuple):
    kind: str
    inputs: dict[str, Any]
    attrs: dict[str, Any]
    outs: dict[str, int]
    note: str = ""


def f(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    rng = np.random.default_rng(sum(shape) + len(shape))
    return rng.uniform(low, high, shape).astype(np.float32)


def i(*shape: int, high: int = 5) -> np.ndarray:
    return np.random.default_rng(3).integers(0, high, shape)


def b(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 2, shape).astype(bool)


def x(kind: str, array: np.ndarray | None = None, note: str = "", **attrs: Any) -> Row:
    return Row(kind, {"X": f(2, 3, 4) if array is None else array}, attrs, {"Out": 1}, note)


def xy(kind: str, left: np.ndarray, right: np.ndarray, **attrs: Any) -> Row:
    return Row(kind, {"X": left, "Y": right}, {"axis": -1, **attrs}, {"Out": 1})


POSITIVE = f(2, 3, 4, low=0.1, high=3.0)
IMAGE = f(2, 4, 9, 8)
FLOAT32 = 5  # VarType's number
INT64 = 3

ROWS = [
    *[x(k) for k in (
        "relu", "sigmoid", "tanh", "silu", "softsign", "logsigmoid", "tanh_shrink", "exp",
        "expm1", "square", "abs", "floor", "ceil", "round", "sign", "sin", "cos", "tan", "atan",
        "sinh", "cosh", "asinh", "reciprocal", "erf", "mish", "isnan_v2", "isfinite_v2",
    )],
    *[x(k, POSITIVE) for k in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma")],
    *[x(k, f(2, 3, low=-0.9, high=0.9)) for k in ("asin", "acos", "atanh", "erfinv")],
    x("relu6", 4 * f(2, 3), threshold=6.0),
    x("leaky_relu", alpha=0.1), x("elu", alpha=0.7), x("celu", alpha=1.3), x("selu"),
    x("gelu"), x("gelu", note="tanh", approximate=True),
    x("hard_swish", 4 * f(3, 5)), x("hard_sigmoid", 4 * f(3, 5), slope=0.2, offset=0.5),
    x("swish", beta=1.0), x("softplus", beta=2.0, threshold=3.0),
    x("brelu", t_min=-0.5, t_max=1.0), x("hard_shrink", threshold=0.5),
    x("softshrink", **{"lambda": 0.5}), x("thresholded_relu", threshold=0.3),
    x("stanh", scale_a=0.67, scale_b=1.7159),
    Row("prelu", {"X": IMAGE, "Alpha": f(4)}, {"mode": "channel", "data_format": "NCHW"},
        {"Out": 1}),
    Row("prelu", {"X": IMAGE, "Alpha": f(1)}, {"mode": "all", "data_format": "NCHW"},
        {"Out": 1}, "all"),
    x("softmax", axis=1), x("log_softmax", axis=-1), x("maxout", IMAGE, groups=2, axis=1),
    Row("dropout", {"X": f(2, 3)}, {"is_test": True, "dropout_prob": 0.4,
        "dropout_implementation": "downgrade_in_infer"}, {"Out": 1}),
    x("scale", scale=2.0, bias=0.5, bias_after_scale=False), x("pow", POSITIVE, factor=2.5),
    x("clip", min=-0.5, max=1.0), x("cast", in_dtype=FLOAT32, out_dtype=INT64),
    x("cumsum", axis=1), x("logical_not", b(2, 3)),
    Row("p_norm", {"X": f(2, 3)}, {"porder": 2.0, "axis": 1, "keepdim": False,
        "asvector": False, "epsilon": 1e-12}, {"Out": 1}),
    *[xy(k, f(2, 3, 4), f(2, 3, 4) + 3) for k in (
        "elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div",
        "elementwise_max", "elementwise_min", "elementwise_fmax", "elementwise_fmin",
    )],
    xy("elementwise_add", f(2, 3, 4, 5), f(3, 4), axis=1),
    xy("elementwise_pow", POSITIVE, f(2, 3, 4)),
    xy("elementwise_mod", i(2, 3, high=9), i(2, 3) + 1),
    xy("elementwise_floordiv", i(2, 3, high=9), i(2, 3) + 1),
    *[xy(k, i(2, 3), i(2, 3)[::-1].copy()) for k in (
        "equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal",
        "bitwise_and", "bitwise_or", "bitwise_xor",
    )],
    *[xy(k, b(2, 3), b(3, 2).reshape(2, 3)) for k in ("logical_and", "logical_or", "logical_xor")],
    Row("where", {"Condition": b(2, 3), "X": f(2, 3), "Y": f(2, 3) + 1}, {}, {"Out": 1}),
    Row("sum", {"X": [f(2, 3), f(2, 3) + 1, f(2, 3) - 2]}, {}, {"Out": 1}),
    Row("matmul_v2", {"X": f(2, 3, 4), "Y": f(2, 5, 4)}, {"trans_x": False, "trans_y": True},
        {"Out": 1}),
    Row("matmul", {"X": f(2, 3, 4), "Y": f(2, 4, 5)}, {"transpose_X": False,
        "transpose_Y": False, "alpha": 0.5}, {"Out": 1}),
    Row("mul", {"X": f(2, 3, 4), "Y": f(12, 5)}, {"x_num_col_dims": 1, "y_num_col_dims": 1},
        {"Out": 1}),
    Row("mul", {"X": f(2, 3, 4), "Y": f(4, 5)}, {"x_num_col_dims": 2, "y_num_col_dims": 1},
        {"Out": 1}, "two rows"),
    Row("bmm", {"X": f(2, 3, 4), "Y": f(2, 4, 5)}, {}, {"Out": 1}),
    Row("addmm", {"Input": f(2, 5), "X": f(2, 3), "Y": f(3, 5)}, {"Alpha": 0.5, "Beta": 2.0},
        {"Out": 1}),
    *[x(k, dim=[1], keep_dim=False, reduce_all=False) for k in (
        "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod",
    )],
    x("reduce_sum", note="all", dim=[0], keep_dim=True, reduce_all=True),
    *[x(k, b(2, 3), dim=[1], keep_dim=True, reduce_all=False)
      for k in ("reduce_all", "reduce_any")],
    x("logsumexp", axis=[1], keepdim=False, reduce_all=False), x("mean"),
    x("arg_max", axis=1, keepdims=False, dtype=INT64, flatten=False),
    x("arg_min", axis=-1, keepdims=True, dtype=INT64, flatten=False),
    Row("argsort", {"X": f(2, 7)}, {"axis": 1, "descending": True}, {"Out": 1, "Indices": 1}),
    Row("top_k_v2", {"X": f(2, 7)}, {"k": 3, "axis": 1, "largest": True, "sorted": True},
        {"Out": 1, "Indices": 1}),
    Row("top_k", {"X": f(2, 7)}, {"k": 2}, {"Out": 1, "Indices": 1}),
    Row("kthvalue", {"X": f(2, 7)}, {"k": 2, "axis": 1, "keepdim": False},
        {"Out": 1, "Indices": 1}),
    Row("shape", {"Input": f(2, 3)}, {}, {"Out": 1}),
    Row("fill_constant_batch_size_like", {"Input": f(2, 3)}, {"shape": [-1, 4], "value": 1.5,
        "dtype": FLOAT32, "input_dim_idx": 0, "output_dim_idx": 0}, {"Out": 1}),
    x("fill_any_like", value=2.0, dtype=FLOAT32),
    x("one_hot_v2", i(2, 3), depth=5, dtype=FLOAT32),
    Row("reshape2", {"X": f(2, 3, 4)}, {"shape": [0, -1]}, {"Out": 1}),
    Row("flatten_contiguous_range", {"X": f(2, 3, 4)}, {"start_axis": 1, "stop_axis": 2},
        {"Out": 1}),
    Row("flatten2", {"X": f(2, 3, 4)}, {"axis": 2}, {"Out": 1}),
    Row("transpose2", {"X": f(2, 3, 4)}, {"axis": [1, 0, 2]}, {"Out": 1}),
    Row("squeeze2", {"X": f(2, 1, 4)}, {"axes": [1]}, {"Out": 1}),
    Row("unsqueeze2", {"X": f(2, 4)}, {"axes": [1, 3]}, {"Out": 1}),
    x("expand_v2", f(2, 1, 4), shape=[2, 3, 4]), x("tile", repeat_times=[1, 2, 1]),
    x("pixel_shuffle", IMAGE, upscale_factor=2, data_format="NCHW"),
    Row("concat", {"X": [f(2, 3), f(2, 4)]}, {"axis": 1}, {"Out": 1}),
    Row("stack", {"X": [f(2, 3), f(2, 3) + 1]}, {"axis": 1}, {"Y": 1}),
    Row("unstack", {"X": f(2, 3)}, {"axis": 1, "num": 3}, {"Y": 3}),
    Row("unbind", {"X": f(2, 3)}, {"axis": 1}, {"Out": 3}),
    Row("split", {"X": f(2, 6)}, {"axis": 1, "num": 3, "sections": []}, {"Out": 3}),
    Row("split", {"X": f(2, 6)}, {"axis": 1, "num": 0, "sections": [1, 2, 3]}, {"Out": 3},
        "sections"),
    Row("slice", {"Input": f(3, 6)}, {"axes": [1], "starts": [1], "ends": [4],
        "infer_flags": [1], "decrease_axis": []}, {"Out": 1}),
    Row("slice", {"Input": f(3, 6)}, {"axes": [1], "starts": [-1], "ends": [2147483647],
        "infer_flags": [1], "decrease_axis": [1]}, {"Out": 1}, "last"),
    Row("strided_slice", {"Input": f(3, 6)}, {"axes": [1], "starts": [5], "ends": [0],
        "strides": [-2], "infer_flags": [1], "decrease_axis": []}, {"Out": 1}),
    Row("gather", {"X": f(5, 3), "Index": i(4)}, {}, {"Out": 1}),
    Row("gather_nd", {"X": f(5, 3), "Index": i(4, 1)}, {}, {"Out": 1}),
    Row("index_select", {"X": f(3, 5), "Index": i(4)}, {"dim": 1}, {"Out": 1}),
    Row("index_sample", {"X": f(3, 5), "Index": i(3, 2)}, {}, {"Out": 1}),
    Row("take_along_axis", {"Input": f(3, 5), "Index": i(3, 2)}, {"Axis": 1}, {"Result": 1}),
    Row("scatter", {"X": f(5, 3), "Ids": np.array([3, 0]), "Updates": f(2, 3)},
        {"overwrite": True}, {"Out": 1}),
    x("flip", axis=[1]), x("roll", shifts=[1], axis=[2]),
    x("tril_triu", diagonal=0, lower=True),
    Row("conv2d", {"Input": IMAGE, "Filter": f(6, 2, 3, 3)}, {"strides": [2, 1],
        "paddings": [1, 0], "dilations": [1, 1], "groups": 2, "data_format": "NCHW",
        "padding_algorithm": "EXPLICIT"}, {"Output": 1}),
    Row("conv2d", {"Input": IMAGE, "Filter": f(6, 4, 3, 3)}, {"strides": [2, 2],
        "paddings": [0, 0], "dilations": [1, 1], "groups": 1, "data_format": "NCHW",
        "padding_algorithm": "SAME"}, {"Output": 1}, "same"),
    Row("conv2d_transpose", {"Input": IMAGE, "Filter": f(4, 3, 3, 3)}, {"strides": [2, 2],
        "paddings": [1, 1], "dilations": [1, 1], "groups": 1, "data_format": "NCHW",
        "padding_algorithm": "EXPLICIT", "output_padding": [], "output_size": []},
        {"Output": 1}),
    *[Row("pool2d", {"X": IMAGE}, {"pooling_type": kind, "ksize": [3, 2], "strides": [2, 2],
        "paddings": [1, 0], "ceil_mode": ceil, "exclusive": True, "adaptive": False,
        "global_pooling": False, "data_format": "NCHW", "padding_algorithm": "EXPLICIT"},
        {"Out": 1}, f"{kind} {ceil}") for kind in ("max", "avg") for ceil in (False, True)],
    Row("pool2d", {"X": IMAGE}, {"pooling_type": "avg", "ksize": [3, 4], "strides": [1, 1],
        "paddings": [0, 0], "adaptive": True, "global_pooling": False}, {"Out": 1}, "adaptive"),
    Row("batch_norm", {"X": IMAGE, "Scale": f(4), "Bias": f(4), "Mean": f(4),
        "Variance": f(4, low=0.5, high=2.0)}, {"is_test": True, "use_global_stats": True,
        "epsilon": 1e-5, "momentum": 0.9, "data_layout": "NCHW"}, {"Y": 1}),
    Row("layer_norm", {"X": f(2, 3, 4), "Scale": f(12), "Bias": f(12)}, {"epsilon": 1e-5,
        "begin_norm_axis": 1}, {"Y": 1}),
    Row("instance_norm", {"X": IMAGE, "Scale": f(4), "Bias": f(4)}, {"epsilon": 1e-5}, {"Y": 1}),
    Row("group_norm", {"X": IMAGE, "Scale": f(4), "Bias": f(4)}, {"epsilon": 1e-5, "groups": 2,
        "data_layout": "NCHW"}, {"Y": 1}),
    *[x(f"{kind}_interp_v2", IMAGE, note=f"{align} {scale}", scale=[scale, scale], out_h=0,
        out_w=0, align_corners=align, align_mode=mode, interp_method=kind, data_layout="NCHW")
      for kind, align, mode, scale in (
          ("nearest", False, 1, 2.0), ("nearest", False, 1, 0.5), ("bilinear", False, 0, 2.0),
          ("bilinear", False, 1, 1.5), ("bilinear", True, 1, 2.0), ("bicubic", False, 1, 2.0),
      )],
    x("bilinear_interp_v2", IMAGE, note="size", scale=[], out_h=5, out_w=13, align_corners=False,
      align_mode=1, interp_method="bilinear", data_layout="NCHW"),
    x("pad", f(2, 3), paddings=[0, 1, 2, 0], pad_value=0.5),
    Row("lookup_table_v2", {"Ids": i(2, 3), "W": f(5, 4)}, {"padding_idx": -1}, {"Out": 1}),
    Row("lookup_table_v2", {"Ids": i(2, 3), "W": f(5, 4)}, {"padding_idx": 1}, {"Out": 1}, "pad"),
    Row("grid_sampler", {"X": IMAGE, "Grid": f(2, 5, 6, 2, low=-1.1, high=1.1)}, {
        "mode": "bilinear", "padding_mode": "zeros", "align_corners": True}, {"Output": 1}),
    Row("unfold", {"X": IMAGE}, {"kernel_sizes": [3, 3], "strides": [1, 1],
        "paddings": [1, 1, 1, 1], "dilations": [1, 1]}, {"Y": 1}),
    x("shuffle_channel", IMAGE, group=2),
    x("label_smooth", f(2, 3), epsilon=0.1),
    Row("rnn", {"Input": f(3, 2, 4), "PreState": [f(1, 2, 5), f(1, 2, 5) / 2],
        "WeightList": [f(20, 4), f(20, 5), f(20), f(20)]}, {"mode": "LSTM", "num_layers": 1,
        "hidden_size": 5, "input_size": 4, "is_bidirec": False, "is_test": True,
        "dropout_prob": 0.0}, {"Out": 1, "State": 2}),
]  # fmt: skip


def _label(row: Row) -> str:
    return row.kind + (f" ({row.note})" if row.note else "")


@pytest.mark.parametrize("row", ROWS, ids=[_label(r) for r in ROWS])
def test_op(paddle: Any, row: Row, tmp_path: Path) -> None:
    data, inputs = program_desc(paddle, row.kind, row.inputs, row.attrs, row.outs)
    path = tmp_path / "op.pdmodel"
    path.write_bytes(data)
    path.with_suffix(".pdiparams").write_bytes(b"")
    theirs = run_files(paddle, path, inputs)
    model = read_buffers(data, b"")
    made = model(*[bireme.to_tensor(inputs[n]) for n in model.input_names])
    ours = [t.numpy() for t in (made if isinstance(made, list) else [made])]
    agree(ours, theirs, 2e-5)


def test_rows_name_rules() -> None:
    assert {r.kind for r in ROWS} <= set(RULES)
