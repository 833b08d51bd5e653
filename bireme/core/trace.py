"""The recorder: an eager call appends one entry to its thread's linear trace.

The hot path touches lists of integers only. `Trace.code` is a flat stream: the id of a `Call`
(op + attributes + input types, see `op.py`) followed by one slot per tensor input. A slot
that is >= 0 names an earlier result, a negative one the leaf `-1 - slot`. Because a Call's id
fixes every type, the stream is the whole structure of the program, and hashing it is the
cache look-up.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bireme.core import config
from bireme.core.aval import Aval

if TYPE_CHECKING:
    from bireme.core.op import Call


class Value:
    """One SSA value: a promise until its trace runs, a buffer after.

    Tensors and gradient nodes point at Values, never the other way round, so the reference
    count of a Value says whether anyone can still ask for it.
    """

    __slots__ = ("aval", "buf", "slot", "trace")

    def __init__(self, aval: Aval, trace: Trace | None, slot: int, buf: Any = None):
        self.aval = aval
        self.trace = trace
        self.slot = slot
        self.buf = buf


class Trace:
    """What one thread has recorded since its last flush."""

    __slots__ = (
        "amp", "code", "floats", "ints", "leaves", "limit", "lock", "nodes", "outputs", "results",
        "tape", "values",
    )  # fmt: skip

    def __init__(self, tape: bool = True, amp: Any = None):
        self.code: list[int] = []
        self.values: list[Value] = []
        self.leaves: list[Value] = []
        # Python numbers are run-time inputs: a changing one never recompiles.
        self.floats: list[float] = []
        self.ints: list[int] = []
        self.tape = tape
        # The gradient nodes of this trace's entries, in order (see replay.py). They go before
        # it runs: what only they hold is not wanted.
        self.nodes: list[Any] = []
        self.amp = amp
        self.limit = config.trace_limit()
        self.lock = threading.RLock()
        # Results that came back but were not handed out yet, and the values they belong to.
        self.results: list[Any] = []
        self.outputs: list[int] = []

    def leaf(self, value: Value) -> int:
        """Make a materialised value an input of this trace; returns its slot."""
        if value.buf is None:
            if value.trace is None:
                raise RuntimeError("a tensor without contents was used; this is a bug in Bireme")
            materialize(value)
        slot = -1 - len(self.leaves)
        self.leaves += (value,)  # not append(): see `record` about Ctrl-C
        value.slot = slot
        value.trace = self
        return slot

    def leaf_all(self, values: list[Value]) -> None:
        """`leaf` for all that are not in this trace yet."""
        new = list(dict.fromkeys([v for v in values if v.trace is not self]))
        for value in [v for v in new if v.buf is None]:
            materialize(value)
        slot = -1 - len(self.leaves)
        self.leaves += new
        for value in new:
            value.slot = slot
            value.trace = self
            slot -= 1

    def full(self) -> None:
        """The trace reached its limit: run it and go on with an empty one."""
        flush()

    # What a capture (capture.py) does in its own way:

    def run_now(self) -> None:
        """Run what was recorded; this thread goes on with an empty trace."""
        if self.values:
            _run(fresh_trace())

    def end_step(self) -> None:
        """See `seal`."""
        if self.values:
            flush_sealed()
            state.sealed = fresh_trace()

    def settle(self, value: Value) -> None:
        """Compute a value of this trace, which is its thread's current one."""
        flush()

    def settle_elsewhere(self, value: Value) -> None:
        """Compute a value of this trace for another thread."""
        _run_for_other_thread(self, value)

    def wrote(self, tensor: Any) -> None:
        """`tensor` is about to get new contents; its old ones are still in place."""

    def wrote_all(self, tensors: list[Any]) -> None:
        """`wrote` for each."""

    def next_key(self, generator: Any) -> tuple[int, int]:
        """(seed, offset) for a random op that is being recorded."""
        return generator.draw()

    def detached(self, value: Value) -> Value:
        """`value` as the contents of a tensor that is cut off from its gradient."""
        return value

    def made(self, value: Value) -> None:
        """`value` was made from data."""

    def read(self, tensor: Any) -> None:
        """Python looked at the contents of `tensor`."""

    def own_rule(self, what: str) -> None:
        """A gradient that is not an op's (a PyLayer, a hook) was put on the tape."""


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
    _run, _run_for_other_thread = run, foreign


def record(call: Call, trace: Trace, inputs: tuple[Any, ...]) -> list[Value]:
    """Append `call` on already flattened inputs: Values, Python numbers, or None."""
    used = inputs
    floats = ints = ()
    if len(call.tensors_at) != len(inputs):
        used = [inputs[i] for i in call.tensors_at]
        if call.floats_at:
            floats = [inputs[i] for i in call.floats_at]
        if call.ints_at:
            ints = [inputs[i] for i in call.ints_at]
    for value in used:
        if value.trace is not trace:
            trace.leaf(value)
    code = (call.id, *[v.slot for v in used])
    values = trace.values
    slot = len(values)
    if call.single:
        outs = [Value(call.out, trace, slot)]
    else:
        outs = [Value(a, trace, i) for i, a in enumerate(call.outs, slot)]
    # Ctrl-C is raised after calls and at the ends of loops. There are none here: an entry is
    # recorded whole or not at all.
    trace.code += code
    trace.floats += floats
    trace.ints += ints
    values += outs
    if slot >= trace.limit:
        trace.full()
    return outs


def record_many(call: Call, trace: Trace, values: list[Value], floats: list[float]) -> list[Value]:
    """`record` for a call on hundreds of tensors."""
    trace.leaf_all(values)
    code = [call.id, *[v.slot for v in values]]
    slot = len(trace.values)
    outs = [Value(a, trace, i) for i, a in enumerate(call.outs, slot)]
    trace.code += code
    trace.floats += floats
    trace.values += outs
    if slot >= trace.limit:
        trace.full()
    return outs


def fresh_trace() -> Trace:
    """Replace this thread's trace by an empty one that keeps its modes; returns the old one."""
    old = state.trace
    state.trace = type(old)(old.tape, old.amp)
    return old


def seal() -> None:
    """Mark a step boundary.

    What was recorded runs at the next `flush`, at the first use of one of its results, or when
    the next step is sealed. The delay lets `clear_grad()` right after `step()` drop the
    gradients, so that they are never written to memory.
    """
    state.trace.end_step()


def flush_sealed() -> None:
    """Run the sealed step, if there is one."""
    sealed = state.sealed
    if sealed is not None:
        state.sealed = None
        _run(sealed)


def flush() -> None:
    """Run everything this thread has recorded."""
    flush_sealed()
    state.trace.run_now()


def materialize(value: Value) -> None:
    """Make sure that `value` has a buffer."""
    if value.buf is not None:
        return
    owner = value.trace
    if owner is None:
        raise RuntimeError("a tensor without contents was read; this is a bug in Bireme")
    if owner is state.sealed:
        flush_sealed()
    elif owner is state.trace:
        owner.settle(value)
    else:
        owner.settle_elsewhere(value)


def _after_fork_in_child() -> None:
    config.forked = True


os.register_at_fork(after_in_child=_after_fork_in_child)
