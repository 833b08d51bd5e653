"""Which samples each step of a run sees: it follows from the seed and the step's number alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.zoo.tuning.samples import Rows, Tokens, grouped, packed, padded


class Plan:
    """The batches of a run. In each pass over the data the samples come in another order.

    A step has `accumulate` batches of `batch_size` rows; a row is a sample, or several where
    samples are packed. The last batches of a pass are smaller rather than left out.
    """

    def __init__(
        self,
        samples: Sequence[Tokens],
        batch_size: int,
        accumulate: int,
        longest: int,
        pack: bool,
        seed: int,
    ):
        if min(batch_size, accumulate, longest) < 1:
            raise InvalidArgument(
                "[finetune] batch_size, accumulate and max_length must be positive. Received: "
                f"{batch_size}, {accumulate}, {longest}"
            )
        self._samples, self._seed, self._longest, self._pack = samples, seed, longest, pack
        self._batch, self._each = batch_size, batch_size * accumulate
        self._epoch, self._rows = -1, list[list[int]]()
        self._starts = [0]  # the first step of each pass

    def steps(self, epochs: float) -> int:
        """How many steps these passes have."""
        whole, part = int(epochs), epochs - int(epochs)
        total = self._start(whole)
        return max(1, total + math.ceil(part * (self._start(whole + 1) - total) if part else 0))

    def step(self, number: int) -> list[Rows]:
        """The batches of a step, counted from 0."""
        parts = self._parts(number)
        if self._pack:
            return [
                packed(
                    [[self._samples[i] for i in row] for row in part], self._longest, self._batch
                )
                for part in parts
            ]
        alone = [[self._samples[row[0]] for row in part] for part in parts]
        return [padded(part, self._longest, self._batch) for part in alone]

    def numbers(self, number: int) -> list[list[int]]:
        """The samples of a step's batches, where they are not packed."""
        return [[row[0] for row in part] for part in self._parts(number)]

    def _parts(self, number: int) -> list[list[list[int]]]:
        epoch = 0
        while self._start(epoch + 1) <= number:
            epoch += 1
        at = (number - self._start(epoch)) * self._each
        chosen = self._order(epoch)[at : at + self._each]
        return [chosen[i : i + self._batch] for i in range(0, len(chosen), self._batch)]

    def _start(self, epoch: int) -> int:
        while len(self._starts) <= epoch:
            rows = len(self._order(len(self._starts) - 1))
            self._starts.append(self._starts[-1] + -(-rows // self._each))
        return self._starts[epoch]

    def _order(self, epoch: int) -> list[list[int]]:
        """The rows of a pass, each as the numbers of its samples."""
        if epoch != self._epoch:
            order = np.random.default_rng([self._seed, epoch]).permutation(len(self._samples))
            self._epoch, self._rows = epoch, [[int(i)] for i in order]
            if self._pack:
                groups = grouped([len(self._samples[i]) for i in order], self._longest)
                self._rows = [[int(order[k]) for k in group] for group in groups]
        return self._rows
