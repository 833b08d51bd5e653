"""The machinery that compares a device with the NumPy tier, on this machine's CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bireme.core import stats
from bireme.kernels import native
from tests.parity import device_rows, on_device
from tests.parity.table import CASES

NUMBERS = {case.id: number for number, case in enumerate(CASES)}
ITEMS = device_rows.items()


@pytest.fixture(autouse=True)
def many_programs_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "RECOMPILE_WARNING_AFTER", 10**9)


def check(row: str, change: str = device_rows.PLAIN) -> dict[str, Any]:
    return device_rows.check(NUMBERS[row], change)


@pytest.mark.parametrize(
    ("row", "change"),
    [
        ("matmul(2x3,3x4)", device_rows.PLAIN),
        ("matmul(2x3,3x4)", "bfloat16"),
        ("matmul(2x3,3x4)", device_rows.ODD),
        ("matmul(2x3,3x4)", device_rows.STRIDED),
        ("exp(3x4)", "empty rows"),
        ("nn.Linear(4,3,2x4)", device_rows.PLAIN),
        ("F.gumbel_softmax(3x4)", device_rows.PLAIN),
        ("exp(3x4)", "0-d"),
    ],
)
def test_rows_pass_on_a_cpu(row: str, change: str) -> None:
    assert (NUMBERS[row], change) in ITEMS
    found = check(row, change)
    assert found["state"] == "passed", found["why"]
    assert found["compile"] > 0 or native.load() is None


def test_a_variant_that_the_numpy_tier_refuses_is_no_failure() -> None:
    assert check("matmul(2x3,3x4)", "0-d")["state"] in ("passed", "refused")
    assert check("reshape(2x3,[3,2])", device_rows.ODD)["state"] == "refused"


def test_every_row_that_has_values_is_an_item() -> None:
    plain = [number for number, change in ITEMS if change == device_rows.PLAIN]
    assert plain == [n for n, case in enumerate(CASES) if not case.must_raise]
    assert {change for _, change in ITEMS} == set(device_rows.CHANGES)


def test_what_is_listed_is_a_row() -> None:
    there = {(device_rows.named(CASES[n]), change) for n, change in ITEMS}
    there |= {(name, device_rows.COMPILE) for name, _ in there}
    assert set(device_rows.known()) <= there
    assert all(device_rows.known().values()), "each has a reason"


def _results(*shift: float, kind: str = "float32") -> dict[str, Any]:
    return {"result 0": (kind, np.array([1.0, 100.0], kind) + np.array(shift or (0, 0), kind))}


def test_the_tolerance_is_the_digits_of_the_type_or_a_few_times_what_numpy_loses() -> None:
    case = CASES[NUMBERS["exp(3x4)"]]
    good = _results()
    assert device_rows.distance(good, good, good, case)[0] == 0
    assert device_rows.distance(_results(0, 1e-3), good, good, case)[0] < 1
    assert device_rows.distance(_results(0, 1e-2), good, good, case)[0] > 1
    numpy = _results(0, 5e-3)  # what the NumPy tier gives
    assert device_rows.distance(_results(0, 1e-2), numpy, good, case)[0] < 1
    assert device_rows.distance(_results(0, 0.2), good, good, case, device_rows.TF32_DIGITS)[0] < 1


@pytest.mark.parametrize(
    "other",
    [
        {},
        _results(kind="float64"),
        {"result 0": ("float32", np.ones(3, "float32"))},
        {"result 0": ("float32", np.array([1, np.nan], "float32"))},
        {"result 0": ("float32", np.array([1, np.inf], "float32"))},
        {"result 0": 1.0},
    ],
)
def test_other_results_are_infinitely_far(other: dict[str, Any]) -> None:
    case = CASES[NUMBERS["exp(3x4)"]]
    assert device_rows.distance(other, _results(), _results(), case)[0] == np.inf


def test_a_wrong_gradient_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = device_rows.Results

    class Wrong(plain):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options)
            if device_rows.config.compile_mode == "always":
                kind, array = self.found["gradient by input 1"]
                self.found["gradient by input 1"] = kind, array * 1.001

    monkeypatch.setattr(device_rows, "Results", Wrong)
    found = check("matmul(2x3,3x4)")
    assert found["state"] == "failed"
    assert "gradient by input 1" in found["why"]


def test_rounding_to_tf32_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = device_rows.Results

    class Rounding(plain):
        def __init__(self, *args: Any, **options: Any):
            super().__init__(*args, **options)
            if device_rows.config.compile_mode == "always" and device_rows.config.tf32:
                self.found = {k: (kind, a * 1.0005) for k, (kind, a) in self.found.items()}

    monkeypatch.setattr(device_rows, "Results", Rounding)
    assert check("matmul(2x3,3x4)")["state"] == "tf32"
    assert check("exp(3x4)")["state"] == "failed"  # no product


def test_processes_share_the_items_and_one_that_ends_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = [(NUMBERS["exp(3x4)"], device_rows.PLAIN), (NUMBERS["tanh(3x4)"], "empty")]
    results = on_device.run(items, 1, 60.0)
    assert [r["state"] for r in results] == ["passed", "passed"]
    assert [tuple(r["item"]) for r in results] == items
    lines, good = on_device.report(results)
    assert "0 failed, 0 over 2 s to compile" in lines[-1] or not good
    late = on_device.run(items, 1, 0.0)
    assert {r["state"] for r in late} == {on_device.NOT_REACHED}
    monkeypatch.setattr(on_device.sys, "executable", "/bin/false")
    lost = on_device.run(items[:1], 1, 60.0)
    assert lost[0]["state"] == "failed"
    assert "its process ended" in lost[0]["why"]
    lines, good = on_device.report(lost)
    assert not good
    assert any(line.startswith("FAIL row: exp(3x4)") for line in lines)
