"""Inference on the CPU by the native kernels for packed weights.

`pack` rewrites the constant weights of fused convolutions and linear layers into the panels that
the kernels read; it is done once, when a model is loaded, and does not depend on input shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.capture.rewrite import GraphBuilder
from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.graph import Graph, Node
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.kernels import native
from bireme.ops.fused_products import mean_axes

# In the order of the kinds in epilogue.h.
_ACTIVATIONS = (
    "", "relu", "relu6", "leaky_relu", "hardsigmoid", "hardswish", "sigmoid", "silu", "gelu",
)  # fmt: skip
_CHANNELS_LAST, _PLANAR = (0, 2, 3, 1), (0, 1, 2, 3)


def pack(graph: Graph) -> Graph:
    """The graph with the weights of its fused calls packed for the kernels of this machine."""
    builder = GraphBuilder(graph)
    builder.copy_inputs()
    for node in graph.nodes:
        weight = _constant(graph, node)
        if weight is None:
            builder.copy(node)
            continue
        call = node.call
        packed = _packed(weight, call.attrs.get("groups", 1))
        args = [builder.ref(a) for a in node.args]
        args[1] = builder.constant(packed)
        types = list(call.types)
        types[1] = builder.graph.inputs[-1]
        attrs = {**call.attrs, "kernel": weight.shape}
        fresh = call.op.call_with(tuple(types), call.layout, attrs, call.casts)
        builder.refs[node.first] = builder.add(fresh, tuple(args), node.tape)[0]
    return builder.finish(graph.outputs)


def _constant(graph: Graph, node: Node) -> np.ndarray | None:
    """The weight of a fused call that is not packed yet."""
    call = node.call
    if call.op.name not in ("fused_conv", "fused_linear") or call.attrs["kernel"]:
        return None
    ref: Any = node.args[1]
    found = graph.constants.get(-1 - ref) if isinstance(ref, int) and ref < 0 else None
    return None if found is None else np.asarray(found)


def _packed(weight: np.ndarray, groups: int) -> np.ndarray:
    if groups > 1:  # one kernel per channel
        return np.ascontiguousarray(weight.reshape(groups, -1).T)
    if weight.ndim == 4:
        weight = weight.transpose(2, 3, 1, 0).reshape(-1, weight.shape[0])
    rows, count = weight.shape
    block = block_width(count)
    blocks = -(-count // block)
    wide = np.zeros((rows, blocks * block), np.float32)
    wide[:, :count] = weight
    return np.ascontiguousarray(wide.reshape(rows, blocks, block).transpose(1, 0, 2))


def block_width(channels: int) -> int:
    """How many output channels a panel has: few unused lanes first, then few panels."""
    lanes, most = native.vector_shape()
    half = lanes // 2

    def cost(halves: int) -> float:
        blocks = -(-channels // (halves * half))
        return blocks * (halves + 1)

    return half * min(range(2 * most, 0, -1), key=cost)


def _accepts(call: Call) -> bool:
    """Packed float32 weights and inputs of known sizes."""
    x = call.types[0]
    return (
        bool(call.attrs["kernel"])
        and isinstance(x, Aval)
        and x.dtype is dt.float32
        and x.is_static
        and x.size > 0
        and call.outs[0].size > 0
        and all(c is None for c in call.casts)
    )


def _numbered(activation: str, numbers: Sequence[float]) -> list[float]:
    """An activation and its parameters as three numbers."""
    return [_ACTIVATIONS.index(activation), *numbers, *[0.0] * (2 - len(numbers))]


def _run(
    name: str,
    call: Call,
    arrays: Sequence[Any],
    shape: tuple[int, ...],
    layouts: Sequence[Any],
    window: Sequence[int],
) -> Any:
    jax = jax_door.jax()
    activation, numbers, factor, shift = call.attrs["then"]
    floats = [*_numbered(activation, numbers), factor, shift]
    run = jax.ffi.ffi_call(
        name,
        jax.ShapeDtypeStruct(shape, np.float32),
        input_layouts=layouts,
        output_layouts=_CHANNELS_LAST if len(shape) == 4 else None,
    )
    return run(
        *[a for a in arrays if a is not None],
        window=np.asarray(window, np.int64),
        numbers=np.asarray(floats, np.float32),
    )


@kernel("fused_conv", name="packed_conv", platform="cpu", accepts=_accepts, ready=native.available)
def _fused_conv(call: Call, x: Any, weight: Any, bias: Any, added: Any) -> Any:
    attrs = call.attrs
    last = attrs["last"]
    if last:
        x = x.transpose(0, 3, 1, 2)
        added = None if added is None else added.transpose(0, 3, 1, 2)
    n, *shape = call.outs[0].shape
    shape = (n, shape[-1], *shape[:-1]) if last else (n, *shape)
    own = attrs["groups"] > 1
    rows, columns = attrs["kernel"][2:]
    # The few channels of a picture are read as they lie, while they are padded.
    padded = not own and rows * columns > 1 and attrs["dilation"][1] == 1
    planar = padded and x.shape[1] <= 4 and not last
    (top, _), (left, _) = attrs["pads"]
    window = (rows, columns, *attrs["stride"], top, left, *attrs["dilation"], int(planar))
    layouts: list[Any] = [_PLANAR if planar else _CHANNELS_LAST, None, None]
    if added is not None:
        layouts.append(_CHANNELS_LAST)
    name = "bireme_packed_depthwise" if own else "bireme_packed_conv"
    out = _run(name, call, (x, weight, bias, added), shape, layouts, window)
    return out.transpose(0, 2, 3, 1) if last else out


@kernel(
    "fused_linear", name="packed_linear", platform="cpu", accepts=_accepts, ready=native.available
)
def _fused_linear(call: Call, x: Any, weight: Any, bias: Any, added: Any) -> Any:
    out = call.outs[0].shape
    count, width = call.attrs["kernel"]
    rows = x.reshape(-1, count)
    given = [rows, weight, bias, None if added is None else added.reshape(-1, width)]
    layouts = [None] * (3 if added is None else 4)
    shape = (rows.shape[0], width)
    made = _run("bireme_packed_conv", call, given, shape, layouts, (1, 1, 1, 1, 0, 0, 1, 1, 0))
    return made.reshape(out)


def _is_image(call: Call) -> bool:
    x = call.types[0]
    return isinstance(x, Aval) and x.dtype is dt.float32 and x.is_static and x.size > 0


@kernel(
    "squeeze_excite",
    name="squeeze_excite",
    platform="cpu",
    accepts=_is_image,
    ready=native.available,
)
def _squeeze_excite(
    call: Call, x: Any, first: Any, first_bias: Any, second: Any, second_bias: Any
) -> Any:
    jax = jax_door.jax()
    attrs = call.attrs
    x = x.transpose(0, 3, 1, 2) if attrs["last"] else x
    run = jax.ffi.ffi_call(
        "bireme_squeeze_excite",
        jax.ShapeDtypeStruct(x.shape, np.float32),
        input_layouts=[_CHANNELS_LAST, None, None, None, None],
        output_layouts=_CHANNELS_LAST,
    )
    numbers = [*_numbered(*attrs["inner"]), *_numbered(*attrs["outer"]), attrs["plus"]]
    given = (x, first, first_bias, second, second_bias)
    out = run(*given, numbers=np.asarray(numbers, np.float32))
    return out.transpose(0, 2, 3, 1) if attrs["last"] else out


def _is_mean(call: Call) -> bool:
    return mean_axes(call) is not None and _is_image(call) and call.casts[0] is None


def _means(call: Call, x: Any) -> Any:
    jax = jax_door.jax()
    x = x.transpose(0, 3, 1, 2) if mean_axes(call) == (1, 2) else x
    out = jax.ShapeDtypeStruct(x.shape[:2], np.float32)
    run = jax.ffi.ffi_call("bireme_channel_means", out, input_layouts=[_CHANNELS_LAST])
    return run(x).reshape(call.outs[0].shape)


for _op in ("mean", "avg_pool"):
    kernel(
        _op,
        name="channel_means",
        platform="cpu",
        accepts=_is_mean,
        ready=native.available,
        inference=True,
    )(_means)
