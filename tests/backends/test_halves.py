"""Half precision in the NumPy tier: computed in float32 and rounded once, as XLA does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme.backends.numpy_backend import NumpyBackend
from bireme.core import stats
from bireme.core.op import OPS

HALVES = {"float16": 2e-3, "bfloat16": 1e-2}
LONG = np.random.default_rng(5).uniform(0, 1, 4096).astype("float32")

SUMS = {
    "cumsum": lambda x: bireme.cumsum(x)[-1],
    "logsumexp": bireme.logsumexp,
    "logcumsumexp": lambda x: bireme.logcumsumexp(x)[-1],
    "trapezoid": bireme.trapezoid,
    "norm": lambda x: bireme.linalg.norm(x, 3),
    "einsum": lambda x: bireme.einsum("i,i->", x, x),
    "l1_loss": lambda x: bireme.nn.functional.l1_loss(x, -x, reduction="sum"),
}


@pytest.fixture(autouse=True)
def many_programs_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "RECOMPILE_WARNING_AFTER", 10**9)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", SUMS)
def test_long_sums(name: str, dtype: str, tier: str) -> None:
    wide = bireme.to_tensor(LONG, dtype=dtype).astype("float64")
    expected = SUMS[name](wide).item()
    assert SUMS[name](wide.astype(dtype)).item() == pytest.approx(expected, rel=HALVES[dtype])


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_of_what_was_broadcast(dtype: str, tier: str) -> None:
    bias = bireme.zeros([1], dtype)
    bias.stop_gradient = False
    (bireme.to_tensor(LONG, dtype=dtype) * bias).astype("float32").sum().backward()
    assert bias.grad is not None
    assert bias.grad.dtype == bias.dtype
    assert bias.grad.item() == pytest.approx(LONG.sum(), rel=HALVES[dtype])


def test_types_that_show_stay() -> None:
    """What a type's own limits or bits decide is not computed in another type."""
    x = bireme.to_tensor([np.inf, 1.0], dtype="float16")
    assert bireme.nan_to_num(x).tolist() == [65504.0, 1.0]
    after = bireme.nextafter(bireme.ones([1], "float16"), bireme.full([1], 2.0, "float16"))
    assert after.item() == 1 + 2**-10
    assert bireme.ones([1], "float16").view("int16").item() == 0x3C00


@pytest.mark.parametrize(("name", "wanted"), [("flip", "float16"), ("square", "float32")])
def test_ops_that_move_elements_are_given_halves(
    name: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, seen = OPS[name].body, []

    def watched(xp: Any, x: Any, **attrs: Any) -> Any:
        seen.append(str(x.dtype))
        return body(xp, x, **attrs)  # type: ignore[misc]

    watched.__module__ = "bireme.ops.watched"
    monkeypatch.setattr(OPS[name], "body", watched)
    x = bireme.to_tensor([1.0, 2.0, 3.0], dtype="float16")
    NumpyBackend().run_call(
        OPS[name].resolve([x], {"axis": (0,)} if name == "flip" else {}, None), [x.numpy()]
    )
    assert seen == [wanted]
