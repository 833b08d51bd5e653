"""Observing the results of ops: statistics of an array, and the functions that are called with it.

With `config.check_nan_inf` on, programs run op by op and every result is passed to `look`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bireme.core.errors import ExecutionError

if TYPE_CHECKING:
    from bireme.core.op import Call


class Figures(NamedTuple):
    """Statistics of an array's values."""

    numel: int
    num_nan: int
    num_inf: int
    num_zero: int
    max: float
    min: float
    mean: float

    @property
    def bad(self) -> bool:
        return self.num_nan > 0 or self.num_inf > 0


def figures(array: np.ndarray) -> Figures:
    """Counts and extremes; NaN takes no part in the extremes, but in the mean."""
    values = np.asarray(array)
    values = np.abs(values) if values.dtype.kind == "c" else values
    values = values.astype(np.float64).reshape(-1)
    nan = np.isnan(values)
    rest = values[~nan]
    with np.errstate(all="ignore"):
        return Figures(
            values.size,
            int(nan.sum()),
            int(np.isinf(rest).sum()),
            int((rest == 0).sum()),
            float(rest.max()) if rest.size else float("nan"),
            float(rest.min()) if rest.size else float("nan"),
            float(values.mean()) if values.size else float("nan"),
        )


def _refuse(call: Any, array: np.ndarray) -> None:
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        raise ExecutionError(
            f"[{call.op.name}] produced NaN or infinity (first recorded at {call.source}). "
            f"Received: {call.describe_inputs()}"
        )


# Called with each op's call and each of its results while results are checked.
watcher: Callable[[Any, np.ndarray], None] = _refuse

# Each is called with the calls of every program that runs and the kernels that it uses, counted by
# (op, kernel).
counters: list[Callable[[list[Any], Mapping[tuple[str, str], int]], None]] = []

# Each is called with an executable that is about to run.
starting: list[Callable[[Any], None]] = []


def look(call: Call, results: list[np.ndarray]) -> None:
    """Show an op's results to the watcher."""
    for array in results:
        watcher(call, array)


def set_watcher(watch: Callable[[Any, np.ndarray], None] | None) -> None:
    """Pass results to another function; None restores the default, which raises on NaN and
    infinity."""
    global watcher
    watcher = watch or _refuse
