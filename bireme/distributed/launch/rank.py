"""A process of a launched job: runs a script as `python script.py` does, and tells the job the
status with which it exits.

The launcher starts this file by its path, so that nothing of Bireme is imported before the script
has set what it wants in the environment.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType


def main() -> None:
    """Run the script that is this process's first argument."""
    del sys.argv[0]
    path = os.path.abspath(sys.argv[0])
    sys.path[0] = os.path.dirname(path)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    made = sys.modules["__main__"] = ModuleType("__main__")
    made.__file__ = path
    try:
        exec(code, vars(made))
    except SystemExit as e:
        job = sys.modules.get("bireme.distributed.job")
        if job is not None:
            job.ends_with(e.code)
        raise


if __name__ == "__main__":
    main()
