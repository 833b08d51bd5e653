"""Layers whose weights stay in the quantised blocks of their file: `load(..., dtype="keep")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.core import dtype as dt
from bireme.core.aval import aval
from bireme.core.tensor import Tensor
from bireme.core.value import value_of
from bireme.ops import quantised
from bireme.ops.block_formats import BLOCK_FORMATS

if TYPE_CHECKING:
    from bireme.zoo.files import Stored
    from bireme.zoo.names import Rule


class Kept(nn.Layer):
    """A matrix [rows, width] in quantised blocks, which are a buffer and are not trained."""

    def __init__(self, blocks: np.ndarray, form: str):
        super().__init__()
        self.form = form
        held = value_of(aval(blocks.shape, dt.uint8), blocks)
        empty = paddle.zeros([0], "uint8")
        empty._put(held)
        self.register_buffer("blocks", empty)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width) of the matrix."""
        rows, size = self.blocks.shape
        found = BLOCK_FORMATS[self.form]
        return rows, size // found.size * found.count

    def dequantised(self) -> np.ndarray:
        """The matrix as float32."""
        return quantised.unpacked(np, self.blocks.numpy(), self.form)

    def extra_repr(self) -> str:
        rows, width = self.shape
        return f"{rows} rows of {width} numbers, {self.form}"


class KeptLinear(Kept):
    """A linear layer; the matrix is the transpose of an `nn.Linear`'s weight.

    Gradients reach its input and its bias, so layers around it can be trained.
    """

    def __init__(self, blocks: np.ndarray, form: str, bias: Tensor | None):
        super().__init__(blocks, form)
        self.bias = bias

    @property
    def in_features(self) -> int:
        return self.shape[1]

    @property
    def out_features(self) -> int:
        return self.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        return quantised.quantised_linear(x, self.blocks, self.bias, self.form)


class KeptEmbedding(Kept):
    """A table of vectors, looked up by integer."""

    def forward(self, ids: Tensor) -> Tensor:
        return quantised.quantised_rows(ids, self.blocks, self.form)

    def scores(self, x: Tensor) -> Tensor:
        """x by every vector: the output layer that is tied to an embedding."""
        return quantised.quantised_linear(x, self.blocks, None, self.form)


def keep(entry: Rule, found: Mapping[str, Stored], model: nn.Layer) -> bool:
    """Put the file's blocks into the model where an entry's tensors have blocks of one format and
    its parameters are weights of linear layers or tables, row for row."""
    stored = [found[n].blocks for n in entry.theirs]
    if any(b is None for b in stored) or len({b.form for b in stored if b is not None}) != 1:
        return False
    form = next(b.form for b in stored if b is not None)
    owners = [_owner(model, name) for name in entry.ours]
    if not all(
        _can_be_kept(owner, name) for (_, _, owner), name in zip(owners, entry.ours, strict=True)
    ):
        return False
    # A rule that turns whole matrices, or moves and splits their rows, does that to rows of
    # blocks, too.
    arrays = entry.load([b.read() for b in stored if b is not None])
    made = []
    for (_, _, owner), array in zip(owners, arrays, strict=True):
        is_linear = isinstance(owner, nn.Linear)
        rows = array.T if is_linear else array
        sizes = owner.weight.shape[::-1] if is_linear else owner.weight.shape
        if sizes[1] % form.count or rows.shape != (sizes[0], form.row_bytes(sizes[1])):
            return False
        rows = np.ascontiguousarray(rows)
        made.append(
            KeptLinear(rows, form.name, owner.bias) if is_linear else KeptEmbedding(rows, form.name)
        )
    for (parent, last, _), layer in zip(owners, made, strict=True):
        setattr(parent, last, layer)
    return True


def _owner(model: nn.Layer, name: str) -> tuple[Any, str, Any]:
    """(the layer around it, its name there, the layer) of a parameter."""
    *path, last, _ = ["", *name.split(".")]
    parent: Any = model
    for step in path[1:]:
        parent = getattr(parent, step)
    return parent, last, getattr(parent, last, None) if last else None


def _can_be_kept(owner: Any, name: str) -> bool:
    return type(owner) in (nn.Linear, nn.Embedding) and name.endswith(".weight")


def without_blocks(model: nn.Layer) -> dict[str, np.ndarray]:
    """The weights of kept layers by their usual names and in their usual layout."""
    return {
        f"{name}.weight": layer.dequantised().T
        if isinstance(layer, KeptLinear)
        else layer.dequantised()
        for name, layer in model.named_sublayers()
        if isinstance(layer, Kept)
    }
