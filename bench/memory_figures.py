"""Resident memory of this process as Linux counts it."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def _field(name: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"{_STATUS} has no field {name}; the memory benchmark needs Linux")


def resident_mib() -> float:
    return _field("VmRSS")


def peak_mib() -> float:
    return _field("VmHWM")


def reset_peak() -> None:
    """Start a new peak from the present size ("5" is the kernel's code for that)."""
    _CLEAR_REFS.write_text("5")
