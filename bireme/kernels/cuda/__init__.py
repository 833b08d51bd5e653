"""Kernels in CUDA through XLA's FFI, built once per machine where CUDA's compiler is there.

Without it (or with `BIREME_NATIVE=0`) kernels written in Pallas are used. The library is kept in
the cache folder, keyed by sources, compilers, the GPU's generation and jaxlib.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from bireme.core import config, jax_door
from bireme.kernels import native, nvidia
from bireme.kernels.cuda import toolchain

HANDLERS = ("bireme_decoder",)
_CXX = ("-std=c++17", "-O2", "-fPIC", "-w")
_NVCC = ("-std=c++17", "-O3", "-Xcompiler", "-fPIC")

_OLDEST = 90  # Hopper, which copies tiles into shared memory on its own

_here = Path(__file__).parent


def _library_path(compilers: tuple[str, str], generation: str) -> Path:
    from jaxlib.version import __version__ as jaxlib_version

    digest = hashlib.sha256()
    for name in sorted(p.name for p in _here.iterdir() if p.suffix in (".cc", ".cu", ".h")):
        digest.update((_here / name).read_bytes())
    for part in (*_CXX, *_NVCC, *compilers, generation, jaxlib_version):
        digest.update(part.encode())
    return Path(config.cache_dir) / "native" / f"bireme_cuda_{digest.hexdigest()[:20]}.so"


def _build(path: Path, compilers: tuple[str, str], generation: str) -> None:
    """Compile the sources into `path`, atomically."""
    host, device = compilers
    path.parent.mkdir(parents=True, exist_ok=True)
    target = f"-gencode=arch=compute_{generation},code=sm_{generation}"

    def run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        objects = []
        for source in sorted((*_here.glob("*.cc"), *_here.glob("*.cu"))):
            made = str(Path(folder) / f"{source.name}.o")
            if source.suffix == ".cu":
                run(device, *_NVCC, target, "-c", str(source), "-o", made)
            else:
                headers = (f"-I{jax_door.jax().ffi.include_dir()}", *toolchain.headers(device))
                run(host, *_CXX, *headers, "-c", str(source), "-o", made)
            objects.append(made)
        library = str(Path(folder) / path.name)
        run(
            host,
            "-shared",
            "-Wl,-Bsymbolic",
            *objects,
            "-o",
            library,
            *toolchain.runtime(device),
        )
        os.replace(library, path)
    native.remove_old(path)


@functools.cache
def available() -> bool:
    """Whether the kernels are there; builds and registers them on first need."""
    host, device = native.compiler(), toolchain.nvcc()
    if nvidia.interpreted() or host is None or device is None:
        return False
    if os.environ.get("BIREME_NATIVE", "1") == "0" or not config.cache_dir or config.forked:
        return False
    compilers, generation = (host, device), nvidia.generation()
    if int(generation) < _OLDEST:
        return False
    try:
        path = _library_path(compilers, generation)
        if not path.exists():
            _build(path, compilers, generation)
        with suppress(OSError):  # a folder that is only read
            os.utime(path)  # says when it was last used
        _register(ctypes.CDLL(str(path)))
    except (OSError, subprocess.SubprocessError, AttributeError) as e:
        detail = getattr(e, "stderr", None) or str(e)
        warnings.warn(
            f"the CUDA kernels could not be built, Pallas ones are used: {detail[:400]}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def _register(library: Any) -> None:
    jax = jax_door.jax()
    for name in HANDLERS:
        capsule = jax.ffi.pycapsule(getattr(library, name))
        jax.ffi.register_ffi_target(name, capsule, platform="CUDA")
