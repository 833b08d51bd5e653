"""3 x 3 convolutions on the CPU without native kernels, by Winograd's method.

XLA computes most of them on one thread. Products run on all threads, and Winograd's F(4, 3) over
the rows needs half as many multiplications: four rows of the output come from six rows of the input
by six convolutions along the row instead of twelve. (Over both axes it would need a quarter, but
XLA takes longer to transform the tiles than it saves.) A convolution along the row is a product
with three times the channels on the narrower side, which is read shifted.

Sums over six rows are not sums over three: a NaN or an infinity reaches all rows of its tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core.aval import Aval
from bireme.core.op import Call
from bireme.host import jax_door, thresholds
from bireme.host.arrays import Array
from bireme.kernels.cpu_conv_plain import is_plain, kept, register_way, windows_of

_ROWS = 4  # of the output in a tile

# The rows of an output tile are `_OUT` @ ((`_KERNEL` @ kernel) * (`_IN` @ rows of the input)).
_IN = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_KERNEL = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
_OUT = (
    (1, 1, 1, 1, 1, 0),
    (0, 1, -1, 2, -2, 0),
    (0, 1, 1, 4, 4, 0),
    (0, 1, -1, 8, -8, 1),
)
Pads = Sequence[tuple[int, int]]


def _combined(factors: Sequence[float], parts: Sequence[Any]) -> Any:
    """The sum of `parts` times `factors`, of which many are zero."""
    terms = [p if f == 1 else f * p for f, p in zip(factors, parts, strict=True) if f]
    return sum(terms[1:], terms[0])


def _transformed(matrix: Sequence[Sequence[float]], parts: Sequence[Any]) -> list[Any]:
    return [_combined(row, parts) for row in matrix]


def _tiles(rows: int) -> int:
    return -(-rows // _ROWS)


def _input_rows(x: Any, tiles: int, pads: Pads) -> list[Any]:
    """Six images [N, tiles, width, C] of an input, padded by `pads`."""
    (top, _), sides = pads
    below = _ROWS * tiles + 2 - top - x.shape[1]
    x = kept(jax_door.jnp().pad(x, ((0, 0), (top, below), sides, (0, 0))))
    last = _ROWS * (tiles - 1) + 1
    return _transformed(_IN, [x[:, i : i + last : _ROWS] for i in range(_ROWS + 2)])


def _gradient_rows(grad: Any, tiles: int, sides: tuple[int, int]) -> list[Any]:
    """Six images [N, tiles, width, C] of the gradient of an output."""
    below = _ROWS * tiles - grad.shape[1]
    grad = kept(jax_door.jnp().pad(grad, ((0, 0), (0, below), sides, (0, 0))))
    matrix = list(zip(*_OUT, strict=True))
    return _transformed(matrix, [grad[:, i::_ROWS] for i in range(_ROWS)])


def _columns(x: Any, width: int) -> Any:
    """[pixels, 3 C]: each pixel with the next two of its row."""
    return (
        jax_door.jnp()
        .concatenate([x[:, :, i : i + width] for i in range(3)], -1)
        .reshape(-1, 3 * x.shape[-1])
    )


def _convolved(x: Any, kernel: Any, pads: Pads) -> Any:
    """`x` [N, H, W, C] with `kernel` [3, 3, C, out]."""
    jnp = jax_door.jnp()
    n, height, width, channels = x.shape
    height, width = (size + sum(pair) - 2 for size, pair in zip((height, width), pads, strict=True))
    out = kernel.shape[-1]
    tiles = _tiles(height)
    kernels = _transformed(_KERNEL, list(kernel))
    rows = _input_rows(x, tiles, pads)
    if out <= channels:
        made = [
            jnp.dot(r.reshape(-1, channels), jnp.moveaxis(k, 0, 1).reshape(channels, -1))
            for r, k in zip(rows, kernels, strict=True)
        ]
        shifted = _transformed(_OUT, [m.reshape(n, tiles, width + 2, 3 * out) for m in made])
        found = [
            sum(m[:, :, i : i + width, i * out : (i + 1) * out] for i in range(3)) for m in shifted
        ]
    else:
        made = [
            jnp.dot(_columns(r, width), k.reshape(-1, out))
            for r, k in zip(rows, kernels, strict=True)
        ]
        found = _transformed(_OUT, [m.reshape(n, tiles, width, out) for m in made])
    return jnp.stack(found, 2).reshape(n, -1, width, out)[:, :height]


class _Winograd:
    name = "winograd_conv"

    @staticmethod
    def accepts(call: Call) -> bool:
        weight = call.types[1]
        if not (is_plain(call) and isinstance(weight, Aval)) or call.attrs["groups"] != 1:
            return False
        windows = windows_of(call)
        if len(windows) != 2 or min(weight.shape[:2]) < thresholds.CPU_WINOGRAD_CHANNELS:
            return False
        if any((k, s, d) != (3, 1, 1) or max(pair) > 2 for k, s, pair, d in windows):
            return False
        # Half of the products are saved; a last tile with little in it must not cost them again.
        rows = call.outs[0].shape[1 if call.attrs["last"] else 2]
        return 3 * _ROWS * _tiles(rows) <= 4 * rows

    @classmethod
    def forward(cls, call: Call, x: Array, weight: Array, space: Sequence[int]) -> Array:
        pads = [pair for _, _, pair, _ in windows_of(call)]
        return _convolved(x, weight.transpose(2, 3, 1, 0), pads)

    @classmethod
    def input_grad(cls, call: Call, grad: Array, weight: Array, space: Sequence[int]) -> Array:
        """A convolution with the kernels turned round."""
        pads = [(2 - low, 2 - high) for _, _, (low, high), _ in windows_of(call)]
        return _convolved(grad, weight[:, :, ::-1, ::-1].transpose(2, 3, 0, 1), pads)

    @classmethod
    def weight_grad(cls, call: Call, x: Array, grad: Array) -> Array:
        """Of the six convolutions, each a product over all pixels; then of the kernel's rows."""
        jax, jnp = jax_door.jax(), jax_door.jnp()
        rows, (left, right) = (pair for _, _, pair, _ in windows_of(call))
        channels, out = x.shape[-1], grad.shape[-1]
        tiles = _tiles(grad.shape[1])
        shift_grad = out <= channels
        sides, grad_sides = ((0, 0), (2 - left, 2 - right))
        if not shift_grad:
            sides, grad_sides = (left, right), (0, 0)
        products = []
        for v, g in zip(
            _input_rows(x, tiles, (rows, sides)),
            _gradient_rows(grad, tiles, grad_sides),
            strict=True,
        ):
            if shift_grad:
                v, g = v.reshape(-1, channels), _columns(g, x.shape[2])
            else:
                v, g = _columns(v, grad.shape[2]), g.reshape(-1, out)
            products.append(jax.lax.dot_general(v, g, (((0,), (0,)), ((), ()))))
        matrix = list(zip(*_KERNEL, strict=True))
        found = jnp.stack(_transformed(matrix, products))
        if shift_grad:  # [row, channels, places from the right, out]
            return found.reshape(3, channels, 3, out)[:, :, ::-1].transpose(3, 1, 0, 2)
        return found.reshape(3, 3, channels, out).transpose(3, 2, 0, 1)


register_way(_Winograd)
