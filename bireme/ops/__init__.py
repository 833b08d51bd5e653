"""The op table: one module per family. Importing this package registers every op."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from bireme.core import code_cache

# Families whose public names live in `paddle.nn.functional` rather than in `paddle`.
FUNCTIONAL = (
    "activation", "softmax", "common", "dropout", "padding", "conv", "pooling", "pooling_adaptive",
    "resize", "vision", "norm", "loss", "loss_class", "loss_metric", "loss_ctc", "attention", "rnn",
    "attention_packed", "sampling", "experts",
)  # fmt: skip

# Order matters only for `public()`: a later family may not reuse an earlier one's name.
FAMILIES = (
    "creation", "conversion", "math_unary", "math", "complexes", "special", "logic", "reduction",
    "scan", "statistics", "linalg", "decomposition", "search", "manipulation", "joining", "slicing",
    "rearrange", "indexing", "distance", "random", *FUNCTIONAL, "fft", "signal", "lowrank",
    "control_flow", "forms",
    "viterbi", "top_p",
)  # fmt: skip

modules: dict[str, ModuleType] = {f: import_module(f"bireme.ops.{f}") for f in FAMILIES}
# Ops of other namespaces (paddle.vision.ops, paddle.nn.quant), and those that passes make: a
# saved graph may name them.
for _family in ("roi", "deform", "detection", "quant", "fused_products"):
    import_module(f"bireme.ops.{_family}")
code_cache.save()


def public(families: tuple[str, ...]) -> dict[str, Any]:
    """Every public function of these families by name."""
    names: dict[str, Any] = {}
    for family in families:
        module = modules[family]
        for name in module.__all__:
            if name in names:
                raise ImportError(f"{name!r} is exported by two op families, one is {family}")
            names[name] = getattr(module, name)
    return names
