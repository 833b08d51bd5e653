"""Convolutions on the CPU without native kernels, for shapes that XLA is slow at.

XLA's depthwise convolution takes ten times as long as the equal sum of shifted copies, and its
gradients up to a hundred times. Convolutions whose windows do not overlap (1 x 1, patches, the
transposed ones of a U-Net) are matrix products, and so are those with few windows and many kernels.
`cpu_winograd_plain` has those of 3 x 3; XLA computes all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Protocol

import numpy as np

from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door, thresholds
from bireme.host.arrays import Array
from bireme.kernels import native
from bireme.ops.nn_support import wide


def is_plain(call: Call) -> bool:
    """Everything is known and there is something to do."""
    x, weight = call.types[0], call.types[1]
    return (
        isinstance(x, Aval)
        and isinstance(weight, Aval)
        and all(t.is_static and t.size > 0 for t in (x, weight, call.outs[0]))
        and all(p >= 0 for pair in call.attrs["pads"] for p in pair)
    )


def windows_of(call: Call) -> list[tuple[int, int, tuple[int, int], int]]:
    """Of every axis: size of the kernel, stride, padding and dilation."""
    size = call.types[1].shape[2:]  # type: ignore[union-attr]
    attrs = call.attrs
    return list(zip(size, attrs["stride"], attrs["pads"], attrs["dilation"], strict=True))


def _space(array: Any) -> tuple[int, ...]:
    return array.shape[1:-1]


def kept(x: Array) -> Array:
    """`x`, computed once: XLA would compute what leads to it again for every shifted copy.

    It does not do so with a division of whole arrays (see `cpu_kept`). This one is by one, which
    XLA cannot know: one plus the product of a bit and its opposite.
    """
    jax, jnp = jax_door.jax(), jax_door.jnp()
    first = x.reshape(-1)[0].astype(np.float32)
    bit = jax.lax.bitcast_convert_type(first, np.int32) & 1
    one = (1 + bit * (1 - bit)).astype(x.dtype)
    return x / jnp.where(x > 0, one, 1.0)


class _Shifted:
    """One kernel per channel: a sum of shifted copies, each times a vector."""

    name = "shifted_conv"

    @staticmethod
    def accepts(call: Call) -> bool:
        weight = call.types[1]
        return (
            is_plain(call)
            and isinstance(weight, Aval)
            and weight.shape[:2] == (call.attrs["groups"], 1)
            and math.prod(weight.shape[2:]) <= thresholds.CPU_SHIFTED_TAPS
        )

    @staticmethod
    def _taps(call: Call, x: Any, counts: Sequence[int]) -> list[Any]:
        """For every element of the kernel, what it meets in the windows."""
        windows = windows_of(call)
        x = jax_door.jnp().pad(kept(x), ((0, 0), *(pair for _, _, pair, _ in windows), (0, 0)))
        along = [
            [slice(i * d, i * d + (n - 1) * s + 1, s) for i in range(k)]
            for (k, s, _, d), n in zip(windows, counts, strict=True)
        ]
        return [x[(slice(None), *where)] for where in product(*along)]

    @staticmethod
    def _sum(taps: Sequence[Any], vectors: Sequence[Any]) -> Any:
        terms = [t * v for t, v in zip(taps, vectors, strict=True)]
        return sum(terms[1:], terms[0])

    @classmethod
    def forward(cls, call: Call, x: Array, weight: Array, space: Sequence[int]) -> Array:
        vectors = weight.reshape(weight.shape[0], -1).T
        return cls._sum(cls._taps(call, x, space), list(vectors))

    @classmethod
    def input_grad(cls, call: Call, grad: Array, weight: Array, space: Sequence[int]) -> Array:
        """Each residue of a place modulo the stride has its own share of the kernel's elements.

        The place p = q * stride + r meets element i in the window (p + low - i * dilation) /
        stride, where that is whole: i belongs to r, and the window is q plus a number of i's own.
        """
        jnp, windows = jax_door.jnp(), windows_of(call)
        counts = [-(-n // s) for n, (_, s, _, _) in zip(space, windows, strict=True)]
        shares = [
            [
                [(i, (r + low - i * d) // s) for i in range(k) if (r + low - i * d) % s == 0]
                for r in range(s)
            ]
            for k, s, (low, _), d in windows
        ]
        moves = [[move for share in axis for _, move in share] for axis in shares]
        before = [max(0, -min(m)) for m in moves]
        after = [
            max(0, n + max(m) - have)
            for n, m, have in zip(counts, moves, _space(grad), strict=True)
        ]
        grad = jnp.pad(kept(grad), ((0, 0), *zip(before, after, strict=True), (0, 0)))
        by_place = jnp.moveaxis(weight[:, 0], 0, -1)
        parts = []
        for share in product(*shares):
            taps, vectors = [], []
            for meets in product(*share):
                starts = [lo + move for lo, (_, move) in zip(before, meets, strict=True)]
                where = [slice(a, a + n) for a, n in zip(starts, counts, strict=True)]
                taps.append(grad[(slice(None), *where)])
                vectors.append(by_place[tuple(i for i, _ in meets)])
            nothing = jnp.zeros((grad.shape[0], *counts, grad.shape[-1]), grad.dtype)
            parts.append(cls._sum(taps, vectors) if taps else nothing)
        return _woven(parts, [s for _, s, _, _ in windows], space)

    @classmethod
    def weight_grad(cls, call: Call, x: Array, grad: Array) -> Array:
        jnp = jax_door.jnp()
        axes, grad = tuple(range(grad.ndim - 1)), kept(grad)
        sums = [(t * grad).sum(axes) for t in cls._taps(call, x, _space(grad))]
        return jnp.stack(sums, -1).reshape(call.types[1].shape)  # type: ignore[union-attr]


def _woven(parts: Sequence[Any], strides: Sequence[int], space: Sequence[int]) -> Any:
    """One image of `space` from one for each of the residues modulo the strides, in their order."""
    if len(parts) == 1:
        return parts[0]
    n, *counts, channels = parts[0].shape
    rank = len(strides)
    whole = jax_door.jnp().stack(parts).reshape(*strides, n, *counts, channels)
    order = [rank]
    for axis in range(rank):
        order += [rank + 1 + axis, axis]
    whole = whole.transpose(*order, 2 * rank + 1)
    sizes = [c * s for c, s in zip(counts, strides, strict=True)]
    return whole.reshape(n, *sizes, channels)[(slice(None), *map(slice, space))]


class _Product:
    """Windows that do not overlap and are not padded: a matrix product."""

    name = "product_conv"

    @staticmethod
    def accepts(call: Call) -> bool:
        return (
            is_plain(call)
            and call.attrs["groups"] == 1
            and all(
                k <= s and low == high == 0 and (d == 1 or k == 1)
                for k, s, (low, high), d in windows_of(call)
            )
        )

    @staticmethod
    def _rows(call: Call, x: Any, counts: Sequence[int]) -> Any:
        """[windows, elements of a window, channels last]"""
        jnp, windows = jax_door.jnp(), windows_of(call)
        fits = [n * s for n, (_, s, _, _) in zip(counts, windows, strict=True)]
        missing = [(0, max(0, f - h)) for f, h in zip(fits, _space(x), strict=True)]
        x = jnp.pad(x, ((0, 0), *missing, (0, 0)))[(slice(None), *map(slice, fits))]
        split, keep = [x.shape[0]], [slice(None)]
        for n, (k, s, _, _) in zip(counts, windows, strict=True):
            split += [n, s]
            keep += [slice(None), slice(k)]
        x = x.reshape(*split, x.shape[-1])[tuple(keep)]
        rank = len(windows)
        order = (0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1)
        return x.transpose(order).reshape(x.shape[0] * math.prod(counts), -1)

    @staticmethod
    def _matrix(weight: Any) -> Any:
        """[elements of a window, channels last; output channels]"""
        out = weight.shape[0]
        return (
            jax_door.jnp()
            .moveaxis(weight.reshape(out, weight.shape[1], -1), 1, 2)
            .reshape(out, -1)
            .T
        )

    @classmethod
    def forward(cls, call: Call, x: Array, weight: Array, space: Sequence[int]) -> Array:
        out = jax_door.jnp().dot(cls._rows(call, x, space), cls._matrix(weight))
        return out.reshape(x.shape[0], *space, -1)

    @classmethod
    def input_grad(cls, call: Call, grad: Array, weight: Array, space: Sequence[int]) -> Array:
        jnp, windows = jax_door.jnp(), windows_of(call)
        rank, counts, n = len(windows), _space(grad), grad.shape[0]
        rows = jnp.dot(grad.reshape(-1, grad.shape[-1]), cls._matrix(weight).T)
        rows = rows.reshape(n, *counts, *(k for k, _, _, _ in windows), -1)
        gaps = [(0, s - k) for k, s, _, _ in windows]
        rows = jnp.pad(rows, ((0, 0),) * (rank + 1) + (*gaps, (0, 0)))
        order = [0]
        for axis in range(rank):
            order += [1 + axis, 1 + rank + axis]
        sizes = [c * s for c, (_, s, _, _) in zip(counts, windows, strict=True)]
        whole = rows.transpose(*order, 2 * rank + 1).reshape(n, *sizes, -1)
        missing = [(0, max(0, h - f)) for f, h in zip(sizes, space, strict=True)]
        return jnp.pad(whole, ((0, 0), *missing, (0, 0)))[(slice(None), *map(slice, space))]

    @classmethod
    def weight_grad(cls, call: Call, x: Array, grad: Array) -> Array:
        jnp = jax_door.jnp()
        out, channels, *size = call.types[1].shape  # type: ignore[union-attr]
        rows = cls._rows(call, x, _space(grad))
        found = jnp.dot(rows.T, grad.reshape(-1, out)).T.reshape(out, *size, channels)
        return jnp.moveaxis(found, -1, 1)


class _Columns:
    """Few windows and many kernels: a product of the windows' contents and the weight as it lies.

    XLA's convolution transposes the weight first, forward and backward, which then takes longer
    than the products.
    """

    name = "columns_conv"

    @staticmethod
    def accepts(call: Call) -> bool:
        weight, attrs = call.types[1], call.attrs
        if not (is_plain(call) and isinstance(weight, Aval)) or call.op.name != "conv":
            return False
        out = call.outs[0]
        rows = out.size // weight.shape[0]
        return (
            attrs["groups"] == 1
            and 1 < math.prod(weight.shape[2:]) <= thresholds.CPU_SHIFTED_TAPS
            and rows <= 2 * weight.shape[0]
            and weight.size >= thresholds.CPU_COLUMNS_WEIGHT
        )

    @staticmethod
    def _matrix(call: Call, x: Any, counts: Sequence[int]) -> Any:
        """[windows, channels and elements of a window]"""
        taps = jax_door.jnp().stack(_Shifted._taps(call, x, counts), -1)
        return taps.reshape(x.shape[0] * math.prod(counts), -1)

    @classmethod
    def forward(cls, call: Call, x: Array, weight: Array, space: Sequence[int]) -> Array:
        rows = cls._matrix(call, x, space)
        out = jax_door.jnp().dot(rows, weight.reshape(weight.shape[0], -1).T)
        return out.reshape(x.shape[0], *space, -1)

    @classmethod
    def input_grad(cls, call: Call, grad: Array, weight: Array, space: Sequence[int]) -> Array:
        jax, windows = jax_door.jax(), windows_of(call)
        counts, out = _space(grad), weight.shape[0]
        rows = jax.numpy.dot(grad.reshape(-1, out), weight.reshape(out, -1))
        rows = rows.reshape(grad.shape[0], *counts, weight.shape[1], -1)
        zero = jax.numpy.zeros((), rows.dtype)
        places = product(*(range(k) for k, _, _, _ in windows))
        terms = []
        for at, place in enumerate(places):
            ends = [(0, 0, 0)]
            for i, n, h, (_, s, (low, high), d) in zip(place, counts, space, windows, strict=True):
                ends.append((i * d, low + h + high - i * d - (n - 1) * s - 1, s - 1))
            terms.append(jax.lax.pad(rows[..., at], zero, [*ends, (0, 0, 0)]))
        whole = sum(terms[1:], terms[0])
        inside = [
            slice(low, low + h) for h, (_, _, (low, _), _) in zip(space, windows, strict=True)
        ]
        return whole[(slice(None), *inside)]

    @classmethod
    def weight_grad(cls, call: Call, x: Array, grad: Array) -> Array:
        shape = call.types[1].shape  # type: ignore[union-attr]
        rows = cls._matrix(call, x, _space(grad))
        return jax_door.jnp().dot(grad.reshape(-1, shape[0]).T, rows).reshape(shape)


# --- the four ops -------------------------------------------------------------------------------


def _last(x: Any, last: bool) -> Any:
    return x if last or x is None else jax_door.jnp().moveaxis(x, 1, -1)


def _back(x: Any, last: bool) -> Any:
    return x if last else jax_door.jnp().moveaxis(x, -1, 1)


def _space_of(t: Any, last: bool) -> tuple[int, ...]:
    return t.shape[1:-1] if last else t.shape[2:]


class Way(Protocol):
    """One way to compute convolutions; images are [N, *space, C] there."""

    name: str

    @staticmethod
    def accepts(call: Call) -> bool: ...

    @classmethod
    def forward(cls, call: Call, x: Array, weight: Array, space: Sequence[int]) -> Array: ...

    @classmethod
    def input_grad(cls, call: Call, grad: Array, weight: Array, space: Sequence[int]) -> Array: ...

    @classmethod
    def weight_grad(cls, call: Call, x: Array, grad: Array) -> Array: ...


def register_way(way: type[Way]) -> None:
    """`way` as a kernel for both convolutions and their gradients."""

    def register(op: str, accepts: Any) -> Any:
        return kernel(
            op,
            name=way.name,
            platform="cpu",
            accepts=accepts,
            ready=native.unavailable,
        )

    def run(body: Any) -> Any:
        def lower(call: Call, x: Array, weight: Array, bias: Array) -> Any:
            jnp, last = jax_door.jnp(), call.attrs["last"]
            x, weight, bias = (wide(jnp, a) for a in (x, weight, bias))
            out = body(call, _last(x, last), weight, _space_of(call.outs[0], last))
            out = out if bias is None else out + bias
            return _back(out, last).astype(call.outs[0].dtype.numpy)

        return lower

    def run_grad(transposed: bool) -> Any:
        def lower(call: Call, grad: Array, *saved: Any) -> Any:
            jnp = jax_door.jnp()
            forward: Call = call.attrs["forward"]
            by_place = dict(zip(forward.saved_at, saved, strict=True))
            flat = forward.cast(jnp, [by_place.get(i) for i in range(len(forward.types))])
            x, weight = wide(jnp, flat[0]), wide(jnp, flat[1])
            needs, last = call.attrs["needs"], forward.attrs["last"]
            x, grad = _last(x, last), _last(wide(jnp, grad), last)
            types: Any = forward.types
            found: dict[int, Any] = {}
            if 0 in needs:
                back = way.forward if transposed else way.input_grad
                found[0] = _back(back(forward, grad, weight, _space_of(types[0], last)), last)
            if 1 in needs:
                small, large = (x, grad) if transposed else (grad, x)
                found[1] = way.weight_grad(forward, large, small)
            if 2 in needs:
                found[2] = grad.sum(tuple(range(grad.ndim - 1)))
            return tuple(found[i].astype(types[i].dtype.numpy) for i in needs)

        return lower

    for op, body, transposed in (
        ("conv", way.forward, False),
        ("conv_transpose", way.input_grad, True),
    ):
        register(op, way.accepts)(run(body))
        register(f"{op}_grad", lambda call: way.accepts(call.attrs["forward"]))(
            run_grad(transposed)
        )


register_way(_Shifted)
register_way(_Product)
register_way(_Columns)
