"""Requirements: conditions on the contents of an op's inputs, checked in every tier.

A label beyond the classes, an id beyond the table or a singular matrix shows only when the op runs.
An op declares such conditions (`@op(requires=...)`). The cold tier checks them while it runs. A
compiled program cannot raise, so each requirement is proved before the run where that is free
(`proofs.py`). A program with unproved requirements also returns evidence of them; the executor
waits for it and donates none of its inputs, so that a failure can be rolled back.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bireme.core.errors import BiremeError, InvalidArgument, PositionOutOfRange
from bireme.host import jax_door
from bireme.host.arrays import Namespace

if TYPE_CHECKING:
    from bireme.core.op import Call


class InRange(NamedTuple):
    """All elements of an input are in [low, high], but for those equal to `ignored`. NaN is not,
    unless the op passes it on (`nan`)."""

    input: str
    low: float
    high: float
    ignored: int | None = None
    part: int | None = None  # only these elements of the last dimension
    item: int = 0  # of an input that is a list
    lengths: str | None = None  # an input: only so many elements of each row
    nan: bool = False

    before = True  # it can be looked at before the op runs

    def position(self, call: Call) -> int:
        """Which of the flat inputs this is about."""
        return _position(call, self.input) + self.item

    def evidence(
        self, xp: Namespace, call: Call, arrays: Sequence[Any], out: object
    ) -> tuple[Any, Any]:
        """The smallest and the largest element, as float64."""
        array = xp.asarray(arrays[self.position(call)])
        if self.part is not None:
            array = array[..., self.part]
        if self.lengths is not None:
            used = xp.asarray(arrays[_position(call, self.lengths)])[:, None]
            first = np.asarray(self.low).astype(array.dtype)
            array = xp.where(xp.arange(array.shape[1]) < used, array, first)
        if self.nan:
            array = xp.where(xp.isnan(array), np.asarray(self.low).astype(array.dtype), array)
        if array.size == 0:
            low, high = xp.asarray(math.inf), xp.asarray(-math.inf)  # whatever the range is
        else:
            if self.ignored is not None:
                first = np.asarray(self.low).astype(array.dtype)
                array = xp.where(array == self.ignored, first, array)
            low, high = xp.min(array), xp.max(array)
        return low.astype(np.float64), high.astype(np.float64)

    def allows(self, low: float, high: float) -> bool:
        """Whether this is met by elements in [low, high]."""
        return self.low <= low and high <= self.high

    def failure(self, low: float, high: float) -> BiremeError | None:
        """The error for this evidence, if it is one."""
        if self.allows(low, high):
            return None
        seen = high if self.low <= low else low
        whole = float(self.high).is_integer() and float(seen).is_integer()
        shown = [f"{n:.0f}" if whole else f"{n:g}" for n in (seen, self.low, self.high)]
        ignored = "" if self.ignored is None else f" (or {self.ignored}, which is ignored)"
        return PositionOutOfRange(
            f"'{self.input}' holds {shown[0]}, which is out of range: it must be in "
            f"[{shown[1]}, {shown[2]}]{ignored}"
        )


def _position(call: Call, input: str) -> int:
    """Where the flat inputs of this name begin."""
    at = 0
    for name, n in zip(call.op.inputs, call.layout, strict=True):
        if name.lstrip("*") == input:
            return at
        at += abs(n)
    raise KeyError(input)


class NonZero(NamedTuple):
    """No element of an input is zero: a divisor of integers."""

    input: str

    before = True
    item = 0
    ignored = None
    nan = False

    def position(self, call: Call) -> int:
        return _position(call, self.input)

    def evidence(
        self, xp: Namespace, call: Call, arrays: Sequence[Any], out: object
    ) -> tuple[Any, Any]:
        """The smallest and the largest distance from zero: 0 and 1."""
        nearest = xp.all(xp.asarray(arrays[self.position(call)]) != 0).astype(np.float64)
        return nearest, nearest * 0 + 1

    def allows(self, low: float, high: float) -> bool:
        return low > 0 or high < 0

    def failure(self, low: float, high: float) -> BiremeError | None:
        if self.allows(low, high):
            return None
        return InvalidArgument(
            f"'{self.input}' holds 0: integers cannot be divided by zero; divide floats "
            "(.astype('float32')), or replace the zeros first"
        )


class Holds(NamedTuple):
    """`test(xp, inputs, out)`, on the op's flat inputs and its results, is true."""

    says: str  # what is wrong otherwise, and what to do
    test: Callable[[Any, Sequence[Any], Any], Any]
    before: bool = False

    def evidence(
        self, xp: Namespace, call: Call, arrays: Sequence[Any], out: object
    ) -> tuple[Any, Any]:
        holds = xp.asarray(self.test(xp, arrays, out)).astype(np.float64)
        return holds, holds

    def failure(self, low: float, high: float) -> BiremeError | None:
        return None if low else InvalidArgument(self.says)


Requirement = InRange | NonZero | Holds


def positions(name: str, size: int, item: int = 0) -> InRange:
    """`name` counts elements of a dimension of this size, from its end where it is negative."""
    return InRange(name, -size, size - 1, item=item)


def fail(call: Call, error: BiremeError) -> None:
    name = call.op.shown.removesuffix("_grad")
    raise type(error)(
        f"[{name}] {error} (recorded at {call.source}). Received: {call.describe_inputs()}"
    )


def check(call: Call, arrays: Sequence[Any], out: object, before: bool) -> None:
    """Raise if a requirement is not met: in the cold tier, before and after the op runs."""
    for requirement in call.requires:
        if requirement.before is before:
            low, high = requirement.evidence(np, call, arrays, out)
            error = requirement.failure(float(low), float(high))
            if error is not None:
                fail(call, error)


def count(nodes: Iterable[Any]) -> int:
    """The number of requirements of these entries, and of the graphs that they run."""
    return sum(n.call.checks for n in nodes)


def inner_graphs(attrs: dict[str, Any]) -> list[Any]:
    """The graphs that a call runs, by its attributes, in the order in which they are numbered."""
    return [v for v in attrs.values() if hasattr(v, "nodes")]


_MET = np.array([np.inf, -np.inf])  # evidence of what did not happen, or was not looked at


class _Active(threading.local):
    """The evidence that this thread's compilation collects."""

    collector: Collector | None = None


_active = _Active()


class Collector:
    """The evidence of a program's requirements, collected while it is lowered.

    They are numbered in the order in which a run meets them: a call's own first, then those of the
    graphs that it runs (`proofs.of_program` goes through them in the same order).
    """

    def __init__(self, wanted: Sequence[int], first: int = 0):
        self.wanted = wanted
        self.next = first
        self.found: dict[int, Any] = {}
        self.level = jax_door.trace_level()

    def evidence(self) -> list[Any]:
        """(low, high) for each that is wanted."""
        return [self.found.get(number, _MET) for number in self.wanted]


@contextmanager
def collecting(wanted: Sequence[int], first: int = 0) -> Iterator[Callable[[], list[Any]]]:
    """Collect the evidence of the requirements with these numbers from what is lowered inside.
    Yields a function that returns it."""
    before = _active.collector
    made = Collector(wanted, first) if wanted else None
    try:
        _active.collector = made
        yield list if made is None else made.evidence
    finally:
        _active.collector = before


def active() -> Collector | None:
    """The collector of the trace that is being written. A branch, a loop or a derivative is a trace
    of its own, whose values nothing can take out unless it returns them (see `InnerEvidence`)."""
    collector = _active.collector
    if collector is None or jax_door.trace_level() != collector.level:
        return None
    return collector


def enter(call: Call) -> int:
    """A call with requirements is about to be lowered; returns the number of its first."""
    collector = active()
    if collector is None:
        return 0
    collector.next += len(call.requires)
    return collector.next - len(call.requires)


def leave(call: Call, first: int, xp: Namespace, arrays: Sequence[Any], out: object) -> None:
    """It was lowered."""
    collector = active()
    if collector is None:
        return
    for number, requirement in enumerate(call.requires, first):
        if number in collector.wanted:
            low, high = requirement.evidence(xp, call, arrays, out)
            collector.found[number] = xp.stack([low, high])
    collector.next = first + call.checks


class InnerEvidence:
    """The next `number` requirements, which are met in a trace of its own that returns their
    evidence."""

    def __init__(self, number: int):
        self.outer = outer = active()
        self.first = 0
        self.wanted: list[int] = []
        if outer is not None:
            self.first = outer.next
            outer.next += number
            self.wanted = [n for n in outer.wanted if self.first <= n < outer.next]

    def run(self, function: Callable[[], Any]) -> tuple[Any, list[Any]]:
        """Within that trace: (what the function returns, evidence)."""
        with collecting(self.wanted, self.first) as evidence:
            out = function()
            return out, [jax_door.jnp().asarray(e) for e in evidence()]

    def nothing(self) -> list[Any]:
        """The evidence where it does not run."""
        return [jax_door.jnp().asarray(_MET) for _ in self.wanted]

    def deliver(self, evidence: Sequence[Any]) -> None:
        """Outside of it: this is what came back."""
        if self.outer is not None:
            self.outer.found.update(zip(self.wanted, evidence, strict=True))


def joined(some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The evidence of two runs of the same part."""
    xp = jax_door.jnp()
    return [
        xp.stack([xp.minimum(a[0], b[0]), xp.maximum(a[1], b[1])])
        for a, b in zip(some, others, strict=True)
    ]
