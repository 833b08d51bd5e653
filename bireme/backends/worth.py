"""Whether a program of the cold tier is worth compiling by now.

Nobody knows how often a program will run again. So its compilation begins when the time that it has
already spent in the cold tier, weighed with what a compiled program would have saved of it, is as
much as the compilation will take: then at most twice the time is spent that a clairvoyant would
have. A size that is seen once never costs a compilation, nor does a program that ends first.

What a compilation takes is estimated from the number of ops, and corrected by those that this
process has seen, of programs with the same ops in other sizes first of all. If the disk has the
program, tracing and loading remain.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

from bireme.core import kernels
from bireme.core.cache import BoundedCache
from bireme.host import cache_folder, jax_door, thresholds

if TYPE_CHECKING:
    from bireme.core.program import Program

# Seconds of a core: importing JAX and making its client, and per program and op compiling, or
# tracing and loading (two cores, 12 to 152 ops).
IMPORTING = 1.5
PER_PROGRAM, PER_OP = 0.2, 0.025
PER_LOADED_OP = 0.008
# What of the time in the cold tier a compiled program would save: most of it where an op costs less
# than Python needs to call it, else what XLA's fusion does for memory.
SAVED_SMALL, SAVED_LARGE = 0.8, 0.4

clock = time.perf_counter


class _Learned:
    """What compilations of this process took, compared with the estimate."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.by_ops: BoundedCache[tuple[str, ...], float] = BoundedCache(1024)


learned = _Learned()


def pays(program: Program) -> bool:
    """Whether to compile a program, by the seconds that it has spent in the cold tier."""
    spent = program.cold_seconds
    if program.hits < 2:
        return False
    each = spent / (program.cold_runs or 1) / (program.size or 1)
    saved = spent * (SAVED_SMALL if each < thresholds.SMALL_OP else SAVED_LARGE)
    if saved >= cost(program):
        return True
    if spent < thresholds.LOOKED_FOR_ON_DISK:
        return False
    if program.on_disk is None:
        program.on_disk = _is_on_disk(program)
    return program.on_disk and saved >= cost(program, loaded=True)


def cost(program: Program, loaded: bool = False) -> float:
    """The seconds that a compilation will take, or loading from disk."""
    importing = 0.0 if jax_door.is_loaded() else IMPORTING
    if loaded:
        return importing + PER_LOADED_OP * program.size
    known = learned.by_ops.get(_ops(program))
    if known is not None:
        return importing + known
    return importing + learned.factor * _estimate(program)


def learn(program: Program, seconds: float) -> None:
    """Note what a compilation took."""
    if program.on_disk:
        return  # it was loaded
    learned.by_ops.add(_ops(program), seconds)
    ratio = min(max(seconds / _estimate(program), 0.2), 5.0)
    learned.factor += (ratio - learned.factor) / 4
    if seconds >= thresholds.NOTED_ON_DISK:
        note = _note(program)
        if note is not None:
            cache_folder.store(note, b"")


def _estimate(program: Program) -> float:
    return PER_PROGRAM + PER_OP * program.size


def _ops(program: Program) -> tuple[str, ...]:
    return tuple([n.call.op.name for n in program.nodes])


# --- on disk ------------------------------------------------------------------------------------


def _note(program: Program) -> str | None:
    """The file that says that the disk has a program; its name stands for all that decides what is
    compiled. None without a cache, and for a program whose attributes have no lasting text."""
    folder = cache_folder.inside("xla", make=False, tell=False)
    if folder is None or any("graph" in n.call.attrs for n in program.nodes):
        return None
    digest = hashlib.sha256()
    parts = [kernels.settings(), program.donated, program.watched, program.place, program.outputs]
    for part in (*parts, *program.graph.inputs):
        digest.update(f"{part}\n".encode())
    for node in program.nodes:
        digest.update(f"{node.call!r}{node.args}\n".encode())
    return os.path.join(folder, f"seen-{digest.hexdigest()[:32]}")


def _is_on_disk(program: Program) -> bool:
    note = _note(program)
    return note is not None and os.path.exists(note)
