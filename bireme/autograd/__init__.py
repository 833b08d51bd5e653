"""Gradients: `grad`, `backward`, `no_grad`, `PyLayer`."""

from __future__ import annotations

from bireme.autograd.functional import backward, grad
from bireme.autograd.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from bireme.autograd.py_layer import PyLayer, PyLayerContext

__all__ = [
    "PyLayer", "PyLayerContext", "backward", "enable_grad", "grad", "is_grad_enabled", "no_grad",
    "set_grad_enabled",
]  # fmt: skip
