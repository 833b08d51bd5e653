"""Clipping by the norm of all gradients, where each process has experts of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import bireme as paddle
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.communication.collectives import all_reduce
from bireme.nn.clip import ClipGradByGlobalNorm, Pairs

if TYPE_CHECKING:
    from bireme.distributed.communication.group import Group


class ClipGradForMOEByGlobalNorm(ClipGradByGlobalNorm):
    """ClipGradByGlobalNorm; squares of the gradients of parameters for which
    `is_expert_param_func(parameter)` is true are added over `moe_group`."""

    def __init__(
        self,
        clip_norm: float,
        is_expert_param_func: Callable[[Any], bool] | None = None,
        moe_group: Group | None = None,
        group_name: str = "default_moe_group",
    ) -> None:
        super().__init__(clip_norm, group_name)
        self.moe_group = moe_group
        self.is_expert_param_func = is_expert_param_func
        if moe_group is not None and moe_group.nranks > 1 and is_expert_param_func is None:
            raise InvalidArgument(
                "[ClipGradForMOEByGlobalNorm] with a moe_group of several processes, "
                "is_expert_param_func says which parameters are those of experts"
            )

    def __call__(self, params_grads: Pairs) -> Pairs:
        is_expert = self.is_expert_param_func
        if is_expert is None or self.moe_group is None or self.moe_group.nranks == 1:
            return super().__call__(params_grads)
        taken = [(p, g) for p, g in params_grads if g is not None and getattr(p, "need_clip", True)]
        if not taken:
            return params_grads
        own = _squares([g for p, g in taken if is_expert(p)])
        all_reduce(own, group=self.moe_group)
        norm = (own + _squares([g for p, g in taken if not is_expert(p)])).sqrt()
        factor = self.clip_norm / norm.clip(min=self.clip_norm)
        clipped = {id(p): g * factor.astype(g.dtype) for p, g in taken}
        return [(p, clipped.get(id(p), g)) for p, g in params_grads]


def _squares(grads: list[Tensor]) -> Tensor:
    total = paddle.zeros([], dtype="float32")
    for g in grads:
        total = total + g.astype("float32").square().sum()
    return total


__all__ = ["ClipGradForMOEByGlobalNorm"]
