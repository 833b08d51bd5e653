"""Gradients that are averaged over processes when a backward pass is over."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import autograd
from bireme.core.tensor import Tensor, constant
from bireme.core.trace import state
from bireme.distributed.communication.background import line
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.programs import ReduceOp, exchange

if TYPE_CHECKING:
    from bireme.core.aval import Aval

MIB = 1 << 20
_numbers = itertools.count()
_all: weakref.WeakSet[GradientAverage] = weakref.WeakSet()


class GradientAverage:
    """Averages the gradients of some parameters over a group, in buckets of about `limit` bytes.

    The first bucket, with the parameters used last, is of about `first` bytes. `expect()` after a
    forward pass asks for it; it happens when the outermost backward pass ends. A parameter that is
    no longer trained, or is from now on, counts as it does then, on all ranks.
    """

    def __init__(
        self,
        parameters: list[Any],
        group: Group,
        first: float = MIB,
        limit: float = 32 * MIB,
    ) -> None:
        self.group = group
        self._parameters = parameters
        self._sizes = first, limit
        self._trained: list[Any] = []
        self._buckets: list[list[Any]] = []
        self._fill_buckets()
        self._wanted = True
        self._expected = False
        self._number = next(_numbers)
        _all.add(self)
        if _average_all not in autograd.after_backward:
            autograd.after_backward.append(_average_all)

    def expect(self) -> None:
        """A forward pass is over. As in Paddle, what counts is whether it was under no_sync()."""
        if self._wanted and state.trace.tape:
            self._expected = True

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes whose gradients are only added up here; the next one outside averages them."""
        before, self._wanted = self._wanted, False
        try:
            yield
        finally:
            self._wanted = before

    def _fill_buckets(self) -> None:
        trained = [p for p in self._parameters if not p.stop_gradient]
        if list(map(id, trained)) != list(map(id, self._trained)):
            self._trained, self._buckets = trained, _buckets(trained, *self._sizes)

    def average(self) -> None:
        self._expected = False
        self._fill_buckets()
        for bucket in self._buckets:
            grads = [p._grad for p in bucket]
            given = [
                np.zeros(p._value.aval.shape, p.dtype.numpy) if g is None else g._array()
                for p, g in zip(bucket, grads, strict=True)
            ]
            used = np.array([g is not None for g in grads])
            types = [p._value.aval for p in bucket]
            job = partial(_averages, self.group, given, used, types)
            if used.all():  # what the others used decides nothing, so nobody waits here
                _, values = line.later(lambda job=job: job()[0], types)
                averages = [Tensor(v, None) for v in values]
            else:
                arrays, used = job()
                averages = [constant(a) for a in arrays]
            for parameter, average, wanted in zip(bucket, averages, used, strict=True):
                if wanted:
                    parameter._grad = average
                    _tell(parameter)


def _averages(
    group: Group, given: list[Any], used: np.ndarray, types: list[Aval]
) -> tuple[list[Any], np.ndarray]:
    """The means of arrays, and which of them anybody used."""
    *means, anywhere = exchange("all_reduce", group, [*given, used], ReduceOp.AVG)
    return [m.reshape(t.shape) for m, t in zip(means, types, strict=True)], np.asarray(anywhere)


def _tell(parameter: Any) -> None:
    """An optimizer may drop a gradient that another process uses."""
    then: Callable[[Any], None] | None = parameter.__dict__.get("_when_averaged")
    if then is not None:
        then(parameter)


def _average_all() -> None:
    """After a backward pass: the models that took part in it."""
    for each in sorted(_all, key=lambda a: a._number):
        if each._expected:
            each.average()


def _buckets(parameters: list[Any], first: float, limit: float) -> list[list[Any]]:
    """The parameters from the last to the first, in groups of about equal size and one type."""
    buckets: list[list[Any]] = []
    room = 0.0
    for p in reversed(parameters):
        size = p._value.aval.size * p.dtype.itemsize
        if not buckets or size > room or buckets[-1][0].dtype is not p.dtype:
            room = limit if buckets else first
            buckets.append([])
        buckets[-1].append(p)
        room -= size
    return buckets


def first_ranks_contents(tensors: list[Any], group: Group) -> None:
    """Give all ranks of a group the contents that its first rank has."""
    from bireme.distributed.communication.stream import put

    if group.nranks == 1 or not tensors:
        return
    arrays = exchange("broadcast", group, [t._array() for t in tensors], 0)
    for tensor, array in zip(tensors, arrays, strict=True):
        put(tensor, array.reshape(tensor._value.aval.shape))
