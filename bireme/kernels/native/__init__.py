"""Native CPU kernels (C++), built once per machine. Compiled programs call them through XLA's FFI,
the cold tier directly (calling.py).

A wheel has libraries for several instruction sets (bundled.py). Elsewhere one is built, with the
machine's own instruction set, if a C++ compiler exists. It is kept in the cache folder, and keyed
by sources, compiler, CPU and jaxlib; a build removes libraries that were not loaded for a month. A
separate process builds it: a program that ends meanwhile leaves the kernels to the next one.
Programs run without the kernels until they are there, and where there is no compiler or no cache
folder.
`BIREME_NATIVE=0` turns it off; `BIREME_NATIVE_FLAGS` adds compiler flags (`make test-asan` builds
it with sanitizers that way).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from bireme.host import background, cache_folder, config, jax_door
from bireme.kernels.native import building, bundled

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
    "bireme_rms_norm",
    "bireme_cache_attend",
    "bireme_quantised_linear",
    "bireme_lstm_forward",
    "bireme_lstm_backward",
    "bireme_gru_forward",
    "bireme_gru_backward",
    "bireme_simple_rnn_forward",
    "bireme_simple_rnn_backward",
)
_FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-march=native", "-fPIC", "-w"),
    *os.environ.get("BIREME_NATIVE_FLAGS", "").split(),
)

_here = Path(__file__).parent
_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_failed = False
_waiting: threading.Thread | None = None  # for a build
_registered: ctypes.CDLL | None = None  # with XLA


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


def _bundled() -> Path | None:
    """The library that came with the package, if it has one for this machine."""
    if os.environ.get("BIREME_NATIVE_FLAGS") or not (_here / "built").is_dir():
        return None
    return bundled.best(_here / "built", frozenset(_cpu().split()))


def library_path(folder: str) -> Path:
    """Where the library for these sources, this compiler and this machine is kept."""
    from jaxlib.version import __version__ as jaxlib_version

    digest = hashlib.sha256()
    for name in sorted(p.name for p in _here.iterdir() if p.suffix in (".cc", ".h")):
        digest.update((_here / name).read_bytes())
    for part in (*_FLAGS, str(compiler()), _cpu(), jaxlib_version):
        digest.update(part.encode())
    return Path(folder) / f"bireme_kernels_{digest.hexdigest()[:20]}.so"


def load() -> ctypes.CDLL | None:
    """The library, built and waited for on first need; None where it cannot be."""
    return _load(wait=True)


def arrived() -> ctypes.CDLL | None:
    """The library if it is there by now. The first call begins to build it where it is not."""
    global _waiting
    if _library is None and not _failed and _waiting is None and _load(wait=False) is None:
        _waiting = threading.Thread(target=_load_aside, name="bireme-kernels", daemon=True)
        _waiting.start()
    return _library


def is_coming() -> bool:
    """Whether the library is not there yet, and may be later."""
    return arrived() is None and not _failed


def _load_aside() -> None:
    with suppress(RuntimeWarning):  # an error here would end in this thread
        load()


def _load(wait: bool) -> ctypes.CDLL | None:
    global _library, _failed
    if _library is not None or _failed:
        return _library
    with _lock:
        if _library is not None or _failed:
            return _library
        off = os.environ.get("BIREME_NATIVE", "1") == "0" or config.forked
        ready = None if off else _bundled()
        if ready is not None:
            with suppress(OSError):  # another C library, for example
                _library = ctypes.CDLL(str(ready))
                return _library
        folder = None if off or compiler() is None else cache_folder.inside("native")
        if folder is None:
            _failed = True
            return None
        try:
            path = library_path(folder)
            if not wait and not building.is_there(path):
                return None
            _library = _opened(path)
            building.keep_young(path)
        except background.Stopped:
            if background.is_worker():
                raise  # a program that will not run need not be compiled
            return None
        except (OSError, building.BuildFailed) as e:
            _failed = True  # first: the warning may be an error, and one attempt is enough
            warnings.warn(
                f"the native CPU kernels could not be built, plain ones are used: {str(e)[:600]}",
                RuntimeWarning,
                stacklevel=2,
            )
    return _library


def _opened(path: Path) -> ctypes.CDLL:
    return building.opened(path, *_commands())


def _commands() -> tuple[list[list[str]], list[str], list[str]]:
    """The compiler's calls, and the linker's before and after the objects."""
    command = [str(compiler()), *_FLAGS]
    include = f"-I{bundled.include_folder()}"
    sources = [[*command, include, "-c", str(p)] for p in sorted(_here.glob("*.cc"))]
    return sources, [*command, "-shared"], []


def build() -> Path:
    """Build the library without loading it: one with sanitizers loads in processes that began with
    them only."""
    folder = cache_folder.inside("native")
    if folder is None or compiler() is None:
        raise building.BuildFailed("there is no cache folder, or no C++ compiler")
    path = library_path(folder)
    building.build(path, *_commands())
    return path


def _register(library: Any) -> None:
    """Tell XLA of the handlers, once."""
    global _registered
    with _lock:
        if _registered is library:
            return
        jax = jax_door.jax()
        for name in HANDLERS:
            capsule = jax.ffi.pycapsule(getattr(library, name))
            jax.ffi.register_ffi_target(name, capsule, platform="cpu")
        _registered = library


def wanted() -> ctypes.CDLL | None:
    """The library, for what is compiled now. Nobody waits for a build, which takes minutes, unless
    compilations are waited for (BIREME_COMPILE=sync, always)."""
    return arrived() if config.compile_mode == "auto" else load()


def available() -> bool:
    """Whether a program that is compiled now can call the kernels."""
    library = wanted()
    if library is None:
        return False
    _register(library)
    return True


def unavailable() -> bool:
    """For the lowerings that are there for that case alone."""
    return not available()


def has_bfloat16() -> bool:
    """Whether the kernels were built for a CPU that multiplies bfloat16 numbers."""
    return available() and bool(wanted().bireme_has_bfloat16())  # type: ignore[union-attr]


def vector_shape() -> tuple[int, int]:
    """Floats in a register, and how many registers of outputs lie side by side in a kernel."""
    library = load()
    if library is None:
        raise RuntimeError("there are no native kernels here")
    return library.bireme_lanes(), library.bireme_registers()
