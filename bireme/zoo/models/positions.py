"""Positions that are no rotation: relative ones as a bias of scores, and sines."""

from __future__ import annotations

import math

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.core.tensor import Tensor


def bucket_of(distance: np.ndarray, buckets: int, longest: int, both: bool) -> np.ndarray:
    """T5's bucket of each distance (the key's place less the query's): exact for small ones, then
    logarithmic up to `longest`. With `both` half of the buckets are for keys that come later."""
    n = -distance
    first = np.zeros_like(n)
    if both:
        buckets //= 2
        first = (n < 0) * buckets
        n = np.abs(n)
    else:
        n = np.maximum(n, 0)
    exact = buckets // 2
    # In float32, as where the models come from: the limits of buckets depend on it.
    ratio = np.maximum(n, 1).astype(np.float32) / np.float32(exact)
    spread = np.log(ratio) / np.float32(math.log(longest / exact)) * np.float32(buckets - exact)
    large = np.minimum(exact + spread.astype(np.int64), buckets - 1)
    return first + np.where(n < exact, n, large)


class RelativeBias(nn.Layer):
    """A number per head and bucket of distances, added to attention's scores."""

    def __init__(self, buckets: int, heads: int, *, longest: int = 128, both: bool = True) -> None:
        super().__init__()
        self.weight = self.create_parameter([buckets, heads])
        self.longest = longest
        distances = np.arange(-longest, longest + 1)
        self.table = bucket_of(distances, buckets, longest, both).astype(np.int64)

    def forward(self, keys: int, places: Tensor | None = None) -> Tensor:
        """The bias [1 or batch, heads, queries, keys] of `keys` keys, and of queries at `places`
        [batch, queries]: by default those of the keys."""
        columns = paddle.arange(keys)
        rows = columns.unsqueeze(0) if places is None else places
        distance = columns - rows.unsqueeze(-1)
        near = distance.clip(-self.longest, self.longest) + self.longest
        chosen = paddle.to_tensor(self.table)[near]
        return self.weight[chosen].transpose([0, 3, 1, 2])


def sines(count: int, width: int, *, alternating: bool = False) -> np.ndarray:
    """Sines and cosines of `count` places, [count, width]: sines in the first half, or in
    the even columns."""
    powers = np.arange(0, width, 2) / width
    angles = np.arange(count)[:, None] / np.power(10000.0, powers)
    if alternating:
        found = np.empty((count, width))
        found[:, 0::2], found[:, 1::2] = np.sin(angles), np.cos(angles[:, : width // 2])
        return found.astype(np.float32)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)
