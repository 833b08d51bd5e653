"""Rollback: a failed run leaves everything as it was before.

Calls are recorded long before they run, so a tensor has its new contents, a leaf its gradient and a
generator its next position before the run can fail. Each such change adds an entry to `Trace.undo`
that can undo it. An entry names former contents by slot or identity, because a reference would keep
them from being donated, and a tensor by a weak reference, because a strong one would keep its
contents alive.

A rollback goes back to the beginning of the step in which the run failed: the last
`Trace.begin_step` before the failed operation, or the beginning of the trace. Assigned data
(`set_value`) depends on no run and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from bireme.core.value import Value, keep

if TYPE_CHECKING:
    from bireme.core.random import Generator
    from bireme.core.tensor import Tensor
    from bireme.core.trace import Trace

Former = int | Value  # former contents: a slot, or the value where the trace has no slot for it


class Contents:
    """A tensor gets new contents, and perhaps another history with them."""

    __slots__ = ("former", "node", "tensor")

    def __init__(self, trace: Trace, tensor: Tensor):
        slot = trace.known_slot(tensor._value)
        self.tensor = ref(tensor)
        self.former: Former = tensor._value if slot is None else slot
        self.node = tensor._node

    def take_back(self, failure: Failure) -> None:
        tensor = self.tensor()
        if tensor is not None and id(tensor) not in failure.assigned:
            tensor._value, tensor._node = failure.value(self.former), self.node


class AllContents:
    """Hundreds of tensors, which the trace has just computed with, get new contents; their history
    stays. Their former values are noted by `id`, since the trace has them and keeps them. A value
    that it does not have was used by a trace that reached its limit, and has run."""

    __slots__ = ("former", "tensors")

    def __init__(self, tensors: Sequence[Tensor], values: list[Value]):
        self.tensors = tensors
        self.former = list(map(id, values))

    def take_back(self, failure: Failure) -> None:
        known = failure.by_id()
        for tensor, former in zip(self.tensors, self.former, strict=True):
            if former in known and id(tensor) not in failure.assigned:
                tensor._value = failure.value(known[former])


class Assigned:
    """A tensor gets data. Earlier recorded contents of it no longer matter."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor):
        self.tensor = ref(tensor)

    def take_back(self, failure: Failure) -> None:
        tensor = self.tensor()
        if tensor is not None:
            failure.assigned.add(id(tensor))


class Gradients:
    """Leaves without a gradient get one; `leaves` are weak references to their tensors."""

    __slots__ = ("leaves",)

    def __init__(self, leaves: Iterable[Any]):
        self.leaves = leaves

    def take_back(self, failure: Failure) -> None:
        for leaf in self.leaves:
            tensor = leaf()
            if tensor is not None:
                tensor._grad = None


class Gradient:
    """A tensor, to which `leaf` is a weak reference, gets another gradient than it had."""

    __slots__ = ("former", "is_zero", "leaf")

    def __init__(self, trace: Trace, leaf: object, tensor: Tensor):
        former = tensor._grad
        self.leaf: Any = leaf
        self.is_zero = tensor._grad_is_zero
        self.former = None if former is None else former._former(trace)

    def take_back(self, failure: Failure) -> None:
        tensor = self.leaf()
        if tensor is not None and tensor._grad is not None:
            tensor._grad = None if self.former is None else self.former(failure)
            tensor._grad_is_zero = self.is_zero


class Drawn:
    """A generator hands out a key."""

    __slots__ = ("generator", "key")

    def __init__(self, generator: Generator, key: tuple[int, int]):
        self.generator = generator
        self.key = key

    def take_back(self, failure: Failure) -> None:
        self.generator.give_back(self.key)


class Failure:
    """A trace whose run failed, while its changes are taken back."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.leaves = list(trace.leaves)
        self.assigned: set[int] = set()  # ids of the tensors that got data

    def by_id(self) -> dict[int, Value]:
        """The values of the trace."""
        return {id(v): v for v in (*self.leaves, *self.trace.values)}

    def value(self, former: Former) -> Value:
        if isinstance(former, Value):
            value = former
        else:
            value = self.trace.values[former] if former >= 0 else self.leaves[-1 - former]
        keep(value)
        return value


def abandon_step(trace: Trace, start: int | None = None) -> None:
    """Undo what was recorded since the step began, or since `undo` had `start` entries, because a
    call raised. The trace goes on."""
    if start is None:
        start = trace.steps[-1][1] if trace.steps else 0
    entries = trace.undo[start:]
    del trace.undo[start:]
    failure = Failure(trace)
    for entry in reversed(entries):
        entry.take_back(failure)


def take_back(trace: Trace, failed: int | None) -> None:
    """Undo what was recorded since the step began in which the result `failed` was to be made;
    None: since the trace began."""
    start = 0
    if failed is not None:
        start = max([undo for values, undo in trace.steps if values <= failed], default=0)
    failure = Failure(trace)
    entries = trace.undo[start:]
    trace.undo, trace.steps, trace.failed = [], [], True
    for entry in reversed(entries):
        entry.take_back(failure)
    # Values that are still referenced point at the trace. If the trace pointed at them as well,
    # only the garbage collector would free it, and its inputs could not be donated until then.
    trace.values = range(len(trace.values))  # type: ignore[assignment] (only its length counts)
