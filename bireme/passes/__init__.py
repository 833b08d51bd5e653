"""Passes: functions from graph to graph that keep what it computes.

    optimized = passes.run(graph)                      # every pass that is on, in order
    optimized = passes.run(graph, ["dead_code"])       # just these
    with passes.disabled("fold_constants"): ...

A new pass is a function under `@register("name", order=...)`.
"""

from bireme.passes import dead_code, fold_affine, fold_constants, share_common
from bireme.passes.manager import (
    Pass,
    disable,
    disabled,
    enable,
    is_enabled,
    names,
    register,
    run,
)

__all__ = [
    "Pass",
    "dead_code",
    "disable",
    "disabled",
    "enable",
    "fold_affine",
    "fold_constants",
    "is_enabled",
    "names",
    "register",
    "run",
    "share_common",
]
