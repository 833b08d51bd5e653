"""Kernels in CUDA through XLA's FFI, built once per machine where CUDA's compiler is there.

Without it (or with `BIREME_NATIVE=0`) kernels written in Pallas are used. The library is kept in
the cache folder, keyed by sources, compilers, the GPU's generation and jaxlib.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import warnings
from pathlib import Path
from typing import Any

from bireme.host import background, cache_folder, config, jax_door
from bireme.kernels import native, nvidia
from bireme.kernels.cuda import toolchain
from bireme.kernels.native import building

HANDLERS = ("bireme_decoder",)
_CXX = ("-std=c++17", "-O2", "-fPIC", "-w")
_NVCC = ("-std=c++17", "-O3", "-Xcompiler", "-fPIC")

_OLDEST = 90  # Hopper, which copies tiles into shared memory on its own

_here = Path(__file__).parent


def _library_path(folder: str, compilers: tuple[str, str], generation: str) -> Path:
    from jaxlib.version import __version__ as jaxlib_version

    digest = hashlib.sha256()
    for name in sorted(p.name for p in _here.iterdir() if p.suffix in (".cc", ".cu", ".h")):
        digest.update((_here / name).read_bytes())
    for part in (*_CXX, *_NVCC, *compilers, generation, jaxlib_version):
        digest.update(part.encode())
    return Path(folder) / f"bireme_cuda_{digest.hexdigest()[:20]}.so"


def _opened(path: Path, compilers: tuple[str, str], generation: str) -> ctypes.CDLL:
    host, device = compilers
    target = f"-gencode=arch=compute_{generation},code=sm_{generation}"
    headers = (f"-I{jax_door.jax().ffi.include_dir()}", *toolchain.headers(device))
    sources = [[host, *_CXX, *headers, "-c", str(p)] for p in sorted(_here.glob("*.cc"))]
    sources += [[device, *_NVCC, target, "-c", str(p)] for p in sorted(_here.glob("*.cu"))]
    link = [host, "-shared", "-Wl,-Bsymbolic"]
    return building.opened(path, sources, link, toolchain.runtime(device))


def available() -> bool:
    """Whether the kernels are there; builds and registers them on first need."""
    try:
        return _available()
    except background.Stopped:
        if background.is_worker():
            raise  # a program that will not run need not be compiled
        return False


@functools.cache
def _available() -> bool:
    host, device = native.compiler(), toolchain.nvcc()
    if nvidia.interpreted() or host is None or device is None:
        return False
    if os.environ.get("BIREME_NATIVE", "1") == "0" or config.forked:
        return False
    compilers, generation = (host, device), nvidia.generation()
    if int(generation) < _OLDEST:
        return False
    folder = cache_folder.inside("native")
    if folder is None:
        return False
    try:
        path = _library_path(folder, compilers, generation)
        _register(_opened(path, compilers, generation))
        building.keep_young(path)
    except (OSError, building.BuildFailed, AttributeError) as e:
        warnings.warn(
            f"the CUDA kernels could not be built, Pallas ones are used: {str(e)[:600]}",
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
