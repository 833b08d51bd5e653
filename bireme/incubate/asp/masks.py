"""Which elements of a matrix to keep so that n of every m are zero."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np

from bireme.api.types import TensorLike
from bireme.core.errors import InvalidArgument


def calculate_density(x: TensorLike) -> float:
    """The share of elements that are not zero.

    >>> calculate_density(np.array([[0, 1, 3, 0], [1, 1, 0, 1]]))
    0.625
    """
    array = np.asarray(x)
    return float(np.count_nonzero(array)) / array.size


def mask_1d(matrix: np.ndarray, n: int, m: int) -> np.ndarray:
    """Drop the n smallest of every m elements in a row."""
    rows, columns = matrix.shape
    groups = _padded(np.abs(matrix), 1, m).reshape(-1, m)
    mask = np.ones_like(groups)
    np.put_along_axis(mask, np.argsort(groups, axis=1, kind="quicksort")[:, :n], 0, axis=1)
    return mask.reshape(rows, -1)[:, :columns]


def mask_2d_greedy(matrix: np.ndarray, n: int, m: int) -> np.ndarray:
    """In every m x m block keep the largest, at most n in a row and n in a column."""
    blocks = _blocks(np.abs(matrix), m)
    masks = np.zeros_like(blocks)
    for block, mask in zip(blocks, masks, strict=True):
        for place in np.argsort(block.reshape(-1))[::-1]:
            i, j = divmod(int(place), m)
            if mask[i].sum() < n and mask[:, j].sum() < n:
                mask[i, j] = 1
    return _joined(masks, matrix.shape, m)


def mask_2d_best(matrix: np.ndarray, n: int, m: int) -> np.ndarray:
    """In every m x m block keep n in each row and column, with the largest sum of sizes."""
    blocks = _blocks(np.abs(matrix), m)
    patterns = _patterns(n, m)
    scores = blocks.reshape(len(blocks), -1) @ patterns.reshape(len(patterns), -1).T
    return _joined(patterns[np.argmax(scores, axis=1)], matrix.shape, m)


ALGORITHMS: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "mask_1d": mask_1d,
    "mask_2d_greedy": mask_2d_greedy,
    "mask_2d_best": mask_2d_best,
}


def create_mask(weight: np.ndarray, algorithm: str, n: int, m: int) -> np.ndarray:
    """A mask of ones and zeros of the weight's shape and type."""
    make = ALGORITHMS[algorithm]
    sizes = weight.astype(np.float64)
    shape = weight.shape
    if weight.ndim == 4:  # along the third dimension: the input channels of a turned kernel
        turned = sizes.transpose(0, 1, 3, 2)
        mask = make(turned.reshape(-1, shape[2]), n, m)
        mask = mask.reshape(turned.shape).transpose(0, 1, 3, 2)
    elif 1 <= weight.ndim <= 3:
        mask = make(sizes.reshape(-1, shape[-1]), n, m).reshape(shape)
    else:
        raise InvalidArgument(
            f"[asp] weights of 1 to 4 dimensions can be pruned. Received: shape {list(shape)}"
        )
    return mask.astype(weight.dtype)


def _padded(matrix: np.ndarray, axis: int, m: int) -> np.ndarray:
    """The matrix with zeros at the end, so that its size along `axis` is a multiple of m."""
    extra = [(0, 0)] * matrix.ndim
    extra[axis] = (0, -matrix.shape[axis] % m)
    return np.pad(matrix, extra)


def _blocks(matrix: np.ndarray, m: int) -> np.ndarray:
    """All m x m blocks, row by row."""
    full = _padded(_padded(matrix, 0, m), 1, m)
    rows, columns = full.shape[0] // m, full.shape[1] // m
    return full.reshape(rows, m, columns, m).swapaxes(1, 2).reshape(-1, m, m)


def _joined(blocks: np.ndarray, shape: tuple[int, ...], m: int) -> np.ndarray:
    rows, columns = -(-shape[0] // m), -(-shape[1] // m)
    full = blocks.reshape(rows, columns, m, m).swapaxes(1, 2).reshape(rows * m, columns * m)
    return full[: shape[0], : shape[1]]


@functools.cache
def _patterns(n: int, m: int) -> np.ndarray:
    """All m x m blocks of zeros and ones with n ones in every row and every column."""
    rows = [row for row in itertools.product((0.0, 1.0), repeat=m) if sum(row) == n]
    blocks = np.asarray(list(itertools.product(rows, repeat=m)))
    return blocks[(blocks.sum(axis=1) == n).all(axis=1)]
