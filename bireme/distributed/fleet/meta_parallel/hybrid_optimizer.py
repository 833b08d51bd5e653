"""Optimizers in a job whose processes hold parts of one model, or share the work of updating it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme
from bireme.autograd.modes import no_grad
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.programs import ReduceOp, exchange
from bireme.distributed.fleet.meta_parallel.parts import ELEMENTWISE
from bireme.distributed.wrapped_optimizer import WrappedOptimizer
from bireme.nn.clip import ClipGradBase, ClipGradByGlobalNorm, ClipGradByNorm
from bireme.optimizer.optimizer import Optimizer

if TYPE_CHECKING:
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer


class _Scaled(ClipGradBase):
    """Multiplies gradients by a factor that was found before the update."""

    def __init__(self, clip_norm: float) -> None:
        self.clip_norm = clip_norm
        self.factor: Tensor | None = None

    def __call__(self, params_grads: Any) -> Any:
        factor = self.factor
        if factor is None:
            return params_grads
        with no_grad():
            return [
                (p, g * factor.astype(g.dtype) if g is not None and _clips(p) else g)
                for p, g in params_grads
            ]


def _clips(param: Any) -> bool:
    return getattr(param, "need_clip", True)


class HybridParallelOptimizer(WrappedOptimizer):
    """An optimizer whose step is one of several processes.

    `model` is the group of processes that hold a model together: norms for clipping and overflows
    of a GradScaler are those of all its parts. `counts` says whether a parameter is counted here,
    where several processes hold it. Over `sharers`, which have the same parameters and gradients,
    each updates some and sends them to the others (ZeRO, stages 1 and 2; with `drops`, gradients
    that others use are dropped). Everything but the step is the inner optimizer's.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: Group,
        counts: Callable[[Any], bool] = lambda p: True,
        sharers: Group | None = None,
        drops: bool = False,
    ) -> None:
        own = self.__dict__
        own.update(_inner_opt=optimizer, _model=model, _counts=counts, _sharers=sharers)
        own["_owners"] = {}
        own["_update"] = optimizer._update_group
        if any(getattr(p, "is_part", False) for p in optimizer._all_parameters()):
            _must_be_elementwise(optimizer)
        if sharers is not None:
            own["_owners"] = _owners(optimizer._all_parameters(), sharers.nranks)
            optimizer._update_group = self._update_own
            optimizer._keeps_state_of = self._is_own
        if drops:
            for p in optimizer._all_parameters():
                p._when_averaged = self._drop
        own["_clips"] = {}
        for group in optimizer._groups:
            self._take_clip(group)
        optimizer._overflow_anywhere = self._overflow_anywhere
        inner: Any = optimizer
        own["_step"], own["_apply"] = inner.step, inner.apply_gradients
        inner.step, inner.apply_gradients = self.step, self.apply_gradients

    # --- the step -------------------------------------------------------------------------

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self._find_factors({id(p): p._grad for g in self._inner_opt._groups for p in g.params})
        self._step()
        self._send_own()

    def apply_gradients(self, params_grads: list[tuple[Any, Tensor]]) -> list[Any]:
        """Update with the given gradients."""
        self._find_factors({id(p): g for p, g in params_grads})
        self._apply(params_grads)
        self._send_own()
        return []

    def _is_own(self, param: Any) -> bool:
        sharers = self._sharers
        return sharers is None or self._owners.get(id(param), 0) == sharers.rank

    def _update_own(self, group: Any, params: Any, grads: Any, rate: Any, update: Any) -> None:
        own = [(p, g) for p, g in zip(params, grads, strict=True) if self._is_own(p)]
        if own:
            self._update(group, [p for p, _ in own], [g for _, g in own], rate, update)

    def _send_own(self) -> None:
        """All processes get the parameters that this one has updated, and the other way round."""
        sharers = self._sharers
        if sharers is None:
            return
        by_type: dict[Any, list[Any]] = {}
        for p in self._inner_opt._all_parameters():
            by_type.setdefault(p.dtype, []).append(p)
        for dtype, params in by_type.items():
            _send_updates(params, dtype, self._owners, sharers)

    def _drop(self, param: Any) -> None:
        """A gradient is averaged: it is dropped where another process uses it."""
        if not self._is_own(param):
            param._grad = None

    # --- norms and overflows --------------------------------------------------------------

    def _take_clip(self, group: Any) -> None:
        clip = group.options.get("grad_clip")
        if isinstance(clip, ClipGradByGlobalNorm):
            scaled = self._clips[id(group)] = _Scaled(clip.clip_norm)
            group.options["grad_clip"] = scaled
        elif isinstance(clip, ClipGradByNorm) and any(
            getattr(p, "is_distributed", False) or getattr(p, "is_part", False)
            for p in group.params
        ):
            raise InvalidArgument(
                "[distributed_optimizer] ClipGradByNorm needs the norm of whole parameters, and "
                "some lie in parts on several processes; use ClipGradByGlobalNorm"
            )

    def _find_factors(self, grads: dict[int, Any]) -> None:
        """The factors of all clips, from the squares of all processes."""
        clips: list[tuple[_Scaled, Any]] = []
        squares: list[Tensor] = []
        with no_grad():
            for group in self._inner_opt._groups:
                clip = self._clips.get(id(group))
                if clip is None:
                    continue
                counted = [
                    grads[id(p)].astype("float32").square().sum()
                    for p in group.params
                    if grads.get(id(p)) is not None
                    and _clips(p)
                    and self._counts(p)
                    and self._is_own(p)
                ]
                zero = constant(np.zeros((), np.float32))
                squares.append(bireme.add_n(counted) if counted else zero)
                clips.append((clip, group))
            if not clips:
                return
            own = bireme.stack(squares)._array()
            if self._model.nranks > 1:
                (own,) = exchange("all_reduce", self._model, [own], ReduceOp.SUM)
            for (clip, _), norm in zip(clips, constant(own).sqrt().unbind(0), strict=True):
                clip.factor = clip.clip_norm / norm.clip(min=clip.clip_norm)

    def _overflow_anywhere(self, found: Tensor) -> Tensor:
        """Whether gradients overflowed in any process of the model: all skip the step then."""
        if self._model.nranks == 1:
            return found
        own = np.asarray(found._array()).astype(np.int32).reshape(1)
        (anywhere,) = exchange("all_reduce", self._model, [own], ReduceOp.MAX)
        return constant(np.asarray(anywhere).reshape(()) > 0)

    # --- state ----------------------------------------------------------------------------

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned. Of a state of all parameters each process
        keeps what it updates."""
        inner = self._inner_opt
        inner.set_state_dict(state_dict)
        state, clocks = inner._state, inner._clocks
        for p in inner._all_parameters():
            if not self._is_own(p) and state.has(p):
                state.params.pop(id(p), None)
                state._of.pop(id(p), None)
                state.masters.pop(p.name, None)
                clocks._of.pop(id(p), None)
                clocks.version += 1

    set_dict = load_state_dict = set_state_dict

    def __repr__(self) -> str:
        return f"<{type(self._inner_opt).__name__} over {self._model.nranks} processes>"


def _must_be_elementwise(optimizer: Optimizer) -> None:
    if type(optimizer).__name__ not in ELEMENTWISE:
        raise InvalidArgument(
            f"[sharding] {type(optimizer).__name__} looks at whole parameters, and in stage 3 a "
            "process has parts of them; use stage 2 or lower, or one of "
            f"{', '.join(sorted(ELEMENTWISE))}"
        )


def _owners(params: Iterable[Any], count: int) -> dict[int, int]:
    """Which process updates a parameter: the one with the least to do so far."""
    load = [0] * count
    owners: dict[int, int] = {}
    for p in params:
        chosen = load.index(min(load))
        owners[id(p)] = chosen
        load[chosen] += p._value.aval.size
    return owners


def _send_updates(params: list[Any], dtype: Any, owners: dict[int, int], group: Group) -> None:
    """Every process gives the parameters that it has updated; all get all of them."""
    by_owner: list[list[Any]] = [[] for _ in range(group.nranks)]
    for p in params:
        by_owner[owners[id(p)]].append(p)
    longest = max(sum(p._value.aval.size for p in own) for own in by_owner)
    sent = np.zeros(longest, dtype.numpy)
    at = 0
    for p in by_owner[group.rank]:
        array = np.asarray(p._array()).reshape(-1)
        sent[at : at + array.size] = array
        at += array.size
    (out,) = exchange("all_gather", group, [sent])
    rows = np.asarray(out).reshape(group.nranks, longest)
    from bireme.distributed.communication.stream import put

    for rank, own in enumerate(by_owner):
        at = 0
        for p in own:
            like = p._value.aval
            if rank != group.rank:
                put(p, np.array(rows[rank, at : at + like.size]).reshape(like.shape))
            at += like.size


def over_processes(
    optimizer: Optimizer | ShardOptimizer | HybridParallelOptimizer,
    model: Group,
    counts: Callable[[Any], bool],
    sharers: Group | None = None,
    drops: bool = False,
) -> HybridParallelOptimizer:
    """`HybridParallelOptimizer` of an optimizer, unless it is one."""
    if type(optimizer) is HybridParallelOptimizer:
        return optimizer
    if not isinstance(optimizer, Optimizer):
        raise TypeMismatch(
            f"[distributed_optimizer] takes an Optimizer. Received: {type(optimizer).__name__}"
        )
    return HybridParallelOptimizer(optimizer, model, counts, sharers, drops)
