"""A program put into low precision as it is, without an optimizer.

Its weights and inputs stay in float32 and are cast where ops read them, as everywhere in
`static.amp`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from bireme.amp.auto_cast import auto_cast
from bireme.api.types import DTypeLike, PlaceLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import constant
from bireme.static.amp.casting import Rules, cast_ops
from bireme.static.amp.lists import AutoMixedPrecisionLists
from bireme.static.program import Program
from bireme.static.scope import Scope, global_scope

_LOW = (dt.float16, dt.bfloat16)


def cast_model_to_fp16(
    program: Program,
    amp_lists: AutoMixedPrecisionLists | None = None,
    use_fp16_guard: bool = True,
    dest_type: DTypeLike = "float16",
    level: str = "O2",
    use_promote: bool = False,
) -> set[str]:
    """Put the ops of a program into low precision; with `use_fp16_guard` those inside
    `fp16_guard` only. Returns the names of the variables that they read in it."""
    if use_promote:
        raise InvalidArgument(
            "[cast_model_to_fp16] use_promote=True would keep every op that reads a weight in "
            "float32, since weights stay in float32 here; use level 'O1'"
        )
    return cast_program(program, amp_lists, _low(dest_type), level, use_fp16_guard)


def cast_program(
    program: Program,
    lists: AutoMixedPrecisionLists | None,
    dtype: dt.DType,
    level: str,
    guarded: bool,
) -> set[str]:
    """Record all of a program's ops once more, in the types that autocast gives them."""
    if not isinstance(program, Program):
        raise TypeMismatch(f"takes a static Program. Received: {type(program).__name__}")
    lists = lists or AutoMixedPrecisionLists(dtype=dtype.name)
    white, black = lists.custom_white, lists.custom_black
    setting = auto_cast(True, white, black, level, dtype.name, use_promote=False)._setting
    if setting is None:  # level O0
        return set()
    trace = program._trace
    slots = [s for v in trace.values if (s := trace.known_slot(v)) is not None]
    return cast_ops(trace, slots, Rules(setting, level == "OD", lists.black_varnames, guarded))


def cast_parameters_to_fp16(
    place: PlaceLike,
    program: Program,
    scope: Scope | None = None,
    to_fp16_var_names: Collection[str] | None = None,
    dest_type: DTypeLike = "float16",
    rewrite_master_weight: bool = False,
    master_weights: Mapping[str, Any] | None = None,
) -> None:
    """Round the contents of these parameters to what low precision can hold.

    The variables stay float32. Those named in `master_weights` are an optimizer's and are rounded
    only with `rewrite_master_weight`.
    """
    dtype, names = _low(dest_type), set(to_fp16_var_names or ())
    if not rewrite_master_weight:
        names -= set(master_weights or ())
    where = scope or global_scope()
    for parameter in program.all_parameters():
        if parameter.name in names:
            array = np.asarray(where.tensor(parameter.name)._array())
            rounded = array.astype(dtype.numpy).astype(array.dtype)
            where.put(parameter.name, constant(rounded))


def _low(dest_type: DTypeLike) -> dt.DType:
    found = dt.as_dtype(dest_type)
    if found not in _LOW:
        raise InvalidArgument(f"dest_type is float16 or bfloat16. Received: {found.name}")
    return found
