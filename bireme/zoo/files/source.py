"""What every format of files becomes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bireme.core.dtype import DType
from bireme.ops.block_formats import BlockFormat


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A quantised tensor as it lies in the file: `read` gives uint8 [rows, bytes of a row]."""

    form: BlockFormat
    read: Callable[[], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Stored:
    """One tensor in a file. `read` gives its contents: a view of the mapped file where that is
    possible, so that nothing is in memory twice."""

    shape: tuple[int, ...]
    dtype: DType
    read: Callable[[], np.ndarray]
    blocks: Blocks | None = None  # of a quantised tensor

    def by_rows(self, move: Callable[[np.ndarray], np.ndarray]) -> Stored:
        """The tensor with its rows (the first dimension) moved, blocks included."""
        blocks, read = self.blocks, self.read
        if blocks is not None:
            blocks = Blocks(blocks.form, lambda packed=blocks.read: move(packed()))
        return Stored(self.shape, self.dtype, lambda: move(read()), blocks)

    def at(self, index: int) -> Stored:
        """One of the tensors that are stacked in this one, blocks included."""
        shape, blocks, read = self.shape[1:], self.blocks, self.read
        if blocks is None or len(shape) != 2:
            return Stored(shape, self.dtype, lambda: read()[index])
        form, whole, rows = blocks.form, blocks.read, shape[0]

        def packed() -> np.ndarray:
            return whole()[index * rows : (index + 1) * rows]

        def numbers() -> np.ndarray:
            with np.errstate(all="ignore"):  # scales of a damaged file may be infinite
                return form.unpack(np, packed().reshape(-1, form.size)).reshape(shape)

        return Stored(shape, self.dtype, numbers, Blocks(form, packed))

    def as_row(self) -> Stored:
        """A vector as a matrix of one row."""
        read = self.read
        return Stored((1, *self.shape), self.dtype, lambda: read()[None], self.blocks)


@dataclasses.dataclass(frozen=True)
class Source:
    """A model in files: its config.json, its tensors by Hugging Face's names, and its other files.

    `extra` has what else the file says: of a GGUF the vocabulary and the chat template.
    """

    path: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
