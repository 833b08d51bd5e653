"""Spectral normalisation: a weight divided by its largest singular value."""

from __future__ import annotations

from typing import Any

from bireme.autograd.modes import no_grad
from bireme.core.errors import InvalidArgument
from bireme.core.op import op
from bireme.core.tensor import Tensor, alias, constant
from bireme.nn.layer.layer import Layer


def _matrix(xp: Any, weight: Any, dim: int) -> Any:
    if dim:
        order = (dim, *(i for i in range(weight.ndim) if i != dim))
        weight = xp.transpose(weight, order)
    return xp.reshape(weight, (weight.shape[0], -1))


def _unit(xp: Any, x: Any, eps: float) -> Any:
    return x / xp.maximum(xp.sqrt(xp.sum(xp.square(x))), eps)


@op(differentiable=False)
def power_iteration(xp, weight, u, v, dim=0, steps=1, eps=1e-12):
    """Better estimates of the first singular vectors: (u, v)."""
    matrix = _matrix(xp, weight, dim)
    for _ in range(steps):
        v = _unit(xp, matrix.T @ u, eps)
        u = _unit(xp, matrix @ v, eps)
    return u, v


@op
def divide_by_sigma(xp, weight, u, v, dim=0):
    """weight / (u^T W v)."""
    return weight / (u @ (_matrix(xp, weight, dim) @ v))


class SpectralNormHook:
    """The hook that divides the weight before each forward."""

    def __init__(self, name: str, steps: int, dim: int, eps: float):
        self.name = name
        self.steps = steps
        self.dim = dim
        self.eps = eps

    def compose(self, layer: Layer, improve: bool) -> Tensor:
        weight, u, v = (getattr(layer, self.name + end) for end in ("_orig", "_u", "_v"))
        if improve:
            with no_grad():
                new_u, new_v = power_iteration(weight, u, v, self.dim, self.steps, self.eps)
            u._put(new_u._value)
            v._put(new_v._value)
        # Handles of their own: a later update of u and v must not disturb this gradient.
        return divide_by_sigma(weight, alias(u), alias(v), self.dim)

    def __call__(self, layer: Layer, inputs: object) -> None:
        setattr(layer, self.name, self.compose(layer, layer.training))


def spectral_norm(
    layer: Layer,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Layer:
    """Keep the largest singular value of parameter `name` at one."""
    for hook, _, _ in layer._forward_pre_hooks.values():
        if isinstance(hook, SpectralNormHook) and hook.name == name:
            raise InvalidArgument(f"[spectral_norm] {name!r} of this layer is normalised already")
    weight = layer._parameters.get(name)
    if weight is None:
        raise InvalidArgument(
            f"[spectral_norm] {type(layer).__name__} has no parameter {name!r}. Received: "
            f"{sorted(layer._parameters)}"
        )
    if n_power_iterations <= 0:
        raise InvalidArgument(
            f"[spectral_norm] n_power_iterations must be positive. Received: {n_power_iterations}"
        )
    if dim is None:
        # Layers whose weight is [in, out, ...] have their outputs in dimension 1.
        swapped = ("Linear", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
        dim = 1 if type(layer).__name__ in swapped else 0
    hook = SpectralNormHook(name, n_power_iterations, dim, eps)
    start = _random_unit_vectors(weight, dim, eps)
    del layer._parameters[name]
    layer.add_parameter(name + "_orig", weight)
    layer.register_buffer(name + "_u", start[0])
    layer.register_buffer(name + "_v", start[1])
    # Fifteen more rounds at the start, so that the first forward is close already.
    with no_grad():
        u, v = power_iteration(weight, *start, dim, 15, eps)
        start[0]._put(u._value)
        start[1]._put(v._value)
    setattr(layer, name, hook.compose(layer, False))
    layer.register_forward_pre_hook(hook)
    return layer


def _random_unit_vectors(weight: Tensor, dim: int, eps: float) -> tuple[Tensor, Tensor]:
    import numpy as np

    from bireme.nn.initializer.base import normal

    rows = weight.shape[dim]
    made = []
    for size in (rows, weight.size // rows):
        drawn = normal((size,), weight.dtype, 0.0, 1.0)
        made.append(constant(drawn / max(float(np.linalg.norm(drawn)), eps)))
    return made[0], made[1]


__all__ = ["spectral_norm"]
