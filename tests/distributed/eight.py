"""Runs the checks of one file in a process with eight virtual CPU devices.

`results("checks_fleet.py")` is a dict: name of the check, None or what went wrong. A check is a
function of that file whose name begins with `check_`; those that begin with `slow_` are run by
themselves.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).parent


def names(file: str, start: str = "check_") -> list[str]:
    """The checks in a file, without importing it."""
    lines = (HERE / file).read_text().splitlines()
    return [x[4 : x.index("(")] for x in lines if x.startswith(f"def {start}")]


@lru_cache
def results(file: str, start: str = "check_") -> dict[str, str | None]:
    env = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HERE / "eight.py"), file, start],
        env=env, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    found = [json.loads(x) for x in done.stdout.splitlines() if x.startswith('{"check"')]
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return {x["check"]: x["error"] for x in found}


def run(file: str, start: str) -> None:
    from bireme.core import stats

    spec = importlib.util.spec_from_file_location(Path(file).stem, HERE / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    # Many models are trained by the same line of small_model.py: that is not a user's loop.
    warnings.filterwarnings("ignore", category=stats.RecompileWarning)
    for name in names(file, start):
        error = None
        began = time.process_time()
        try:
            getattr(module, name)()
        except Exception:
            error = traceback.format_exc()
        took = round(time.process_time() - began, 1)
        print(json.dumps({"check": name, "error": error, "seconds": took}), flush=True)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2])
