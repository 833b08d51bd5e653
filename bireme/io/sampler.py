"""Samplers: in which order, and in which batches, samples are read.

Orders come from NumPy's global generator, as in Paddle, so `numpy.random.seed` repeats them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.io.dataset import IterableDataset
from bireme.io.position import sampler_state, set_sampler_state

T = TypeVar("T")


class Sampler(Generic[T]):
    """Yields sample numbers: subclasses define `__iter__()` and usually `__len__()`."""

    def __init__(self, data_source: Sized | None = None):
        self.data_source = data_source

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")


class SequenceSampler(Sampler[int]):
    """First to last."""

    data_source: Sized

    def __init__(self, data_source: Sized):
        super().__init__(data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A random order; `generator` (an iterator of numbers) replaces NumPy's."""

    data_source: Sized

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Iterable[int] | None = None,
    ):
        super().__init__(data_source)
        _check_bool("RandomSampler", "replacement", replacement)
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _check_positive("RandomSampler", "num_samples", self.num_samples)
        if not replacement and self.num_samples > len(data_source):
            raise InvalidArgument(
                f"[RandomSampler] cannot draw {self.num_samples} samples from "
                f"{len(data_source)} without replacement; set replacement=True"
            )

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        if self.generator:
            for _, index in zip(range(self.num_samples), self.generator, strict=False):
                yield index
            return
        order = np.random.choice(
            np.arange(len(self.data_source)), self.num_samples, replace=self.replacement
        )
        yield from order.tolist()

    def __len__(self) -> int:
        return self.num_samples


class WeightedRandomSampler(Sampler[int]):
    """Samples drawn with the given probabilities (one row, or several rows in turn)."""

    def __init__(
        self,
        weights: np.ndarray | Tensor | Sequence[float],
        num_samples: int,
        replacement: bool = True,
    ):
        super().__init__()
        _check_positive("WeightedRandomSampler", "num_samples", num_samples)
        _check_bool("WeightedRandomSampler", "replacement", replacement)
        self.weights = weights
        self.num_samples = num_samples
        self.replacement = replacement

    def _rows(self) -> np.ndarray:
        weights = np.asarray(self.weights, dtype=float)
        if weights.ndim not in (1, 2):
            raise InvalidArgument(
                f"[WeightedRandomSampler] weights must have 1 or 2 dimensions. Received: shape "
                f"{list(weights.shape)}"
            )
        rows = weights.reshape(-1, weights.shape[-1])
        if not np.isfinite(rows).all() or (rows < 0).any():
            raise InvalidArgument(
                "[WeightedRandomSampler] weights must be finite and not negative. Received: "
                f"{self.weights!r}"
            )
        least = 1 if self.replacement else self.num_samples
        if ((rows > 0).sum(axis=1) < least).any():
            raise InvalidArgument(
                f"[WeightedRandomSampler] every row needs at least {least} positive weight(s) to "
                f"draw {self.num_samples} samples. Received: {self.weights!r}"
            )
        return rows / rows.sum(axis=1, keepdims=True)

    def __iter__(self) -> Iterator[int]:
        drawn = [
            np.random.choice(len(row), self.num_samples, self.replacement, row)
            for row in self._rows()
        ]
        return iter(np.concatenate(drawn).tolist())

    def __len__(self) -> int:
        return self.num_samples * len(self._rows())


class SubsetRandomSampler(Sampler[int]):
    """The given sample numbers in random order."""

    def __init__(self, indices: Sequence[int]):
        super().__init__()
        if len(indices) == 0:
            raise InvalidArgument("[SubsetRandomSampler] needs at least one index. Received: []")
        self.indices = indices

    def __iter__(self) -> Iterator[int]:
        from bireme.ops.random import randperm

        for i in randperm(len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class BatchSampler(Sampler[Sequence[int]]):
    """Groups sample numbers into batches."""

    sampler: Any

    def __init__(
        self,
        dataset: Sized | None = None,
        sampler: Sampler[int] | Iterable[int] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ):
        super().__init__(dataset)
        _check_bool("BatchSampler", "shuffle", shuffle)
        _check_bool("BatchSampler", "drop_last", drop_last)
        _check_positive("BatchSampler", "batch_size", batch_size)
        if (dataset is None) == (sampler is None):
            raise InvalidArgument(
                "[BatchSampler] give either dataset or sampler. Received: "
                + ("neither" if dataset is None else "both")
            )
        if sampler is not None:
            if shuffle:
                raise InvalidArgument(
                    "[BatchSampler] shuffle=True has no meaning with a sampler of your own; give "
                    "a RandomSampler instead"
                )
            if not isinstance(sampler, Iterable):
                raise TypeMismatch(
                    "[BatchSampler] sampler must be a Sampler or an iterable of numbers. "
                    f"Received: {type(sampler).__name__}"
                )
            self.sampler = sampler
        elif isinstance(dataset, IterableDataset):
            raise TypeMismatch("[BatchSampler] an IterableDataset has no sample numbers to batch")
        else:
            self.sampler = (RandomSampler if shuffle else SequenceSampler)(dataset)  # pyright: ignore[reportArgumentType]
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return in_batches(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        return _batch_count(len(self.sampler), self.batch_size, self.drop_last)

    def state_dict(self) -> Any:
        """The state of a sampler of your own that has one; else None."""
        return sampler_state(self.sampler)

    def set_state_dict(self, state_dict: object) -> None:
        """Continue from what `state_dict` returned."""
        set_sampler_state(self.sampler, state_dict)


class DistributedBatchSampler(BatchSampler):
    """Batches of this process's share of the dataset; every process gets equally many.

    `set_epoch` chooses the epoch's order, the same on all processes.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
    ):
        super().__init__(dataset, None, shuffle, batch_size, drop_last)
        self.dataset = dataset
        if num_replicas is None or rank is None:
            world = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))  # set by the launcher
            num_replicas = world if num_replicas is None else num_replicas
            rank = int(os.environ.get("PADDLE_TRAINER_ID", "0")) if rank is None else rank
        _check_positive("DistributedBatchSampler", "num_replicas", num_replicas)
        if not isinstance(rank, int) or not 0 <= rank < num_replicas:
            raise InvalidArgument(
                f"[DistributedBatchSampler] rank must lie between 0 and {num_replicas - 1}. "
                f"Received: {rank}"
            )
        self.nranks = num_replicas
        self.local_rank = rank
        self.epoch = 0
        self.num_samples = math.ceil(len(dataset) / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[list[int]]:
        # Samples from the start fill up what is missing to equal shares.
        order = np.resize(np.arange(len(self.dataset)), self.total_size).tolist()
        if self.shuffle:
            np.random.RandomState(self.epoch).shuffle(order)
            self.epoch += 1
        return in_batches(self._share(order), self.batch_size, self.drop_last)

    def _share(self, order: list[int]) -> list[int]:
        """Whole batches are dealt out in turn; the rest is cut into equal pieces."""
        tail = self.total_size % (self.batch_size * self.nranks)
        whole, rest = order[: len(order) - tail], order[len(order) - tail :]
        mine: list[int] = []
        for start in range(
            self.local_rank * self.batch_size, len(whole), self.batch_size * self.nranks
        ):
            mine += whole[start : start + self.batch_size]
        piece = tail // self.nranks
        return mine + rest[self.local_rank * piece : (self.local_rank + 1) * piece]

    def __len__(self) -> int:
        return _batch_count(self.num_samples, self.batch_size, self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass."""
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def set_state_dict(self, state_dict: dict[str, int]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Continue from what `state_dict` returned."""
        self.epoch = int(state_dict["epoch"])


def in_batches(items: Iterable[T], size: int, drop_last: bool) -> Iterator[list[T]]:
    """Lists of `size` items; the last may be shorter."""
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


def _batch_count(samples: int, size: int, drop_last: bool) -> int:
    return samples // size if drop_last else -(-samples // size)


def _check_positive(owner: str, name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise InvalidArgument(f"[{owner}] {name} must be a positive integer. Received: {value!r}")


def _check_bool(owner: str, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeMismatch(f"[{owner}] {name} must be True or False. Received: {value!r}")
