"""The `onnx` package's own node tests, run here and in ONNX Runtime.

    python -m tests.convert.onnx_nodes            # all, with the failures by reason
    python -m tests.convert.onnx_nodes lstm gru   # those whose name holds a word

Only tests that ONNX Runtime itself passes count: it is the peer that says what a test means.
"""

from __future__ import annotations

import collections
import glob
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

FOLDERS = ("node", "simple", "light", "pytorch-converted", "pytorch-operator")


def data_folder() -> Path:
    """Where the package keeps its tests (1.23 and later have none)."""
    return Path(onnx.__file__).parent / "backend" / "test" / "data"


def cases(words: tuple[str, ...] = ()) -> list[Path]:
    """The folders of all tests, or of those whose name holds one of the words."""
    found = [p for f in FOLDERS for p in sorted((data_folder() / f).glob("test_*"))]
    found = [p for p in found if (p / "model.onnx").is_file()]
    return [p for p in found if not words or any(w in p.name for w in words)]


def _decode(data: bytes, kind: Any) -> Any:
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if which == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def samples(case: Path, model: Any) -> list[tuple[list[Any], list[Any]]]:
    """(inputs, outputs) of every data set of a test."""
    made = []
    for folder in sorted(case.glob("test_data_set_*")):
        sides = []
        for side, infos in (("input", model.graph.input), ("output", model.graph.output)):
            count = len(glob.glob(str(folder / f"{side}_*.pb")))
            files = [folder / f"{side}_{i}.pb" for i in range(count)]
            sides.append([_decode(f.read_bytes(), v.type) for f, v in zip(files, infos)])  # noqa: B905
        made.append((sides[0], sides[1]))
    return made


def agree(have: Any, want: Any, rtol: float = 1e-3, atol: float = 1e-5) -> None:
    """Raise AssertionError unless the two results are equal within the usual bounds."""
    if isinstance(want, list | tuple):
        assert isinstance(have, list | tuple), "no sequence"
        assert len(have) == len(want), "another length"
        for h, w in zip(have, want, strict=True):
            agree(h, w, rtol, atol)
        return
    if want is None:
        assert have is None, "a value where there is none"
        return
    have = have.numpy() if hasattr(have, "numpy") else np.asarray(have)
    want = np.asarray(want)
    if want.dtype.kind in "OUST":
        assert have.astype(str).tolist() == want.astype(str).tolist(), "other strings"
        return
    assert have.dtype == want.dtype, f"dtype {have.dtype} where {want.dtype} is expected"
    assert have.shape == want.shape, f"shape {have.shape} where {want.shape} is expected"
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(have, want)
    else:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(have.astype(wide), want.astype(wide), rtol, atol)


def is_random(model: Any) -> bool:
    """Whether a test draws numbers: then only dtypes and shapes can agree."""
    return any(
        n.op_type.startswith(("Random", "Bernoulli", "Multinomial")) for n in model.graph.node
    )


def check(results: list[Any], want: list[Any], model: Any) -> None:
    assert len(results) >= len(want), "results are missing"
    for h, w in zip(results, want, strict=False):
        if is_random(model):
            assert np.asarray(h).dtype == w.dtype
            assert np.asarray(h).shape == w.shape
        else:
            agree(h, w)


def run_onnxruntime(case: Path) -> None:
    """Raise unless ONNX Runtime loads the test's model and gives its outputs."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    model = onnx.load(str(case / "model.onnx"))
    session = ort.InferenceSession(
        str(case / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in session.get_inputs()]
    for inputs, outputs in samples(case, model):
        given = dict(zip(names, inputs, strict=False))
        check(session.run(None, given), outputs, model)


def run_bireme(case: Path) -> None:
    """Raise unless Bireme loads the test's model and gives its outputs."""
    import bireme

    model = onnx.load(str(case / "model.onnx"))
    layer = bireme.onnx.load(str(case / "model.onnx"))
    for inputs, outputs in samples(case, model):
        result = layer(*inputs)
        check([result] if len(model.graph.output) == 1 else result, outputs, model)


def reason(run: Any, case: Path) -> str | None:
    """Why a test fails, in one line, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(case)
    except Exception as e:
        lines = [line for line in str(e).splitlines() if line.strip()] or [""]
        text = " ".join(lines[:3]) if isinstance(e, AssertionError) else lines[0]
        return f"{type(e).__name__}: {text}"[:220]
    return None


def accepted_by_onnxruntime(tests: list[Path], cache: str | None = None) -> set[str]:
    """The tests that ONNX Runtime passes; `cache` names a file to keep the answer in."""
    if cache and os.path.exists(cache):
        return set(json.loads(Path(cache).read_text()))
    passed = {f"{c.parent.name}/{c.name}" for c in tests if reason(run_onnxruntime, c) is None}
    if cache:
        Path(cache).write_text(json.dumps(sorted(passed)))
    return passed


def main(words: list[str]) -> int:
    tests = cases(tuple(words))
    accepted = accepted_by_onnxruntime(tests, os.environ.get("ONNX_NODES_CACHE"))
    failures: dict[str, list[str]] = collections.defaultdict(list)
    passed = extra = counted = 0
    start = time.perf_counter()
    for case in tests:
        counts = f"{case.parent.name}/{case.name}" in accepted
        why = reason(run_bireme, case)
        counted += counts
        if why is None:
            passed += counts
            extra += not counts
        elif counts or words:
            failures[why].append(case.name)
    for why, names in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):4d}  {why}\n      {' '.join(names[:12])}")
    share = 100 * passed / max(counted, 1)
    print(
        f"{passed} of the {counted} tests that ONNX Runtime passes ({share:.1f} %), and {extra} of "
        f"the {len(tests) - counted} that it does not; {time.perf_counter() - start:.0f} s"
    )
    return 0 if share >= 90 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
