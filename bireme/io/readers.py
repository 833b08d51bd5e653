"""Readers of the time before Dataset, and tensors in files that are mapped into memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, constant


def batch(
    reader: Callable[[], Iterable[Any]], batch_size: int, drop_last: bool = False
) -> Callable[[], Iterator[list[Any]]]:
    """A reader of lists of `batch_size` items, from a reader of single items.

    >>> list(batch(lambda: range(5), 2)())
    [[0, 1], [2, 3], [4]]
    """
    size = int(batch_size)
    if size <= 0:
        raise InvalidArgument(f"[batch] batch_size must be positive. Received: {batch_size}")

    def batches() -> Iterator[list[Any]]:
        items: list[Any] = []
        for item in reader():
            items.append(item)
            if len(items) == size:
                yield items
                items = []
        if items and not drop_last:
            yield items

    return batches


class MmapStorage:
    """The first `nbytes` of a file as numbers, read when they are needed.

    >>> MmapStorage("weights.bin", 80).get_slice("float32", 0, 20)
    """

    def __init__(self, filename: str, nbytes: int):
        size = os.path.getsize(filename)
        if not 0 < nbytes <= size:
            raise InvalidArgument(
                f"[MmapStorage] {filename!r} has {size} bytes. Received: nbytes={nbytes}"
            )
        self._bytes = np.memmap(filename, np.uint8, "r", shape=(nbytes,))

    def get_slice(
        self, dtype: DTypeLike = "uint8", start: int = 0, stop: int = -1, step: int = 1
    ) -> Tensor:
        """Elements start, start + step … before `stop` (-1: to the end), read as `dtype`."""
        kind = dt.as_dtype(dtype or "uint8").numpy
        whole = self._bytes[: self._bytes.size // kind.itemsize * kind.itemsize].view(kind)
        end = whole.size if stop == -1 else stop
        if not 0 <= start <= end <= whole.size or step < 1:
            raise InvalidArgument(
                f"[get_slice] there are {whole.size} elements of {np.dtype(kind).name}. Received: "
                f"start={start}, stop={stop}, step={step}"
            )
        return constant(np.array(whole[start:end:step]))


__all__ = ["MmapStorage", "batch"]
