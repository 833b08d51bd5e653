"""Parameters of which each process of a group stores a part (ZeRO, stage 3).

Between steps a parameter is its part: a vector. For a forward pass all parts are gathered, and the
model's layers hold the whole parameters, results of an op whose gradient sums up over the group and
leaves each process its part of the average. So the optimizer sees parts only, and keeps state for
those.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bireme.autograd.py_layer import PyLayer
from bireme.core.aval import aval
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, constant
from bireme.core.value import value_of
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.programs import ReduceOp, exchange
from bireme.nn.layer.layer import Layer

# Rules that look at one element at a time, so that a part is updated as it would be in the whole.
ELEMENTWISE = frozenset(
    """SGD Momentum Adam AdamW Adamax Adagrad Adadelta RMSProp NAdam RAdam Rprop ASGD""".split()  # noqa: SIM905
)


class _Gather(PyLayer):
    """Whole tensors from the parts of all processes."""

    @staticmethod
    def forward(ctx: Any, owner: Parts, *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.owner = owner
        wholes = exchange("all_gather", owner.group, [p._array() for p in parts])
        return tuple(
            [
                constant(np.asarray(w)[: int(np.prod(shape))].reshape(shape))
                for w, shape in zip(wholes, owner.shapes, strict=True)
            ]
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        count = ctx.owner.group.nranks
        flat = [_padded(np.asarray(g._array()), count) for g in grads]
        parts = exchange("reduce_scatter", ctx.owner.group, flat, ReduceOp.AVG)
        return tuple([constant(p) for p in parts])


class Parts:
    """Stores a model's parameters in parts over a group, from now on."""

    def __init__(self, layers: Layer, group: Group, keep_whole: set[int] | None = None) -> None:
        self.group = group
        self._layers = layers
        kept = keep_whole or set()
        self.params = [p for p in layers.parameters() if not p.stop_gradient and id(p) not in kept]
        self.shapes = [tuple(p.shape) for p in self.params]
        for p in self.params:
            self._store(p, np.asarray(p._array()))

    def _store(self, param: Any, whole: np.ndarray) -> None:
        flat = _padded(whole, self.group.nranks)
        own = np.array(np.split(flat, self.group.nranks)[self.group.rank])
        param._put(value_of(aval(own.shape, param.dtype), own))
        param.is_part = True

    @contextmanager
    def whole(self) -> Iterator[None]:
        """The layers hold the whole parameters inside the block."""
        if not self.params:
            yield
            return
        wholes = _Gather.apply(self, *self.params)
        by_id = {id(p): w for p, w in zip(self.params, wholes, strict=True)}
        swapped: list[tuple[dict[str, Any], str, Any]] = []
        try:
            for layer in self._layers.sublayers(include_self=True):
                registry: Any = layer._parameters
                for name, p in list(registry.items()):
                    if id(p) in by_id:
                        swapped.append((registry, name, p))
                        registry[name] = by_id[id(p)]
            yield
        finally:
            for registry, name, p in swapped:
                registry[name] = p

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The model's, with whole parameters. All processes of the group ask for it."""
        wholes = exchange("all_gather", self.group, [p._array() for p in self.params])
        by_id = {}
        for p, whole, shape in zip(self.params, wholes, self.shapes, strict=True):
            made = constant(np.asarray(whole)[: int(np.prod(shape))].reshape(shape))
            made.name = p.name
            by_id[id(p)] = made
        state = self._layers.state_dict(*args, **kwargs)
        return {k: by_id.get(id(t), t) for k, t in state.items()}

    def set_state_dict(self, state: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Fill the parts from whole parameters, by the names of `state_dict`."""
        own = self._layers.state_dict()
        at = {id(p): i for i, p in enumerate(self.params)}
        rest = {}
        for name, value in state.items():
            tensor = own.get(name)
            if tensor is None or id(tensor) not in at:
                rest[name] = value
                continue
            array = np.asarray(value.numpy() if isinstance(value, Tensor) else value)
            shape = self.shapes[at[id(tensor)]]
            if array.shape != shape:
                raise InvalidArgument(
                    f"[set_state_dict] {name!r} has shape {list(shape)}. Received: "
                    f"{list(array.shape)}"
                )
            self._store(tensor, array.astype(tensor.dtype.numpy))
        missing, unexpected = self._layers.set_state_dict(rest)
        return [m for m in missing if m not in state], unexpected


def _padded(array: np.ndarray, count: int) -> np.ndarray:
    """The elements in one row, with zeros behind so that they divide."""
    flat = array.reshape(-1)
    more = -flat.size % count
    return np.concatenate([flat, np.zeros(more, flat.dtype)]) if more else flat
