"""Finding where numbers go wrong: NaN, infinity, overflow, and what ran in which precision."""

from __future__ import annotations

import functools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from bireme.amp.compare import compare_accuracy
from bireme.core import checks, trace
from bireme.core.aval import Aval
from bireme.core.errors import ExecutionError, InvalidArgument, TypeMismatch, not_a_tensor
from bireme.core.random import default_generator
from bireme.core.random import seed as set_seed
from bireme.core.tensor import Tensor, constant
from bireme.host import config

_HALF_MAX = 65504.0  # the largest float16
_SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


class DebugMode(Enum):
    """What a check reports, and whether it stops the program."""

    CHECK_NAN_INF_AND_ABORT = 0  # results with NaN or infinity; raise
    CHECK_NAN_INF = 1  # the same; go on
    CHECK_ALL_FOR_OVERFLOW = 2  # also results that float16 could not hold
    CHECK_ALL = 3  # every result


class TensorCheckerConfig:
    """What `enable_tensor_checker` looks at.

    `checked_op_list` and `skipped_op_list` name ops; `debug_step=(a, b)` checks only those
    calls of `enable_tensor_checker`, one per step; with `output_dir` the report goes to a file
    there instead of the screen; with `stack_height_limit` above 0 it names the line of code.
    Random numbers start over from their seed, so that two runs can be compared.
    """

    current_step_id = 0

    def __init__(
        self,
        enable: bool,
        debug_mode: DebugMode = DebugMode.CHECK_NAN_INF_AND_ABORT,
        output_dir: str | None = None,
        checked_op_list: Sequence[str] | None = None,
        skipped_op_list: Sequence[str] | None = None,
        debug_step: Sequence[int] | None = None,
        stack_height_limit: int = 1,
    ):
        if not isinstance(debug_mode, DebugMode):
            raise InvalidArgument(f"debug_mode must be a DebugMode. Received: {debug_mode!r}")
        if not isinstance(stack_height_limit, int):
            raise InvalidArgument(
                f"stack_height_limit must be an int. Received: {stack_height_limit!r}"
            )
        for name, ops in (("checked", checked_op_list), ("skipped", skipped_op_list)):
            if ops is not None and not isinstance(ops, list | tuple):
                raise InvalidArgument(f"{name}_op_list must be a list. Received: {ops!r}")
        self.enable, self.debug_mode, self.output_dir = enable, debug_mode, output_dir
        self.checked_op_list, self.skipped_op_list = checked_op_list, skipped_op_list
        self.debug_step, self.stack_height_limit = debug_step, stack_height_limit
        self.start_step, self.end_step = _steps(debug_step)
        if enable:
            start = default_generator.initial_seed() % 2**32
            set_seed(start)
            np.random.seed(start)
            random.seed(start)

    def update_and_check_step_id(self) -> bool:
        """Whether this step is checked; counts steps where a range was given."""
        if not self.enable:
            return False
        if self.start_step is None or self.end_step is None:
            return True
        if not self.start_step <= TensorCheckerConfig.current_step_id < self.end_step:
            return False
        TensorCheckerConfig.current_step_id += 1
        return True

    def start_check_nan_inf(self) -> None:
        """Check what is computed from now on."""
        if self.enable:
            _switch(True, _Watcher(self))

    def stop_check_nan_inf(self) -> None:
        _switch(False, None)


def _steps(given: Sequence[int] | None) -> tuple[int | None, int | None]:
    if given is None:
        return None, None
    if not isinstance(given, list | tuple) or len(given) != 2 or given[1] <= given[0]:
        raise InvalidArgument(f"debug_step must be (first, end). Received: {given!r}")
    return max(given[0], 0), given[1]


def _switch(on: bool, watch: Callable[[Any, np.ndarray], None] | None) -> None:
    trace.flush()  # what was recorded before is not looked at, or was already
    config.check_nan_inf = on
    checks.set_watcher(watch)


class _Watcher:
    """Reports on the results of ops."""

    def __init__(self, settings: TensorCheckerConfig):
        self.settings = settings

    def __call__(self, call: Any, array: np.ndarray) -> None:
        settings = self.settings
        name = call.op.shown
        if settings.checked_op_list is not None and name not in settings.checked_op_list:
            return
        if settings.skipped_op_list is not None and name in settings.skipped_op_list:
            return
        kind = array.dtype.name
        if kind not in _SHORT:
            return
        where = f" at {call.source}" if settings.stack_height_limit > 0 else ""
        _judge(array, name, "", settings.debug_mode, settings.output_dir, where)


def _judge(
    array: np.ndarray, op: str, tensor: str, mode: DebugMode, folder: str | None, where: str
) -> checks.Figures:
    """Report on one array as `mode` says."""
    found = checks.figures(array)
    kind = _SHORT.get(array.dtype.name, array.dtype.name)
    about = f"[device=cpu, op={op}, tensor={tensor}, dtype={kind}]"
    over = mode is DebugMode.CHECK_ALL_FOR_OVERFLOW and (
        max(abs(found.max), abs(found.min)) > _HALF_MAX
    )
    if found.bad or over or mode is DebugMode.CHECK_ALL:
        _report(_line(about, found) + where, folder)
    if found.bad and mode is DebugMode.CHECK_NAN_INF_AND_ABORT:
        raise ExecutionError(
            f"there are NaN or infinity (num_nan={found.num_nan}, num_inf={found.num_inf}, "
            f"num_zero={found.num_zero}) in {about}{where}"
        )
    return found


def _line(about: str, f: checks.Figures) -> str:
    bad = f"num_nan={f.num_nan}, num_inf={f.num_inf}, " if f.bad else ""
    mark = "[PRECISION] [ERROR]" if f.bad else "[PRECISION]"
    values = f"max={f.max:e}, min={f.min:e}, mean={f.mean:e}"
    return f"{mark} in {about}, numel={f.numel}, {bad}num_zero={f.num_zero}, {values}"


def _report(line: str, folder: str | None) -> None:
    if folder is None:
        print(line)  # noqa: T201 (its purpose)
        return
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "worker_cpu"), "a") as file:
        file.write(line + "\n")


def enable_tensor_checker(checker_config: TensorCheckerConfig) -> None:
    """Look at the result of every op from now on. Call it at the start of a step.

    >>> enable_tensor_checker(TensorCheckerConfig(enable=True))
    """
    if not isinstance(checker_config, TensorCheckerConfig):
        raise TypeMismatch(
            f"[enable_tensor_checker] takes a TensorCheckerConfig. Received: {checker_config!r}"
        )
    if checker_config.update_and_check_step_id():
        checker_config.start_check_nan_inf()
    else:
        checker_config.stop_check_nan_inf()


def disable_tensor_checker() -> None:
    """Stop looking."""
    _switch(False, None)


def check_numerics(
    tensor: Tensor,
    op_type: str,
    var_name: str,
    debug_mode: DebugMode = DebugMode.CHECK_NAN_INF_AND_ABORT,
) -> tuple[Tensor, Tensor]:
    """Look at one tensor: ([NaNs, infinities, zeros], [largest, smallest, mean]).

    `op_type` and `var_name` are for the report.
    """
    if not isinstance(tensor, Tensor):
        raise not_a_tensor("check_numerics", "tensor", tensor)
    found = _judge(np.asarray(tensor._array()), op_type, var_name, debug_mode, None, "")
    counts = np.array([found.num_nan, found.num_inf, found.num_zero], np.int64)
    values = np.array([found.max, found.min, found.mean], np.float32)
    return constant(counts), constant(values)


def check_layer_numerics(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for `forward`: raises where the layer, or its gradient, makes NaN or infinity.

    >>> class Net(paddle.nn.Layer):
    ...     @check_layer_numerics
    ...     def forward(self, x): ...
    """

    @functools.wraps(func)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not args or not isinstance(args[0], Tensor):
            raise LayerWithoutTensor(
                f"[check_layer_numerics] {type(self).__name__}'s first input must be a Tensor"
            )
        if args[0].dtype.differentiable:
            args[0].stop_gradient = False  # its gradient tells where the layer's backward pass ends
        before = config.check_nan_inf
        _switch(True, None)
        try:
            out = func(self, *args, **kwargs)
            trace.flush()
        finally:
            _switch(before, None)
        first = out[0] if isinstance(out, list | tuple) else out
        if isinstance(first, Tensor) and not first.stop_gradient and not args[0].stop_gradient:
            # The layer's part of the backward pass lies between these two gradients.
            first.register_hook(lambda grad: _switch(True, None))
            args[0].register_hook(lambda grad: _switch(before, None))
        return out

    return checked


class LayerWithoutTensor(TypeMismatch):
    """A checked layer that was called with something else."""


# --- which ops ran in which precision -------------------------------------------------------


class _Calls(NamedTuple):
    """How often an op ran, by the type that it computed in: its first floating input's."""

    fp16: int
    bf16: int
    fp32: int
    other: int


_COLUMNS = {"float16": 0, "bfloat16": 1, "float32": 2}
_counts: Counter[tuple[str, int]] = Counter()


def _count(calls: list[Any], kernels: Any) -> None:
    for call in calls:
        pairs = zip(call.types, call.casts, strict=True)
        kinds = [cast or t.dtype for t, cast in pairs if isinstance(t, Aval)]
        kinds += [o.dtype for o in call.outs]
        kind = next((k for k in kinds if k.is_floating), kinds[0])
        _counts[call.op.shown, _COLUMNS.get(kind.name, 3)] += 1


def enable_operator_stats_collection() -> None:
    """Count ops by precision from now on."""
    trace.flush()
    _counts.clear()
    if _count not in checks.counters:
        checks.counters.append(_count)


def disable_operator_stats_collection() -> None:
    """Stop counting and print the table."""
    if _count not in checks.counters:
        return
    trace.flush()
    checks.counters.remove(_count)
    names = sorted({name for name, _ in _counts})
    rows = {name: _Calls(*[_counts[name, i] for i in range(4)]) for name in names}
    print(_table(rows))  # noqa: T201 (its purpose)


@contextmanager
def collect_operator_stats() -> Iterator[None]:
    """Count ops by precision inside a `with` block; the table is printed at its end."""
    enable_operator_stats_collection()
    try:
        yield
    finally:
        disable_operator_stats_collection()


def _table(rows: dict[str, _Calls]) -> str:
    heads = (" FP16 Calls ", " BF16 Calls ", " FP32 Calls", " Other Calls ")
    lines = [
        f"<{' op list ':-^120}>",
        f"<{' Op Name ':-^40} | " + " | ".join(f"{h:-^17}" for h in heads) + ">",
    ]
    for name, calls in rows.items():
        lines.append(f"  {name:<40}|  " + "|  ".join(f"{c:<17}" for c in calls))
    lines.append(f"<{f' op count: {len(rows)} ':-^120}>\n")
    return "\n".join(lines)


__all__ = [
    "DebugMode",
    "TensorCheckerConfig",
    "check_layer_numerics",
    "check_numerics",
    "collect_operator_stats",
    "compare_accuracy",
    "disable_operator_stats_collection",
    "disable_tensor_checker",
    "enable_operator_stats_collection",
    "enable_tensor_checker",
]
