"""The numbers of rows for which programs exist. A batch is padded to the next one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bireme.core.errors import InvalidArgument


def sizes_up_to(most: int) -> tuple[int, ...]:
    """1, 2, 4 ... and `most`."""
    if most < 1:
        raise InvalidArgument(f"[serve] max_batch must be at least 1. Received: {most}")
    powers = [1 << i for i in range(most.bit_length())]
    return tuple(sorted({*[p for p in powers if p < most], most}))


def checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """Given sizes in rising order."""
    found = tuple(sorted({int(s) for s in sizes}))
    if not found or found[0] < 1:
        raise InvalidArgument(f"[serve] batch sizes must be positive. Received: {list(sizes)}")
    return found


def size_for(rows: int, sizes: Sequence[int]) -> int:
    """The smallest size that holds the rows."""
    return next(s for s in sizes if s >= rows)


def joined(arrays: Sequence[np.ndarray], size: int) -> np.ndarray:
    """The rows of all arrays in one of `size` rows. What is left is filled with the first row,
    which the model can surely compute."""
    rows = sum(a.shape[0] for a in arrays)
    if rows == size and len(arrays) == 1:
        return arrays[0]
    out = np.empty((size, *arrays[0].shape[1:]), arrays[0].dtype)
    at = 0
    for array in arrays:
        out[at : at + array.shape[0]] = array
        at += array.shape[0]
    out[at:] = arrays[0][:1]
    return out
