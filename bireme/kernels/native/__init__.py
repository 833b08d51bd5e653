"""Native CPU kernels (C++ through XLA's FFI), built once per machine.

The library is compiled with the machine's own instruction set when a C++ compiler is there, kept in
the cache folder, and keyed by sources, compiler, CPU and jaxlib; a build removes libraries that
nobody has loaded for a month. Without a compiler the plain lowerings are used. `BIREME_NATIVE=0`
turns it off; `BIREME_NATIVE_FLAGS` adds compiler flags (`make test-asan` builds it with sanitizers
that way).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from bireme.core import config, jax_door

HANDLERS = (
    "bireme_attention_forward",
    "bireme_attention_backward",
    "bireme_linear_grads",
    "bireme_linear_weight_grads",
    "bireme_bfloat16_linear",
    "bireme_bfloat16_weight_grads",
    "bireme_bfloat16_grads",
    "bireme_conv_forward",
    "bireme_conv_input_grad",
    "bireme_conv_weight_grad",
    "bireme_conv_grads",
    "bireme_depthwise_forward",
    "bireme_depthwise_input_grad",
    "bireme_depthwise_weight_grad",
    "bireme_depthwise_grads",
    "bireme_channel_moments",
    "bireme_channel_pulls",
    "bireme_max_pool_forward",
    "bireme_max_pool_grad",
    "bireme_packed_conv",
    "bireme_packed_depthwise",
    "bireme_squeeze_excite",
    "bireme_channel_means",
    "bireme_layer_norm",
    "bireme_lstm_forward",
    "bireme_lstm_backward",
    "bireme_gru_forward",
    "bireme_gru_backward",
    "bireme_simple_rnn_forward",
    "bireme_simple_rnn_backward",
)
_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fPIC", "-w"),
    *os.environ.get("BIREME_NATIVE_FLAGS", "").split(),
)
_KEPT = 30 * 24 * 3600  # seconds that a library stays after it was last loaded

_here = Path(__file__).parent
_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_failed = False


def compiler() -> str | None:
    """The C++ compiler, if there is one."""
    return next(
        (c for c in (os.environ.get("CXX"), "g++", "c++", "clang++") if c and shutil.which(c)), None
    )


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next((line for line in f if line.startswith("flags")), platform.processor())
    except OSError:
        return platform.processor()


def library_path() -> Path:
    """Where the library for these sources, this compiler and this machine is kept."""
    from jaxlib.version import __version__ as jaxlib_version

    digest = hashlib.sha256()
    for name in sorted(p.name for p in _here.iterdir() if p.suffix in (".cc", ".h")):
        digest.update((_here / name).read_bytes())
    for part in (*_FLAGS, str(compiler()), _cpu(), jaxlib_version):
        digest.update(part.encode())
    return Path(config.cache_dir) / "native" / f"bireme_kernels_{digest.hexdigest()[:20]}.so"


def build(path: Path) -> None:
    """Compile the sources into `path`, atomically; several at once, as there are cores."""
    path.parent.mkdir(parents=True, exist_ok=True)
    include = f"-I{jax_door.jax().ffi.include_dir()}"
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:

        def run(*arguments: str) -> None:
            command = [str(compiler()), *_FLAGS, *arguments]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)

        def compiled(source: Path) -> str:
            made = str(Path(folder) / f"{source.stem}.o")
            run(include, "-c", str(source), "-o", made)
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, sorted(_here.glob("*.cc"))))
        library = Path(folder) / path.name
        run("-shared", *objects, "-o", str(library))
        os.replace(library, path)
    remove_old(path)


def remove_old(keep: Path) -> None:
    """Remove the other libraries of this folder, and what broken builds left there, that nobody
    has used for a month. Processes that have one loaded keep it; one that finds it gone builds."""
    for path in keep.parent.iterdir():
        ours = path.suffix == ".so" and path.name.startswith(("bireme_kernels_", "bireme_cuda_"))
        left = path.is_dir() and path.name.startswith("tmp")
        with suppress(OSError):  # another process was faster, or the folder is not ours to clean
            if (ours or left) and path != keep and time.time() - path.stat().st_mtime > _KEPT:
                shutil.rmtree(path) if left else path.unlink()


def load() -> ctypes.CDLL | None:
    """The library with its handlers registered, built on first need; None where it cannot be."""
    global _library, _failed
    if _library is not None or _failed:
        return _library
    with _lock:
        if _library is not None or _failed:
            return _library
        if os.environ.get("BIREME_NATIVE", "1") == "0" or compiler() is None or config.forked:
            _failed = True
            return None
        try:
            path = library_path()
            if not path.exists():
                build(path)
            with suppress(OSError):  # a folder that is only read
                os.utime(path)  # says when it was last used
            _library = _register(_opened(path))
        except (OSError, subprocess.SubprocessError, AttributeError) as e:
            _failed = True  # first: the warning may be an error, and one attempt is enough
            detail = getattr(e, "stderr", None) or str(e)
            warnings.warn(
                f"the native CPU kernels could not be built, plain ones are used: {detail[:400]}",
                RuntimeWarning,
                stacklevel=2,
            )
    return _library


def _opened(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        if path.exists():
            raise
        build(path)  # removed as an old one, a moment ago
        return ctypes.CDLL(str(path))


def _register(library: Any) -> Any:
    jax = jax_door.jax()
    for name in HANDLERS:
        capsule = jax.ffi.pycapsule(getattr(library, name))
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    return library


def available() -> bool:
    return load() is not None


def unavailable() -> bool:
    """For the lowerings that are there for that case alone."""
    return not available()


def has_bfloat16() -> bool:
    """Whether the kernels were built for a CPU that multiplies bfloat16 numbers."""
    library = load()
    return library is not None and bool(library.bireme_has_bfloat16())


def vector_shape() -> tuple[int, int]:
    """Floats in a register, and how many registers of outputs lie side by side in a kernel."""
    library = load()
    if library is None:
        raise RuntimeError("there are no native kernels here")
    return library.bireme_lanes(), library.bireme_registers()
