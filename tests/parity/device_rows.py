"""One row of the table, or a variant of it, on the default device against the NumPy tier.

The NumPy tier computes the row twice on the CPU: as it is, and in float64 from the same inputs.
The device computes it as one compiled program, values and gradients together, compiled quickly as
for a user who waits; rows with products again with the kernels that a search finds. What it gives
may be as far from the wide result as the type's digits allow, or a few times as far as the
NumPy tier is in the same type. Products in float32 may round to TF32: such a row must be exact
without TF32.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pathlib
import pkgutil
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import bireme
import tests.parity as package
from bireme.core import dtype, executor, kernels, place, stats, trace
from bireme.core.errors import BiremeError
from bireme.core.graph import Graph, Node
from bireme.host import config, thresholds
from tests.parity import sweeps
from tests.parity.harness import Run, numbers
from tests.parity.table import CASES, Case, Spec

# How far results may be from the wide ones, relative and (times the largest number, if that is over
# one) absolute.
DIGITS = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "complex64": 1e-5,
          "float64": 1e-9, "complex128": 1e-9}  # fmt: skip
TF32_DIGITS = 4e-3
# An order of summation of its own may cost the device this many times what it costs NumPy.
TIMES = 8.0
_WIDE = {"float16": "float64", "bfloat16": "float64", "float32": "float64",
         "complex64": "complex128"}  # fmt: skip

PLAIN = "row"
ODD, STRIDED = "odd sizes", "strided"
COMPILE = "compile"  # in the list of differences: takes long to compile
_ODD = {2: 7, 3: 33, 4: 129, 5: 65, 6: 31, 7: 19, 8: 17}
_MOST = 300_000
CHANGES = (PLAIN, "bfloat16", ODD, STRIDED, "empty", "empty rows", "0-d")
# Whose contents mean nothing. What is random is the same in all tiers, and is compared.
_UNSET = ("empty", "empty_like")
# A variant that the NumPy tier is busy with for longer is left out.
_PATIENCE = 3.0


def load() -> None:
    """Every row file, so that the table is complete."""
    for found in pkgutil.iter_modules(package.__path__):
        if found.name.startswith("rows_"):
            importlib.import_module(f"tests.parity.{found.name}")


def items() -> list[tuple[int, str]]:
    """(number of a row in the table, change), rows as they are first."""
    able = {id(c) for c in sweeps.rows()}
    values = [i for i, c in enumerate(CASES) if not c.must_raise]
    return [(i, change) for change in CHANGES for i in values
            if change == PLAIN
            or (id(CASES[i]) in able and varied(CASES[i], change) is not None)]  # fmt: skip


def varied(case: Case, change: str) -> Case | None:
    """The row with this change; None where there is nothing to change."""
    if change == PLAIN:
        return case
    if change == STRIDED:
        return case if any(s.shape for s in case.specs()) else None
    if change != ODD:
        return sweeps.CHANGES[change](case)
    if any(s.value is not None for s in case.specs()):
        return None
    shapes = [tuple(_ODD.get(n, n) for n in s.shape) for s in case.specs()]
    if max(map(np.prod, shapes)) > _MOST or shapes == [s.shape for s in case.specs()]:
        return None
    return respecified(
        case, lambda s: dataclasses.replace(s, shape=tuple(_ODD.get(n, n) for n in s.shape))
    )


def respecified(case: Case, change: Callable[[Spec], Spec]) -> Case:
    """The row with other tensors."""

    def of(x: Any) -> Any:
        if isinstance(x, Spec):
            return change(x)
        return type(x)(map(of, x)) if isinstance(x, list | tuple) else x

    kwargs = {k: of(v) for k, v in case.kwargs.items()}
    return dataclasses.replace(case, args=of(case.args), kwargs=kwargs, inputs=of(case.inputs))


def wide(case: Case) -> Case:
    return respecified(case, lambda s: dataclasses.replace(s, dtype=_WIDE.get(s.dtype, s.dtype)))


class DeviceRun(Run):
    """A run whose tensors may be views with strides, and whose layer may be a wide one."""

    def __init__(self, case: Case, arrays: Any, strided: bool, is_wide: bool = False):
        super().__init__(bireme, case, arrays)
        self.strided, self.is_wide = strided, is_wide

    def given(self, spec: Spec, array: np.ndarray) -> Any:
        if not (self.strided and spec.shape):
            return super().given(spec, array)
        turned = np.ascontiguousarray(array.T)
        between = np.zeros((*turned.shape[:-1], 2 * turned.shape[-1]), turned.dtype)
        between[..., ::2] = turned
        whole = super().given(spec, between)
        return whole[..., ::2].transpose(list(range(len(spec.shape)))[::-1])

    def _made_layer(self) -> Any:
        layer = super()._made_layer()
        return layer.to(dtype="float64") if self.is_wide else layer


@dataclasses.dataclass
class Results:
    """Values and gradients of one run, on the host."""

    found: dict[str, Any]
    arrays: dict[int, np.ndarray]
    weights: dict[str, np.ndarray] | None

    def __init__(
        self,
        case: Case,
        strided: bool,
        like: Results | None = None,
        is_wide: bool = False,
        gradients: bool = True,
    ):
        bireme.seed(zlib.crc32(case.id.encode()) & 0x7FFFFFFF)
        arrays = None if like is None else dict(like.arrays)
        weights = None if like is None else like.weights
        if is_wide and like is not None:
            arrays = {i: rounded(a, s.dtype) for (i, a), s in zip(
                sorted(like.arrays.items()), like.specs, strict=True)}  # fmt: skip
            case = wide(case)
            weights = weights and {
                k: v.astype("float64") if v.dtype == np.float32 else v for k, v in weights.items()
            }
        run = DeviceRun(case, arrays, strided, is_wide)
        run.outputs(weights)
        made = run.backward() if gradients and case.check_grad else {}
        self.specs = [spec for spec, _ in run.tensors]
        self.found = {f"result {i}": r for i, r in enumerate(map(_read, run.results))}
        self.found |= {f"gradient by {name}": _read(g) for name, g in made.items()}
        self.arrays = run.arrays
        self.weights = run.weights if case.kind == "layer" else None


def _read(x: Any) -> Any:
    """(name of the dtype, contents) of a tensor; anything else as it is."""
    if not isinstance(x, bireme.Tensor):
        return x
    return x.dtype.name, numbers(x)


def rounded(array: np.ndarray, name: str) -> np.ndarray:
    """What a tensor of that type holds of the array."""
    if name not in ("float16", "bfloat16"):
        return array
    return array.astype(getattr(dtype, name).numpy).astype(np.float64)


@contextmanager
def on(where: place.Place, mode: str) -> Iterator[None]:
    """Everything inside runs on this device, in this tier."""
    trace.flush()
    before = place.default_place(), config.compile_mode
    place.set_default_place(where)
    config.compile_mode = mode
    try:
        yield
        trace.flush()
    finally:
        place.set_default_place(before[0])
        config.compile_mode = before[1]


def check(number: int, change: str) -> dict[str, Any]:
    """What became of an item: `state` is passed, tf32 (exact without it), refused (by the NumPy
    tier as well) or failed; `compile` the seconds of its longest compilation."""
    case, device = CASES[number], place.default_place()
    found: dict[str, Any] = {"row": case.id, "name": named(case), "change": change}
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", "compiling a program")  # no row passes in another tier
        changed = varied(case, change)
        assert changed is not None, "items() lists what can be changed"
        found["state"], found["why"] = _state(changed, change, device, found)
    return found | {"seconds": time.perf_counter() - began}


def named(case: Case) -> str:
    """What the list of differences calls it; no blanks."""
    return f"fn.{case.name}" if case.function is not None else sweeps.called(case)


def _state(case: Case, change: str, device: place.Place, found: dict[str, Any]) -> tuple[str, str]:
    strided = change == STRIDED
    began = time.perf_counter()
    try:
        with on(place.CPUPlace(), "never"):
            reference, gradients = _reference(case, strided, change)
    except Exception as e:
        if change != PLAIN:
            return "refused", ""  # tests/parity looks at how
        return "failed", f"the NumPy tier: {type(e).__name__}: {e}"[:300]
    if change != PLAIN and time.perf_counter() - began > _PATIENCE:
        return "left out", ""
    truth = reference.found
    try:
        with on(place.CPUPlace(), "never"):
            truth = Results(case, strided, reference, True, gradients).found
    except Exception:
        found["narrow"] = True  # takes no float64
    try:
        row = case, strided, reference, gradients
        made, products = _on_device(*row, device, found)
        found["products"] = products
        worst = distance(made, reference.found, truth, case)
        if not products:
            return ("passed", "") if worst[0] <= 1 else ("failed", worst[1])
        searched = made
        if not device.is_cpu_place():  # where nothing is searched for
            searched, _ = _on_device(*row, device, found, search=True)
            worst = max(worst, distance(searched, reference.found, truth, case))
        if worst[0] <= 1:
            return "passed", ""
        for product in (made, searched):
            rough = distance(product, reference.found, truth, case, TF32_DIGITS)
            if rough[0] > 1:
                return "failed", f"with TF32: {rough[1]}"
        config.tf32 = False
        try:
            made, _ = _on_device(*row, device, found)
        finally:
            config.tf32 = True
        exact = distance(made, reference.found, truth, case)
        return ("tf32", worst[1]) if exact[0] <= 1 else ("failed", f"without TF32: {exact[1]}")
    except Exception as e:
        return "failed", f"{type(e).__name__}: {e}"[:500]


def _reference(case: Case, strided: bool, change: str) -> tuple[Results, bool]:
    """The row in the NumPy tier, with gradients where a variant has them."""
    try:
        return Results(case, strided), True
    except BiremeError:
        if change == PLAIN:
            raise
        return Results(case, strided, gradients=False), False


def _on_device(
    case: Case,
    strided: bool,
    reference: Results,
    gradients: bool,
    device: place.Place,
    found: dict[str, Any],
    search: bool = False,
) -> tuple[dict[str, Any], bool]:
    """What the device makes of it, and whether matrices are multiplied."""
    executor.clear_programs()
    count = stats.statistics.finished
    quickly = not search and not device.is_cpu_place()
    before = thresholds.BEGINS_ON_HOST
    # Nothing is so short that it begins on the host.
    thresholds.BEGINS_ON_HOST = -1.0 if quickly else before  # type: ignore[assignment]
    try:
        with on(device, "auto" if quickly else "always"):
            made = Results(case, strided, reference, gradients=gradients).found
    finally:
        thresholds.BEGINS_ON_HOST = before
    events = stats.compile_events()
    new = events[len(events) - min(stats.statistics.finished - count, len(events)) :]
    for event in new:
        if search:
            found["search"] = max(found.get("search", 0.0), event.seconds)
        elif event.seconds > found.get("compile", 0.0):
            found["compile"], found["ops"] = event.seconds, event.ops
    used = Counter(found.get("kernels", {}))
    used.update(name for e in new for _, name in e.kernels)
    found["kernels"] = dict(used)
    graphs = [p.graph for p in executor._programs.values()]
    return made, any(kernels.is_product(n.call) for g in graphs for n in _nodes(g))


def _nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of those inside of it."""
    for node in graph.nodes:
        yield node
        for held in node.call.attrs.values():
            inner = getattr(held, "graph", held)
            if isinstance(inner, Graph):
                yield from _nodes(inner)


def distance(
    made: dict[str, Any],
    reference: dict[str, Any],
    truth: dict[str, Any],
    case: Case,
    at_least: float = 0.0,
) -> tuple[float, str]:
    """The largest distance in units of what is allowed, and where it is."""
    if made.keys() != reference.keys():
        return np.inf, f"{sorted(made)} instead of {sorted(reference)}"
    digits = max(at_least, *(DIGITS.get(s.dtype, 0.0) for s in case.specs()), 0.0)
    if case.rtol > 1e-5:  # the row says that it is ill-conditioned
        digits = max(digits, case.rtol)
    worst = (0.0, "")
    for name, want in reference.items():
        values = case.check_value or case.name not in _UNSET
        far, why = _distance(made[name], want, truth.get(name, want), digits, values)
        if not far <= worst[0]:
            worst = (far, f"{name}: {why}")
    return worst


def _distance(made: Any, want: Any, true: Any, digits: float, values: bool) -> tuple[float, str]:
    if not isinstance(want, tuple):
        if isinstance(want, float) and isinstance(made, float):
            of = [("", np.array(x)) for x in (made, want, true)]
            return _distance(of[0], of[1], of[2], digits, values)
        same = type(made) is type(want) and (made == want or not isinstance(want, bool | int | str))
        return (0.0, "") if same else (np.inf, f"{made!r} instead of {want!r}")
    if not isinstance(made, tuple):
        return np.inf, f"{made!r} instead of a tensor"
    (kind, a), (wanted, b) = made, want
    c = true[1] if isinstance(true, tuple) else b
    if kind != wanted or a.shape != b.shape:
        return np.inf, f"{kind} {a.shape} instead of {wanted} {b.shape}"
    if not values or not a.size:
        return 0.0, ""
    if b.dtype.kind not in "fc":
        return (0.0, "") if np.array_equal(a, b) else (np.inf, f"{_first(a != b, a, b)}")
    if c.shape != b.shape or c.dtype.kind not in "fc":
        c = b
    a, b, c = (x.astype(np.complex128 if b.dtype.kind == "c" else np.float64) for x in (a, b, c))
    finite = np.isfinite(b)
    odd = ~finite & ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if odd.any():
        return np.inf, f"{_first(odd, a, b)}"
    finite &= np.isfinite(c)
    if not finite.any():
        return 0.0, ""
    a, b, c = a[finite], b[finite], c[finite]
    digits = max(digits, DIGITS.get(wanted, 1e-6))  # a number of Python's may come from float32
    scale = max(1.0, float(np.abs(c).max()))
    allowed = digits * (np.abs(c) + scale) + TIMES * float(np.abs(b - c).max())
    far = np.where(np.isfinite(a), np.minimum(np.abs(a - c), np.abs(a - b)), np.inf) / allowed
    return float(
        far.max()
    ), f"{_first(far == far.max(), a, c)}, {far.max():.3g} times the tolerance"


def _first(where: np.ndarray, a: np.ndarray, b: np.ndarray) -> str:
    return f"{a[where].flat[0]!r} instead of {b[where].flat[0]!r} ({int(where.sum())} of {a.size})"


@functools.cache
def known() -> dict[tuple[str, str], str]:
    """(name, change) -> why the device differs, from the list beside this file."""
    listed: dict[tuple[str, str], str] = {}
    reason = ""
    lines = pathlib.Path(__file__).with_name("on_device_known.txt").read_text().splitlines()
    for line in lines:
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            change, _, names = line.partition(": ")
            listed |= {(name, change): reason for name in names.split()}
    return listed
