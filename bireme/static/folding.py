"""Values of a program that follow from constants alone.

Programs write sizes, indices and conditions as tensors: `paddle.full([1], 3, "int64")`. What
depends on no feed, no parameter and no random number is the same in every run, so it is computed
while the program is built, where a function needs the number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import dims
from bireme.core.errors import BiremeError
from bireme.static import executor
from bireme.static.recorder import running
from bireme.static.scope import global_scope

if TYPE_CHECKING:
    from bireme.static.program import Program


def constant_contents(program: Program, slot: int) -> np.ndarray | None:
    """What every run computes as the result in `slot`; None where runs may differ."""
    if slot < 0 or not _is_constant(program, slot):
        return None
    plan = executor.make_plan(program, (slot,), writing=False)
    try:
        with running():
            made = executor._run_plan(plan, program, {}, global_scope())
            return np.asarray(made[0]._array())
    except BiremeError:
        return None


def _is_constant(program: Program, slot: int) -> bool:
    """Whether no size is open, and nothing comes from outside, by chance or with side effects."""
    recorded = program._trace
    leaves = list(recorded.leaves)
    graph = recorded.graph([slot])
    for node in graph.needed():
        if node.call.op.name in executor.EFFECTS or _has_open_size(node.call.attrs):
            return False
        if not all(t.is_static for t in node.call.outs):
            return False
        for arg in node.args:
            if isinstance(arg, int) and arg < 0 and leaves[-1 - arg].buf is None:
                return False
            if arg in graph.keys:
                return False
    return True


def _has_open_size(attribute: Any) -> bool:
    if isinstance(attribute, dict):
        return any(map(_has_open_size, attribute.values()))
    if isinstance(attribute, list | tuple):
        return any(map(_has_open_size, attribute))
    return dims.is_dim_expression(attribute)
