"""Every CPU kernel on an odd size and on an empty batch, values and gradients, against float64.

The hypothesis tests beside this file draw their sizes; these are the ones that must be among them.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme.backends import get_backend
from bireme.capture.rewrite import GraphBuilder
from bireme.core import executor, kernels
from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.graph import Graph
from bireme.core.op import OPS, Call
from bireme.host import config, thresholds
from bireme.kernels import cpu_packed, install, native
from bireme.ops import rnn
from tests.kernels.kernel_oracle import compiled, gradients

__all__ = ["compiled"]  # a fixture
pytestmark = [
    pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning"),
    pytest.mark.filterwarnings("ignore:Mean of empty slice"),  # NumPy's, of no images
]
install()


@dataclass(frozen=True)
class Edge:
    """A function of tensors, and their shapes for a batch of n; the other sizes are odd."""

    run: Callable[..., Any]
    shapes: Callable[[int], list[tuple[int, ...]]]
    dtype: str = "float32"
    tolerance: float = 1e-3


def conv(
    shape: tuple[int, ...], weight: tuple[int, ...], transposed: bool = False, **options: Any
) -> Edge:
    out = weight[1] * options.get("groups", 1) if transposed else weight[0]
    name = f"conv{len(shape) - 1}d" + ("_transpose" if transposed else "")
    return Edge(
        lambda x, w, b: getattr(F, name)(x, w, b, **options),
        lambda n: [(n, *shape), weight, (out,)],
    )


def recurrent(kind: str, gates: int, states: int) -> Edge:
    wide = gates * 48
    return Edge(
        lambda *arrays: getattr(rnn, kind)(*arrays),
        lambda n: [
            (5, n, 7), *[(n, 48)] * states, (wide, 7), (wide, 48), (wide,), (wide,),
        ],
    )  # fmt: skip


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    zeros = paddle.zeros([x.shape[1]], x.dtype)
    return F.batch_norm(x, zeros, zeros + 1, weight, bias, training=True, epsilon=1e-2)


def dropout(x: Any) -> Any:
    paddle.seed(7)
    return F.dropout(x, 0.3)


def scaled_by_means(x: Any, factor: Any) -> Any:
    return x * (factor + F.adaptive_avg_pool2d(x, 1))


NATIVE = {
    "native_attention": [
        Edge(
            F.scaled_dot_product_attention,
            lambda n: [(n, 17, 3, 5), (n, 131, 1, 5), (n, 131, 1, 7)],
        ),
    ],
    "native_batch_norm": [Edge(batch_norm, lambda n: [(n, 19, 5, 3), (19,), (19,)])],
    "native_bfloat16": [
        Edge(F.linear, lambda n: [(n, 3, 34), (34, 38), (38,)], "bfloat16", 2.0**-6)
    ],
    "native_conv": [
        conv((5, 9, 11), (7, 5, 3, 3), stride=[2, 1], padding=[1, 2], dilation=[1, 2]),
        conv((35, 7, 9), (35, 1, 5, 3), groups=35, padding=2, stride=3),
        conv((9, 7, 5), (15, 3, 3, 3), groups=3, dilation=2, padding=2),
        conv((19, 7, 5), (17, 19, 3, 3), padding=1),
        conv((17, 5, 3), (17, 5, 3, 3), transposed=True, stride=2, padding=1),
    ],
    "native_gru": [recurrent("gru", 3, 1)],
    "native_linear": [Edge(F.linear, lambda n: [(n, 5, 33), (33, 35), (35,)])],
    "native_lstm": [recurrent("lstm", 4, 2)],
    "native_max_pool": [Edge(lambda x: F.max_pool2d(x, 3, 2, 1), lambda n: [(n, 17, 7, 9)])],
    "native_simple_rnn": [recurrent("simple_rnn", 1, 1)],
}  # fmt: skip
PLAIN = {
    "kept_dropout": [Edge(dropout, lambda n: [(n, 7, 13)])],
    "kept_layer_norm": [
        Edge(lambda x, w, b: F.layer_norm(x, 13, w, b), lambda n: [(n, 7, 13), (13,), (13,)])
    ],
}
# Where there is no native library.
WITHOUT_LIBRARY = {
    "columns_conv": [conv((3, 5, 3), (47, 3, 3, 3), padding=1)],
    "product_conv": [conv((5, 7, 9), (3, 5, 3, 1), stride=[3, 2])],
    "rows_batch_norm": [Edge(batch_norm, lambda n: [(n, 7, 5, 3), (7,), (7,)])],
    "rows_mean": [Edge(scaled_by_means, lambda n: [(n, 7, 5, 3), (n, 7, 1, 1)])],
    "rows_scale": [Edge(scaled_by_means, lambda n: [(n, 7, 5, 3), (n, 7, 1, 1)])],
    "shifted_conv": [
        conv((7, 9, 5), (7, 1, 3, 3), groups=7, padding=1, stride=2),
        conv((5, 13), (5, 1, 5), groups=5, padding=2),
    ],
    "winograd_conv": [conv((17, 7, 9), (19, 17, 3, 3), padding=1)],
}
# Of inference, which has no gradients: an op with its attributes and the operands' shapes.
THEN = ("hardswish", (), 2.0, 0.5)
FIXED = {
    "channel_means": [
        ("mean", {"axis": (2, 3), "keepdim": True}, lambda n: [(n, 19, 5, 7)]),
        ("mean", {"axis": (1, 2), "keepdim": False}, lambda n: [(n, 5, 7, 19)]),
    ],
    "native_layer_norm": [
        ("layer_norm", {"dims": 1, "epsilon": 1e-5}, lambda n: [(n, 3, 37), (37,), (37,)]),
    ],
    "packed_conv": [
        (
            "fused_conv",
            {"stride": (2, 1), "pads": ((1, 2), (0, 1)), "dilation": (1, 2), "then": THEN},
            lambda n: [(n, 5, 9, 11), (35, 5, 3, 3), (35,), None],
        ),
        (
            "fused_conv",
            {
                "stride": (1, 2), "pads": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 35,
                "then": THEN,
            },
            lambda n: [(n, 35, 7, 9), (35, 1, 3, 3), (35,), None],
        ),
    ],
    "packed_linear": [
        ("fused_linear", {"then": THEN}, lambda n: [(n, 3, 33), (33, 35), (35,), None]),
    ],
    "squeeze_excite": [
        (
            "squeeze_excite",
            {"inner": ("relu", ()), "outer": ("sigmoid", ()), "plus": 0.0, "last": False},
            lambda n: [(n, 35, 5, 7), (35, 9), (9,), (9, 35), (35,)],
        ),
    ],
}  # fmt: skip


# Their operands are more than floats of one dtype: each is compared in a file of its own.
ELSEWHERE = {
    "native_cache_attend": "test_cpu_decode.py",
    "native_rms_norm": "test_cpu_decode.py",
    "quantised_linear": "test_quantised.py",
}


def cases(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(name, edge, id=f"{name}-{i}")
        for name, edges in table.items()
        for i, edge in enumerate(edges)
    ]


NAMES = """
from bireme import kernels as package
from bireme.core import kernels
package.install()
print(*{k.name for ks in kernels._by_op.values() for k in ks if k.platform == "cpu"})
"""


def test_every_cpu_kernel_is_listed():
    # In a process of its own: other tests register kernels, as users do.
    done = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, check=True)
    ours = set(done.stdout.split())
    assert ours == {*NATIVE, *PLAIN, *WITHOUT_LIBRARY, *FIXED, *ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert name in (pathlib.Path(__file__).parent / file).read_text()


def assert_near(found: Any, plain: Any, tolerance: float) -> None:
    for a, b in zip(found, plain, strict=True):
        assert a.shape == b.shape
        atol = tolerance / 10 * max(1.0, np.abs(b).max(initial=0.0))
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=tolerance, atol=atol)


def compare(name: str, edge: Edge, batch: int) -> int:
    """Computes both; returns how many kernels of that name there were."""
    rng = np.random.default_rng(batch)
    wanted = as_dtype(edge.dtype).numpy
    arrays = [(rng.normal(size=s) * 0.5).astype(wanted) for s in edge.shapes(batch)]
    executor.clear_programs()
    before = kernels.uses[name]
    found = gradients(edge.run, arrays)
    used = kernels.uses[name] - before
    with kernels.disabled(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "compile_mode", "never")
        plain = gradients(edge.run, [a.astype(np.float64) for a in arrays])
    assert_near(found, plain, edge.tolerance)
    return used


@pytest.fixture
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "CPU_LINEAR_WORK", 1)
    monkeypatch.setattr(thresholds, "CPU_BFLOAT16_WORK", 0)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_library", None)
    monkeypatch.setattr(native, "_failed", True)


needs_library = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")


@needs_library
@pytest.mark.parametrize(("name", "edge"), cases(NATIVE | PLAIN))
@pytest.mark.usefixtures("of_any_size")
def test_kernels_of_training(name, edge):
    if edge.dtype == "bfloat16" and not native.has_bfloat16():
        pytest.skip("needs AVX512-BF16")
    assert compare(name, edge, 3) >= 1, "the kernel was not used"
    compare(name, edge, 0)


@pytest.mark.parametrize(("name", "edge"), cases(WITHOUT_LIBRARY))
@pytest.mark.usefixtures("no_library")
def test_kernels_without_the_library(name, edge, monkeypatch):
    monkeypatch.setattr(thresholds, "CPU_COLUMNS_WEIGHT", 1 if name == "columns_conv" else 1 << 30)
    assert compare(name, edge, 3) >= 1, "the kernel was not used"
    compare(name, edge, 0)


def run_fixed(op: str, attrs: dict[str, Any], shapes: list[Any]) -> tuple[Any, Any]:
    """A call with fixed weights in a compiled program, and in NumPy and float64."""
    rng = np.random.default_rng(1)
    arrays = [None if s is None else rng.normal(size=s).astype(np.float32) for s in shapes]
    types = tuple([None if s is None else aval(s, as_dtype("float32")) for s in shapes])
    definition = OPS[op]
    count = len(shapes)
    attrs = {**definition.attr_defaults, **attrs}
    call = Call(definition, types, (-1,) * count, attrs, (None,) * count)
    builder = GraphBuilder(Graph([]))
    first = types[0]
    assert first is not None
    rest = [None if a is None else builder.constant(a) for a in arrays[1:]]
    builder.graph.outputs = [builder.add(call, (builder.input(first), *rest))[0]]
    graph = cpu_packed.pack(builder.graph)
    program = get_backend("xla").compile(graph, fixed=dict(graph.constants))
    (found,) = program.call(program.put(arrays[0]))
    plain = call.run(np, [None if a is None else a.astype(np.float64) for a in arrays])
    return np.asarray(found), plain


@needs_library
@pytest.mark.parametrize(("name", "edge"), cases(FIXED))
def test_kernels_of_inference(name, edge):
    op, attrs, shapes = edge
    before = kernels.uses[name]
    found, plain = run_fixed(op, attrs, shapes(3))
    assert kernels.uses[name] == before + 1, "the kernel was not used"
    assert_near([found], [plain], 1e-4)
    found, plain = run_fixed(op, attrs, shapes(0))
    assert_near([found], [plain], 1e-4)
