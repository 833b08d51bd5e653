"""The op table: one module per family. Importing this package registers every op."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

# Which namespaces a family's functions belong to is said where they are defined (`@public`).
FAMILIES = (
    "creation", "matrices",
    "conversion", "math_unary", "math", "complexes", "special", "logic", "reduction",
    "scan", "statistics", "linalg", "decomposition", "search", "manipulation", "joining", "slicing",
    "rearrange", "indexing", "distance", "random", "activation", "softmax", "common", "dropout",
    "padding", "conv", "pooling", "pooling_adaptive", "resize", "vision", "norm", "loss",
    "loss_class", "loss_metric", "loss_ctc", "attention", "rnn", "rnn_projected",
    "attention_packed", "sampling", "least_squares",
    "experts", "fft", "signal", "lowrank", "control_flow", "forms", "inplace", "viterbi", "top_p",
)  # fmt: skip

modules: dict[str, ModuleType] = {f: import_module(f"bireme.ops.{f}") for f in FAMILIES}
# Ops of other namespaces (paddle.vision.ops, paddle.nn.quant), and those that passes make: a
# saved graph may name them.
for _family in ("roi", "deform", "detection", "quant", "quantised", "fused_products"):
    import_module(f"bireme.ops.{_family}")
