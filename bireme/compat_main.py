"""The main module of the processes that a script under `bireme run` starts.

Python gives such a process its parent's main module again, by path or by name. `bireme run` names
this one, so that `import paddle` is Bireme before the script's first line is read again.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from bireme import compat
from bireme.core.errors import BiremeError
from bireme.io import by_value

_SCRIPT = "BIREME_RUN_SCRIPT"
_MODULE = "BIREME_RUN_MODULE"


class ModuleNotRunnable(BiremeError, ImportError):
    """A module that is not there, or is no program."""


class _Spec(ModuleSpec):
    """Names this module to the processes to come, and the script's package to its imports."""

    def __init__(self, package: str):
        super().__init__("bireme.compat_main", None)
        self._package = package

    @property
    def parent(self) -> str:
        return self._package


def run(script: Path) -> None:
    """Run a script as the main module, with `import paddle` as Bireme."""
    compat.install()
    path = os.path.abspath(script)  # as Python itself: it is still found in another folder
    os.environ.pop(_MODULE, None)
    os.environ[_SCRIPT] = path
    _run_as_main(compile(script.read_bytes(), path, "exec"), path, None)


def module_runner(name: str) -> Callable[[], None]:
    """What runs a module, or a package's `__main__`, as `python -m` does; ModuleNotRunnable if it
    cannot be run. What the module's package raises while it is imported is the user's to see."""
    compat.install()
    name, path, code = _found(name)
    os.environ.pop(_SCRIPT, None)
    os.environ[_MODULE] = name
    sys.argv[0] = path
    return functools.partial(_run_as_main, code, path, name.rpartition(".")[0])


def _found(name: str) -> tuple[str, str, CodeType]:
    """The name, the file and the code of a module that is to be run."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as e:
        if not f"{name}.".startswith(f"{e.name}."):  # a parent lacks what it imports
            raise
        spec = None
    except ValueError:  # a module that was made without one
        spec = None
    if spec is None:
        if name.endswith(".__main__"):
            package = name.removesuffix(".__main__")
            raise ModuleNotRunnable(f"{package!r} is a package without a __main__ module")
        raise ModuleNotRunnable(f"there is no module {name!r}")
    if spec.submodule_search_locations is not None:
        return _found(f"{name}.__main__")
    get_code = getattr(spec.loader, "get_code", None)
    code = None if get_code is None else get_code(name)
    if code is None:
        raise ModuleNotRunnable(f"{name!r} has no Python code")
    return name, os.path.abspath(spec.origin or name), code


def _run_as_main(code: CodeType, path: str, package: str | None) -> None:
    main = ModuleType("__main__")
    main.__file__ = path
    main.__package__ = package
    main.__spec__ = _Spec(package or "")
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    try:
        exec(code, vars(main))
    except SystemExit as e:
        job = sys.modules.get("bireme.distributed.job")
        if job is not None:  # the process may have joined one
            job.ends_with(e.code)
        raise
    finally:
        sys.modules["__main__"] = before


def _run_again() -> dict[str, object]:
    """What the program defines, if it has a main guard; without one, processes are sent that."""
    module = os.environ.get(_MODULE)
    path = _found(module)[1] if module is not None else os.environ[_SCRIPT]
    if not by_value.runs_again(path):
        return {}
    if module is not None:
        return runpy.run_module(module, run_name="__mp_main__")
    return runpy.run_path(path, run_name="__mp_main__")


if __name__ == "__mp_main__":
    compat.install()
    globals().update(_run_again())
