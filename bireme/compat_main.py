"""The main module of the processes that a script under `bireme run` starts.

Python gives such a process its parent's main module again, by path or by name. `bireme run` names
this one, so that `import paddle` is Bireme before the script's first line is read again.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from bireme import compat

_SCRIPT = "BIREME_RUN_SCRIPT"


def run(script: Path) -> None:
    """Run a script as the main module, with `import paddle` as Bireme."""
    compat.install()
    os.environ[_SCRIPT] = str(script.resolve())
    main = ModuleType("__main__")
    main.__file__ = str(script)
    main.__spec__ = ModuleSpec("bireme.compat_main", None)
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    try:
        exec(compile(script.read_bytes(), str(script), "exec"), vars(main))
    finally:
        sys.modules["__main__"] = before


if __name__ == "__mp_main__":
    compat.install()
    globals().update(runpy.run_path(os.environ[_SCRIPT], run_name="__mp_main__"))
