"""plan: how a model should lie on a mesh, what else was considered, and what each would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.capture.capture import capture
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.layouts import lay_out
from bireme.distributed.mesh import ProcessMesh
from bireme.distributed.placement import Placement, Replicate, Shard
from bireme.distributed.planner.costs import Hardware, Machine
from bireme.distributed.planner.program import COLUMNS, ROWS, WHOLE, Choice
from bireme.host import jax_door

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor
    from bireme.distributed.auto_parallel.sharded_optimizer import ShardOptimizer
    from bireme.nn.layer.layer import Layer
    from bireme.optimizer.optimizer import Optimizer


_WORDS = {WHOLE: "whole", COLUMNS: "columns", ROWS: "rows"}


@dataclass
class Rival:
    """One way to divide the devices, at its best."""

    dp: int
    mp: int
    seconds: float
    kinds: dict[str, int]

    @property
    def name(self) -> str:
        if self.mp == 1:
            return f"data parallel ({self.dp})" if self.dp > 1 else "one device"
        if self.dp == 1:
            return f"tensor parallel ({self.mp})"
        return f"data parallel ({self.dp}) x tensor parallel ({self.mp})"


class Plan:
    """A layout for each parameter. `apply(model)` lays the parameters out; batches are cut along
    the mesh dimension `batch_dim` (None: they are copied)."""

    def __init__(self, mesh: ProcessMesh, rivals: list[Rival], params: dict[str, tuple[int, ...]]):
        self.rivals = rivals  # all of them, the best first
        best = rivals[0]
        self.dp, self.mp, self.seconds, self.kinds = best.dp, best.mp, best.seconds, best.kinds
        sizes = [(n, s) for n, s in (("dp", best.dp), ("mp", best.mp)) if s > 1] or [("dp", 1)]
        grid = np.asarray(mesh.process_ids).reshape([s for _, s in sizes])
        self.mesh = ProcessMesh(grid, [n for n, _ in sizes])
        self.batch_dim = "dp" if best.dp > 1 else None
        self._shapes = params

    def placements(self, name: str) -> list[Placement]:
        """The layout of a parameter, by its name in the model."""
        found: list[Placement] = [Replicate()] * self.mesh.ndim
        kind = self.kinds.get(name, WHOLE)
        if kind != WHOLE:
            axis = self.mesh.dim_names.index("mp")
            found[axis] = Shard(1 if kind == COLUMNS else 0)
        elif name.endswith("bias") and self.mp > 1:
            # A bias is cut with the columns that it is added to.
            weight = name[: -len("bias")] + "weight"
            shape = self._shapes.get(name, ())
            if self.kinds.get(weight) == COLUMNS and len(shape) == 1:
                found[self.mesh.dim_names.index("mp")] = Shard(0)
        return found

    def apply(self, model: Layer) -> Layer:
        """Lay out the model's parameters and buffers; returns the model."""
        if self.mesh.size > 1:
            for name, param in model.named_parameters():
                lay_out(param, self.mesh, self.placements(name))
            for buffer in model.buffers():
                lay_out(buffer, self.mesh, [Replicate()] * self.mesh.ndim)
        return model

    def __str__(self) -> str:
        lines = [f"chosen: {self.rivals[0].name}, {_shown(self.seconds)} per step (predicted)"]
        lines += [f"  {name}: {_WORDS[kind]}" for name, kind in self.kinds.items() if kind != WHOLE]
        lines += [f"rival: {r.name}, {_shown(r.seconds)}" for r in self.rivals[1:]]
        return "\n".join(lines)

    __repr__ = __str__


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def plan(
    model: Layer,
    example_inputs: Sequence[Any],
    mesh: ProcessMesh,
    *,
    optimizer: Optimizer | ShardOptimizer | None = None,
    hardware: Hardware | None = None,
    memory: float | None = None,
) -> Plan:
    """Choose between data and tensor parallelism, and for each weight how it is cut.

    The model's forward pass is captured with `example_inputs` (their first dimension is the
    batch). A cost model over its graph counts arithmetic, memory traffic and messages; for each
    way to divide the devices an integer program finds the best layout. A mesh of two dimensions
    fixes the division. `memory` is what parameters, gradients and accumulators may take on a
    device, in bytes.

    >>> chosen = plan(model, [x], ProcessMesh(list(range(8))))  # doctest: +SKIP
    >>> chosen.apply(model)  # doctest: +SKIP
    """
    if not isinstance(mesh, ProcessMesh):
        raise TypeMismatch(f"[plan] mesh must be a ProcessMesh. Received: {type(mesh).__name__}")
    inputs = _tensors(example_inputs)
    if optimizer is not None:
        own = {id(p) for p in model.parameters()}
        if any(id(p) not in own for p in optimizer._all_parameters()):
            raise InvalidArgument("[plan] the optimizer has parameters that are not the model's")
    known: dict[str, Tensor] = dict(model.named_parameters())
    was_training = model.training
    model.eval()
    try:
        captured = capture(
            lambda given: model(*given),
            [x._value.aval for x in inputs],
            label="the model",
            known=known,
        )
    finally:
        if was_training:
            model.train()
    graph = captured.graph
    params = {ref: name for ref, name in graph.names.items() if name in known}
    if hardware is None:
        hardware = Hardware.of(jax_door.jax().devices()[0].platform)
    batch = inputs[0].shape[0] if inputs[0].ndim else 1
    rivals = []
    for dp, mp in _divisions(mesh):
        if batch % dp:
            continue
        choice = Choice(graph, params, Machine(hardware, dp, mp))
        if memory is not None:
            choice.limit_memory(memory)
        found = choice.solve()
        # Tensor parallelism that cuts nothing does the same work several times.
        cuts = mp == 1 or mesh.ndim == 2 or any((found or (0, {}))[1].values())
        if found is not None and cuts:
            rivals.append(Rival(dp, mp, *found))
    if not rivals:
        raise InvalidArgument(
            f"[plan] nothing fits: a batch of {batch} over {mesh.size} devices"
            + (f" with {memory:g} bytes each" if memory is not None else "")
            + "; use a batch that divides, more devices, or more memory"
        )
    rivals.sort(key=lambda r: r.seconds)
    return Plan(mesh, rivals, {n: tuple(p.shape) for n, p in known.items()})


def _tensors(example: Any) -> list[Tensor]:
    from bireme.ops.creation import to_tensor

    given = list(example) if isinstance(example, Sequence) else [example]
    if not given:
        raise InvalidArgument("[plan] example_inputs is empty; pass what the model is called with")
    return [x if isinstance(x, Tensor) else to_tensor(x) for x in given]


def _divisions(mesh: ProcessMesh) -> list[tuple[int, int]]:
    """Degrees of (data, tensor) parallelism that use all devices."""
    if mesh.ndim == 2:
        return [(mesh.shape[0], mesh.shape[1])]
    count = mesh.size
    return [(count // mp, mp) for mp in range(1, count + 1) if count % mp == 0]
