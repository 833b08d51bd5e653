"""Values: tensors, gradient nodes and traces refer to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bireme.core.aval import Aval
from bireme.host.arrays import Array


class Value:
    """One SSA value: a promise until its trace runs, a buffer after.

    Tensors and gradient nodes point at Values, never the other way round, so the reference
    count of a Value says whether anyone can still ask for it. `trace` and `slot` say which trace
    makes the value. Several threads may use one value as an input of their traces at the same
    time, so each trace has its own table of inputs (`Trace.leaves`).

    There is no constructor: a step makes hundreds of values, and setting the attributes where a
    value is made takes half the time. Code off the hot path uses `value_of` and `promises`.
    """

    __slots__ = ("aval", "buf", "host", "limits", "slot", "trace", "writer")

    aval: Aval
    trace: Any
    slot: int
    buf: Any

    # Of integers, which may be indices: the host array behind a device buffer, and the extremes of
    # the elements, by the ignored value (ranges.py). Unset until needed.
    host: np.ndarray
    limits: dict[int | None, tuple[float, float]]

    # Of a value that an in-place operation has replaced: which version its tensor has now. Unset
    # for others.
    writer: Callable[[], str]


def value_of(aval: Aval, buf: Array | None) -> Value:
    """A value with its contents."""
    value = Value()
    value.aval = aval
    value.trace = None
    value.slot = 0
    value.buf = buf
    return value


def promise(aval: Aval, trace: object, slot: int) -> Value:
    """A value that `trace` makes."""
    value = Value()
    value.aval = aval
    value.trace = trace
    value.slot = slot
    value.buf = None
    return value


def promises(avals: Iterable[Aval], trace: object, slot: int) -> list[Value]:
    """The values that `trace` makes from `slot` on."""
    made = []
    for aval in avals:
        value = Value()
        value.aval = aval
        value.trace = trace
        value.slot = slot
        value.buf = None
        made.append(value)
        slot += 1
    return made


class Overwritten(Value):
    """A Value whose tensor was changed in place since: a gradient that still needs it raises.

    A Value becomes one by assignment to its `__class__`, in the functions below and nowhere else. A
    flag would be one more store for every Value that is made, and a look-up for every one that a
    gradient has saved; the classes of what was saved are compared anyway, in C (replay.py).
    """

    __slots__ = ()


def overwrite(value: Value, writer: Callable[[], str] | None = None) -> None:
    """The tensor of this value gets other contents; `writer` tells which version it is by then."""
    if value.__class__ is Value:
        value.__class__ = Overwritten
        if writer is not None:
            value.writer = writer


def overwrite_all(values: Iterable[Value]) -> None:
    """`overwrite` for each."""
    for value in values:
        if value.__class__ is Value:
            value.__class__ = Overwritten


def keep(value: Value) -> None:
    """Take `overwrite` back: gradients may use this value."""
    if value.__class__ is Overwritten:
        value.__class__ = Value
