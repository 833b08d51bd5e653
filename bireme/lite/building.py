"""The runtime's library: the one in the package, or built once with a C++ compiler.

Only Python's own modules are imported at the top: setup.py reads this file before there is a
package.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

NAME = "libbireme_lite.so"
FLAGS = (
    "-std=c++17",
    "-O2",
    "-ftree-vectorize",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-w",
    "-ffp-contract=off",
    "-DLITE_THREADS",
)
LINK = ("-shared", "-Wl,--gc-sections", "-s")
LIBRARIES = ("-lm", "-lpthread")
_X86 = {
    "avx2.cc": ("-mavx2", "-mfma"),
    "avx512.cc": (
        "-mavx512f",
        "-mavx512vl",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx2",
        "-mfma",
        "-mprefer-vector-width=512",
    ),
}
_TIMEOUT = 600

_here = Path(__file__).parent


def compiler_calls(compiler: str, folder: Path, machine: str) -> list[list[str]]:
    """The compiler's calls for all sources in `folder`, without their outputs."""
    x86 = machine in ("x86_64", "AMD64")
    calls = []
    for source in sorted(
        p for part in ("src", "ops", "kernels") for p in (folder / part).glob("*.cc")
    ):
        extra = _X86.get(source.name, ())
        if extra and not x86:
            continue
        if source.parent.name == "kernels":
            extra = ("-ffp-contract=fast", *extra)
        calls.append(
            [compiler, *FLAGS, *(["-DLITE_X86"] if x86 else []), *extra, "-c", str(source)]
        )
    return calls


def build(folder: Path, target: Path) -> Path | None:
    """Build the library of the sources in `folder` as `target`; None without a compiler."""
    names = (os.environ.get("CXX"), "g++", "c++", "clang++")
    compiler = next((c for c in names if c and shutil.which(c)), None)
    if compiler is None:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        objects = [f"{work}/{n}.o" for n in range(100)]
        calls = compiler_calls(compiler, folder, platform.machine())
        for call, out in zip(calls, objects, strict=False):
            subprocess.run([*call, "-o", out], check=True, timeout=_TIMEOUT)
        link = [compiler, *LINK, *objects[: len(calls)], "-o", str(target), *LIBRARIES]
        subprocess.run(link, check=True, timeout=_TIMEOUT)
    return target


def sources() -> Path | None:
    """The folder of the runtime's sources: in the package, or beside it in a checkout."""
    for folder in (_here / "source", _here.parent.parent / "lite"):
        if (folder / "include" / "bireme_lite.h").is_file():
            return folder
    return None


@functools.cache
def library() -> ctypes.CDLL:
    """The library, built on first need. Raises LiteUnavailable."""
    from bireme.host import cache_folder
    from bireme.kernels import native
    from bireme.kernels.native import building
    from bireme.lite.errors import LiteUnavailable

    ready = _here / "built" / NAME
    if ready.is_file():
        return ctypes.CDLL(str(ready))
    folder, compiler, cache = sources(), native.compiler(), cache_folder.inside("native")
    if folder is None or compiler is None or cache is None:
        raise LiteUnavailable(
            "the runtime of Bireme Lite is not in this package, and building it needs its sources, "
            "a C++ compiler (g++) and a cache folder"
        )
    calls = compiler_calls(compiler, folder, platform.machine())
    target = Path(cache) / f"bireme_kernels_lite_{_digest(folder, calls)}.so"
    try:
        made = building.opened(target, calls, [compiler, *LINK], LIBRARIES)
    except (OSError, building.BuildFailed) as e:
        raise LiteUnavailable(
            f"the runtime of Bireme Lite could not be built: {str(e)[:600]}"
        ) from None
    building.keep_young(target)
    return made


def _digest(folder: Path, calls: Sequence[Sequence[str]]) -> str:
    digest = hashlib.sha256(repr(calls).encode())
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cc", ".h", ".inc", ".def"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:20]
