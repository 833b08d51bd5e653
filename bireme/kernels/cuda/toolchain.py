"""CUDA's compiler, and what its host compiler needs to know."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def nvcc() -> str | None:
    """CUDA's compiler, if it is installed."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    inside = os.path.join(home, "bin", "nvcc") if home else None
    return inside if inside and os.path.exists(inside) else shutil.which("nvcc")


def _home(found: str) -> Path:
    # The command may be a link or a script that stands elsewhere; nvcc itself knows its folder.
    said = subprocess.run(
        [found, "--dryrun", "-x", "cu", os.devnull, "-o", os.devnull],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in said.stderr.splitlines():
        if line.startswith("#$ TOP="):
            return Path(line.removeprefix("#$ TOP=").strip())
    return Path(os.path.realpath(found)).parent.parent


def headers(found: str) -> list[str]:
    """Where the headers of this compiler are, for the compiler of the host."""
    return [f"-I{_home(found) / 'include'}"]


def runtime(found: str) -> list[str]:
    """What links the runtime of this compiler in: it finds the process's one driver by itself."""
    return [f"-L{_home(found) / 'lib64'}", "-lcudart_static", "-lrt", "-lpthread", "-ldl"]
