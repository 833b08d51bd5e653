"""DataFeeder: samples to the arrays that a program is fed with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bireme.api.types import PlaceLike
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.static.program import Program, default_main_program


class DataFeeder:
    """Puts the samples of a batch together, one array for each input of a program.

    `feed_list` holds the inputs or their names, in the order in which a sample gives them. The
    executor's device gets the arrays, wherever `place` is.

    >>> feeder = DataFeeder([image, label], place)  # doctest: +SKIP
    >>> exe.run(feed=feeder.feed(batch), fetch_list=[loss])  # doctest: +SKIP
    """

    def __init__(
        self,
        feed_list: Sequence[Tensor | str],
        place: PlaceLike | None = None,
        program: Program | None = None,
    ):
        owner = default_main_program() if program is None else program
        found = [owner.find(v) if isinstance(v, str) else v for v in feed_list]
        for variable in found:
            if not isinstance(variable, Tensor):
                raise TypeMismatch(
                    "[DataFeeder] feed_list holds variables of a program, or their names. "
                    f"Received: {type(variable).__name__}"
                )
        self.feed_names = [v.name for v in found]
        self.feed_dtypes = [v.dtype for v in found]
        self.feed_shapes = [v.shape._plain() for v in found]
        self.place = place

    def feed(self, iterable: Iterable[Sequence[object]]) -> dict[str, np.ndarray]:
        """The arrays, by name, of the samples in `iterable`."""
        samples = list(iterable)
        for sample in samples:
            if len(sample) != len(self.feed_names):
                raise InvalidArgument(
                    f"[DataFeeder] a sample must have {len(self.feed_names)} parts: "
                    f"{', '.join(self.feed_names)}. Received: {len(sample)}"
                )
        columns = zip(self.feed_names, self.feed_dtypes, self.feed_shapes, strict=True)
        return {
            name: self._column(name, [s[i] for s in samples], shape, dtype.numpy)
            for i, (name, dtype, shape) in enumerate(columns)
        }

    def _column(
        self, name: str, parts: list[object], shape: Sequence[int], kind: np.dtype[Any]
    ) -> np.ndarray:
        arrays = [np.asarray(p, kind) for p in parts]
        if len({a.shape for a in arrays}) > 1:
            raise ShapeMismatch(
                f"[DataFeeder] the samples of {name!r} must have one shape. Received: "
                f"{sorted({a.shape for a in arrays})}"
            )
        made = np.stack(arrays) if arrays else np.zeros((0,), kind)
        wanted = [len(parts), *shape[1:]]
        if shape and -1 not in shape[1:] and made.size == np.prod(wanted):
            return made.reshape(wanted)  # a number for an input of shape [-1, 1]
        return made
