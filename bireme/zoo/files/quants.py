"""The types of tensors in GGUF files, and blocks of numbers as float32."""

from __future__ import annotations

import dataclasses

import numpy as np

from bireme.core import dtype as dt
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
