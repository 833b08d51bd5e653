"""The kernels for packed weights against the lowerings that take the panels apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bireme.backends import get_backend
from bireme.capture.rewrite import GraphBuilder
from bireme.core import kernels
from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.graph import Graph
from bireme.core.op import OPS, Call
from bireme.kernels import cpu_packed, native
from tests.kernels.kernel_oracle import MARKS, many

pytestmark = MARKS

THEN = [
    ("", (), 1.0, 0.0), ("relu", (), 1.0, 0.0), ("relu6", (), 2.0, 0.0),
    ("leaky_relu", (0.1,), 1.0, 0.5), ("hardsigmoid", (0.2, 0.4), 1.0, 0.0),
    ("hardswish", (), -1.5, 0.25), ("sigmoid", (), 1.0, 0.0), ("silu", (), 1.0, 1.0),
    ("gelu", (), 1.0, 0.0),
]  # fmt: skip


def check(op: str, shapes: list[Any], attrs: dict[str, Any], seed: int) -> None:
    """One fused call on random operands: packed and compiled, and in NumPy as it was."""
    rng = np.random.default_rng(seed)
    arrays = [None if s is None else rng.normal(size=s).astype(np.float32) for s in shapes]
    builder = GraphBuilder(Graph([]))
    float32 = as_dtype("float32")
    x, weight, bias, added = arrays
    args = [builder.input(aval(x.shape, float32)), builder.constant(weight)]  # type: ignore
    args.append(builder.constant(bias))  # type: ignore[arg-type]
    args.append(None if added is None else builder.constant(added))  # type: ignore[arg-type]
    types = tuple([None if a is None else aval(a.shape, float32) for a in arrays])
    definition = OPS[op]
    call = Call(definition, types, (-1,) * 4, {**definition.attr_defaults, **attrs}, (None,) * 4)
    builder.graph.outputs = [builder.add(call, tuple(args))[0]]
    graph = cpu_packed.pack(builder.graph)
    graph.check()
    assert graph.nodes[0].call.attrs["kernel"] == weight.shape  # type: ignore[union-attr]
    plain = call.run(np, arrays)
    packed = graph.constants[-1 - graph.nodes[0].args[1]]  # type: ignore[operator]
    unpacked = graph.nodes[0].call.run(np, [x, packed, bias, added])
    np.testing.assert_allclose(unpacked, plain, rtol=1e-5, atol=1e-5)
    name = "packed_linear" if op == "fused_linear" else "packed_conv"
    before = kernels.uses[name]
    program = get_backend("xla").compile(graph, fixed=dict(graph.constants))
    assert kernels.uses[name] == before + 1, "the kernel was not used"
    (found,) = program.call(program.put(x))
    scale = max(1.0, float(np.abs(plain).max()))
    np.testing.assert_allclose(np.asarray(found), plain, rtol=1e-4, atol=2e-6 * scale)


pair = st.tuples


@many(40)
@given(
    st.integers(1, 3), st.integers(1, 40), st.integers(1, 150),
    pair(st.integers(1, 12), st.integers(1, 12)), pair(st.integers(1, 5), st.integers(1, 5)),
    pair(st.integers(1, 3), st.integers(1, 3)), pair(st.integers(0, 3), st.integers(0, 3)),
    pair(st.integers(1, 2), st.integers(1, 2)), st.booleans(), st.booleans(),
    st.sampled_from(THEN),
)  # fmt: skip
@example(1, 3, 64, (32, 30), (7, 7), (2, 2), (3, 3), (1, 1), False, False, THEN[1])
@example(2, 3, 16, (17, 15), (3, 3), (2, 2), (1, 1), (1, 1), True, False, THEN[5])
@example(1, 300, 70, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), False, True, THEN[1])
@example(1, 2100, 50, (4, 3), (1, 1), (1, 1), (0, 0), (1, 1), False, True, THEN[8])
@example(2, 240, 40, (14, 14), (1, 1), (1, 1), (0, 0), (1, 1), False, True, THEN[0])
def test_convolution(
    n: int, ci: int, co: int, space: Any, window: Any, stride: Any, pads: Any, dilation: Any,
    last: bool, more: bool, then: Any,
) -> None:  # fmt: skip
    _convolution(n, ci, co, 1, space, window, stride, pads, dilation, last, more, then)


@many(24)
@given(
    st.integers(1, 3), st.integers(2, 70), pair(st.integers(1, 12), st.integers(1, 12)),
    pair(st.integers(1, 5), st.integers(1, 5)), pair(st.integers(1, 3), st.integers(1, 3)),
    pair(st.integers(0, 3), st.integers(0, 3)), pair(st.integers(1, 2), st.integers(1, 2)),
    st.booleans(), st.booleans(), st.sampled_from(THEN),
)  # fmt: skip
@example(1, 96, (28, 28), (5, 5), (2, 2), (2, 2), (1, 1), False, False, THEN[5])
def test_one_kernel_per_channel(
    n: int, channels: int, space: Any, window: Any, stride: Any, pads: Any, dilation: Any,
    last: bool, more: bool, then: Any,
) -> None:  # fmt: skip
    _convolution(
        n, channels, channels, channels, space, window, stride, pads, dilation, last, more, then
    )


def _convolution(
    n: int, ci: int, co: int, groups: int, space: Any, window: Any, stride: Any, pads: Any,
    dilation: Any, last: bool, more: bool, then: Any,
) -> None:  # fmt: skip
    out = [
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, p, d, k, t in zip(space, pads, dilation, window, stride, strict=True)
    ]
    if min(out) < 1:
        return
    x = (n, *space, ci) if last else (n, ci, *space)
    added = ((n, *out, co) if last else (n, co, *out)) if more else None
    how = {
        "stride": stride, "pads": tuple((p, p) for p in pads), "dilation": dilation,
        "groups": groups, "last": last, "then": then,
    }  # fmt: skip
    check("fused_conv", [x, (co, ci // groups, *window), (co,), added], how, n + ci + co)


@many(20)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 90), st.integers(1, 150),
    st.booleans(), st.sampled_from(THEN),
)  # fmt: skip
@example([2, 128], 384, 1536, False, THEN[8])
def test_linear(lead: list[int], count: int, width: int, more: bool, then: Any) -> None:
    added = (*lead, width) if more else None
    check("fused_linear", [(*lead, count), (count, width), (width,), added], {"then": then}, count)


ACTIVATIONS = [(name, numbers) for name, numbers, _, _ in THEN]


@many(20)
@given(
    st.integers(1, 3), st.integers(1, 70), st.integers(1, 40),
    pair(st.integers(1, 30), st.integers(1, 30)), st.sampled_from(ACTIVATIONS),
    st.sampled_from(ACTIVATIONS), st.sampled_from([0.0, 1.0]), st.booleans(),
)  # fmt: skip
@example(1, 96, 24, (28, 28), ("relu", ()), ("hardsigmoid", (0.2, 0.5)), 0.0, False)
def test_squeeze_and_excitation(
    n: int, channels: int, middle: int, space: Any, inner: Any, outer: Any, plus: float, last: bool
) -> None:
    rng = np.random.default_rng(n + channels)
    shape = (n, *space, channels) if last else (n, channels, *space)
    shapes = (shape, (channels, middle), (middle,), (middle, channels), (channels,))
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    float32 = as_dtype("float32")
    definition = OPS["squeeze_excite"]
    attrs = {"inner": inner, "outer": outer, "plus": plus, "last": last}
    types = tuple([aval(s, float32) for s in shapes])
    call = Call(definition, types, (-1,) * 5, attrs, (None,) * 5)
    builder = GraphBuilder(Graph([]))
    args = (builder.input(types[0]), *[builder.constant(a) for a in arrays[1:]])
    builder.graph.outputs = [builder.add(call, args)[0]]
    before = kernels.uses["squeeze_excite"]
    program = get_backend("xla").compile(builder.graph, fixed=dict(builder.graph.constants))
    assert kernels.uses["squeeze_excite"] == before + 1, "the kernel was not used"
    (found,) = program.call(program.put(arrays[0]))
    plain = call.run(np, arrays)
    scale = max(1.0, float(np.abs(plain).max()))
    np.testing.assert_allclose(np.asarray(found), plain, rtol=1e-4, atol=3e-6 * scale)


@many(16)
@given(
    st.integers(1, 3), st.integers(1, 70), pair(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from(["mean", "mean, kept", "avg_pool"]), st.booleans(),
)  # fmt: skip
@example(2, 576, (7, 7), "avg_pool", False)
@example(1, 33, (40, 40), "mean", True)
def test_means_of_channels(n: int, channels: int, space: Any, how: str, last: bool) -> None:
    shape = (n, *space, channels) if last else (n, channels, *space)
    x = np.random.default_rng(n + channels).normal(size=shape).astype(np.float32)
    axes = (1, 2) if last else (2, 3)
    op, none = how.split(",")[0], ((0, 0), (0, 0))
    plans = tuple([(s, s, 1) for s in space])
    attrs: dict[str, Any] = {"axis": axes, "keepdim": "kept" in how}
    if op == "avg_pool":
        attrs = {"axes": axes, "plans": plans, "pads": none, "divisor": none}
    call = Call(OPS[op], (aval(shape, as_dtype("float32")),), (-1,), attrs, (None,))
    builder = GraphBuilder(Graph([]))
    builder.graph.outputs = [builder.add(call, (builder.input(call.types[0]),))[0]]  # type: ignore
    before = kernels.uses["channel_means"]
    program = get_backend("xla").compile(builder.graph, fixed={})
    assert kernels.uses["channel_means"] == before + 1, "the kernel was not used"
    (found,) = program.call(program.put(x))
    plain = call.run(np, [x.astype(np.float64)])
    np.testing.assert_allclose(np.asarray(found), plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("mean", {"axis": (1, 3), "keepdim": False}),
        ("mean", {"axis": None, "keepdim": False}),
        ("avg_pool", {"axes": (2, 3), "plans": ((4, 4, 1), (3, 3, 2)), "pads": ((0, 0), (0, 0)),
                      "divisor": ((0, 0), (0, 0))}),
        ("avg_pool", {"axes": (2, 3), "plans": ((4, 4, 1), (6, 6, 1)), "pads": ((0, 0), (0, 0)),
                      "divisor": 2}),
    ],
)  # fmt: skip
def test_other_means_are_left_alone(op: str, attrs: dict[str, Any]) -> None:
    call = Call(OPS[op], (aval((2, 3, 4, 6), as_dtype("float32")),), (-1,), attrs, (None,))
    chosen = kernels.choose(call, "cpu", inference=True)
    assert chosen is None or chosen.name != "channel_means"


def test_nan_and_infinity_pass_through() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 1.0]], np.float32)
    identity = np.eye(4, dtype=np.float32)
    for then in THEN:
        definition = OPS["fused_linear"]
        builder = GraphBuilder(Graph([]))
        float32 = as_dtype("float32")
        args = (
            builder.input(aval((4, 1), float32)), builder.constant(identity[:1, :1]),
            builder.constant(np.zeros(1, np.float32)), None,
        )  # fmt: skip
        types = (aval((4, 1), float32), aval((1, 1), float32), aval((1,), float32), None)
        attrs = {**definition.attr_defaults, "then": then}
        call = Call(definition, types, (-1,) * 4, attrs, (None,) * 4)
        builder.graph.outputs = [builder.add(call, args)[0]]
        graph = cpu_packed.pack(builder.graph)
        program = get_backend("xla").compile(graph, fixed=dict(graph.constants))
        (found,) = program.call(program.put(values.reshape(4, 1)))
        with np.errstate(all="ignore"):
            plain = call.run(np, [values.reshape(4, 1), identity[:1, :1], np.zeros(1), None])
        np.testing.assert_allclose(np.asarray(found), plain, rtol=1e-6, err_msg=str(then))


def test_panels_have_few_unused_lanes() -> None:
    lanes, most = native.vector_shape()
    for channels in range(1, 600):
        block = cpu_packed.block_width(channels)
        assert block % (lanes // 2) == 0
        assert block <= lanes * most
        assert -(-channels // block) * block < channels + block
