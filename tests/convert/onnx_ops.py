"""Every row of the parity table, exported to ONNX and run in ONNX Runtime.

python -m tests.convert.onnx_ops           # all, with the failures by reason
python -m tests.convert.onnx_ops pool      # rows whose name holds a word
"""

from __future__ import annotations

import collections
import importlib
import os
import pkgutil
import sys
import tempfile
import warnings
from typing import Any

import numpy as np

import bireme
import tests.parity as package
from bireme.static import InputSpec
from tests.parity.harness import Run
from tests.parity.table import CASES, Case, Spec

OPSET = 18


class Replay(Run):
    """A row on tensors that are given."""

    def __init__(self, case: Case, given: Any):
        super().__init__(bireme, case)
        self.given = iter(given)

    def build(self, x: Any) -> Any:
        return next(self.given) if isinstance(x, Spec) else super().build(x)


def rows(words: tuple[str, ...] = ()) -> list[Case]:
    """Rows of functions and methods that can succeed."""
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("rows_"):
            importlib.import_module(f"tests.parity.{module.name}")
    found = [c for c in CASES if not c.must_raise and c.kind != "layer"]
    return [c for c in found if not words or any(w in c.id for w in words)]


def check(case: Case, folder: str) -> str | None:
    """None, or why the row could not be exported or differs; rows without tensors are skipped."""
    import onnxruntime as ort

    first = Run(bireme, case)
    want = [r for r in first.outputs() if isinstance(r, bireme.Tensor)]
    arrays = [t.numpy() for _, t in first.tensors]
    if not arrays or not want or any(a.dtype.kind == "c" for a in arrays):
        return "skipped"
    specs = [InputSpec(list(a.shape), a.dtype.name) for a in arrays]

    def function(*tensors: Any) -> Any:
        made = Replay(case, tensors).outputs()
        return [r for r in made if isinstance(r, bireme.Tensor)]

    function = bireme.jit.not_to_static(function)  # the harness is no model
    path = bireme.onnx.export(function, os.path.join(folder, "m"), specs, opset_version=OPSET)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {f"tensors_{i}": a for i, a in enumerate(arrays)}
    names = [i.name for i in session.get_inputs()]
    given = dict(zip(names, arrays, strict=False)) if set(names) - set(given) else given
    have = session.run(None, {n: given[n] for n in names})
    for h, w in zip(have, want, strict=True):
        expected = w.numpy()
        if h.dtype != expected.dtype or h.shape != expected.shape:
            return f"differs: {h.dtype}{list(h.shape)} for {expected.dtype}{list(expected.shape)}"
        kind = np.complex128 if expected.dtype.kind == "c" else np.float64
        if not np.allclose(h.astype(kind), expected.astype(kind), 1e-3, 1e-4, equal_nan=True):
            return "differs in value"
    return None


def reason(case: Case, folder: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check(case, folder)
    except Exception as e:
        lines = str(e).strip().splitlines() or [""]
        return f"{type(e).__name__}: {lines[0]}"[:260]


def main(words: list[str]) -> int:
    failures: dict[str, list[str]] = collections.defaultdict(list)
    passed = skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in rows(tuple(words)):
            why = reason(case, folder)
            passed += why is None
            skipped += why == "skipped"
            if why not in (None, "skipped"):
                failures[str(why)].append(case.id)
    for why, names in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):4d}  {why}\n      {' '.join(names[:6])[:300]}")
    failed = sum(map(len, failures.values()))
    share = 100 * passed / max(passed + failed, 1)
    print(f"{passed} of {passed + failed} rows ({share:.1f} %); {skipped} have no tensors")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
