"""How much memory this process and its devices use."""

from __future__ import annotations

import sys

from bireme.device.memory import live_bytes
from bireme.host import jax_door


def memory_figures() -> dict[str, int]:
    """Bytes: the process's peak, live arrays, and in use / peak / limit of each accelerator."""
    figures = {"process peak": peak_process_bytes(), "live arrays": live_bytes()}
    if jax_door.is_loaded():
        for device in jax_door.jax().local_devices():
            stats = device.memory_stats() or {}
            for name, key in (
                ("in use", "bytes_in_use"),
                ("peak", "peak_bytes_in_use"),
                ("limit", "bytes_limit"),
            ):
                if key in stats:
                    figures[f"{device.platform}:{device.id} {name}"] = int(stats[key])
    return figures


def peak_process_bytes() -> int:
    """The most memory that this process ever occupied; 0 where the system does not say.

    Linux keeps `ru_maxrss` over fork and exec: a child would report its parent's peak.
    """
    if sys.platform == "linux":
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
