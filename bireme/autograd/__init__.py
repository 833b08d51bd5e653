"""Gradients: `grad`, `backward`, `no_grad`, `PyLayer`."""

from __future__ import annotations

from bireme.autograd.functional import backward, grad
from bireme.autograd.jacobians import hessian, jacobian
from bireme.autograd.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from bireme.autograd.py_layer import PyLayer, PyLayerContext
from bireme.autograd.saved_tensors import saved_tensors_hooks

Function = PyLayer  # PyTorch's name for it

__all__ = [
    "Function", "PyLayer", "PyLayerContext", "backward", "enable_grad", "grad", "hessian",
    "is_grad_enabled", "jacobian", "no_grad", "saved_tensors_hooks", "set_grad_enabled",
]  # fmt: skip
