"""Native kernels that come with the package, one library for each instruction set.

`setup.py` builds them, and a process takes the best one that its CPU runs. Only Python's own
modules are imported here, because setup.py reads this file before there is a package.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple


class Variant(NamedTuple):
    """A build: its name, the compiler's flags, and what /proc/cpuinfo must list to run it."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]


_AVX2 = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# The best first.
VARIANTS = {
    "x86_64": (
        Variant("avx512bf16", ("-march=x86-64-v4", "-mavx512bf16"), _AVX512 | {"avx512_bf16"}),
        Variant("avx512", ("-march=x86-64-v4",), _AVX512),
        Variant("avx2", ("-march=x86-64-v3",), _AVX2),
    ),
    "aarch64": (Variant("neon", ("-march=armv8-a",), frozenset()),),
}
COMMON = ("-std=c++17", "-O3", "-fno-math-errno", "-fPIC", "-w", "-mtune=generic")
_TIMEOUT = 1800  # seconds for one source


def variants(machine: str | None = None) -> Sequence[Variant]:
    """The builds for a kind of machine."""
    return VARIANTS.get(platform.machine() if machine is None else machine, ())


def interface(include: Path) -> str:
    """The version of XLA's call interface in these headers: a library has that of its build."""
    header = (include / "xla" / "ffi" / "api" / "c_api.h").read_text()
    found = [re.search(rf"#define XLA_FFI_API_{p} (\d+)", header) for p in ("MAJOR", "MINOR")]
    return ".".join(m[1] if m else "?" for m in found)


def include_folder() -> Path | None:
    """Where jaxlib has its headers, without importing it."""
    spec = importlib.util.find_spec("jaxlib")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "include"
    return folder if folder.is_dir() else None


def best(folder: Path, features: frozenset[str], machine: str | None = None) -> Path | None:
    """The library in `folder` for a CPU with these features; None if there is none, or if it was
    built for another version of the interface."""
    note = folder / "interface"
    include = include_folder()
    if include is None or not note.exists() or note.read_text() != interface(include):
        return None
    for variant in variants(machine):
        path = folder / f"{variant.name}.so"
        if variant.needs <= features and path.exists():
            return path
    return None


def build(sources: Path, target: Path) -> list[Path]:
    """Compile every variant into `target`; none without a compiler or jaxlib's headers."""
    names = (os.environ.get("CXX"), "g++", "c++", "clang++")
    compiler = next((c for c in names if c and shutil.which(c)), None)
    include = include_folder()
    if compiler is None or include is None:
        return []
    target.mkdir(parents=True, exist_ok=True)
    made = [_built(compiler, include, v, sources, target) for v in variants()]
    (target / "interface").write_text(interface(include))
    return made


def _built(compiler: str, include: Path, variant: Variant, sources: Path, target: Path) -> Path:
    path = target / f"{variant.name}.so"
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(os.cpu_count()) as pool:

        def compiled(source: Path) -> str:
            out = f"{work}/{source.stem}.o"
            command = [compiler, *COMMON, *variant.flags, f"-I{include}", "-c", str(source)]
            subprocess.run([*command, "-o", out], check=True, timeout=_TIMEOUT)
            return out

        objects = list(pool.map(compiled, sorted(sources.glob("*.cc"))))
        subprocess.run(
            [compiler, "-shared", "-s", *objects, "-o", str(path)], check=True, timeout=_TIMEOUT
        )
    return path
