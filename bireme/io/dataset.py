"""Datasets: a sample by its number, or a stream of samples."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from bireme.core.errors import BiremeError, InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant

T = TypeVar("T")


class Dataset(Generic[T]):
    """Samples by number: subclasses define `__getitem__(index)` and `__len__()`."""

    def __getitem__(self, idx: int) -> T:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(self, idx)")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__(self)")


class StreamError(BiremeError, RuntimeError, TypeError):
    """A stream was asked for a length or a numbered sample.

    Also a TypeError, so that `list(stream)`, which asks for a length first, carries on.
    """


class IterableDataset(Dataset[T]):
    """A stream of samples: subclasses define `__iter__()`."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")

    def __getitem__(self, idx: int) -> T:
        raise StreamError(f"{type(self).__name__} is a stream; iterate over it, don't index it")

    def __len__(self) -> int:
        raise StreamError(f"{type(self).__name__} is a stream and has no length")


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Row `i` of every tensor is sample `i`."""

    def __init__(self, tensors: Sequence[Tensor]):
        lengths = {tensor.shape[0] for tensor in tensors}
        if len(lengths) != 1:
            raise InvalidArgument(
                "[TensorDataset] the tensors must have one common first dimension. Received: "
                f"shapes {[list(t.shape) for t in tensors]}"
            )
        self.tensors = tensors
        self._rows: list[tuple[Any, np.ndarray] | None] = [None] * len(tensors)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple([self._row(i, tensor, index) for i, tensor in enumerate(self.tensors)])

    def _row(self, i: int, tensor: Tensor, index: int) -> Tensor:
        if not tensor.stop_gradient or not isinstance(index, int | np.integer):
            return tensor[index]
        # Reading a row from memory is far cheaper than recording a slice per sample. The cache
        # is good as long as the tensor still holds the value it was read from.
        kept = self._rows[i]
        if kept is None or kept[0] is not tensor._value:
            array = np.asarray(tensor._array())
            kept = self._rows[i] = (tensor._value, array)
        return constant(np.array(kept[1][index]))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": [None] * len(self.tensors)}

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class ComposeDataset(Dataset[tuple[Any, ...]]):
    """The fields of several datasets of one length, side by side."""

    def __init__(self, datasets: Sequence[Dataset[Any]]):
        self.datasets = _non_empty("ComposeDataset", datasets)
        for dataset in self.datasets:
            _reject_stream("ComposeDataset", dataset)
        lengths = [len(d) for d in self.datasets]
        if len(set(lengths)) != 1:
            raise InvalidArgument(
                f"[ComposeDataset] the datasets must have one length. Received: {lengths}"
            )

    def __len__(self) -> int:
        return len(self.datasets[0])

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        fields: list[Any] = []
        for dataset in self.datasets:
            sample = dataset[idx]
            fields.extend(sample) if isinstance(sample, list | tuple) else fields.append(sample)
        return tuple(fields)


class ChainDataset(IterableDataset[Any]):
    """Several streams, one after the other."""

    def __init__(self, datasets: Sequence[IterableDataset[Any]]):
        self.datasets = _non_empty("ChainDataset", datasets)
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise TypeMismatch(
                    "[ChainDataset] takes IterableDatasets only; use ConcatDataset for datasets "
                    f"with numbered samples. Received: {type(dataset).__name__}"
                )

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)


class Subset(Dataset[T]):
    """The samples of a dataset that `indices` names, in that order."""

    def __init__(self, dataset: Dataset[T], indices: Sequence[int]):
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: int) -> T:
        return self.dataset[self.indices[idx]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[T]):
    """Several datasets, one after the other."""

    def __init__(self, datasets: Iterable[Dataset[T]]):
        self.datasets = _non_empty("ConcatDataset", datasets)
        for dataset in self.datasets:
            _reject_stream("ConcatDataset", dataset)
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Sequence[Any]) -> list[int]:
        """Where each dataset ends."""
        return list(itertools.accumulate(map(len, sequence)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> T:
        if idx < 0:
            if -idx > len(self):
                raise InvalidArgument(
                    f"[ConcatDataset] index {idx} is out of range for {len(self)} samples"
                )
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        start = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][idx - start]


def random_split(
    dataset: Dataset[T], lengths: Sequence[int | float], generator: object = None
) -> list[Subset[T]]:
    """Cut a dataset into random parts that do not overlap.

    `lengths` are sample counts, or fractions that add up to 1. A NumPy `generator` sets the
    order in place of Bireme's own random state.
    """
    total = len(dataset)
    counts = _counts_of_fractions(total, lengths) if _are_fractions(lengths) else list(lengths)
    if sum(counts) != total:
        raise InvalidArgument(
            f"[random_split] the lengths must add up to the dataset's {total} samples. "
            f"Received: {list(lengths)}, which add up to {sum(lengths)}"
        )
    order = _permutation(total, generator)
    ends = itertools.accumulate(int(c) for c in counts)
    return [Subset(dataset, order[e - int(c) : e]) for e, c in zip(ends, counts, strict=True)]


def _permutation(n: int, generator: Any) -> list[int]:
    if generator is None:
        from bireme.ops.random import randperm

        return randperm(n).tolist()
    if not hasattr(generator, "permutation"):
        raise TypeMismatch(
            "[random_split] generator must be a NumPy random generator, as numpy.random."
            f"default_rng(seed) makes. Received: {type(generator).__name__}"
        )
    return generator.permutation(n).tolist()


def _are_fractions(lengths: Sequence[int | float]) -> bool:
    return math.isclose(sum(lengths), 1) and sum(lengths) <= 1


def _counts_of_fractions(total: int, fractions: Sequence[int | float]) -> list[int]:
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise InvalidArgument(
                f"[random_split] fraction {i} must lie between 0 and 1. Received: {fraction}"
            )
    counts = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(counts)):
        counts[i % len(counts)] += 1
    for i, count in enumerate(counts):
        if count == 0:
            warnings.warn(f"part {i} of random_split is empty", stacklevel=3)
    return counts


def _non_empty(owner: str, datasets: Iterable[Any]) -> list[Any]:
    found = list(datasets)
    if not found:
        raise InvalidArgument(f"[{owner}] needs at least one dataset. Received: an empty list")
    return found


def _reject_stream(owner: str, dataset: Any) -> None:
    if isinstance(dataset, IterableDataset):
        raise TypeMismatch(
            f"[{owner}] needs datasets with numbered samples; use ChainDataset for streams. "
            f"Received: {type(dataset).__name__}"
        )
