"""Preparing models and optimizers for pure half-precision training (O2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.nn.layer.layer import Layer
from bireme.nn.layer.norm import BatchNorm as _BatchNorm
from bireme.nn.layer.norm import LayerNorm, _BatchNormBase, _InstanceNorm
from bireme.optimizer.optimizer import Optimizer

_Excluded = Layer | type[Layer]


def decorate(
    models: Layer | Sequence[Layer],
    optimizers: Optimizer | Sequence[Optimizer] | None = None,
    level: str = "O1",
    dtype: str = "float16",
    master_weight: bool | None = None,
    save_dtype: str | None = None,
    master_grad: bool = False,
    excluded_layers: _Excluded | Sequence[_Excluded] | None = None,
) -> Any:
    """Cast models to `dtype` and make optimizers keep float32 master weights.

    Batch norms stay in float32, and so do layer and instance norms under float16. `save_dtype`
    is the dtype of saved parameters; `master_grad` keeps gradients in float32.
    """
    if level not in ("O1", "O2"):
        raise InvalidArgument(f"[decorate] level must be O1 or O2. Received: {level!r}")
    if dtype not in ("float16", "bfloat16"):
        raise InvalidArgument(
            f"[decorate] dtype must be 'float16' or 'bfloat16'. Received: {dtype!r}"
        )
    if level == "O2":
        layers = _listed(models, Layer, "models")
        kept = _excluded(layers, excluded_layers)
        for model in layers:
            for layer in model.sublayers(include_self=True):
                if id(layer) not in kept and not _stays_wide(layer, dtype):
                    layer._convert_own(dt.as_dtype(dtype), None, floating_only=True)
            if save_dtype is not None:
                model.register_state_dict_hook(_SaveAs(save_dtype))
            if master_grad:
                for param in model.parameters():
                    _keep_wide_gradient(param)
        for optimizer in _listed(optimizers, Optimizer, "optimizers"):
            optimizer._multi_precision = master_weight is not False
    return models if optimizers is None else (models, optimizers)


def _listed(given: Any, kind: type, what: str) -> list[Any]:
    if given is None:
        return []
    items = list(given) if isinstance(given, list | tuple) else [given]
    for item in items:
        if not isinstance(item, kind):
            raise TypeMismatch(
                f"[decorate] {what} must be a {kind.__name__} or a list of them. Received: "
                f"{type(item).__name__}"
            )
    return items


def _excluded(models: list[Layer], excluded: Any) -> set[int]:
    """The ids of layers that keep their dtype, from layers or classes of layers."""
    items = [] if excluded is None else excluded
    items = items if isinstance(items, list | tuple) else [items]
    kept: set[int] = set()
    for item in items:
        if isinstance(item, Layer):
            kept.update(id(layer) for layer in item.sublayers(include_self=True))
        elif isinstance(item, type) and issubclass(item, Layer):
            for model in models:
                below = model.sublayers(include_self=True)
                kept.update(id(layer) for layer in below if isinstance(layer, item))
        else:
            raise TypeMismatch(
                f"[decorate] excluded_layers takes layers or classes of layers. Received: {item!r}"
            )
    return kept


def _stays_wide(layer: Layer, dtype: str) -> bool:
    if isinstance(layer, _BatchNorm | _BatchNormBase):
        return True
    return dtype == "float16" and isinstance(layer, LayerNorm | _InstanceNorm)


def _keep_wide_gradient(param: Any) -> None:
    if not param.stop_gradient and param.dtype in (dt.float16, dt.bfloat16):
        param.register_hook(lambda grad: grad.astype(dt.float32))


class _SaveAs:
    """A state-dict hook that shows floating tensors in another dtype."""

    def __init__(self, dtype: str):
        self.dtype = dt.as_dtype(dtype)
        if not self.dtype.is_floating:
            raise InvalidArgument(
                f"[decorate] save_dtype must be a floating type. Received: {dtype!r}"
            )

    def __call__(self, destination: dict[str, Any]) -> None:
        for name, tensor in destination.items():
            if isinstance(tensor, Tensor) and tensor.dtype.is_floating:
                shown = tensor.detach().astype(self.dtype)
                shown.name = tensor.name
                destination[name] = shown


amp_decorate = decorate

__all__ = ["amp_decorate", "decorate"]
