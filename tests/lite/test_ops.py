"""Ops in the runtime of Bireme Lite against the same functions here, with every instruction set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme import lite
from bireme.lite import LiteError

InputSpec = paddle.static.InputSpec
ACTIVATIONS = [
    "relu",
    "relu6",
    "hardswish",
    "hardsigmoid",
    "sigmoid",
    "silu",
    "gelu",
    "softplus",
    "mish",
    "elu",
    "selu",
    "leaky_relu",
    "celu",
    "swish",
    "softsign",
    "tanhshrink",
    "hardshrink",
    "softshrink",
]
UNARY = [
    "tanh",
    "exp",
    "erf",
    "abs",
    "square",
    "floor",
    "ceil",
    "round",
    "sign",
    "sin",
    "cos",
    "tan",
    "atan",
    "asinh",
    "sinh",
    "cosh",
    "expm1",
    "erfinv",
]


def noise(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.standard_normal(shape).astype(np.float32)


def exported(function: Callable[..., Any], arrays: Any, folder: Path, **options: Any) -> str:
    specs = [InputSpec(a.shape, str(a.dtype), f"x{i}") for i, a in enumerate(arrays)]
    return lite.export(function, folder / "model", specs, **options)


def agree(function: Callable[..., Any], arrays: Any, folder: Path, within: float = 1e-5) -> None:
    """The runtime's results against ours, for every instruction set of this machine."""
    wanted = function(*[paddle.to_tensor(a) for a in arrays])
    wanted = wanted if isinstance(wanted, list | tuple) else [wanted]
    path = exported(function, arrays, folder)
    for name in ("baseline", "avx2", "avx512"):
        try:
            model = lite.Model(path, instructions=name)
        except LiteError as e:
            assert "instructions" in str(e)  # noqa: PT017
            continue
        for got, want in zip(model(*arrays), [w.numpy() for w in wanted], strict=True):
            assert got.shape == want.shape
            assert got.dtype == want.dtype
            if got.dtype.kind == "f":
                scale = max(float(np.abs(want).max(initial=0)), 1e-30)
                assert float(np.abs(got - want).max(initial=0)) <= within * scale, name
            else:
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("channels", "made", "size", "kernel", "stride", "pad", "dilation", "groups"),
    [
        (3, 16, 16, 3, 2, 1, 1, 1),
        (16, 8, 7, 1, 1, 0, 1, 1),
        (4, 40, 20, 3, 1, 1, 1, 1),
        (8, 12, 9, 3, 1, 1, 2, 2),
        (8, 8, 9, 3, 1, 1, 1, 8),
        (8, 8, 17, 5, 2, 2, 1, 8),
        (8, 8, 9, 3, 1, 2, 2, 8),
        (600, 9, 5, 1, 1, 0, 1, 1),  # deeper than one packed panel
    ],
)
def test_convolutions(
    channels, made, size, kernel, stride, pad, dilation, groups, tmp_path: Path
) -> None:
    weight, bias = noise(made, channels // groups, kernel, kernel), noise(made)

    def run(x, w, b):
        out = F.conv2d(x, w, b, stride, pad, dilation, groups)
        return out, F.relu(out)

    agree(run, [noise(2, channels, size, size), weight, bias], tmp_path)


def test_convolutions_of_other_kinds(tmp_path: Path) -> None:
    arrays = [noise(1, 4, 50), noise(6, 4, 3), noise(1, 4, 5, 6, 7), noise(6, 4, 3, 3, 3)]
    arrays += [noise(1, 4, 5, 5), noise(4, 6, 3, 3)]
    agree(
        lambda a, aw, b, bw, c, cw: [
            F.conv1d(a, aw, padding=1),
            F.conv3d(b, bw, padding=1),
            F.conv2d_transpose(c, cw, stride=2, padding=1),
        ],
        arrays,
        tmp_path,
    )


def test_fused_products(tmp_path: Path) -> None:
    """Constant weights: sums and activations go into the product."""
    conv, thin = paddle.nn.Conv2D(8, 8, 3, padding=1), paddle.nn.Conv2D(8, 8, 3, 1, 1, groups=8)
    fc = paddle.nn.Linear(64, 40)

    def run(x):
        y = F.hardswish(conv(x) + x) * 0.5 + 1.0
        z = F.relu(thin(y) + y)
        return F.gelu(fc(z.flatten(2))), F.hardsigmoid(thin(x)), F.leaky_relu(conv(x), 0.1)

    agree(run, [noise(2, 8, 8, 8)], tmp_path)


def test_products(tmp_path: Path) -> None:
    def run(x, y, z, w):
        return [
            paddle.matmul(x, y, transpose_y=True),
            paddle.matmul(x, z, transpose_x=True),
            F.linear(x, w),
            paddle.matmul(x[0, 0], w),
            paddle.einsum("abij,abkj->abik", x, y),
            paddle.matmul(x.astype("float64"), w.astype("float64")),
            paddle.matmul(x[0, 0].astype("int64"), w.astype("int64")),
        ]

    agree(run, [noise(2, 3, 20, 8), noise(2, 3, 33, 8), noise(2, 3, 20, 5), noise(8, 70)], tmp_path)


@pytest.mark.parametrize("names", [ACTIVATIONS, UNARY], ids=["activations", "unary"])
def test_functions_of_one_number(names: list[str], tmp_path: Path) -> None:
    functions = [getattr(F, n, None) or getattr(paddle, n) for n in names]

    def run(x):
        return [f(x * 0.2 if f is paddle.erfinv else x * 3) for f in functions]

    agree(run, [noise(3, 37)], tmp_path)


def test_infinities_and_nan(tmp_path: Path) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 100.0, -100.0, 1e-40], np.float32)
    names = ("exp", "tanh", "sigmoid", "erf", "maximum", "isfinite", "sign")

    def run(x):
        zero = paddle.zeros_like(x)
        two = {"maximum"}
        return [
            getattr(paddle, n)(*([x, zero] if n in two else [x])) for n in names if n != "sigmoid"
        ]

    path = exported(run, [x], tmp_path)
    wanted = [w.numpy() for w in run(paddle.to_tensor(x))]
    for got, want in zip(lite.Model(path)(x), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-38)


def test_pooling(tmp_path: Path) -> None:
    def run(x):
        return [
            F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 2, 2),
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, exclusive=False),
            F.max_pool2d(x, 3, 2, ceil_mode=True),
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, 3),
            F.adaptive_max_pool2d(x, 3),
        ]

    agree(run, [noise(2, 5, 16, 16)], tmp_path)


def test_norms_and_sums(tmp_path: Path) -> None:
    def run(x, w, b):
        return [
            F.layer_norm(x, 20, w, b),
            F.rms_norm(x, [20], w),
            *[F.softmax(x, a) for a in (-1, 1)],
            F.log_softmax(x, 0),
            *[x.sum(), x.mean(1), x.max(0), x.min(-1), x.prod(1), x.std(), x.sum([0, 2])],
            *[x.argmax(1), x.argmin(), paddle.logsumexp(x, 1), x.cumsum(1), x.cumprod(1)],
            *[paddle.cummax(x, 1)[0], paddle.logcumsumexp(x, 1), (x > 0).all(1), (x > 1).any()],
        ]

    agree(run, [noise(4, 6, 20), noise(20), noise(20) + 3], tmp_path)


def test_shapes(tmp_path: Path) -> None:
    def run(x):
        return [
            x.transpose([2, 0, 1]),
            x[:, 1:4:2],
            x.flip(1),
            paddle.concat([x, x], 1),
            F.pad(x, [1, 2], value=3.0),
            paddle.tile(x, [2, 1, 3]),
            paddle.stack([x, x], 1),
            paddle.roll(x, 2, 1),
            *paddle.split(x, 5, 1)[1:3],
            paddle.tril(x),
            x.expand([2, 3, 5, 7]),
            x.reshape([7, -1]),
        ]

    agree(run, [noise(3, 5, 7)], tmp_path)


def test_gathering_and_sorting(tmp_path: Path) -> None:
    index = np.array([[0, 4], [2, 1], [3, 3], [1, 0]])

    def run(x, i):
        return [
            x[i],
            paddle.gather(x, i[:, 0], 1),
            F.embedding(i, x[0]),
            paddle.take_along_axis(x, i.unsqueeze(0), 1, broadcast=False),
            paddle.index_select(x, i[:, 1], 1),
            *paddle.topk(x, 3, axis=1),
            paddle.sort(x, 1, descending=True),
            paddle.argsort(x, 2),
            F.one_hot(i, 6),
            paddle.where(x > 0, x, -x),
            paddle.gather_nd(x[0], i),
            paddle.scatter(x[0], i[:3, 0], x[1, :3]),
            paddle.scatter_nd_add(x[0], i[:3, :1], x[1, :3]),
            paddle.put_along_axis(x[0], i[:1, :1].expand([3, 7]), x[1, :3], 0),
        ]

    agree(run, [noise(5, 5, 7), index], tmp_path)


def test_resizing(tmp_path: Path) -> None:
    def run(x):
        out = [F.interpolate(x, scale_factor=2, mode=m) for m in ("nearest", "bilinear", "bicubic")]
        out.append(F.interpolate(x, [9, 4], mode="bilinear", align_corners=True))
        return [*out, F.interpolate(x, [3, 4], mode="bilinear", align_mode=1)]

    agree(run, [noise(1, 2, 5, 6)], tmp_path)


def test_whole_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, (3, 4)), rng.integers(1, 9, (3, 4))]

    def run(x, y):
        return [
            *[x + y, x * y, x // y, x % y, x - y, -x, x & y, x | y, x ^ y, ~x, x**2, abs(x)],
            *[x > y, x == y, x.astype("float32"), x.astype("bool"), x.astype("int32") + 1],
            *[paddle.maximum(x, y), x.sum(0), x.max(1), paddle.clip(x, -3, 3)],
        ]

    agree(run, arrays, tmp_path)
