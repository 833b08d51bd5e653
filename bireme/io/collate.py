"""Samples into batches, and batches into Tensors."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bireme.core.dtype import ALL
from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.place import Place
from bireme.core.tensor import Tensor, constant, on_device
from bireme.ops.joining import stack

_TENSOR_DTYPES = {d.numpy for d in ALL}


def _stack_tensors(batch: Sequence[Tensor]) -> np.ndarray:
    return _stack([np.asarray(t._array()) for t in batch])


def collate(
    batch: Sequence[Any], stack_tensors: Callable[[Sequence[Tensor]], Any] = _stack_tensors
) -> Any:
    """Stack the samples' fields: numbers, arrays and tensors become NumPy arrays."""
    sample = batch[0]
    if isinstance(sample, np.ndarray):
        return _stack(batch)
    if isinstance(sample, Tensor):
        return stack_tensors(batch)
    if isinstance(sample, numbers.Number | np.generic):
        return np.array(batch)
    if isinstance(sample, str | bytes):
        return list(batch)
    if isinstance(sample, Mapping):
        return {key: collate([d[key] for d in batch], stack_tensors) for key in sample}
    if isinstance(sample, Sequence):
        lengths = {len(s) for s in batch}
        if len(lengths) != 1:
            raise ShapeMismatch(
                "[DataLoader] the samples of a batch must have equally many fields. Received: "
                f"samples of {sorted(lengths)} fields; give a collate_fn to combine them"
            )
        return [collate(fields, stack_tensors) for fields in zip(*batch, strict=True)]
    raise TypeMismatch(
        "[DataLoader] samples must be made of tensors, NumPy arrays, numbers, strings, dicts and "
        f"lists. Received: {type(sample).__name__}; give a collate_fn to combine them"
    )


def _stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    try:
        return np.stack(arrays)
    except ValueError:
        shapes = sorted({a.shape for a in arrays})
        raise ShapeMismatch(
            "[DataLoader] the samples of a batch must have one shape. Received: "
            f"{' and '.join(str(list(s)) for s in shapes[:4])}; pad them, use batch_size=1, or "
            "give a collate_fn"
        ) from None


def default_collate_fn(batch: Sequence[Any]) -> Any:
    """What a loader makes of a list of samples, for users' own functions: as `collate`, but
    tensors stay tensors."""
    return collate(batch, lambda tensors: stack(list(tensors)))


def default_convert_fn(sample: Any) -> Any:
    """The stand-in for `collate` when batching is off: the dataset's samples are batches."""
    return sample


def to_tensors(batch: Any, place: Place | None, owned: bool) -> Any:
    """NumPy arrays as Tensors, tuples as lists, the rest as it is.

    `owned` says that nobody else can change the arrays, so that they need no copy.
    """
    if isinstance(batch, np.ndarray):
        return _to_tensor(batch, place, owned) if batch.dtype in _TENSOR_DTYPES else batch
    if isinstance(batch, list | tuple):
        return [to_tensors(b, place, owned) for b in batch]
    if isinstance(batch, Mapping):
        return {k: to_tensors(b, place, owned) for k, b in batch.items()}
    return batch


def _to_tensor(array: np.ndarray, place: Place | None, owned: bool) -> Tensor:
    if place is not None and not place.is_cpu_place():
        return on_device(array if owned else np.array(array), place)
    return constant(array if owned else np.array(array))


Collate = Callable[[list[Any]], Any]
