"""Gradient clipping. What it decides stays on the device: nothing waits for a norm."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from bireme.core.aval import aval
from bireme.core.dtype import float32, float64
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.host.arrays import Array
from bireme.nn.grouped import apply, same_types, wide
from bireme.ops.row_gradients import by_row, contents, with_contents

Pairs = list[tuple[Any, Tensor | None]]


@op(inputs=("*grads", "low", "high"), differentiable=False, infer=same_types)
def clip_grads_by_value(xp, grads, low, high):
    """Every gradient cut to [low, high]."""
    return [xp.clip(g, low.astype(g.dtype), high.astype(g.dtype)) for g in grads]


@op(inputs=("*grads", "max_norm"), differentiable=False, infer=same_types)
def clip_grads_by_norm(xp, grads, max_norm):
    """Every gradient scaled down to a norm of at most `max_norm`, each by itself."""
    clipped = []
    for g in grads:
        x = wide(xp, g)
        limit = max_norm.astype(x.dtype)
        norm = xp.sqrt(xp.sum(xp.square(x)))
        clipped.append((x * (limit / xp.maximum(norm, limit))).astype(g.dtype))
    return clipped


@op(inputs=("*grads", "max_norm"), differentiable=False, infer=same_types)
def clip_grads_by_global_norm(xp, grads, max_norm):
    """All gradients scaled by one factor, so that their joint norm is at most `max_norm`."""
    norm = joint_norm(xp, grads, 2.0)
    limit = max_norm.astype(norm.dtype)
    factor = limit / xp.maximum(norm, limit)
    return [(wide(xp, g) * factor.astype(wide(xp, g).dtype)).astype(g.dtype) for g in grads]


def joint_norm(xp: ModuleType, grads: Iterable[Any], norm_type: float) -> Array:
    """The norm of all gradients as one long vector."""
    if norm_type == float("inf"):
        peaks = [xp.max(xp.abs(wide(xp, g)), initial=0.0) for g in grads]
        return xp.max(xp.stack(peaks))
    if norm_type == 2.0:
        total = sum([xp.sum(xp.square(wide(xp, g))) for g in grads])
        return xp.sqrt(total)
    total = sum([xp.sum(xp.abs(wide(xp, g)) ** norm_type) for g in grads])
    return total ** (1.0 / norm_type)


def _norm_types(*groups: Any, **attrs: Any) -> tuple[Any, ...]:
    grads = groups[0]
    wide_type = float64 if any(g.dtype is float64 for g in grads) else float32
    return (aval((), wide_type), *grads)


@op(inputs=("*grads", "max_norm"), differentiable=False, infer=_norm_types)
def clip_grads_to_norm(xp, grads, max_norm, norm_type=2.0):
    """The joint norm, and all gradients scaled to at most `max_norm`."""
    norm = joint_norm(xp, grads, norm_type)
    factor = xp.minimum(max_norm.astype(norm.dtype) / (norm + 1e-6), 1.0)
    scaled = [(wide(xp, g) * factor.astype(wide(xp, g).dtype)).astype(g.dtype) for g in grads]
    kind = "float64" if any(g.dtype == "float64" for g in grads) else "float32"
    return [norm.astype(kind), *scaled]


class ClipGradBase:
    """Base of the clips. Called with (parameter, gradient) pairs, returns new pairs."""

    def __call__(self, params_grads: Pairs) -> Pairs:
        chosen = [
            i
            for i, (p, g) in enumerate(params_grads)
            if g is not None and getattr(p, "need_clip", True)
        ]
        if not chosen:
            return params_grads
        grads = [params_grads[i][1] for i in chosen]
        if self._keeps_zeros():
            grads = by_row(grads)
        clipped = with_contents(grads, self._clip(contents(grads)))
        result = list(params_grads)
        for i, grad in zip(chosen, clipped, strict=True):
            result[i] = (params_grads[i][0], grad)
        return result

    def _keeps_zeros(self) -> bool:
        """Whether zeros stay zeros, so that a gradient of some rows stays one."""
        return True

    def _clip(self, grads: list[Any]) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define how to clip")


class ClipGradByValue(ClipGradBase):
    """Cuts every element of every gradient to [min, max]; min is -max by default."""

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -self.max if min is None else float(min)

    def _clip(self, grads: list[Any]) -> list[Any]:
        return apply(clip_grads_by_value.op, (grads, self.min, self.max))

    def _keeps_zeros(self) -> bool:
        return self.min <= 0.0 <= self.max

    def __str__(self) -> str:
        return f"Clip Gradient By Value, min = {self.min:f}, max={self.max:f}"


class ClipGradByNorm(ClipGradBase):
    """Scales each gradient whose norm exceeds `clip_norm`."""

    def __init__(self, clip_norm: float) -> None:
        self.clip_norm = float(clip_norm)

    def _clip(self, grads: list[Any]) -> list[Any]:
        return apply(clip_grads_by_norm.op, (grads, self.clip_norm))

    def __str__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={self.clip_norm:f}"


class ClipGradByGlobalNorm(ClipGradBase):
    """Scales all gradients together if their joint norm exceeds `clip_norm`.

    `group_name` separates groups in Paddle's static programs and `auto_skip_clip` saves the
    multiplication there; the result is the same, and here the factor is always applied.
    """

    def __init__(
        self, clip_norm: float, group_name: str = "default_group", auto_skip_clip: bool = False
    ) -> None:
        self.clip_norm = float(clip_norm)
        self.group_name = group_name
        self.auto_skip_clip = auto_skip_clip

    def _clip(self, grads: list[Any]) -> list[Any]:
        return apply(clip_grads_by_global_norm.op, (grads, self.clip_norm))

    def __str__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={self.clip_norm:f}"


__all__ = ["ClipGradByGlobalNorm", "ClipGradByNorm", "ClipGradByValue"]


def _squared_l2_norm(x: Tensor) -> Tensor:
    """The sum of squares, as Paddle's inner helper of the norms gives it."""
    return x.square().sum().reshape([1])
