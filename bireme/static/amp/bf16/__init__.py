"""paddle.static.amp.bf16: programs in bfloat16."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from bireme.api.types import PlaceLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.static.amp.bf16 import amp_lists
from bireme.static.amp.bf16.amp_lists import AutoMixedPrecisionListsBF16
from bireme.static.amp.casting import fp16_guard as bf16_guard
from bireme.static.amp.decorator import OptimizerWithMixedPrecision
from bireme.static.amp.lists import AutoMixedPrecisionLists
from bireme.static.amp.models import cast_parameters_to_fp16, cast_program
from bireme.static.program import Program
from bireme.static.scope import Scope

if TYPE_CHECKING:
    import numpy.typing as npt

    from bireme.optimizer.optimizer import Optimizer


__all__ = [
    "AutoMixedPrecisionListsBF16",
    "amp_lists",
    "bf16_guard",
    "cast_model_to_bf16",
    "cast_parameters_to_bf16",
    "convert_float_to_uint16",
    "decorate_bf16",
    "rewrite_program_bf16",
]


class _Bfloat16Optimizer(OptimizerWithMixedPrecision):
    def amp_init(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        place: PlaceLike,
        scope: Scope | None = None,
        test_program: Program | None = None,
        use_bf16_test: bool = False,
    ) -> None:
        """Put the test program into bfloat16 too, in pure training or with `use_bf16_test`."""
        super().amp_init(place, scope, test_program, use_bf16_test)


def decorate_bf16(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    use_pure_bf16: bool = False,
    use_bf16_guard: bool | None = None,
) -> OptimizerWithMixedPrecision:
    """An optimizer whose `minimize` trains the program in bfloat16: products and convolutions, or
    with `use_pure_bf16` everything that is not kept, inside `bf16_guard` unless told otherwise."""
    return _Bfloat16Optimizer(
        optimizer,
        amp_lists or AutoMixedPrecisionListsBF16(),
        "O2" if use_pure_bf16 else "O1",
        "bfloat16",
        init_loss_scaling=1.0,
        use_dynamic_loss_scaling=False,
        incr_every_n_steps=1,
        decr_every_n_nan_or_inf=1,
        incr_ratio=1.0,
        decr_ratio=1.0,
        use_amp_guard=use_pure_bf16 if use_bf16_guard is None else use_bf16_guard,
    )


def rewrite_program_bf16(
    main_prog: Program, amp_lists: AutoMixedPrecisionLists | None = None
) -> None:
    """Put the products and convolutions of a program into bfloat16, and what follows them."""
    cast_program(main_prog, amp_lists or AutoMixedPrecisionListsBF16(), dt.bfloat16, "O1", False)


def cast_model_to_bf16(
    program: Program,
    startup_prog: Program | None = None,
    amp_lists: AutoMixedPrecisionLists | None = None,
    use_bf16_guard: bool = True,
) -> set[str]:
    """Put the ops of a program into bfloat16; with `use_bf16_guard` those inside `bf16_guard`
    only. Returns the names of the variables that they read in it."""
    if startup_prog is not None:
        raise InvalidArgument(
            "[cast_model_to_bf16] weights stay in float32 here and are initialised as they were; "
            "leave out startup_prog"
        )
    lists = amp_lists or AutoMixedPrecisionListsBF16()
    return cast_program(program, lists, dt.bfloat16, "O2", use_bf16_guard)


def cast_parameters_to_bf16(
    place: PlaceLike,
    program: Program,
    scope: Scope | None = None,
    to_bf16_var_names: Collection[str] | None = None,
) -> None:
    """Round the contents of these parameters to bfloat16; the variables stay float32."""
    cast_parameters_to_fp16(place, program, scope, to_bf16_var_names, dt.bfloat16)


def convert_float_to_uint16(in_list: npt.ArrayLike) -> np.ndarray:
    """The upper halves of float32 numbers: bfloat16 cut off, as uint16."""
    return (np.asarray(in_list, np.float32).view(np.uint32) >> 16).astype(np.uint16)
