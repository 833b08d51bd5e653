"""MoELayer: every token goes through a few of many experts."""

from __future__ import annotations

from typing import Any

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.communication.collectives import all_reduce
from bireme.distributed.communication.differentiable import join, own_part, swap_parts
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.programs import ReduceOp
from bireme.incubate.distributed.fleet import recompute_hybrid
from bireme.incubate.distributed.models.moe.gate import (
    BaseGate,
    GShardGate,
    NaiveGate,
    SwitchGate,
)
from bireme.nn import functional as F
from bireme.ops.expert_slots import (
    experts_to_tokens,
    queue_lengths,
    queue_places,
    tokens_to_experts,
)

_GATES = {"naive": NaiveGate, None: NaiveGate, "gshard": GShardGate, "switch": SwitchGate}


class StackedExperts(nn.Layer):
    """Equal experts of two linear layers as stacked weights [experts, in, out]; with `gated`, a
    third one's results go through `act` and are multiplied to those of the first. They are
    computed together, and can be laid out over a mesh by their first dimension.

    >>> experts = StackedExperts(8, 64, 256)
    """

    def __init__(
        self,
        num_expert: int,
        d_model: int,
        d_hidden: int,
        act: str = "gelu",
        gated: bool = False,
    ) -> None:
        super().__init__()
        if not hasattr(F, act):
            raise InvalidArgument(
                f"[StackedExperts] act is a function of nn.functional. Got: {act!r}"
            )
        self.num_expert, self._act = num_expert, act
        self.up = self.create_parameter([num_expert, d_model, d_hidden])
        self.gate = self.create_parameter([num_expert, d_model, d_hidden]) if gated else None
        self.down = self.create_parameter([num_expert, d_hidden, d_model])

    def __len__(self) -> int:
        return self.num_expert

    def forward(self, x: Tensor) -> Tensor:
        """[experts, rows, width] to the same."""
        act, inner = getattr(F, self._act), paddle.matmul(x, self.up)
        inner = act(inner) if self.gate is None else act(paddle.matmul(x, self.gate)) * inner
        return paddle.matmul(inner, self.down)


class MoELayer(nn.Layer):
    """Experts, and a gate that sends each token to some of them.

    `experts` are those of this process: a LayerList, or `StackedExperts`. `gate` is a dict,
    {"type": "naive", "gshard" or "switch", "top_k": 2}, or a gate. With a `moe_group` of several
    processes, tokens go to the processes of their experts and back. A process that differs from
    others along `mp_group` takes its part of the tokens.

    How many rows an expert computes is read from what the gate chose. A gate whose limit is less
    than all tokens (a `capacity` below 1) gives every expert that many rows, and nothing is read:
    only such layers can be captured.

    >>> layer = MoELayer(64, StackedExperts(8, 64, 256), gate={"type": "naive", "top_k": 2})
    """

    def __init__(
        self,
        d_model: int,
        experts: nn.LayerList | StackedExperts,
        gate: dict[str, Any] | BaseGate | None = None,
        moe_group: Group | None = None,
        mp_group: Group | None = None,
        recompute_interval: int = 0,
        recompute_ctx: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.recompute_ctx = recompute_ctx
        self.group = moe_group
        self.world_size = 1 if moe_group is None else moe_group.nranks
        self.num_expert = len(experts)
        self.recompute_interval = recompute_interval
        self.experts = experts
        self.mp_group = mp_group
        self.d_model = d_model
        self.gate = self._make_gate(gate)
        self.top_k = self.gate.top_k

    def _make_gate(self, gate: dict[str, Any] | BaseGate | None) -> BaseGate:
        if isinstance(gate, BaseGate):
            return gate
        if gate is not None and not isinstance(gate, dict):
            raise TypeMismatch(
                f"[MoELayer] gate is a dict or a gate. Received: {type(gate).__name__}"
            )
        given = gate or {}
        kind = given.get("type", "gshard")
        if kind not in _GATES:
            raise InvalidArgument(
                f"[MoELayer] a gate's type is naive, gshard or switch. Received: {kind!r}"
            )
        more = {} if _GATES[kind] is NaiveGate else {"group": self.group}
        topk = given.get("top_k", 2)
        return _GATES[kind](self.d_model, self.num_expert, self.world_size, topk=topk, **more)

    def forward(self, inp: Tensor) -> Tensor:
        if inp.ndim != 3 or inp.shape[2] != self.d_model:
            raise ShapeMismatch(
                f"[MoELayer] takes tensors of shape [batch, sequence, {self.d_model}]. Received: "
                f"{list(inp.shape)}"
            )
        x = inp.reshape([-1, self.d_model])
        split = self.mp_group is not None and self.mp_group.nranks > 1
        if split:
            x = own_part(x, self.mp_group, 0)  # type: ignore[arg-type]
        value, index = self.gate(x)
        place = queue_places(index, self.gate.tot_expert)
        rows = tokens_to_experts(x, index, place, self.gate.tot_expert, self._room(index, x))
        made = experts_to_tokens(self._computed(rows), index, place)
        out = (made * value.unsqueeze(-1).astype(made.dtype)).sum(axis=1)
        if split:
            out = join(out, self.mp_group, 0)  # type: ignore[arg-type]
        return out.reshape(inp.shape)

    def _room(self, index: Tensor, x: Tensor) -> int:
        """How many rows an expert has for one process's tokens."""
        tokens = x.shape[0]
        limit = self.gate.limit(tokens)
        if limit is not None and limit < tokens:
            return max(1, limit)
        longest = queue_lengths(index, self.gate.tot_expert).max()
        if self.world_size > 1:
            all_reduce(longest, ReduceOp.MAX, self.group)
        # A few sizes, so that a batch with one token more compiles nothing new.
        step = max(1, 2 ** (max(8, tokens) - 1).bit_length() // 16)
        return max(1, min(tokens, -(-int(longest) // step) * step))

    def _computed(self, rows: Tensor) -> Tensor:
        """What the experts make of their rows [all experts, room, width]."""
        if self.world_size == 1:
            return self._by_experts(rows)
        world, room, width = self.world_size, rows.shape[1], rows.shape[2]
        there = swap_parts(rows.reshape([world, -1, width]), self.group)  # type: ignore[arg-type]
        mine = there.reshape([world, self.num_expert, room, width]).transpose([1, 0, 2, 3])
        made = self._by_experts(mine.reshape([self.num_expert, world * room, width]))
        back = made.reshape([self.num_expert, world, room, width]).transpose([1, 0, 2, 3])
        found = swap_parts(back.reshape([world, -1, width]), self.group)  # type: ignore[arg-type]
        return found.reshape([world * self.num_expert, room, width])

    def _by_experts(self, rows: Tensor) -> Tensor:
        if self.recompute_interval > 0:
            return recompute_hybrid(self.recompute_ctx or {}, self._run, rows)
        return self._run(rows)

    def _run(self, rows: Tensor) -> Tensor:
        if isinstance(self.experts, StackedExperts):
            return self.experts(rows)
        parts = [expert(part) for expert, part in zip(self.experts, rows.unbind(0), strict=True)]
        return paddle.stack(parts, axis=0)


__all__ = ["MoELayer", "StackedExperts"]
