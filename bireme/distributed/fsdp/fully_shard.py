"""fully_shard: cut a module's parameters and gradients over a mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed import dtensor
from bireme.distributed.auto_parallel.layouts import (
    Layout,
    current_mesh,
    everywhere,
    lay_out,
    layout_of,
    with_axis,
)
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Placement, Shard
from bireme.nn.layer.layer import Layer


def fully_shard(
    module: Layer,
    *,
    mesh: ProcessMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Any], Shard | None] | None = None,
    mp_policy: object = None,
    offload_policy: object = None,
    ignored_params: Iterable[Any] | None = None,
    enable_tensor_fusion_and_overlap: bool = True,
) -> Layer:
    """The module itself, its parameters and their gradients cut over the mesh's first dimension.

    A parameter is cut in its first dimension that divides, or as `shard_placement_fn(parameter)`
    says. When parts are gathered, dropped and overlapped with work is the compiler's choice, so
    `reshard_after_forward` and `enable_tensor_fusion_and_overlap` are hints without effect.

    >>> model = fully_shard(model, mesh=mesh)  # doctest: +SKIP
    """
    if not isinstance(module, Layer):
        raise TypeMismatch(f"[fully_shard] takes a Layer. Received: {type(module).__name__}")
    for name, given in (("mp_policy", mp_policy), ("offload_policy", offload_policy)):
        if given is not None:
            raise InvalidArgument(
                f"[fully_shard] {name} is not built; use paddle.amp.auto_cast for mixed precision"
            )
    chosen = current_mesh(mesh, "fully_shard")
    ignored = {id(p) for p in ignored_params or ()}
    for param in module.parameters():
        layout: Layout = layout_of(param) or everywhere(chosen)
        if id(param) not in ignored:
            layout = _cut(param, layout, shard_placement_fn)
        lay_out(param, *layout)
        if not param.stop_gradient:
            own_mesh, placements = layout
            param.register_hook(lambda g, m=own_mesh, p=placements: dtensor._shard(g, m, p))
    for buffer in module.buffers():
        if layout_of(buffer) is None:
            lay_out(buffer, *everywhere(chosen))
    return module


def _cut(param: Any, layout: Layout, choose: Callable[[Any], Shard | None] | None) -> Layout:
    if choose is None:
        return with_axis(layout, param.shape, 0)
    wanted = choose(param)
    if wanted is None:
        return with_axis(layout, param.shape, 0)
    if not isinstance(wanted, Shard):
        raise TypeMismatch(
            f"[fully_shard] shard_placement_fn returns a Shard or None. Received: {wanted!r}"
        )
    placements: list[Placement] = list(layout[1])
    placements[0] = wanted
    return layout[0], tuple(placements)
