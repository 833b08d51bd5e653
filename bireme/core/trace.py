"""The recorder: an eager call appends one entry to its thread's linear trace.

The hot path touches lists of integers only. `Trace.code` is a flat stream: the id of a `Call`
(op + attributes + input types, see `op.py`) followed by one slot per tensor input. A slot
that is >= 0 names an earlier result, a negative one the leaf `-1 - slot`. Because a Call's id
fixes every type, the stream is the whole structure of the program, and hashing it is the
cache look-up.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from bireme.core import rollback
from bireme.core.value import Overwritten, Value, promise, promises
from bireme.host import code_cache, config

if TYPE_CHECKING:
    from bireme.core.dtype import DType
    from bireme.core.op import Call, Op
    from bireme.core.random import Generator
    from bireme.core.tensor import Tensor


_UNUSED_KEYS = 256


class Autocast(Protocol):
    """The setting of `auto_cast`, as far as ops ask it."""

    def cast(self, op: Op, dtype: DType) -> DType: ...
    def __hash__(self) -> int: ...


class Trace:
    """What one thread has recorded since its last flush."""

    __slots__ = (
        "__weakref__", "amp", "closed", "code", "failed", "floats", "in_layer", "ints", "leaves",
        "limit", "lock", "nodes", "outputs", "results", "steps", "tape", "undo", "values",
    )  # fmt: skip

    # Whether what is recorded with open sizes is checked again once they are known.
    checked_for_sizes = False
    # Whether `exp_` and the like change their tensor: variables of a program stay as they are.
    changes_tensors = True

    def __init__(self, tape: bool = True, amp: object = None):
        self.code: list[int] = []
        self.values: list[Value] = []
        # The inputs with their slots, in order: the n-th has the slot ~n, which is -1 - n.
        self.leaves: dict[Value, int] = {}
        # Python numbers are run-time inputs: a changing one never recompiles.
        self.floats: list[float] = []
        self.ints: list[int] = []
        self.tape = tape
        # The gradient nodes of this trace's entries, in order (see replay.py). They go before
        # it runs: what only they hold is not wanted.
        self.nodes: list[Any] = []
        self.amp: Any = amp
        self.limit = config.trace_limit()
        self.lock = threading.RLock()
        # Results that came back but were not handed out yet, and the values they belong to.
        self.results: list[Any] = []
        self.outputs: list[int] = []
        # How to take back what the recorded calls changed, should the run fail (rollback.py).
        self.undo: list[Any] = []
        self.steps: list[tuple[int, int]] = []  # where they began: (results, undo) so far
        self.in_layer = False  # a layer is being called
        self.closed = False  # nothing is recorded any more: it ran, or waits to run
        self.failed = False  # it ran and failed, and what it had changed was taken back
        _traces.add(ref(self, _traces.discard))

    def leaf(self, value: Value, holder: object = None) -> int:
        """Make a value an input of this trace; returns its slot. `holder` is the tensor that holds
        it, or a sequence (of an op's arguments) with the tensor in it."""
        slot = self.leaves.get(value)
        if slot is None:
            if value.buf is None:
                materialize(value)
            slot = self.leaves[value] = ~len(self.leaves)
        return slot

    def slot_of(self, value: Value, holder: object = None) -> int:
        """The slot of a value, which becomes an input if this trace does not know it."""
        return value.slot if value.trace is self else self.leaf(value, holder)

    def may_use(self, value: Value) -> bool:
        """Whether calls may take a value that perhaps no tensor holds."""
        return True

    def known_slot(self, value: Value) -> int | None:
        """The slot of a value; None if this trace does not know it."""
        return value.slot if value.trace is self else self.leaves.get(value)

    def slots_of(self, values: Sequence[Value], holders: object = None) -> list[int]:
        """`slot_of` for each, where most are known."""
        get, leaf = self.leaves.get, self.leaf
        return [v.slot if v.trace is self else get(v) or leaf(v, holders) for v in values]

    # What a capture (capture.py) does in its own way:

    def flush(self) -> None:
        """Run the sealed step and what was recorded since; this thread, whose current trace this
        is, goes on with an empty one."""
        flush_sealed()
        if self.values:
            _run(fresh_trace())

    def seal(self) -> None:
        """See the function `seal`."""
        if self.values:
            flush_sealed()
            state.sealed = fresh_trace()

    def materialize(self, value: Value) -> None:
        """Compute a value of this trace, which is its thread's current one."""
        self.flush()

    def fold(self, value: Value) -> bool:
        """Whether a value is known while this trace is recorded: it has contents, or it follows
        from constants and the trace computes it."""
        return value.buf is not None

    def materialize_elsewhere(self, value: Value) -> None:
        """Compute a value of this trace for another thread."""
        _run_for_other_thread(self, value)

    def wrote(self, tensor: Tensor) -> None:
        """`tensor` is about to get new contents; its old ones are still in place."""
        if self.values:  # a run that makes nothing cannot fail
            self.undo.append(rollback.Contents(self, tensor))

    def wrote_all(self, tensors: list[Any], former: list[Value]) -> None:
        """`wrote` for each, with its former contents, which this trace has computed with."""
        if self.values:
            self.undo.append(rollback.AllContents(tensors, former))

    def assigned(self, tensor: Tensor) -> None:
        """`tensor` has got data, which depends on nothing that was recorded."""
        if self.values:
            self.undo.append(rollback.Assigned(tensor))

    def begin_step(self) -> None:
        """A failure from here on leaves what was recorded before."""
        at = len(self.undo)
        if at and (not self.steps or self.steps[-1][1] != at):
            self.steps.append((len(self.values), at))

    def next_key(self, generator: Generator) -> tuple[int, int]:
        """(seed, offset) for a random op that is being recorded."""
        key = generator.draw()
        if not self.values and len(self.undo) >= _UNUSED_KEYS:
            self.undo.clear()  # keys that nothing was recorded with
        self.undo.append(rollback.Drawn(generator, key))
        return key

    def detached(self, tensor: Tensor) -> Value:
        """The contents of `tensor`, cut off from its gradient."""
        return tensor._value

    def made(self, value: Value) -> None:
        """`value` was made from data."""

    def read(self, tensor: Tensor) -> None:
        """Python looked at the contents of `tensor`."""

    def named(self, tensor: Tensor) -> None:
        """`tensor`, whose contents this trace makes, has got a name."""

    def own_rule(self, what: str) -> None:
        """A gradient that is not an op's (a PyLayer, a hook) was put on the tape."""


# All that are alive, those of other threads and those that wait among them.
_traces: set[ref[Trace]] = set()


def every_trace() -> list[Trace]:
    """The traces of all threads, which may go on recording meanwhile."""
    return [t for r in list(_traces) if (t := r()) is not None]


class _State(threading.local):
    """The current trace of this thread. Modes (tape, amp) live on the trace and carry over."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.sealed: Trace | None = None


state = _State()

# Set by the executor; a hook keeps `trace` free of imports from above.
_run: Callable[[Trace], None]
_run_for_other_thread: Callable[[Trace, Value], None]


def set_runner(run: Callable[[Trace], None], foreign: Callable[[Trace, Value], None]) -> None:
    global _run, _run_for_other_thread
    _run, _run_for_other_thread = functools.partial(_run_first, run), foreign


def _run_first(run: Callable[[Trace], None], trace: Trace) -> None:
    """The first run of this process, which has computed something from now on."""
    global _run
    _run = run
    code_cache.save_at_exit()
    run(trace)


def record(
    call: Call, trace: Trace, inputs: tuple[Any, ...], holders: object = None
) -> list[Value]:
    """Append `call` on already flattened inputs: Values, Python numbers, or None. The tensors that
    hold the Values are among `holders`, as far as there are any."""
    used: Sequence[Any] = inputs
    floats = ints = ()
    if len(call.tensors_at) != len(inputs):
        used = [inputs[i] for i in call.tensors_at]
        if call.floats_at:
            floats = [inputs[i] for i in call.floats_at]
        if call.ints_at:
            ints = [inputs[i] for i in call.ints_at]
    code = (call.id, *trace.slots_of(used, holders))
    values = trace.values
    slot = len(values)
    if call.single:
        outs = [promise(call.out, trace, slot)]
    else:
        outs = promises(call.outs, trace, slot)
    # Ctrl-C is raised after calls and at the ends of loops. There are none here: an entry is
    # recorded whole or not at all.
    trace.code += code
    trace.floats += floats
    trace.ints += ints
    values += outs
    if slot >= trace.limit:
        trace.flush()
    return outs


def record_many(
    call: Call, trace: Trace, values: list[Value], floats: list[float], holders: object
) -> list[Value]:
    """`record` for a call on hundreds of tensors."""
    code = [call.id, *trace.slots_of(values, holders)]
    slot = len(trace.values)
    outs = promises(call.outs, trace, slot)
    trace.code += code
    trace.floats += floats
    trace.values += outs
    if slot >= trace.limit:
        trace.flush()
    return outs


def fresh_trace() -> Trace:
    """Replace this thread's trace by an empty one that keeps its modes; returns the old one."""
    old = state.trace
    made = type(old)(old.tape, old.amp)
    made.in_layer = old.in_layer
    state.trace = made
    old.closed = True
    return old


def seal() -> None:
    """Mark a step boundary.

    What was recorded runs at the next `flush`, at the first use of one of its results, or when
    the next step is sealed. The delay lets `clear_grad()` right after `step()` drop the
    gradients, so that they are never written to memory.
    """
    state.trace.seal()


def flush_sealed() -> None:
    """Run the sealed step, if there is one."""
    sealed = state.sealed
    if sealed is not None:
        state.sealed = None
        _run(sealed)


def flush() -> None:
    """Run everything this thread has recorded."""
    state.trace.flush()


def materialize(value: Value) -> None:
    """Make sure that `value` has a buffer."""
    owner = value.trace  # before the buffer: another thread may be delivering it
    if value.buf is not None:
        return
    if owner is None:
        raise RuntimeError("a tensor without contents was read; this is a bug in Bireme")
    if owner is state.sealed:
        flush_sealed()
    elif owner is state.trace:
        owner.materialize(value)
    else:
        owner.materialize_elsewhere(value)


__all__ = [
    "Overwritten",
    "Trace",
    "Value",
    "every_trace",
    "flush",
    "flush_sealed",
    "fresh_trace",
    "materialize",
    "record",
    "record_many",
    "seal",
    "set_runner",
    "state",
]
