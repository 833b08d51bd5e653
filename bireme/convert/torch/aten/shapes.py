"""Shapes: views, joining, cutting, padding, repeating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.types import Dims, cast, result_type
from bireme.convert.torch.program import DTypeName, TorchFileError
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

Size = Any  # an integer, or the expression of an open size in a capture
Axes: TypeAlias = int | list[int] | tuple[int, ...]


@aten("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy")
def view(
    self: Tensor,
    size: Sequence[Size] | DTypeName | None = None,
    stride: object = None,
    shape: Sequence[Size] | None = None,
    dtype: DTypeName | None = None,
) -> Tensor:
    wanted = size if isinstance(size, DTypeName) else dtype
    if wanted is not None:
        return self.view(wanted.name)
    return self.reshape(list(shape if size is None else size))  # type: ignore[arg-type]


@aten("view_as", "reshape_as")
def view_as(self: Tensor, other: Tensor) -> Tensor:
    return self.reshape(list(other.shape))


@aten("flatten")
def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    if not self.ndim:
        return self.reshape([1])
    first, last = start_dim % self.ndim, end_dim % self.ndim
    shape = list(self.shape)
    size: Size = 1
    for d in shape[first : last + 1]:
        size = size * d
    return self.reshape([*shape[:first], size, *shape[last + 1 :]])


@aten("unflatten")
def unflatten(self: Tensor, dim: int, sizes: Sequence[Size]) -> Tensor:
    shape, at = list(self.shape), dim % self.ndim
    known: Size = 1
    for d in sizes:
        known = known if isinstance(d, int) and d == -1 else known * d
    inner = [shape[at] // known if isinstance(d, int) and d == -1 else d for d in sizes]
    return self.reshape([*shape[:at], *inner, *shape[at + 1 :]])


@aten("swapaxes")
def swapaxes(self: Tensor, axis0: int, axis1: int) -> Tensor:
    return transpose(self, axis0, axis1)


@aten("transpose", "swapdims", "transpose_copy")
def transpose(self: Tensor, dim0: int, dim1: int) -> Tensor:
    if not self.ndim:
        return self
    order = list(range(self.ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return paddle.transpose(self, order)


@aten("permute", "permute_copy")
def permute(self: Tensor, dims: Sequence[int]) -> Tensor:
    return paddle.transpose(self, [d % self.ndim for d in dims])


@aten("t", "t_copy", "numpy_T", "matrix_H")
def t(self: Tensor) -> Tensor:
    return paddle.transpose(self, list(range(self.ndim))[::-1])


@aten("mT", "mH", "adjoint")
def matrix_transpose(self: Tensor) -> Tensor:
    return transpose(self, -1, -2)


@aten("movedim", "moveaxis")
def movedim(self: Tensor, source: Axes, destination: Axes) -> Tensor:
    return paddle.moveaxis(self, source, destination)


@aten("unsqueeze", "unsqueeze_copy")
def unsqueeze(self: Tensor, dim: int) -> Tensor:
    return paddle.unsqueeze(self, dim)


@aten("squeeze", "squeeze_copy")
def squeeze(self: Tensor, dim: Dims = None) -> Tensor:
    if dim is None:
        return paddle.squeeze(self)
    chosen = [d % max(self.ndim, 1) for d in ([dim] if isinstance(dim, int) else dim)]
    there = [d for d in chosen if self.ndim and _is_one(self.shape[d])]
    return paddle.squeeze(self, there) if there else self


def _is_one(size: Size) -> bool:
    return isinstance(size, int) and size == 1


@aten("expand", "expand_copy")
def expand(self: Tensor, size: Sequence[Size], implicit: bool = False) -> Tensor:
    lead = len(size) - self.ndim
    return paddle.broadcast_to(
        self,
        [self.shape[i - lead] if isinstance(d, int) and d == -1 else d for i, d in enumerate(size)],
    )


@aten("expand_as")
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    return paddle.broadcast_to(self, list(other.shape))


@aten("broadcast_to")
def broadcast_to(self: Tensor, size: Sequence[Size]) -> Tensor:
    return expand(self, size)


@aten("broadcast_tensors")
def broadcast_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    return list(paddle.broadcast_tensors(list(tensors)))


@aten("repeat")
def repeat(self: Tensor, repeats: Sequence[Size]) -> Tensor:
    return paddle.tile(self, list(repeats))


@aten("tile")
def tile(self: Tensor, dims: Sequence[Size]) -> Tensor:
    return paddle.tile(self, list(dims))


@aten("repeat_interleave")
def repeat_interleave(
    self: Tensor,
    repeats: int | Tensor | None = None,
    dim: int | None = None,
    output_size: Size = None,
) -> Tensor:
    if repeats is None:
        raise TorchFileError("repeat_interleave of repeats alone has no rule")
    return paddle.repeat_interleave(self, repeats, dim)


@aten("cat", "concat", "concatenate")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    # PyTorch drops tensors of shape [0], whatever the others' ranks are.
    kept = [x for x in tensors if not (x.ndim == 1 and _is_zero(x.shape[0]))] or list(tensors[:1])
    dtype = result_type(*tensors)
    return paddle.concat([cast(x, dtype) for x in kept], dim)


def _is_zero(size: Size) -> bool:
    return isinstance(size, int) and size == 0


@aten("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    dtype = result_type(*tensors)
    return paddle.stack([cast(x, dtype) for x in tensors], dim)


@aten("hstack")
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


@aten("slice", "slice_copy")
def slice_(
    self: Tensor, dim: int = 0, start: Size = None, end: Size = None, step: Size = 1
) -> Tensor:
    if isinstance(end, int) and end >= 2**62:
        end = None
    if start is None or (isinstance(start, int) and start == 0):
        start = None
    if start is None and end is None and step == 1:
        return self
    if not all(isinstance(n, int | None) for n in (start, end)):
        return _open_slice(self, dim, start, end, step)
    whole = [slice(None)] * (dim % self.ndim)
    return self[(*whole, slice(start, end, step))]


def _open_slice(x: Tensor, dim: int, start: Size, end: Size, step: int) -> Tensor:
    """A slice whose bounds are open sizes: the rows by their numbers, which are checked."""
    size = x.shape[dim]
    bounds = [0 if start is None else start, size if end is None else end]
    first, last = [size + n if isinstance(n, int) and n < 0 else n for n in bounds]
    return paddle.index_select(x, paddle.arange(first, last, step, "int64"), dim)


@aten("narrow", "narrow_copy")
def narrow(self: Tensor, dim: int, start: Size, length: Size) -> Tensor:
    return slice_(self, dim, start, start + length)


@aten("select", "select_copy")
def select(self: Tensor, dim: int, index: Size) -> Tensor:
    return self[(*[slice(None)] * (dim % self.ndim), index)]


@aten("split", "unsafe_split", "split_with_sizes", "split_copy", "split_with_sizes_copy")
def split(
    self: Tensor, split_size: Any = None, dim: int = 0, split_sizes: Sequence[Size] | None = None
) -> list[Tensor]:
    sizes = split_size if split_sizes is None else split_sizes
    if not isinstance(sizes, list | tuple):
        whole = self.shape[dim]
        if not isinstance(whole, int) or not isinstance(sizes, int):
            raise TorchFileError("split of an open size has no rule")
        sizes = [min(sizes, whole - at) for at in range(0, whole, sizes)] or [0]
    found, at = [], 0
    for size in sizes:
        found.append(narrow(self, dim, at, size))
        at = at + size
    return found


@aten("chunk")
def chunk(self: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    size = self.shape[dim]
    if not isinstance(size, int):
        raise TorchFileError("chunk of an open size has no rule")
    return split(self, max(-(-size // chunks), 1), dim)


@aten("tensor_split")
def tensor_split(
    self: Tensor, sections: int | None = None, dim: int = 0, indices: Sequence[int] | None = None
) -> list[Tensor]:
    parts = indices if sections is None else sections
    if parts is None:
        raise TorchFileError("tensor_split has neither a number of parts nor positions")
    return list(paddle.tensor_split(self, parts, dim))


@aten("unbind", "unbind_copy")
def unbind(self: Tensor, dim: int = 0) -> list[Tensor]:
    return [select(self, dim, i) for i in range(self.shape[dim])]


@aten("flip")
def flip(self: Tensor, dims: Sequence[int]) -> Tensor:
    return paddle.flip(self, list(dims))


@aten("roll")
def roll(self: Tensor, shifts: Axes, dims: Axes = ()) -> Tensor:
    axis = None if isinstance(dims, list | tuple) and not dims else dims
    shifts = shifts[0] if axis is None and isinstance(shifts, list | tuple) else shifts
    return paddle.roll(self, shifts, axis)


@aten("rot90")
def rot90(self: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    return paddle.rot90(self, k, list(dims))


@aten("tril")
def tril(self: Tensor, diagonal: int = 0) -> Tensor:
    return paddle.tril(self, diagonal)


@aten("triu")
def triu(self: Tensor, diagonal: int = 0) -> Tensor:
    return paddle.triu(self, diagonal)


@aten("diagonal", "diagonal_copy")
def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return paddle.diagonal(self, offset, dim1, dim2)


@aten("diag")
def diag(self: Tensor, diagonal: int = 0) -> Tensor:
    return paddle.diag(self, diagonal)


@aten("diag_embed")
def diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    return paddle.diag_embed(self, offset, dim1, dim2)


@aten("diff")
def diff(
    self: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    return paddle.diff(self, n, dim, prepend, append) if n else self


@aten("as_strided", "as_strided_copy")
def as_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    # Ours counts the offset in bytes.
    offset = (storage_offset or 0) * self.dtype.itemsize
    return paddle.as_strided(self, list(size), list(stride), offset)


@aten("unfold", "unfold_copy")
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    return paddle.unfold(self, dimension, size, step)


@aten("pixel_shuffle")
def pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    return F.pixel_shuffle(self, upscale_factor)


@aten("pixel_unshuffle")
def pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
    return F.pixel_unshuffle(self, downscale_factor)


@aten("channel_shuffle")
def channel_shuffle(self: Tensor, groups: int) -> Tensor:
    return F.channel_shuffle(self, groups)


@aten("constant_pad_nd")
def constant_pad_nd(self: Tensor, pad: Sequence[Size], value: float = 0) -> Tensor:
    return _padded(self, pad, "constant", value)


@aten("pad")
def pad(
    self: Tensor, pad: Sequence[Size], mode: str = "constant", value: float | None = None
) -> Tensor:
    return _padded(self, pad, mode, value or 0)


for _mode, _prefix in {
    "reflect": "reflection",
    "replicate": "replication",
    "circular": "circular",
}.items():

    def _rule(self: Tensor, padding: Sequence[Size], _mode: str = _mode) -> Tensor:
        return _padded(self, padding, _mode, 0)

    aten(*[f"{_prefix}_pad{rank}d" for rank in (1, 2, 3)])(_rule)


def _padded(x: Tensor, pad: Sequence[Size], mode: str, value: float) -> Tensor:
    """PyTorch's pads: pairs from the last dimension on; negative ones cut."""
    pairs = [(pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]
    for i, (low, high) in enumerate(pairs):
        dim = x.ndim - 1 - i
        first = -low if isinstance(low, int) and low < 0 else 0
        last = high if isinstance(high, int) and high < 0 else None
        if first or last is not None:
            x = slice_(x, dim, first, last)
    positive = [
        (0 if isinstance(a, int) and a < 0 else a, 0 if isinstance(b, int) and b < 0 else b)
        for a, b in pairs
    ]
    if not any(not isinstance(n, int) or n for pair in positive for n in pair):
        return x
    if mode == "constant":
        # Every dimension, the first one first, which leaves nothing to a data format.
        whole = [(0, 0)] * (x.ndim - len(positive)) + positive[::-1]
        return F.pad(x, [n for pair in whole for n in pair], "constant", value)
    return _edges(x, positive, mode)


def _edges(x: Tensor, pairs: list[tuple[int, int]], mode: str) -> Tensor:
    for i, (low, high) in enumerate(pairs):
        dim = x.ndim - 1 - i
        if not low and not high:
            continue
        size = x.shape[dim]
        spots = range(-low, size + high)
        if mode == "circular":
            chosen = [s % size for s in spots]
        elif mode == "replicate":
            chosen = [min(max(s, 0), size - 1) for s in spots]
        else:
            chosen = [size - 1 - abs(size - 1 - abs(s)) for s in spots]
        x = paddle.index_select(x, paddle.to_tensor(chosen, dtype="int64"), dim)
    return x


@aten("meshgrid")
def meshgrid(tensors: Sequence[Tensor], indexing: str = "ij") -> list[Tensor]:
    rows = [atleast_1d(x) for x in tensors]
    if indexing == "ij" or len(rows) < 2:
        return list(paddle.meshgrid(rows))
    rows[:2] = rows[1::-1]
    made = list(paddle.meshgrid(rows))
    made[:2] = made[1::-1]
    return made


@aten("atleast_1d")
def atleast_1d(self: Tensor) -> Tensor:
    return self if self.ndim else self.reshape([1])


@aten("atleast_2d")
def atleast_2d(self: Tensor) -> Tensor:
    return self if self.ndim > 1 else self.reshape([1, -1])


@aten("atleast_3d")
def atleast_3d(self: Tensor) -> Tensor:
    if self.ndim > 2:
        return self
    return self.reshape([*self.shape, 1] if self.ndim == 2 else [1, -1, 1])


@aten("vstack")
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    return cat([atleast_2d(x) for x in tensors], 0)


@aten("dstack")
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    return cat([atleast_3d(x) for x in tensors], 2)


@aten("ravel")
def ravel(self: Tensor) -> Tensor:
    return self.reshape([-1])


@aten("fliplr")
def fliplr(self: Tensor) -> Tensor:
    return paddle.flip(self, [1])


@aten("flipud")
def flipud(self: Tensor) -> Tensor:
    return paddle.flip(self, [0])
