"""The few switches of the engine, read once from the environment and settable at run time."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

# What a worker process does before it reads what it was sent (see bireme.compat).
in_workers: list[Callable[[], None]] = []

# True in a process that was forked from one that had XLA running: its threads are gone, so
# only the NumPy tier may be used.
forked = False


@functools.cache
def watch_forks() -> None:
    """Have children that are forked from here on know it. Called before the first thread of a
    compiler starts."""
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _after_fork_in_child() -> None:
    global forked
    forked = True


# True once a tensor was sharded over several devices: shardings then join the cache key.
sharded = False

# True once a backend was loaded that another package brings: buffers may then be of kinds that
# some executables do not take.
several_backends = False

# 'auto': new traces run in the cold tier and repeated ones are compiled in the background;
# 'sync': the same, but the compilation is waited for; 'always': compile at first sight;
# 'never': cold tier only.
compile_mode = os.environ.get("BIREME_COMPILE", "auto")

# 'step' (the default) defers as long as nobody looks; 'op' runs every op at its call.
eager_mode = os.environ.get("BIREME_EAGER", "step")

max_trace_ops = int(os.environ.get("BIREME_MAX_TRACE", "4096"))
max_programs = int(os.environ.get("BIREME_MAX_PROGRAMS", "512"))
# Whether a GPU's float32 products and convolutions may round their inputs to TF32 (10 bits).
tf32 = os.environ.get("BIREME_TF32", "1") != "0"
check_nan_inf = os.environ.get("BIREME_CHECK_NAN_INF", "0") == "1"


def _cache_dir() -> str:
    """Where the user wants the cache; `cache_folder` says whether it may be used. Not below the
    current folder, however little the environment tells: what lies in the cache is run."""
    given = os.environ.get("BIREME_CACHE_DIR")
    if given is not None:
        return given
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the standard has such a value ignored
        if not os.environ.get("HOME", "unset"):
            return "~/.cache/bireme"
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "bireme")


# A path that is not absolute is used by nobody; nothing means that there is no cache.
cache_dir = _cache_dir()


def trace_limit() -> int:
    return 0 if eager_mode == "op" else max_trace_ops
