"""Forgetting Calls and types: a process that meets ever new shapes must not grow with them.

Each table that finds them is a plain dict, for speed. When many Calls have been made, all tables
are emptied into dicts of weak references, where a look-up that misses finds what is still alive:
Calls of remembered programs and of gradient tapes, with the ids that they had. The rest goes.

A trace holds ids alone. So what was in the tables is kept until the next time, what traces mention
is kept as long as they do, and ops that may go away (captured graphs) say which Calls they give.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

from bireme.core import aval
from bireme.core.trace import every_trace

if TYPE_CHECKING:
    from bireme.core.op import Call, Op

EVERY = 8192  # Calls made between two times

CALLS: WeakValueDictionary[int, Call] = WeakValueDictionary()  # every Call by its id
_ops: WeakSet[Op] = WeakSet()
_caches: list[Callable[[], None]] = []
_retired: list[Any] = []  # what the tables held the last time, and what traces mention
_used: dict[int, Call] = {}  # given since then by ops that may go away
_lock = threading.Lock()


def enrol(op: Op) -> None:
    """Look after the tables of an op that has no name of its own."""
    _ops.add(op)


def on_eviction(clear: Callable[[], None]) -> None:
    """Call `clear` each time, to empty a cache that holds Calls or their ids."""
    _caches.append(clear)


def use(call: Call) -> None:
    """Let a Call live as long as one from a table, even if its op goes away."""
    _used[call.id] = call


def evict() -> None:
    """Empty the tables; what nobody else holds is gone after the next time."""
    from bireme.core.op import OPS

    global _retired, _used
    if not _lock.acquire(blocking=False):  # another thread is at it
        return
    try:
        held: list[Any] = [_used]
        _used = {}
        mentioned = {n for t in every_trace() for n in list(t.code)}  # slots too: some too many
        held += [CALLS.get(n) for n in mentioned]
        # Held from here on, before anything leaves a table: Ctrl-C may come at any time, and other
        # threads go on recording.
        _retired = [_retired, held]
        for op in [*OPS.values(), *list(_ops)]:
            op.evict(held)
        for clear in _caches:
            clear()
        held += aval.evict()
        _retired = held
    finally:
        _lock.release()
