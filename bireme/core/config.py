"""The few switches of the engine, read once from the environment and settable at run time."""

from __future__ import annotations

import os
from collections.abc import Callable

# What a worker process does before it reads what it was sent (see bireme.compat).
in_workers: list[Callable[[], None]] = []

# True in a process that was forked from one that had XLA running: its threads are gone, so
# only the NumPy tier may be used.
forked = False

# True once a tensor was sharded over several devices: shardings then join the cache key.
sharded = False

# 'auto': new traces run in the cold tier and repeated ones are compiled in the background;
# 'sync': the same, but the compilation is waited for; 'always': compile at first sight;
# 'never': cold tier only.
compile_mode = os.environ.get("BIREME_COMPILE", "auto")

# 'step' (the default) defers as long as nobody looks; 'op' runs every op at its call.
eager_mode = os.environ.get("BIREME_EAGER", "step")

max_trace_ops = int(os.environ.get("BIREME_MAX_TRACE", "4096"))
max_programs = int(os.environ.get("BIREME_MAX_PROGRAMS", "512"))
check_nan_inf = os.environ.get("BIREME_CHECK_NAN_INF", "0") == "1"

cache_dir = os.environ.get(
    "BIREME_CACHE_DIR",
    os.path.join(
        os.environ.get("XDG_CACHE_HOME", os.path.join(os.path.expanduser("~"), ".cache")), "bireme"
    ),
)


def trace_limit() -> int:
    return 0 if eager_mode == "op" else max_trace_ops
