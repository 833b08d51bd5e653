"""`python -m tests.parity [words]` prints a table per module: how many rows pass against Paddle.

With words, only rows whose id contains one of them run.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import warnings
from collections import defaultdict

os.environ.setdefault("GLOG_minloglevel", "3")  # Paddle's own log lines
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # where the wheel computes; JAX looks no further

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import paddle

import tests.parity as package
from bireme.host import config
from tests.parity import names
from tests.parity.table import CASES, Case
from tests.parity.test_names import rows_from_others
from tests.parity.test_parity import check_equal, check_raises


def module_of(case: Case) -> str:
    """The line of the table that a row belongs to."""
    module = {"method": "Tensor", "function": "snippets"}.get(case.kind)
    if module is None:
        module = case.name.rpartition(".")[0] or ("networks" if case.function else "paddle")
    return f"{module} (raises)" if case.must_raise else module


def main(words: list[str]) -> int:
    for found in pkgutil.iter_modules(package.__path__):
        if found.name.startswith("rows_"):
            importlib.import_module(f"tests.parity.{found.name}")
    config.compile_mode = "never"
    table: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    failures: list[str] = []

    def run(case: Case, module: str) -> None:
        if words and not any(w in case.id for w in words):
            return
        check = check_raises if case.must_raise else check_equal
        table[module][1] += 1
        try:
            check(case, paddle)
            table[module][0] += 1
        except BaseException as e:  # pytest.raises fails with a BaseException
            if isinstance(e, KeyboardInterrupt):
                raise
            lines = [line for line in str(e).strip().splitlines() if line.strip()] or [""]
            shown = " | ".join(lines[:6]) if isinstance(e, AssertionError) else lines[0]
            failures.append(f"{case.id}: {type(e).__name__}: {shown[:260]}")

    public = names.public_names(paddle)
    keys = {name: id(names.thing(name)) for name in public}
    with names.recorded(public) as used:
        for case in CASES:
            run(case, module_of(case))
    left = [name for name in public if keys[name] not in used]
    others = rows_from_others(left)
    for name, case in others:
        run(case, f"{name.rpartition('.')[0] or 'paddle'} (from others)")
    print(f"{'module':30} {'pass':>6} {'rows':>6}")
    for module, (good, total) in sorted(table.items()):
        print(f"{module:30} {good:>6} {total:>6}")
    passed, rows = (
        (sum(column) for column in zip(*table.values(), strict=True)) if table else (0, 0)
    )
    print(f"{'all':30} {passed:>6} {rows:>6}")
    if not words:
        served = len(public) - len(left)
        print(
            f"{len(public)} public names: {served} in rows, {len(others)} in rows from others; for "
            f"{len(left) - len(others)} test_names.py says why not, and who tests them"
        )
    for line in failures:
        print("FAIL", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
