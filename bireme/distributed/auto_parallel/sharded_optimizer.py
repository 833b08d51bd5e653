"""Optimizers whose state lies in parts on several devices (ZeRO, in three stages)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed import dtensor
from bireme.distributed.auto_parallel.layouts import (
    Keeper,
    Layout,
    axis_of,
    current_mesh,
    everywhere,
    lay_out,
    layout_of,
    with_axis,
)
from bireme.distributed.mesh import ProcessMesh, get_mesh
from bireme.distributed.wrapped_optimizer import WrappedOptimizer
from bireme.optimizer.optimizer import Optimizer, Update

if TYPE_CHECKING:
    from bireme.amp.grad_scaler import AmpScaler


class _Stage:
    """What a sharding stage cuts along one dimension of a mesh."""

    cuts_gradients = False
    cuts_parameters = False

    def __init__(self, sharding_mesh_dim: int | str, mesh: ProcessMesh | None = None) -> None:
        if mesh is not None and not isinstance(mesh, ProcessMesh):
            raise TypeMismatch(
                f"[{type(self).__name__}] mesh must be a ProcessMesh. Received: "
                f"{type(mesh).__name__}"
            )
        if isinstance(sharding_mesh_dim, bool) or not isinstance(sharding_mesh_dim, int | str):
            raise TypeMismatch(
                f"[{type(self).__name__}] sharding_mesh_dim is a dimension of the mesh, by name or "
                f"number. Received: {sharding_mesh_dim!r}"
            )
        self._sharding_mesh_dim = sharding_mesh_dim
        self._mesh = mesh
        self.keep_whole: set[int] = set()  # ids of parameters that are not cut

    def whole(self, tensor: Tensor) -> Layout:
        """How a parameter lies before this stage cuts it."""
        found = layout_of(tensor)
        return everywhere(self.mesh()) if found is None else found

    def mesh(self) -> ProcessMesh:
        return current_mesh(self._mesh, type(self).__name__)

    def cut(self, layout: Layout, shape: Any) -> Layout:
        axis = axis_of(layout[0], self._sharding_mesh_dim, type(self).__name__)
        return with_axis(layout, shape, axis)

    def __call__(self, key: str, param: Tensor, tensor: Tensor) -> Tensor:
        """`tensor`, an accumulator or gradient of `param`, in the layout of this stage."""
        if key == "grad" and not self.cuts_gradients:
            return tensor
        mesh, placements = self.cut(self.whole(param), list(param.shape))
        if tuple(tensor.shape) != tuple(param.shape):
            mesh, placements = everywhere(mesh)
        return dtensor.reshard(tensor, mesh, list(placements))


class ShardingStage1(_Stage):
    """Each device keeps a part of the optimizer's state.

    >>> stage = ShardingStage1("dp", mesh)  # doctest: +SKIP
    """


class ShardingStage2(_Stage):
    """Parts of the optimizer's state and of the gradients."""

    cuts_gradients = True


class ShardingStage3(_Stage):
    """Parts of the optimizer's state, of the gradients and of the parameters."""

    cuts_gradients = True
    cuts_parameters = True


class ShardOptimizer(WrappedOptimizer):
    """An optimizer that keeps its tensors in their layouts over a mesh.

    Everything but the update is the inner optimizer's.
    """

    def __init__(
        self,
        optimizer: Optimizer | ShardOptimizer,
        shard_fn: Callable[..., Any] | None,
        gradient_accumulation_steps: int,
    ) -> None:
        own = self.__dict__
        own["_inner_opt"] = optimizer
        own["_shard_fn"] = shard_fn
        own["gradient_accumulation_steps"] = gradient_accumulation_steps
        own["_update"] = optimizer._update_group
        own["_keeper"] = Keeper()
        own["_plans"] = {}
        optimizer._update_group = self._sharded_update
        optimizer.create_state = self._make_ready
        if isinstance(shard_fn, _Stage):
            for p in optimizer._all_parameters():
                self._prepare(p, shard_fn)

    def _prepare(self, param: Any, stage: _Stage) -> None:
        layout = stage.whole(param)
        axis_of(layout[0], stage._sharding_mesh_dim, type(stage).__name__)  # raises
        if stage.cuts_parameters and id(param) not in stage.keep_whole:
            layout = stage.cut(layout, param.shape)
        lay_out(param, *layout)
        if stage.cuts_gradients and not param.stop_gradient:
            mesh, placements = stage.cut(layout, param.shape)
            param.register_hook(lambda g: dtensor._shard(g, mesh, placements))

    def _sharded_update(
        self, group: Any, params: Any, grads: Any, rate: Any, update: Update
    ) -> None:
        steps = self.__dict__["gradient_accumulation_steps"]
        if steps > 1 and isinstance(self._shard_fn, _Stage):
            grads = [g / steps for g in grads]
        for part in group.parts(params):
            if id(part) not in self._plans:
                self._plans[id(part)] = (part, self._plan(part, params))
        self._update(group, params, grads, rate, update)
        update.put()  # it is laid out next
        for part in group.parts(params):
            written, layouts = self._plans[id(part)][1]
            if written:
                self._keeper(written, layouts)

    def _make_ready(self) -> None:
        """Make and lay out the state of all parameters now, before a step is captured."""
        for group in self._inner_opt._groups:
            params = [p for p in group.params if p._node is not None]
            for part in group.parts(params) if params else ():
                self._plans[id(part)] = (part, self._plan(part, params))

    def _plan(self, part: Any, params: Any) -> tuple[list[Tensor], tuple[Layout | None, ...]]:
        """Lay out what an update writes; returns what has to be kept so, and how."""
        members = params if part.at is None else [params[i] for i in part.at]
        layouts: dict[int, Layout] = {}
        for p in members:
            found = layout_of(p)
            if found is not None:
                layouts[id(p)] = found
        if not layouts:
            return [], ()
        mesh = next(iter(layouts.values()))[0]
        width = len(members)
        for p, target in zip(members, part.targets, strict=True):
            if target is not p and id(p) in layouts:
                layouts[id(target)] = self._state_layout("master_weight", p, target, layouts[id(p)])
        for at, state in enumerate(part.states):
            p = members[at % width]
            if id(p) in layouts:
                layouts[id(state)] = self._state_layout(
                    f"state_{at // width}", p, state, layouts[id(p)]
                )
        for clock in part.shared:
            layouts[id(clock)] = everywhere(mesh)
        own = {id(p) for p in members}
        for t in part.written:
            if id(t) in layouts and id(t) not in own:
                lay_out(t, *layouts[id(t)])
        return part.written, tuple([layouts.get(id(t)) for t in part.written])

    def _state_layout(self, key: str, param: Tensor, state: Tensor, layout: Layout) -> Layout:
        if tuple(state.shape) != tuple(param.shape):
            return everywhere(layout[0])
        chosen = self._shard_fn
        if isinstance(chosen, _Stage):
            return chosen.cut(layout, list(state.shape))
        if chosen is not None:
            made = chosen(key, param, state)
            return layout_of(made) or layout
        return layout

    def __repr__(self) -> str:
        return f"<{type(self._inner_opt).__name__} over a mesh>"


def shard_optimizer(
    optimizer: Optimizer | ShardOptimizer,
    shard_fn: Callable[..., Any] | None = None,
    gradient_accumulation_steps: int = 1,
) -> ShardOptimizer:
    """An optimizer whose state is laid out like its parameters, or cut as `shard_fn` says.

    `shard_fn` is a ShardingStage1, 2 or 3, or a function of (name, parameter, accumulator) that
    returns the accumulator in its layout. With a stage, gradients of several backward passes are
    averaged over `gradient_accumulation_steps`.

    >>> opt = shard_optimizer(opt, ShardingStage1("dp", mesh))  # doctest: +SKIP
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeMismatch(
            f"[shard_optimizer] takes an Optimizer. Received: {type(optimizer).__name__}"
        )
    if shard_fn is not None and not callable(shard_fn):
        raise TypeMismatch(
            "[shard_optimizer] shard_fn must be ShardingStage1, 2 or 3, or a function of (name, "
            f"parameter, accumulator). Received: {shard_fn!r:.80}"
        )
    steps = gradient_accumulation_steps
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InvalidArgument(
            f"[shard_optimizer] gradient_accumulation_steps must be 1 or more. Received: {steps!r}"
        )
    return ShardOptimizer(optimizer, shard_fn, steps)


def shard_scaler(scaler: AmpScaler) -> AmpScaler:
    """A GradScaler for sharded gradients: the one that was given, since whether a gradient
    overflowed is asked over all parts of it in the same program.

    >>> scaler = shard_scaler(paddle.amp.GradScaler())  # doctest: +SKIP
    """
    from bireme.amp.grad_scaler import AmpScaler

    if not isinstance(scaler, AmpScaler):
        raise TypeMismatch(f"[shard_scaler] takes a GradScaler. Received: {type(scaler).__name__}")
    mesh = get_mesh()
    if mesh is not None and mesh.size > 1:
        for counter in (scaler._scale, scaler._good, scaler._bad):
            lay_out(counter, *everywhere(mesh))
    return scaler
