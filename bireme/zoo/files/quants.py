"""The types of tensors in GGUF files, blocks of numbers as float32, and numbers as blocks."""

from __future__ import annotations

import dataclasses

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.ops.block_formats import BLOCK_FORMATS, BlockFormat


@dataclasses.dataclass(frozen=True)
class Format:
    """One type of tensor: plain numbers, or blocks of them."""

    name: str
    count: int  # numbers in a block
    size: int  # bytes of a block
    dtype: dt.DType = dt.float32  # of what is read
    blocks: BlockFormat | None = None


FORMATS: dict[int, Format] = {
    0: Format("F32", 1, 4),
    1: Format("F16", 1, 2, dt.float16),
    30: Format("BF16", 1, 2, dt.bfloat16),
    **{f.code: Format(f.name, f.count, f.size, blocks=f) for f in BLOCK_FORMATS.values()},
}

_PIECE = 1 << 15  # blocks that are unpacked at once


def unpack(form: Format, data: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers of the bytes `data`; block formats become float32."""
    if form.blocks is None:
        return data.view(form.dtype.numpy)
    blocks = data.reshape(-1, form.size)
    out = np.empty((len(blocks), form.count), np.float32)
    with np.errstate(all="ignore"):  # scales of a damaged file may be infinite
        for at in range(0, len(blocks), _PIECE):
            out[at : at + _PIECE] = form.blocks.unpack(np, blocks[at : at + _PIECE])
    return out.reshape(-1)[:count]


def pack(form: Format, numbers: np.ndarray) -> np.ndarray:
    """The bytes of a tensor; llama.cpp's quantiser gives the same blocks."""
    if form.blocks is None:
        if form.dtype == dt.float16 and not _fits_half(numbers):
            raise InvalidArgument(
                "[zoo] float16 cannot hold a weight of more than 65504: write F32 or BF16"
            )
        return np.ascontiguousarray(numbers, form.dtype.numpy).view(np.uint8).reshape(-1)
    blocks = np.ascontiguousarray(numbers, np.float32).reshape(-1, form.count)
    out = np.empty((len(blocks), form.size), np.uint8)
    for at in range(0, len(blocks), _PIECE):
        out[at : at + _PIECE] = _PACKERS[form.name](blocks[at : at + _PIECE])
    return out.reshape(-1)


def _fits_half(numbers: np.ndarray) -> bool:
    return numbers.size == 0 or float(np.abs(numbers).max()) < 65520


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    """A scale, and 32 numbers of -127 to 127."""
    scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    scaled = blocks * _inverse(scale)
    whole = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)
    return np.concatenate([_half(scale), whole.view(np.uint8)], 1)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    """A scale, and 32 numbers of 0 to 15 for -8 to 7: the largest in size becomes -8."""
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
    scale = largest / np.float32(-8)
    whole = np.clip((blocks * _inverse(scale) + np.float32(8.5)).astype(np.int8), 0, 15)
    low, high = np.split(whole.astype(np.uint8), 2, 1)
    return np.concatenate([_half(scale), low | high << 4], 1)


def _inverse(scale: np.ndarray) -> np.ndarray:
    return np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)


def _half(scale: np.ndarray) -> np.ndarray:
    if not _fits_half(scale):
        raise InvalidArgument("[zoo] a block's scale is too large for float16: write F32 or BF16")
    return scale.astype("<f2").view(np.uint8)


_PACKERS = {"Q8_0": _q8_0, "Q4_0": _q4_0}
