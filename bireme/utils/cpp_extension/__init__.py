"""Operators written in C++ and CUDA: `paddle.utils.cpp_extension`. See docs/custom-ops.md."""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bireme.utils.cpp_extension.building import (
    BuildError,
    Plan,
    as_tuple,
    build,
    get_build_directory,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from setuptools import Extension

    from bireme.utils.cpp_extension.packaging import BuildExtension

_lock = threading.Lock()
_loaded: dict[Path, dict[str, Any]] = {}


def load(
    name: str,
    sources: Sequence[str],
    extra_cxx_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    extra_library_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
) -> ModuleType:
    """Compile `sources` and return a module with a function for each operator in them.

    Nothing is compiled again until a source, a header or a flag changes.

        ops = load(name="custom", sources=["relu.cc"])
        y = ops.custom_relu(x)
    """
    plan = Plan(
        name,
        as_tuple(sources, "sources"),
        as_tuple(extra_cxx_cflags, "extra_cxx_cflags"),
        as_tuple(extra_cuda_cflags, "extra_cuda_cflags"),
        as_tuple(extra_ldflags, "extra_ldflags"),
        as_tuple(extra_include_paths, "extra_include_paths"),
        as_tuple(extra_library_paths, "extra_library_paths"),
        verbose,
    )
    folder = Path(build_directory or get_build_directory(verbose)) / name
    module = ModuleType(name, f"Operators of {', '.join(plan.sources)}.")
    module.__file__ = str(build(plan, folder))
    module.__dict__.update(load_library(module.__file__))
    return module


def load_library(path: str) -> dict[str, Any]:
    """The functions of a library that was built before, by name."""
    from bireme.utils.cpp_extension.library import Library
    from bireme.utils.cpp_extension.ops import CustomOp

    where = Path(path).resolve()
    with _lock:
        if where not in _loaded:
            library = Library(where)
            made = [CustomOp(library, stages) for stages in library.stages.values()]
            _loaded[where] = {m.name: m.function() for m in made}
        return _loaded[where]


def setup(**attr: Any) -> None:
    """`setuptools.setup` for a package of operators; `ext_modules` is one extension.

    setup(name="custom", ext_modules=CppExtension(sources=["relu.cc"]))
    """
    from bireme.utils.cpp_extension import packaging

    packaging.setup(**attr)


def CppExtension(sources: Sequence[str], *args: Any, **kwargs: Any) -> Extension:  # noqa: N802
    """The sources of operators for the CPU, for `setup`."""
    from bireme.utils.cpp_extension import packaging

    return packaging.extension(sources, *args, **kwargs)


def CUDAExtension(sources: Sequence[str], *args: Any, **kwargs: Any) -> Extension:  # noqa: N802
    """The sources of operators for CPU and GPU (.cc and .cu), for `setup`."""
    return CppExtension(sources, *args, **kwargs)


def __getattr__(name: str) -> Any:
    # A class of setuptools, which is no requirement of anything else here.
    if name == "BuildExtension":
        from bireme.utils.cpp_extension.packaging import BuildExtension

        return BuildExtension
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BuildError",
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "get_build_directory",
    "load",
    "load_library",
    "setup",
]
