"""Passes: functions from graph to graph that keep its results.

    optimized = passes.run(graph)                      # every pass that is on, in order
    optimized = passes.run(graph, ["dead_code"])       # just these
    with passes.disabled("fold_constants"): ...
    with passes.reporting() as report: paddle.jit.save(net, "net", [spec])
    print(report)                                      # the changes of each pass
    print(passes.describe())                           # the list, and which are on

A new pass is a function under `@register("name", order=...)`.
"""

from bireme.passes import (
    dead_code,
    fold_affine,
    fold_constants,
    fuse_activations,
    fuse_attention,
    fuse_norms,
    fuse_products,
    fuse_squeeze,
    layout,
    merge_products,
    share_common,
    split_transposed,
    stack_layers,
)
from bireme.passes.low_precision import low_precision
from bireme.passes.manager import (
    Pass,
    describe,
    disable,
    disabled,
    enable,
    enabled,
    is_enabled,
    names,
    register,
    reporting,
    run,
)
from bireme.passes.report import Report

__all__ = [
    "Pass",
    "Report",
    "dead_code",
    "describe",
    "disable",
    "disabled",
    "enable",
    "enabled",
    "fold_affine",
    "fold_constants",
    "fuse_activations",
    "fuse_attention",
    "fuse_norms",
    "fuse_products",
    "fuse_squeeze",
    "is_enabled",
    "layout",
    "low_precision",
    "merge_products",
    "names",
    "register",
    "reporting",
    "run",
    "share_common",
    "split_transposed",
    "stack_layers",
]
