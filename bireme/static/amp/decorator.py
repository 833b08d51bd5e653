"""An optimizer that trains a program in mixed precision."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bireme.amp.auto_cast import auto_cast
from bireme.amp.grad_scaler import next_loss_scale, unscale_gradients
from bireme.api.types import PlaceLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import naming
from bireme.nn.grouped import apply
from bireme.ops.math import maximum
from bireme.ops.search import where
from bireme.static.amp.casting import Rules, cast_ops
from bireme.static.amp.lists import AutoMixedPrecisionLists
from bireme.static.program import Program
from bireme.static.recorder import ProgramTrace
from bireme.static.variables import create_global_var

if TYPE_CHECKING:
    from bireme.optimizer.optimizer import Optimizer
    from bireme.static.scope import Scope


class OptimizerWithMixedPrecision:
    """`minimize` puts the ops behind the loss into low precision, scales the loss against
    underflow, and leaves out updates with infinite gradients.

    Weights stay in float32 and are cast where they are used, so they are the master weights, and
    their gradients the master gradients, whatever the level.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        amp_lists: AutoMixedPrecisionLists,
        level: str,
        dtype: str,
        init_loss_scaling: float,
        use_dynamic_loss_scaling: bool,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int,
        incr_ratio: float,
        decr_ratio: float,
        use_amp_guard: bool = False,
    ) -> None:
        self._optimizer = optimizer
        self._lists = amp_lists
        self._level = level
        self._guarded = bool(use_amp_guard) and level == "O2"
        self._setting = auto_cast(
            True, amp_lists.custom_white, amp_lists.custom_black, level, dtype, use_promote=False
        )._setting
        if dtype == "bfloat16" and use_dynamic_loss_scaling:
            warnings.warn(
                "bfloat16 has float32's range and needs no loss scaling: the scale is 1",
                stacklevel=3,
            )
            use_dynamic_loss_scaling, init_loss_scaling = False, 1.0
        self._dynamic = bool(use_dynamic_loss_scaling)
        self._init_loss_scaling = float(init_loss_scaling)
        self._settings = (
            float(incr_ratio),
            float(decr_ratio),
            int(incr_every_n_steps),
            int(decr_every_n_nan_or_inf),
        )
        self._scale: Tensor | None = None
        self._counts: list[Tensor] = []
        self._scaled_loss: Tensor | None = None

    def get_loss_scaling(self) -> Tensor:
        """The scale, as a variable to fetch."""
        if self._scale is None:
            raise InvalidArgument("[get_loss_scaling] call minimize() first")
        return self._scale

    def get_scaled_loss(self) -> Tensor | None:
        """The loss times the scale."""
        return self._scaled_loss

    def backward(
        self,
        loss: Tensor,
        startup_program: Program | None = None,
        parameter_list: Iterable[Tensor | str] | None = None,
        no_grad_set: Iterable[Tensor | str] | None = None,
        callbacks: object = None,
    ) -> list[tuple[Any, Tensor]]:
        """Put the ops behind the loss into low precision; returns parameters with the gradients
        of the scaled loss."""
        self._cast(_trace_of(loss, "backward"), [loss])
        if self._scale is None:
            self._scale = create_global_var(
                [1], self._init_loss_scaling, "float32", True, name=naming.generate("loss_scaling")
            )
            if self._dynamic:
                self._counts = [
                    create_global_var([], 0, "int32", True, name=naming.generate(name))
                    for name in ("num_good_steps", "num_bad_steps")
                ]
        if loss.dtype != dt.float32:
            loss = loss.astype("float32")
        self._scaled_loss = loss * self._scale.reshape([]) if self._scales else loss
        return self._optimizer.backward(
            self._scaled_loss, startup_program, parameter_list, no_grad_set, callbacks
        )

    @property
    def _scales(self) -> bool:
        return self._dynamic or self._init_loss_scaling != 1.0

    def _cast(self, trace: ProgramTrace, results: list[Tensor]) -> None:
        if self._setting is None:  # level O0
            return
        slots = [s for r in results if (s := trace.known_slot(r._value)) is not None]
        only_white, kept = self._level == "OD", self._lists.black_varnames
        cast_ops(trace, slots, Rules(self._setting, only_white, kept, self._guarded))

    def apply_gradients(self, params_grads: list[tuple[Any, Tensor]]) -> list[Any]:
        """Update with gradients of the scaled loss, unless one of them is infinite."""
        if not self._scales or not params_grads:
            return self._optimizer.apply_gradients(params_grads)
        scale = self.get_loss_scaling()
        params, grads = zip(*params_grads, strict=True)
        *plain, found = apply(unscale_gradients.op, (list(grads), scale))
        if self._dynamic:
            inputs = (scale, *self._counts, [Tensor(found, None)])
            grown, *counts = apply(next_loss_scale.op, inputs, (self._settings,))
            new = Tensor(grown, None)
            least = where(new < scale, maximum(new, scale * 0 + 1), new)  # it falls to 1 at most
            scale._put(least._value)
            for tensor, value in zip(self._counts, counts, strict=True):
                tensor._put(value)
        self._optimizer._skip = Tensor(found, None)
        try:
            pairs = [(p, Tensor(g, None)) for p, g in zip(params, plain, strict=True)]
            return self._optimizer.apply_gradients(pairs)
        finally:
            self._optimizer._skip = None

    def apply_optimize(
        self, loss: Tensor, startup_program: Program | None, params_grads: list[tuple[Any, Tensor]]
    ) -> list[Any]:
        """`apply_gradients`; the startup program is that of `program_guard`."""
        return self.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Tensor,
        startup_program: Program | None = None,
        parameter_list: Iterable[Tensor | str] | None = None,
        no_grad_set: Iterable[Tensor | str] | None = None,
    ) -> tuple[list[Any], list[tuple[Any, Tensor]]]:
        """`backward`, then `apply_gradients`."""
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_gradients(pairs), pairs

    def amp_init(
        self,
        place: PlaceLike,
        scope: Scope | None = None,
        test_program: Program | None = None,
        use_fp16_test: bool = False,
        rewrite_master_weight: bool = False,
    ) -> None:
        """Put the test program into low precision too, at level O2 or with `use_fp16_test`.

        There is nothing else to do: weights are cast where they are used.
        """
        if self._scale is None:
            raise InvalidArgument("[amp_init] call minimize() first")
        if test_program is not None and (self._level == "O2" or use_fp16_test):
            trace = test_program._trace
            results = [Tensor(v, None) for v in trace.values]
            self._cast(trace, results)


def _trace_of(loss: Any, what: str) -> ProgramTrace:
    trace = loss._value.trace if isinstance(loss, Tensor) else None
    if not isinstance(trace, ProgramTrace):
        raise TypeMismatch(
            f"[{what}] takes a variable of a static program; in eager code use "
            f"paddle.amp.auto_cast and GradScaler. Received: {type(loss).__name__}"
        )
    return trace


# The arguments that an older form of `decorate` has, and its defaults.
_OLDER = ("use_pure_fp16", "use_fp16_guard", "use_bf16")
_OLDER_DEFAULTS = {
    "init_loss_scaling": 2**15,
    "incr_every_n_steps": 1000,
    "decr_every_n_nan_or_inf": 2,
    "incr_ratio": 2.0,
    "decr_ratio": 0.8,
    "use_dynamic_loss_scaling": True,
}
_DEFAULTS = {
    "init_loss_scaling": 2**16,
    "incr_every_n_steps": 2000,
    "decr_every_n_nan_or_inf": 1,
    "incr_ratio": 2.0,
    "decr_ratio": 0.5,
    "use_dynamic_loss_scaling": None,
}


def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    level: str = "O1",
    dtype: str = "float16",
    master_weight: bool | None = None,
    master_grad: bool = False,
    init_loss_scaling: float | None = None,
    incr_every_n_steps: int | None = None,
    decr_every_n_nan_or_inf: int | None = None,
    incr_ratio: float | None = None,
    decr_ratio: float | None = None,
    use_dynamic_loss_scaling: bool | None = None,
    use_amp_guard: bool | None = None,
    use_promote: bool = False,
    **older: Any,
) -> OptimizerWithMixedPrecision:
    """An optimizer whose `minimize` trains the program in mixed precision.

    Level O1 runs products and convolutions in `dtype`, O2 everything that is not black, OD the
    white ops alone. The arguments of the older form (`use_pure_fp16`, `use_fp16_guard`,
    `use_bf16`) are taken by name, with its defaults.
    """
    unknown = sorted(set(older) - set(_OLDER))
    if unknown:
        raise TypeError(f"decorate() got an unexpected keyword argument {unknown[0]!r}")
    if not isinstance(level, str):
        raise TypeMismatch(
            "[decorate] level is 'O0', 'OD', 'O1' or 'O2'; give the settings of the older form by "
            f"name, as in init_loss_scaling=128.0. Received: {level!r}"
        )
    if older:
        level = "O2" if older.get("use_pure_fp16", False) else "O1"
        dtype = "bfloat16" if older.get("use_bf16", False) else "float16"
        use_amp_guard = older.get("use_fp16_guard")
        if use_amp_guard is None:
            use_amp_guard = level == "O2"
    given = {
        "init_loss_scaling": init_loss_scaling,
        "incr_every_n_steps": incr_every_n_steps,
        "decr_every_n_nan_or_inf": decr_every_n_nan_or_inf,
        "incr_ratio": incr_ratio,
        "decr_ratio": decr_ratio,
        "use_dynamic_loss_scaling": use_dynamic_loss_scaling,
    }
    settings: dict[str, Any] = dict(_OLDER_DEFAULTS if older else _DEFAULTS)
    settings |= {k: v for k, v in given.items() if v is not None}
    if settings["use_dynamic_loss_scaling"] is None:
        settings["use_dynamic_loss_scaling"] = dtype == "float16"
    level = level.upper()
    if use_promote:
        raise InvalidArgument(
            "[decorate] use_promote=True would keep every op that reads a weight in float32, since "
            "weights stay in float32 here; use level 'O1'"
        )
    if master_weight is False and level == "O2":
        raise InvalidArgument(
            "[decorate] weights stay in float32 here, which are the master weights; "
            "leave out master_weight=False"
        )
    lists = amp_lists or AutoMixedPrecisionLists(dtype=dtype)
    if level == "OD" and amp_lists is not None:
        warnings.warn("at level OD the lists are not used", stacklevel=2)
        lists = AutoMixedPrecisionLists(dtype=dtype)
    return OptimizerWithMixedPrecision(
        optimizer, lists, level, dtype, use_amp_guard=bool(use_amp_guard), **settings
    )
