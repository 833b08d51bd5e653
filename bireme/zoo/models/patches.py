"""Images as sequences: patches by a convolution, special tokens before them, positions added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bireme as paddle
from bireme import nn
from bireme.core.errors import FileFormatError, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.zoo.config import Keys


def image_sizes(keys: Keys, size: int, patch: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(image, patch) of a config, each (height, width)."""

    def pair(name: str, default: int) -> tuple[int, int]:
        value = keys.take(name, default)
        found = tuple(value) if isinstance(value, list | tuple) else (value, value)
        if len(found) != 2 or not all(type(v) is int and 0 < v < 2**16 for v in found):
            raise keys.bad(name, value, "a number of pixels, or two")
        return found[0], found[1]

    image, piece = pair("image_size", size), pair("patch_size", patch)
    if image[0] < piece[0] or image[1] < piece[1]:
        raise FileFormatError(f"[zoo] images of {image} have no patches of {piece}")
    return image, piece


class Patches(nn.Layer):
    """Images [batch, channels, height, width] as vectors [batch, tokens, width].

    `names` are those of the special tokens' parameters, of the shape `token`. Positions belong to
    images of the size `image`; those of others are interpolated.
    """

    def __init__(
        self,
        width: int,
        channels: int,
        image: tuple[int, int],
        patch: tuple[int, int],
        *,
        names: Sequence[str] = (),
        token: Sequence[int] = (),
        positions: Sequence[int] = (),
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.patch = patch
        self.grid = image[0] // patch[0], image[1] // patch[1]
        self.names = tuple(names)
        self.project = nn.Conv2D(
            channels, width, patch, stride=patch, bias_attr=None if bias else False
        )
        for name in self.names:
            setattr(self, name, self.create_parameter(list(token)))
        rows = self.grid[0] * self.grid[1] + len(self.names)
        self.positions = self.create_parameter([*positions, rows, width])

    def forward(self, images: Tensor) -> Tensor:
        if images.ndim != 4 or images.shape[2] < self.patch[0] or images.shape[3] < self.patch[1]:
            raise ShapeMismatch(
                "[zoo] images must be [batch, channels, height, width], with at least one patch of "
                f"{self.patch}. Received: {images.shape}"
            )
        x = self.project(images)
        grid = (x.shape[2], x.shape[3])
        x = x.flatten(2).transpose([0, 2, 1])
        width = x.shape[-1]
        before = [
            getattr(self, name).reshape([1, 1, width]).expand([x.shape[0], 1, width])
            for name in self.names
        ]
        return paddle.concat([*before, x], 1) + self._placed(grid, width)

    def _placed(self, grid: tuple[int, int], width: int) -> Tensor:
        table: Any = self.positions.reshape([-1, width])
        if grid == self.grid:
            return table
        count = len(self.names)
        places = table[count:].reshape([1, *self.grid, width]).transpose([0, 3, 1, 2])
        places = F.interpolate(places, list(grid), mode="bicubic", align_corners=False)
        places = places.transpose([0, 2, 3, 1]).reshape([-1, width])
        return places if not count else paddle.concat([table[:count], places], 0)
