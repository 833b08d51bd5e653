"""`python -m tests.parity` prints a table per module: how many rows pass against Paddle."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections import defaultdict

import paddle

import tests.parity as package
from tests.parity.table import CASES
from tests.parity.test_parity import test_both_raise, test_equals_paddle


def main() -> int:
    for found in pkgutil.iter_modules(package.__path__):
        if found.name.startswith("rows_"):
            importlib.import_module(f"tests.parity.{found.name}")
    table: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    failures = []
    for case in CASES:
        module = case.name.rpartition(".")[0] or ("Tensor" if case.kind == "method" else "paddle")
        check = test_both_raise if case.kind == "raises" else test_equals_paddle
        table[module][1] += 1
        try:
            check(case, paddle)
            table[module][0] += 1
        except (Exception, AssertionError) as e:
            failures.append(f"{case.id}: {str(e).strip().splitlines()[0][:150]}")
    print(f"{'module':30} {'pass':>6} {'rows':>6}")
    for module, (good, total) in sorted(table.items()):
        print(f"{module:30} {good:>6} {total:>6}")
    for line in failures:
        print("FAIL", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
