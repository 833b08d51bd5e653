"""paddle.base.reader: the loader of older programs, `DataLoader.from_generator`.

It reads a generator of samples, lists of samples or batches; `paddle.io.DataLoader` reads datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from bireme.api.types import PlaceLike
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.core.tensor import Tensor
from bireme.ops.creation import to_tensor
from bireme.static.program import in_dynamic_mode


class NoDataSource(BiremeError, AssertionError):
    """A loader was read before it was told what to read."""


class DataLoader:
    """Makes loaders of generators."""

    @staticmethod
    def from_generator(
        feed_list: Sequence[Any] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> GeneratorLoader:
        """A loader that a generator is given to with one of its `set_` methods.

        Its batches are lists of tensors, and for programs, unless `return_list`, feeds of the
        variables in `feed_list`. A generator is read when a batch is asked for: `capacity` and the
        ways to read ahead change nothing.
        """
        if capacity is None:
            raise InvalidArgument("[DataLoader.from_generator] capacity is needed. Received: None")
        if not iterable:
            raise InvalidArgument(
                "[DataLoader.from_generator] iterable=False is not taken: write "
                "`for data in loader: exe.run(feed=data)`"
            )
        names = [variable.name for variable in feed_list or ()]
        return GeneratorLoader(None if return_list or in_dynamic_mode() else names)


class GeneratorLoader:
    """What `DataLoader.from_generator` makes; each pass over it calls the generator anew."""

    def __init__(self, names: list[str] | None) -> None:
        self._names = names
        self._batches: Callable[[], Iterable[Any]] | None = None

    def set_sample_generator(
        self,
        reader: Callable[[], Iterable[Any]],
        batch_size: int,
        drop_last: bool = True,
        places: PlaceLike | Sequence[PlaceLike] | None = None,
    ) -> GeneratorLoader:
        """Read one sample after the other: a value or a tuple of values."""
        if batch_size < 1:
            raise InvalidArgument(
                f"[set_sample_generator] batch_size must be 1 or more. Received: {batch_size}"
            )

        def samples() -> Iterator[list[Any]]:
            source = iter(reader())
            while batch := list(islice(source, batch_size)):
                if len(batch) == batch_size or not drop_last:
                    yield batch

        return self.set_sample_list_generator(samples, places)

    def set_sample_list_generator(
        self,
        reader: Callable[[], Iterable[Any]],
        places: PlaceLike | Sequence[PlaceLike] | None = None,
    ) -> GeneratorLoader:
        """Read lists of samples; their values are stacked."""

        def batches() -> Iterator[list[np.ndarray]]:
            for samples in reader():
                fields = zip(*map(_fields, samples), strict=True)
                yield [np.stack([np.asarray(value) for value in field]) for field in fields]

        return self.set_batch_generator(batches, places)

    def set_batch_generator(
        self,
        reader: Callable[[], Iterable[Any]],
        places: PlaceLike | Sequence[PlaceLike] | None = None,
    ) -> GeneratorLoader:
        """Read whole batches: an array or a tuple of arrays."""
        self._batches = reader
        return self

    def __iter__(self) -> Iterator[list[Any]]:
        if self._batches is None:
            raise NoDataSource(
                "[DataLoader.from_generator] there is nothing to read yet; call "
                "set_batch_generator or another of the loader's set_ methods"
            )
        return map(self._made, self._batches())

    __call__ = __iter__

    def _made(self, batch: Any) -> list[Any]:
        tensors = [v if isinstance(v, Tensor) else to_tensor(np.asarray(v)) for v in _fields(batch)]
        if self._names is None:
            return tensors
        return [dict(zip(self._names, tensors, strict=True))]


def _fields(sample: Any) -> Sequence[Any]:
    return sample if isinstance(sample, list | tuple) else (sample,)


__all__ = ["DataLoader", "GeneratorLoader"]
