"""Functions that the real Paddle 3 saves as PIR programs give the same here."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import bireme
from bireme.convert.paddle import load_model
from bireme.convert.paddle.interpreter import RULES
from bireme.convert.paddle.pir_ops import ROWS as PIR_ROWS
from tests.convert.paddle.real import agree
from tests.convert.paddle.test_program_rules import b, f, i


class Row(NamedTuple):
    name: str
    function: Callable[..., Any]  # of the paddle module and tensors
    inputs: list[np.ndarray]


def one(name: str, function: Callable[..., Any], *inputs: np.ndarray) -> Row:
    return Row(name, function, list(inputs) or [f(2, 3, 4)])


IMAGE = f(2, 4, 8, 8)
POSITIVE = f(2, 3, low=0.1, high=2.0)

ROWS = [
    *[one(n, lambda p, x, n=n: getattr(p.nn.functional, n)(x)) for n in (
        "relu", "relu6", "sigmoid", "tanh", "silu", "swish", "hardswish", "hardsigmoid", "mish",
        "leaky_relu", "elu", "celu", "selu", "gelu", "softplus", "softsign", "log_sigmoid",
        "tanhshrink", "hardshrink", "softshrink", "hardtanh", "thresholded_relu", "softmax",
        "log_softmax",
    )],
    *[one(n, lambda p, x, n=n: getattr(p, n)(x)) for n in (
        "exp", "expm1", "square", "abs", "floor", "ceil", "round", "sign", "sin", "cos", "tan",
        "atan", "erf", "reciprocal", "isnan", "isinf", "isfinite", "mean", "sum", "max", "min",
        "prod", "logsumexp", "amax", "numel",
    )],
    *[one(n, lambda p, x, n=n: getattr(p, n)(x), POSITIVE) for n in (
        "log", "log2", "log10", "log1p", "sqrt", "rsqrt",
    )],
    *[one(n, lambda p, x, y, n=n: getattr(p, n)(x, y), f(2, 3), f(2, 3) + 3) for n in (
        "add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "atan2",
        "greater_than", "less_equal", "equal", "not_equal",
    )],
    one("pow", lambda p, x, y: p.pow(x, y), POSITIVE, f(2, 3)),
    one("pow number", lambda p, x: p.pow(x, 2.5), POSITIVE),
    one("remainder", lambda p, x, y: p.remainder(x, y), i(2, 3, high=9), i(2, 3) + 1),
    one("floor_divide", lambda p, x, y: p.floor_divide(x, y), i(2, 3, high=9), i(2, 3) + 1),
    one("logic", lambda p, x, y: (p.logical_and(x, y), p.logical_or(x, y), p.logical_xor(x, y),
                                  p.logical_not(x)), b(2, 3), b(3, 2).reshape(2, 3)),
    one("bits", lambda p, x, y: (x & y, x | y, x ^ y, ~x), i(2, 3), i(3, 2).reshape(2, 3)),
    one("scale", lambda p, x: p.scale(x, 2.0, 1.0, False)),
    one("clip", lambda p, x: p.clip(x, -0.5, 0.5)),
    one("cast", lambda p, x: x.astype("int32")),
    one("add_n", lambda p, x, y: p.add_n([x, y, x]), f(2, 3), f(2, 3) + 1),
    one("where", lambda p, c, x, y: p.where(c, x, y), b(2, 3), f(2, 3), f(2, 3) + 1),
    one("cumsum", lambda p, x: p.cumsum(x, 1)),
    one("norm", lambda p, x: p.linalg.norm(x, 2, -1)),
    one("matmul", lambda p, x, y: p.matmul(x, y, transpose_y=True), f(2, 3, 4), f(2, 5, 4)),
    one("bmm", lambda p, x, y: p.bmm(x, y), f(2, 3, 4), f(2, 4, 5)),
    one("addmm", lambda p, x, y, a: p.addmm(a, x, y, 2.0, 0.5), f(2, 3), f(3, 5), f(1, 5)),
    one("einsum", lambda p, x, y: p.einsum("bij,bjk->bik", x, y), f(2, 3, 4), f(2, 4, 5)),
    *[one(f"{n} axis", lambda p, x, n=n: getattr(p, n)(x, axis=1, keepdim=True)) for n in (
        "mean", "sum", "max", "min", "prod", "logsumexp", "amin",
    )],
    *[one(n, lambda p, x, n=n: getattr(p, n)(x, axis=1), b(2, 3)) for n in ("all", "any")],
    one("argmax", lambda p, x: p.argmax(x, 1)), one("argmin", lambda p, x: p.argmin(x)),
    one("sort", lambda p, x: (p.sort(x, 1), p.argsort(x, -1, True))),
    one("topk", lambda p, x: p.topk(x, 2, 1)),
    one("kthvalue", lambda p, x: p.kthvalue(x, 2)),
    one("full_like", lambda p, x: p.full_like(x, 3.0)),
    one("zeros of a shape", lambda p, x: p.zeros([p.shape(x)[0], 5]) + 1),
    one("arange", lambda p, x: p.arange(0.0, 10.0, 2.0) + p.mean(x)),
    one("arange of a size", lambda p, x: p.arange(p.shape(x)[0])),
    one("linspace", lambda p, x: p.linspace(0, 1, 5) + p.mean(x)),
    one("one_hot", lambda p, x: p.nn.functional.one_hot(x, 5), i(2, 3)),
    one("reshape", lambda p, x: p.reshape(x, [p.shape(x)[0], -1])),
    one("reshape by shape", lambda p, x: p.reshape(x, [p.shape(x)[0] * 3, 4])),
    one("flatten", lambda p, x: p.flatten(x, 1)),
    one("transpose", lambda p, x: p.transpose(x, [1, 0, 2])),
    one("squeeze", lambda p, x: p.squeeze(x, 1), f(2, 1, 4)),
    one("unsqueeze", lambda p, x: p.unsqueeze(x, [1, 3]), f(2, 4)),
    one("expand", lambda p, x: p.expand(x, [-1, 3, 4]), f(2, 1, 4)),
    one("expand_as", lambda p, x, y: p.expand_as(x, y), f(2, 1), f(2, 3)),
    one("tile", lambda p, x: p.tile(x, [1, 2, 1])),
    one("concat", lambda p, x, y: p.concat([x, y], 1), f(2, 3), f(2, 4)),
    one("stack", lambda p, x, y: p.stack([x, y], 1), f(2, 3), f(2, 3)),
    one("unstack", lambda p, x: p.unstack(x, 1)), one("unbind", lambda p, x: p.unbind(x, 1)),
    one("split", lambda p, x: p.split(x, 2, -1)),
    one("split sections", lambda p, x: p.split(x, [1, 2], 1)),
    one("meshgrid", lambda p, x, y: p.meshgrid(x, y), f(3), f(4)),
    one("slice", lambda p, x: x[:, 1:, ::2]), one("index", lambda p, x: x[:, -1]),
    one("strided", lambda p, x: x[:, :, ::-1]),
    one("gather", lambda p, x, k: p.gather(x, k, 1), f(3, 5), i(4)),
    one("gather_nd", lambda p, x, k: p.gather_nd(x, k), f(5, 3), i(5, 1)),
    one("index_select", lambda p, x, k: p.index_select(x, k, 1), f(3, 5), i(4)),
    one("index_sample", lambda p, x, k: p.index_sample(x, k), f(3, 5), i(3, 2)),
    one("take_along_axis", lambda p, x, k: p.take_along_axis(x, k, 1), f(3, 5), i(3, 2)),
    one("flip", lambda p, x: p.flip(x, [1])), one("roll", lambda p, x: p.roll(x, 1, 1)),
    one("tril", lambda p, x: (p.tril(x), p.triu(x, 1))),
    one("conv2d", lambda p, x, w: p.nn.functional.conv2d(x, w, None, 2, 1), IMAGE, f(6, 4, 3, 3)),
    one("max_pool2d", lambda p, x: p.nn.functional.max_pool2d(x, 3, 2, 1), IMAGE),
    one("avg_pool2d", lambda p, x: p.nn.functional.avg_pool2d(x, 2), IMAGE),
    one("adaptive", lambda p, x: p.nn.functional.adaptive_avg_pool2d(x, 3), IMAGE),
    one("layer_norm", lambda p, x: p.nn.functional.layer_norm(x, [4])),
    one("group_norm", lambda p, x: p.nn.functional.group_norm(x, 2), IMAGE),
    one("instance_norm", lambda p, x: p.nn.functional.instance_norm(x), IMAGE),
    *[one(f"interpolate {m}", lambda p, x, m=m: p.nn.functional.interpolate(
        x, scale_factor=2, mode=m), IMAGE) for m in ("nearest", "bilinear", "bicubic")],
    one("interpolate size", lambda p, x: p.nn.functional.interpolate(
        x, [5, 7], mode="bilinear", align_corners=True), IMAGE),
    one("pad", lambda p, x: p.nn.functional.pad(x, [1, 2, 0, 1], value=0.5), IMAGE),
    one("pad reflect", lambda p, x: p.nn.functional.pad(x, [1, 1, 1, 1], "reflect"), IMAGE),
    one("embedding", lambda p, k, w: p.nn.functional.embedding(k, w), i(2, 3), f(5, 4)),
    one("grid_sample", lambda p, x, g: p.nn.functional.grid_sample(x, g), IMAGE,
        f(2, 5, 6, 2, low=-1.1, high=1.1)),
    one("pixel_shuffle", lambda p, x: p.nn.functional.pixel_shuffle(x, 2), IMAGE),
    one("attention", lambda p, x: p.nn.functional.softmax(
        p.matmul(x, x, transpose_y=True) * (x.shape[-1] ** -0.5), -1) @ x),
    one("branch on data", lambda p, x: p.static.nn.cond(
        x.sum() > 0, lambda: x + 1, lambda: x * 2)),
]  # fmt: skip


def saved(paddle: Any, row: Row, path: Path) -> list[np.ndarray]:
    """What the real Paddle gives eagerly; the function is saved at `path` as a program."""
    names = ("x", "y", "z")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = row.function(paddle, *[paddle.to_tensor(a) for a in row.inputs])
        paddle.enable_static()
        try:
            main = paddle.static.Program()
            with paddle.static.program_guard(main):
                given = [
                    paddle.static.data(
                        n, [-1, *a.shape[1:]] if n == "x" and a.ndim > 1 else a.shape, str(a.dtype)
                    )
                    for n, a in zip(names, row.inputs, strict=False)
                ]
                outs = row.function(paddle, *given)
                outs = list(outs) if isinstance(outs, list | tuple) else [outs]
                executor = paddle.static.Executor(paddle.CPUPlace())
                paddle.static.save_inference_model(str(path), given, outs, executor, program=main)
        finally:
            paddle.disable_static()
    return [t.numpy() for t in (made if isinstance(made, list | tuple) else [made])]


@pytest.mark.parametrize("row", ROWS, ids=[r.name for r in ROWS])
def test_function(paddle: Any, row: Row, tmp_path: Path) -> None:
    theirs = saved(paddle, row, tmp_path / "net")
    model = load_model(str(tmp_path / "net"))
    used = {a.name: a for a in model.graph_program.feeds}
    given = [a for a, n in zip(row.inputs, ("x", "y", "z"), strict=False) if n in used]
    made = model(*[bireme.to_tensor(a) for a in given])
    agree([t.numpy() for t in (made if isinstance(made, list) else [made])], theirs, 2e-5)


def test_every_row_has_a_rule() -> None:
    from bireme.convert.paddle.known import FOLDS

    known = {*RULES, *FOLDS}
    missing = {name: r.type for name, r in PIR_ROWS.items() if r.type not in known}
    assert set(missing) <= {"tril", "triu"}, missing  # written as tril_triu by the reader
