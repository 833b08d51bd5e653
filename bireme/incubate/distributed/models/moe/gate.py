"""Gates: which experts a token goes to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.communication.collectives import all_gather
from bireme.nn import functional as F
from bireme.ops.expert_slots import queue_lengths, queue_places

if TYPE_CHECKING:
    from bireme.distributed.communication.group import Group


class BaseGate(nn.Layer):
    """`num_expert` experts on each of `world_size` processes. A gate's `forward(x)` returns the
    weights and the numbers of each token's experts, -1 for none."""

    # At most this many tokens go to an expert, if the gate has a limit: (training, evaluation),
    # as a share of a process's tokens.
    capacity: tuple[float, float] | None = None
    top_k: int
    loss: Tensor | None

    def __init__(self, num_expert: int, world_size: int) -> None:
        super().__init__()
        self.world_size = world_size
        self.num_expert = num_expert
        self.tot_expert = world_size * num_expert
        self.set_loss(None)

    def set_loss(self, loss: Tensor | None) -> None:
        """Keep the loss that balances the experts."""
        self.__dict__["loss"] = loss  # a result of this pass, not a buffer of the layer

    def get_loss(self, clear: bool = True) -> Tensor | None:
        """The loss of the last forward pass; it is forgotten if `clear`."""
        loss = self.loss
        if clear:
            self.set_loss(None)
        return loss

    def limit(self, tokens: int) -> int | None:
        """How many tokens an expert takes."""
        if self.capacity is None:
            return None
        return math.ceil(self.capacity[0 if self.training else 1] * tokens)


class NaiveGate(BaseGate):
    """The `topk` experts with the largest scores, weighted by the scores."""

    def __init__(self, d_model: int, num_expert: int, world_size: int, topk: int = 2) -> None:
        super().__init__(num_expert, world_size)
        if not 0 < topk <= self.tot_expert:
            raise InvalidArgument(
                f"[{type(self).__name__}] topk is 1 to {self.tot_expert}. Received: {topk}"
            )
        self.gate = nn.Linear(d_model, self.tot_expert)
        self.gate.weight.name = "gate_" + self.gate.weight.name
        self.gate.bias.name = "gate_" + self.gate.bias.name
        self.top_k = topk

    def forward(self, inp: Tensor, return_all_scores: bool = False) -> Any:
        scores = self.gate(inp)
        value, index = paddle.topk(scores, k=self.top_k, axis=-1, largest=True, sorted=False)
        if return_all_scores:
            return value, index, scores
        return value, index


class GShardGate(NaiveGate):
    """Two experts, with a limit of tokens each, a loss that balances them, and a random choice
    whether the second is used."""

    def __init__(
        self,
        d_model: int,
        num_expert: int,
        world_size: int,
        topk: int = 2,
        capacity: tuple[float, float] = (1.2, 2.4),
        random_routing: bool = True,
        group: Group | None = None,
    ) -> None:
        if topk != 2:
            raise InvalidArgument(f"[GShardGate] topk is 2. Received: {topk}")
        super().__init__(d_model, num_expert, world_size)
        self.capacity = capacity
        self.random_routing = random_routing
        self.group = group

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        value, index, scores = super().forward(x, return_all_scores=True)
        counts = queue_lengths(index, self.tot_expert).astype("float32")
        share = counts / scores.shape[0]
        mean = F.softmax(scores, axis=1).mean(axis=0)
        self.set_loss((share * mean).mean() * (self.num_expert**2))
        index = within(index, self, x.shape[0], self.group)
        if self.random_routing:
            drawn = paddle.rand([scores.shape[0]], dtype="float32")
            second = paddle.where(2 * value[:, 1].astype("float32") < drawn, -1, index[:, 1])
            index = paddle.stack([index[:, 0], second], axis=1)
        return value, index


class SwitchGate(NaiveGate):
    """One expert, with a limit of tokens each and a loss that balances them; scores are noisy in
    training."""

    def __init__(
        self,
        d_model: int,
        num_expert: int,
        world_size: int,
        topk: int = 1,
        switch_eps: float = 0.1,
        capacity: tuple[float, float] = (1.2, 2.4),
        group: Group | None = None,
    ) -> None:
        if topk != 1:
            raise InvalidArgument(f"[SwitchGate] topk is 1. Received: {topk}")
        super().__init__(d_model, num_expert, world_size, topk=1)
        self.switch_eps = switch_eps
        self.capacity = capacity
        self.group = group

    def forward(self, inp: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        score = self.gate(inp)
        if self.training:
            noise = paddle.rand(score.shape)
            score = score + (noise * 2 * self.switch_eps + 1.0 - self.switch_eps)
        score = F.softmax(score, axis=-1)
        value, index = paddle.topk(score, k=1, axis=-1, largest=True)
        index = within(index, self, inp.shape[0], self.group)
        counts = queue_lengths(index, self.tot_expert).astype("float32")
        valid = counts.sum()
        self.set_loss((counts / valid * (score.sum(axis=0) / valid)).sum() * self.tot_expert)
        return value, index


def within(index: Tensor, gate: BaseGate, tokens: int, group: Group | None) -> Tensor:
    """The choices, -1 for those beyond what an expert takes; lower ranks' tokens come first."""
    limit = gate.limit(tokens)
    if limit is None:
        return index
    place = queue_places(index, gate.tot_expert)
    if gate.world_size > 1:
        lengths: list[Tensor] = []
        all_gather(lengths, queue_lengths(index, gate.tot_expert), group)
        rank = 0 if group is None else group.rank
        before = paddle.zeros([gate.tot_expert], dtype="int32")
        for other in lengths[:rank]:
            before = before + other
        place = place + before.gather(index.clip(min=0).reshape([-1])).reshape(index.shape)
    return paddle.where(place < limit, index, -1)


__all__ = ["BaseGate", "GShardGate", "NaiveGate", "SwitchGate"]
