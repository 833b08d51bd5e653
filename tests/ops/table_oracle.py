"""Tables of calls compared with the real paddle: values, dtypes, shapes and gradients.

    ROWS = [row("exp", A(3, 4)), row("linalg.inv", M(3))]

    @pytest.mark.parametrize("case", ROWS, ids=str)
    def test_numpy_tier(case): check_cold(case)

    def test_compiled_tier(): check_compiled(ROWS)

The compiled tier runs a whole table as one program, which costs one compilation.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    paddle = pytest.importorskip("paddle", reason="needs the 'parity' extra")

import bireme
from bireme.core import trace
from bireme.core.stats import RecompileWarning
from bireme.host import config


@dataclass
class Row:
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grads: bool = True
    rtol: float = 2e-5
    atol: float = 2e-6
    _want: list[Any] = field(default_factory=list)

    def __str__(self) -> str:
        shown = [_show(a) for a in self.args] + [f"{k}={_show(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({','.join(shown)})"


def _show(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}".replace(" ", "")
    if isinstance(value, list):
        return "[" + ",".join(map(_show, value)) + "]"
    return repr(value)


def row(name: str, *args: Any, grads: bool = True, rtol: float = 2e-5, atol: float = 2e-6,
        **kwargs: Any) -> Row:  # fmt: skip
    return Row(name, args, kwargs, grads, rtol, atol)


def A(*shape: int, low: float = -2.0, high: float = 2.0, dtype: str = "float32",
      seed: int = 0) -> np.ndarray:  # fmt: skip
    """An array that depends on its shape, range and seed only."""
    rng = np.random.default_rng([seed, len(shape), *shape])
    made = rng.uniform(low, high, shape)
    if "complex" in dtype:
        made = made + 1j * rng.uniform(low, high, shape)
    return np.asarray(made).astype(dtype)


def N(*shape: int, low: int = 0, high: int = 9, dtype: str = "int64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def V(value: Any, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


def _run(lib: Any, case: Row) -> list[Any]:
    """Results and gradients as tensors (None where there is no gradient)."""
    leaves: list[Any] = []

    def lift(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            made = lib.to_tensor(value)
            if case.grads and value.dtype.kind in "fc":
                made.stop_gradient = False
                leaves.append(made)
            return made
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            return [lift(v) for v in value]
        return value

    function = functools.reduce(getattr, case.name.split("."), lib)
    args = [lift(a) for a in case.args]
    out = function(*args, **{k: lift(v) for k, v in case.kwargs.items()})
    outs = list(out) if isinstance(out, list | tuple) else [out]
    roots = [o for o in outs if case.grads and not o.stop_gradient and _floating(o)]
    for i, o in enumerate(roots):
        dtype = str(o.dtype).split(".")[-1]
        weight = lib.to_tensor(A(*o.shape, low=0.5, high=1.5, dtype=dtype, seed=3 + i))
        o.backward(weight, retain_graph=i + 1 < len(roots))
    return [*outs, *(leaf.grad for leaf in leaves)]


def _floating(tensor: Any) -> bool:
    return "float" in str(tensor.dtype) or "complex" in str(tensor.dtype)


def _expected(case: Row) -> list[Any]:
    if not case._want:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _run(paddle, case)
        case._want = [None if t is None else _described(t) for t in found]
    return case._want


def _described(tensor: Any) -> tuple[str, np.ndarray]:
    return str(tensor.dtype).split(".")[-1], np.asarray(tensor.numpy())


def _compare(case: Row, got: list[Any], where: str) -> None:
    want = _expected(case)
    assert len(got) == len(want), f"{case} ({where})"
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        if w is None:
            continue
        assert g is not None, f"{case} ({where}): no value {i}"
        name, array = _described(g)
        assert name == w[0], f"{case} ({where}) {i}: dtype {name}, paddle has {w[0]}"
        assert array.shape == w[1].shape, f"{case} ({where}) {i}: {array.shape} not {w[1].shape}"
        np.testing.assert_allclose(
            array, w[1], rtol=case.rtol, atol=case.atol, err_msg=f"{case} ({where}) {i}"
        )


class _Tier:
    def __init__(self, mode: str):
        self.mode = mode

    def __enter__(self) -> None:
        trace.flush()
        self.keep, config.compile_mode = config.compile_mode, self.mode
        self.quiet = warnings.catch_warnings()
        self.quiet.__enter__()
        warnings.simplefilter("ignore", RecompileWarning)  # one line here runs every op

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            trace.flush()
        config.compile_mode = self.keep
        self.quiet.__exit__(*error)


def check_cold(case: Row) -> None:
    """The row in the NumPy tier against paddle."""
    with _Tier("never"):
        _compare(case, _run(bireme, case), "numpy")


def check_compiled(rows: list[Row]) -> None:
    """All rows as one compiled program against paddle."""
    with _Tier("always"):
        found = [(case, _run(bireme, case)) for case in rows]
        trace.flush()
        for case, got in found:
            _compare(case, got, "compiled")
