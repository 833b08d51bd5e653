"""Recording loops: finding what a loop carries, then the `while_loop` or `scan` op.

The body is recorded with the values that its variables have before the loop. What it changes
becomes a carry, and it is recorded again until nothing new changes: numbers become tensors,
tensors written in place come along, and a variable without a value starts as zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bireme.capture.recorder import recording_into
from bireme.capture.subgraph import BodyTrace
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import CaptureError
from bireme.core.op import TENSOR_TYPES
from bireme.core.tensor import Tensor
from bireme.core.trace import Value, state
from bireme.ops import control_flow as ops
from bireme.ops.control_record import (
    UNDEFINED,
    Out,
    as_type,
    describe,
    draw,
    fits,
    is_number,
    leaves_of,
    map_leaves,
    number_type,
    put_back,
    same,
    same_shape,
    unchanged,
    under_autocast,
    write,
)
from bireme.ops.creation import full
from bireme.ops.logic import logical_and

_ATTEMPTS = 10

Function = Callable[[list[Any]], Any]  # of the variables' values


class _Leaf:
    """One value inside a variable, on its way through the loop."""

    __slots__ = ("first", "name", "tracked", "type")

    def __init__(self, name: str, first: Any):
        self.name = name
        self.first = first
        tensor = first.__class__ in TENSOR_TYPES
        self.type: Aval | None = first._value.aval if tensor else None  # None: not carried
        self.tracked = tensor and first._node is not None


class _Again(Exception):
    """Something new turned out to be carried."""


class Loop:
    """A loop over variables `names` with these values. `wanted` are those that are used after
    the loop; a variable that only lives inside an iteration is not carried."""

    def __init__(self, names: Sequence[str], values: Sequence[Any], wanted: Sequence[bool]):
        self.names = list(names)
        self.values = list(values)
        self.wanted = list(wanted)
        self.leaves = [
            [] if v is UNDEFINED else [_Leaf(name, x) for x in leaves_of(v)]
            for name, v in zip(names, values, strict=True)
        ]
        self.defined = [v is not UNDEFINED for v in values]
        self.outer: list[tuple[Tensor, bool]] = []  # tensors written in place, and: tracked
        self.checked = False
        self.why = ""
        self.after: list[Any] = []

    # --- what is carried ------------------------------------------------------------------

    def carried(self) -> list[_Leaf]:
        return [leaf for group in self.leaves for leaf in group if leaf.type is not None]

    def types(self) -> list[Aval]:
        own = [leaf.type for leaf in self.carried() if leaf.type is not None]
        return [*own, *[t._value.aval for t, _ in self.outer], *[_BOOL] * self.checked]

    def first(self) -> list[Tensor]:
        """The carries before the loop."""
        own = [
            x.first if x.first.__class__ in TENSOR_TYPES else as_type(x.first, x.type)  # type: ignore[arg-type]
            for x in self.carried()
        ]
        return [*own, *[t for t, _ in self.outer], *[full([], True, "bool")] * self.checked]

    # --- recording ------------------------------------------------------------------------

    def trace(self, extra: Sequence[Aval] = (), rows: Sequence[Aval] = ()) -> BodyTrace:
        """A recorder whose arguments are `extra`, the carries, then `rows`."""
        return BodyTrace(state.trace, [*extra, *self.types(), *rows])

    def enter(self, trace: BodyTrace, start: int) -> tuple[list[Any], list[Any]]:
        """The variables as they look inside, and the given leaves; written tensors are set."""
        given = iter(trace.arguments[start:])

        def inside(leaf: _Leaf) -> Any:
            if leaf.type is None:
                return leaf.first
            return _entered(next(given), leaf.tracked)

        tensors = [[inside(leaf) for leaf in group] for group in self.leaves]
        for tensor, tracked in self.outer:
            new = _entered(next(given), tracked)
            trace.wrote(tensor)
            tensor._value, tensor._node = new._value, new._node
        values = []
        for value, defined, group in zip(self.values, self.defined, tensors, strict=True):
            items = iter(group)
            values.append(
                map_leaves(lambda _, items=items: next(items), value) if defined else value
            )
        return values, tensors

    def step(self, body: Function, trace: BodyTrace, start: int) -> list[Any]:
        """Record one iteration; returns the new carries (slots), or raises `_Again`."""
        values, given = self.enter(trace, start)
        new = body(values)
        slots: list[Any] = []
        again = False
        self.after = []
        for i, (name, old, value) in enumerate(zip(self.names, values, new, strict=True)):
            if not self.defined[i]:
                again |= self._define(i, value)
                if not self.defined[i]:
                    self.after.append(UNDEFINED)
                    continue
                old = value
            if not same_shape(old, value):
                raise CaptureError(_reshaped(name, self.values[i], value))
            self.after.append(value)
            for leaf, x in zip(self.leaves[i], leaves_of(value), strict=True):
                again |= self._leaf(leaf, x, trace, slots)
        known = {id(t) for t, _ in self.outer}
        for tensor, _ in trace.outer_writes():
            if id(tensor) not in known:
                self.outer.append((tensor, tensor._node is not None))
                again = True
        for i, (tensor, tracked) in enumerate(self.outer):
            out = Out(trace, tensor)
            if out.tracked and not tracked:
                self.outer[i], again = (tensor, True), True
            slots.append(out.slot)
        again |= self._checks(trace, slots)
        if again:
            raise _Again
        self.given = given
        return slots

    def _define(self, i: int, value: Any) -> bool:
        """A variable that gets its first value inside."""
        if value is UNDEFINED:
            return False
        if not self.wanted[i]:
            return False
        self.defined[i] = True
        self.values[i] = map_leaves(lambda x: UNDEFINED if _is_carry(x) else x, value)
        self.leaves[i] = [_Leaf(self.names[i], x) for x in leaves_of(self.values[i])]
        return True

    def _leaf(self, leaf: _Leaf, x: Any, trace: BodyTrace, slots: list[Any]) -> bool:
        """Settle what a leaf became; True if it has to be carried in another way."""
        tensor = x.__class__ in TENSOR_TYPES
        if leaf.type is None:
            if unchanged(leaf.first, x):
                return False
            if not (is_number(leaf.first) or leaf.first is UNDEFINED) or not _is_carry(x):
                raise CaptureError(_changed(leaf.name, leaf.first, x))
            numbers = [n for n in (leaf.first, x) if is_number(n)]
            kind = x._value.aval if tensor else number_type(*numbers)
            if not fits(leaf.first, kind):
                kind = aval(kind.shape, number_type(leaf.first).dtype)
            leaf.type = kind
            leaf.tracked = tensor and x._node is not None
            return True
        if not tensor:
            if not fits(x, leaf.type):
                raise CaptureError(_changed(leaf.name, leaf.first, x))
            x = as_type(x, leaf.type)
        if under_autocast(x._value.aval, leaf.type):
            x = x.astype(leaf.type.dtype)
        if x._value.aval is not leaf.type:
            if leaf.first.__class__ in TENSOR_TYPES or leaf.type is _widest(leaf, x):
                raise CaptureError(_changed(leaf.name, leaf.first, x))
            leaf.type = x._value.aval  # it began as a number, which fits a tensor of any shape
            return True
        if x._node is not None and not leaf.tracked:
            leaf.tracked = True
            return True
        slots.append(Out(trace, x).slot)
        return False

    def _checks(self, trace: BodyTrace, slots: list[Any]) -> bool:
        if not trace.checks:
            return False
        if not self.checked:
            self.checked, self.why = True, trace.checks[0][1]
            return True
        holds = trace.arguments[-1]
        for ok, _ in trace.checks:
            holds = logical_and(holds, ok)
        slots.append(Out(trace, holds).slot)
        return False

    # --- after ----------------------------------------------------------------------------

    def leave(self, made: list[Tensor]) -> list[Any]:
        """The variables after the loop, from the op's results."""
        results = iter(made)
        tracked = [leaf.tracked for leaf in self.carried()]
        for tensor, on in zip(made, [*tracked, *[t for _, t in self.outer]], strict=False):
            if not on:
                tensor._node = None
        finished = []
        for value, defined, group, given, after in zip(
            self.values, self.defined, self.leaves, self.given, self.after, strict=True
        ):
            if not defined:
                finished.append(UNDEFINED)
                continue
            new: list[Any] = []
            ends = leaves_of(after)
            for leaf, inside, end in zip(group, given, ends, strict=True):
                result = leaf.first if leaf.type is None else next(results)
                if leaf.type is not None and leaf.first.__class__ in TENSOR_TYPES and inside is end:
                    write(leaf.first, result)  # the tensor itself was changed, or not at all
                    result = leaf.first
                new.append(result)
            items = iter(new)
            made_value = map_leaves(lambda _, items=items: next(items), value)
            finished.append(put_back(value, made_value))
        for tensor, _ in self.outer:
            write(tensor, next(results))
        if self.checked:
            state.trace.checks.append((next(results), self.why))  # type: ignore[attr-defined]
        return finished

    def stable(self, record: Callable[[], Any]) -> Any:
        """`record()`, repeated until what is carried is known."""
        for _ in range(_ATTEMPTS):
            try:
                return record()
            except _Again:
                continue
        raise CaptureError(
            f"the types of {', '.join(self.names)} do not settle in a loop over tensors"
        )


_BOOL = aval((), dt.bool_)


def _entered(tensor: Tensor, tracked: bool) -> Tensor:
    if tracked and state.trace.tape:
        tensor.stop_gradient = False
    return same(tensor)


def _is_carry(x: Any) -> bool:
    return x.__class__ in TENSOR_TYPES or is_number(x)


def _widest(leaf: _Leaf, x: Tensor) -> Aval | None:
    """The carry's type, if the new one could only go back and forth with it."""
    new = x._value.aval
    assert leaf.type is not None  # noqa: S101 (the caller carries it)
    return leaf.type if new.ndim < leaf.type.ndim else None


def _changed(name: str, old: Any, new: Any) -> str:
    return (
        f"'{name}' is {describe(old)} before and {describe(new)} after an iteration of a loop that "
        "depends on a tensor; there a variable must keep its type and shape"
    )


def _reshaped(name: str, old: Any, new: Any) -> str:
    def show(x: Any) -> str:
        return f"a {type(x).__name__} of {len(x)}" if hasattr(x, "__len__") else describe(x)

    return (
        f"'{name}' is {show(old)} before and {show(new)} after an iteration of a loop that depends "
        "on a tensor; there a list or dict cannot grow or shrink"
    )


def _operands(*traces: BodyTrace) -> tuple[list[Tensor], list[Value]]:
    found: dict[int, Tensor] = {}
    for trace in traces:
        found.update(trace.operands)
    return list(found.values()), [t._value for t in found.values()]


def while_loop(
    test: Function,
    body: Function,
    names: Sequence[str],
    values: Sequence[Any],
    wanted: Sequence[bool] | None = None,
) -> list[Any]:
    """The variables after `body` was repeated while `test` of them holds."""
    loop = Loop(names, values, [True] * len(names) if wanted is None else wanted)

    def one() -> tuple[BodyTrace, list[Any]]:
        trace = loop.trace()
        with recording_into(trace):
            return trace, loop.step(body, trace, 0)

    stepped, slots = loop.stable(one)
    tested = loop.trace()
    with recording_into(tested):
        inside, _ = loop.enter(tested, 0)
        holds = test(inside)
        if holds.__class__ not in TENSOR_TYPES:
            holds = full([], bool(holds), "bool")
        if holds.size != 1:
            raise CaptureError(
                f"the condition of a loop must have one element. Received: shape {holds.shape}"
            )
        answer = Out(tested, holds).slot
        mine = {id(t) for t, _ in loop.outer}
        if [t for t, _ in tested.outer_writes() if id(t) not in mine]:
            raise CaptureError("the condition of a loop over tensors changes a tensor in place")
    tensors, operands = _operands(stepped, tested)
    bodies = tested.body([answer], operands), stepped.body(slots, operands)
    keys = [k for t, b in zip((tested, stepped), bodies, strict=True) for k in draw(t, b)]
    return loop.leave(ops.while_loop(loop.first(), tensors, keys, *bodies))


def scan(
    body: Callable[[Any, list[Any], list[Any]], Any],
    rows: Sequence[Tensor],
    length: Any,
    names: Sequence[str],
    values: Sequence[Any],
    wanted: Sequence[bool] | None = None,
) -> list[Any]:
    """The variables after `body(i, one row of each, variables)` ran for i = 0 … length - 1."""
    loop = Loop(names, values, [True] * len(names) if wanted is None else wanted)
    types = [aval(r._value.aval.shape[1:], r.dtype) for r in rows]
    tracked = [r._node is not None for r in rows]

    def one() -> tuple[BodyTrace, list[Any]]:
        trace = loop.trace([aval((), dt.int64)], types)
        with recording_into(trace):
            given = trace.arguments
            n = len(given) - len(rows)
            items = [_entered(t, on) for t, on in zip(given[n:], tracked, strict=True)]
            carried = [*given[:n]]
            trace.arguments = carried
            try:
                slots = loop.step(lambda v: body(given[0], items, v), trace, 1)
            finally:
                trace.arguments = given
            return trace, slots

    trace, slots = loop.stable(one)
    tensors, operands = _operands(trace)
    step = trace.body(slots, operands)
    made = ops.scan(loop.first(), list(rows), tensors, draw(trace, step), step, length)
    return loop.leave(made)
