"""The block formats of quantised weights: how many bytes a block takes, and its numbers.

A block holds 32 or 256 numbers of a row: small integers, with one or two scales for all of them or
for each sub-block. They are llama.cpp's, and GGUF files hold them. `kernels/native/quantised.cc`
reads the same blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class BlockFormat:
    """One format. `unpack` turns blocks [n, size] into numbers [n, count], in either tier."""

    name: str
    code: int  # in GGUF files and in the native kernels
    count: int  # numbers in a block
    size: int  # bytes of a block
    unpack: Callable[[Any, Any], Any]

    def row_bytes(self, width: int) -> int:
        """The bytes of a row of `width` numbers."""
        return width // self.count * self.size


def _half(xp: Any, blocks: Any, at: int) -> Any:
    """The float16 at a byte of every block, as float32 [n, 1]."""
    low, high = blocks[:, at].astype(np.uint16), blocks[:, at + 1].astype(np.uint16)
    return (low | high << 8).view(np.float16).astype(np.float32)[:, None]


def _nibbles(xp: Any, packed: Any) -> Any:
    """Low halves of all bytes, then the high ones: [n, 2 * bytes]."""
    return xp.concatenate([packed & 15, packed >> 4], axis=1)


def _fifth(xp: Any, blocks: Any, at: int) -> Any:
    """The 32 bits from a byte on as 16 or 0, what the fifth bit of a number is worth."""
    bits = xp.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little")
    return bits << 4


def _q4_0(xp: Any, b: Any) -> Any:
    return _half(xp, b, 0) * (_nibbles(xp, b[:, 2:]).astype(np.float32) - 8)


def _q4_1(xp: Any, b: Any) -> Any:
    return _half(xp, b, 0) * _nibbles(xp, b[:, 4:]) + _half(xp, b, 2)


def _q5_0(xp: Any, b: Any) -> Any:
    number = _nibbles(xp, b[:, 6:]) | _fifth(xp, b, 2)
    return _half(xp, b, 0) * (number.astype(np.float32) - 16)


def _q5_1(xp: Any, b: Any) -> Any:
    return _half(xp, b, 0) * (_nibbles(xp, b[:, 8:]) | _fifth(xp, b, 4)) + _half(xp, b, 2)


def _q8_0(xp: Any, b: Any) -> Any:
    return _half(xp, b, 0) * b[:, 2:].view(np.int8)


def _pairs(packed: Any) -> Any:
    """256 two-bit numbers of 64 bytes: halves of 128, in each four rows of 32 by two bits."""
    halves = packed.reshape(-1, 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    return ((halves >> shifts) & 3).reshape(-1, 16, 16)


def _q2_k(xp: Any, b: Any) -> Any:
    both = b[:, :16]
    scale = _half(xp, b, 80) * (both & 15)
    least = _half(xp, b, 82) * (both >> 4)
    return (scale[..., None] * _pairs(b[:, 16:80]) - least[..., None]).reshape(-1, 256)


def _q3_k(xp: Any, b: Any) -> Any:
    high = xp.unpackbits(b[:, :32, None], axis=2, bitorder="little")  # [n, 32, 8]
    missing = (high.transpose(0, 2, 1).reshape(-1, 16, 16) ^ 1).astype(np.int8) << 2
    number = _pairs(b[:, 32:96]).astype(np.int8) - missing
    packed = b[:, 96:108]
    low = _nibbles(xp, packed[:, :8])
    shifts = np.repeat(np.array([0, 2, 4, 6], np.uint8), 4)
    top = (xp.tile(packed[:, 8:12], (1, 4)) >> shifts) & 3
    scale = _half(xp, b, 108) * ((low | top << 4).astype(np.float32) - 32)
    return (scale[..., None] * number).reshape(-1, 256)


def _six_bits(xp: Any, packed: Any) -> tuple[Any, Any]:
    """(scales, minima), eight of each, of the 12 bytes of Q4_K and Q5_K."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = xp.concatenate([first & 63, (third & 15) | (first >> 6) << 4], axis=1)
    minima = xp.concatenate([second & 63, (third >> 4) | (second >> 6) << 4], axis=1)
    return scales, minima


def _scaled(xp: Any, b: Any, number: Any) -> Any:
    """Numbers [n, 8, 32] of Q4_K and Q5_K with their scales and minima."""
    scales, minima = _six_bits(xp, b[:, 4:16])
    scale, least = _half(xp, b, 0) * scales, _half(xp, b, 2) * minima
    return (scale[..., None] * number - least[..., None]).reshape(-1, 256)


def _quarters(xp: Any, packed: Any) -> Any:
    """128 bytes as [n, 8, 32]: of every 32 bytes the low halves, then the high ones."""
    parts = packed.reshape(-1, 4, 1, 32)
    return xp.concatenate([parts & 15, parts >> 4], axis=2).reshape(-1, 8, 32)


def _q4_k(xp: Any, b: Any) -> Any:
    return _scaled(xp, b, _quarters(xp, b[:, 16:]))


def _q5_k(xp: Any, b: Any) -> Any:
    bits = xp.unpackbits(b[:, 16:48, None], axis=2, bitorder="little").transpose(0, 2, 1)
    return _scaled(xp, b, _quarters(xp, b[:, 48:]) | bits << 4)


def _q6_k(xp: Any, b: Any) -> Any:
    low = b[:, :128].reshape(-1, 2, 1, 64)
    low = xp.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 16, 16)
    number = (low | _pairs(b[:, 128:192]) << 4).astype(np.int8) - 32
    scale = _half(xp, b, 208) * b[:, 192:208].view(np.int8)
    return (scale[..., None] * number).reshape(-1, 256)


BLOCK_FORMATS: dict[str, BlockFormat] = {
    f.name: f
    for f in (
        BlockFormat("Q4_0", 2, 32, 18, _q4_0),
        BlockFormat("Q4_1", 3, 32, 20, _q4_1),
        BlockFormat("Q5_0", 6, 32, 22, _q5_0),
        BlockFormat("Q5_1", 7, 32, 24, _q5_1),
        BlockFormat("Q8_0", 8, 32, 34, _q8_0),
        BlockFormat("Q2_K", 10, 256, 84, _q2_k),
        BlockFormat("Q3_K", 11, 256, 110, _q3_k),
        BlockFormat("Q4_K", 12, 256, 144, _q4_k),
        BlockFormat("Q5_K", 13, 256, 176, _q5_k),
        BlockFormat("Q6_K", 14, 256, 210, _q6_k),
    )
}
