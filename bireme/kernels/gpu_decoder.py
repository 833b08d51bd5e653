"""A token through a stack of decoder layers on a GPU: one kernel in CUDA (cuda/decoder.cu).

Where there is no compiler for CUDA, or the layers do not fit it, the products of gpu_decode.py
are used instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.kernels import cuda, nvidia

NAME = "decoder"
# As in decoder.cu and decoder.h.
_LAYERS = 32  # of a call
_UNIT = 64  # columns of a weight that a block multiplies at once
_ROWS = 32  # of a weight, that a warp multiplies at once
_PIECES = 4  # of a product, at most
_SPLITS = 4  # of a head's attention, at most
_RING = 16 * 2 * 4096  # bytes of weights on their way, in shared memory, at least
_FOUND = 4 * 16 * _UNIT * 4  # bytes of sums
_SHARED = 220 << 10  # bytes of shared memory that there are for sure


def _each(call: Call) -> int:
    """How many arrays a layer has."""
    return (len(call.types) - 4 - 2 * call.attrs["head"]) // call.attrs["layers"]


def _accepts(call: Call) -> bool:
    types: Any = call.types
    if any(call.casts) or not all(isinstance(t, Aval) and t.is_static for t in types):
        return False
    x, cos, sin, place, *arrays = types
    half = x.dtype in (dt.bfloat16, dt.float16)
    if not half or any(t.dtype is not x.dtype for t in (cos, sin, *arrays)):
        return False
    shapes = [t.shape for t in arrays]
    layers, each = call.attrs["layers"], _each(call)
    first = shapes[:each]
    if shapes[: layers * each] != first * layers:
        return False
    _, q, k, v, mix, _, gate, up, down, keys, values = first
    width, inner, attended = q[0], gate[1], q[1]
    batch, _, groups, size = keys
    heads = attended // size
    vocabulary = shapes[-1][1] if call.attrs["head"] else 0
    like = (
        k == v == (width, groups * size)
        and mix == (attended, width)
        and gate == up
        and down == (inner, width)
        and keys == values
    )
    return (
        like
        and x.shape == (1, 1, width)
        and batch == place.size == 1
        and place.dtype is dt.int64
        and cos.shape == sin.shape == (1, 1, 1, size)
        and size in (64, 128)
        and heads % groups == 0
        and all(n % _UNIT == 0 for n in (width, inner, vocabulary))
        and nvidia.available()
        and fits(width, inner, heads, nvidia.multiprocessors())
    )


def fits(width: int, inner: int, heads: int, blocks: int) -> bool:
    """Whether blocks of threads on so many multiprocessors can share such layers out."""
    room = 2 * max(width, inner + _ROWS, heads * 128 + _ROWS)
    return (
        width <= 8192
        and heads <= blocks
        # Every block has a share of the gate, which keeps them together.
        and 2 * inner // _UNIT >= blocks
        and _RING + _FOUND + 4 * width + room <= _SHARED
    )


def exchanged(width: int, inner: int, heads: int, groups: int, size: int) -> int:
    """How many numbers the blocks tell one another at most."""
    products = heads * size + 2 * groups * size + 2 * width + 2 * inner
    return _PIECES * products + _SPLITS * heads * (size + 2)


@kernel(
    "decoder_stack", name=NAME, platform="gpu", ready=lambda: cuda.available(), accepts=_accepts
)
def _decoder_stack(call: Call, x: Any, cos: Any, sin: Any, place: Any, *arrays: Any) -> Any:
    layers, each = call.attrs["layers"], _each(call)
    parts = [arrays[n * each : (n + 1) * each] for n in range(layers)]
    caches: list[Any] = []
    out = x
    for start in range(0, layers, _LAYERS):
        some = parts[start : start + _LAYERS]
        after = arrays[layers * each :] if start + len(some) == layers else ()
        out, *kept = _run(out, cos, sin, place, some, after, call.attrs["epsilon"])
        caches += kept
    return (out.reshape(call.outs[0].shape), *caches)


def _run(
    x: Any, cos: Any, sin: Any, place: Any, layers: list[Any], after: Any, epsilon: float
) -> list[Any]:
    jax = jax_door.jax()
    jnp = jax.numpy
    _, q, _, _, _, _, gate, _, _, keys, _ = layers[0]
    width, inner = gate.shape
    groups, size = keys.shape[2:]
    heads = q.shape[1] // size
    zeros = jnp.zeros((exchanged(width, inner, heads, groups, size),), jnp.float32)
    given = [x, cos, sin, place, zeros]
    results = [jax.ShapeDtypeStruct((1, 1, after[1].shape[1] if after else width), x.dtype)]
    aliases = {}
    for layer in layers:
        for i in (len(layer) - 2, len(layer) - 1):
            aliases[len(given) + i] = len(results)
            results.append(jax.ShapeDtypeStruct(layer[i].shape, layer[i].dtype))
        given += layer
    given += after
    aliases[4] = len(results)
    results.append(jax.ShapeDtypeStruct(zeros.shape, zeros.dtype))
    made = jax.ffi.ffi_call("bireme_decoder", results, input_output_aliases=aliases)(
        *given, layers=np.int64(len(layers)), heads=np.int64(heads), groups=np.int64(groups),
        size=np.int64(size), epsilon=np.float32(epsilon), half=np.bool_(x.dtype == np.float16),
    )  # fmt: skip
    return list(made[:-1])
