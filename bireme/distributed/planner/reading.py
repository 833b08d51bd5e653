"""The forward pass as the planner sees it: ops with sizes that grow with the batch.

The model is captured twice, with two and with four rows. What differs between the two is
proportional to the batch. Parameters need no contents, so a model may be made under LazyGuard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.capture.capture import Captured, capture
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Node
from bireme.core.value import value_of
from bireme.nn.lazy import Unset

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor
    from bireme.nn.layer.layer import Layer

_ROWS = 2


@dataclass(frozen=True, slots=True)
class Amount:
    """A number that is `fixed + row * rows`."""

    fixed: float
    row: float

    def at(self, rows: float) -> float:
        return self.fixed + self.row * rows


@dataclass(slots=True)
class Work:
    """One op of the forward pass. Values are numbered as in the graph."""

    number: int
    name: str
    attrs: dict[str, Any]
    args: list[int | None]  # inputs that are arrays; None for what is left out
    results: list[int]
    flops: Amount
    dims: tuple[Amount, ...]  # of a product: rows, columns, inner
    elementwise: bool


@dataclass(slots=True)
class Weight:
    """A parameter: its name and type."""

    ref: int
    name: str
    type: Aval

    @property
    def size(self) -> float:
        return float(math.prod(self.type.shape))

    @property
    def is_expert(self) -> bool:
        return len(self.type.shape) == 3


class Reading:
    """What a capture of the model says about its sizes."""

    def __init__(
        self,
        model: Layer,
        inputs: Sequence[Aval],
        loss: Callable[..., Any] | None,
        labels: Sequence[Aval],
    ) -> None:
        given = [*inputs, *labels]
        rows = given[0].shape[0] if given[0].ndim else 1
        small = _captured(model, _with_rows(given, rows, _ROWS), loss, len(inputs))
        large = _captured(model, _with_rows(given, rows, 2 * _ROWS), loss, len(inputs))
        a, b = small.graph, large.graph
        if [n.call.op for n in a.nodes] != [n.call.op for n in b.nodes]:
            raise InvalidArgument(
                "[plan] the model computes other ops for another batch size, so its cost cannot "
                "be predicted; make its forward pass the same for all batches"
            )
        known = {id(p): n for n, p in model.named_parameters()}
        self.weights: dict[int, Weight] = {}
        for ref, name in a.names.items():
            if name in known.values():
                self.weights[ref] = Weight(ref, name, a.type_of(ref))
        types_a, types_b = a.value_types(), b.value_types()
        self.types: dict[int, Aval] = dict(enumerate(types_a))
        self.sizes: dict[int, Amount] = {
            i: _between(_bytes(s), _bytes(t))
            for i, (s, t) in enumerate(zip(types_a, types_b, strict=True))
        }
        for i, (s, t) in enumerate(zip(a.inputs, b.inputs, strict=True)):
            self.types[-1 - i] = s
            self.sizes[-1 - i] = _between(_bytes(s), _bytes(t))
        self.batch_dim = {
            r: next((d for d, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)) if m != n), 0)
            for r, (x, y) in enumerate(zip(types_a, types_b, strict=True))
        }
        results = len(small.tracked) + len(small.writes)
        self.outputs = [r for r in a.outputs[: len(small.tracked)] if r >= 0]
        self.kept = {r for r in a.outputs[results:] if r >= 0}  # for the backward pass
        self.work = [_work(m, n) for m, n in zip(a.nodes, b.nodes, strict=True)]
        self.tracked = self._tracked()
        self.half = any(w.type.dtype.itemsize == 2 for w in self.weights.values())

    def flops_of_row(self) -> float:
        """Operations of products and attention in the forward pass, for one row of the batch."""
        return sum(w.flops.row for w in self.work if w.dims or w.name == "attention")

    def _tracked(self) -> set[int]:
        """Results that carry gradients: those that come from parameters."""
        found: set[int] = set()
        for work in self.work:
            if any(a in found or a in self.weights for a in work.args if a is not None):
                found.update(r for r in work.results if self.types[r].dtype.differentiable)
        return found


def _captured(
    model: Layer, types: list[Aval], loss: Callable[..., Any] | None, inputs: int
) -> Captured:
    def run(given: list[Tensor]) -> Any:
        out = model(*given[:inputs])
        if loss is None:
            return out
        results = out if isinstance(out, list | tuple) else [out]
        return loss(*results, *given[inputs:])

    with _without_contents(model):
        known: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return capture(run, types, label="the model", known=known)


@contextmanager
def _without_contents(model: Layer) -> Iterator[None]:
    """Parameters that have no contents yet get ones that take no memory, for the duration."""
    lazy = [t for t in (*model.parameters(), *model.buffers()) if isinstance(t._value, Unset)]
    before = [t._value for t in lazy]
    for tensor in lazy:
        t = tensor._value.aval
        tensor._value = value_of(t, np.broadcast_to(np.zeros((), t.dtype.numpy), t.shape))
    try:
        yield
    finally:
        for tensor, value in zip(lazy, before, strict=True):
            tensor._value = value


def _with_rows(types: Sequence[Aval], rows: int, wanted: int) -> list[Aval]:
    """The inputs with another batch size; those of other first dimensions stay."""
    return [
        aval((wanted, *t.shape[1:]), t.dtype) if t.ndim and t.shape[0] == rows else t for t in types
    ]


def _bytes(t: Aval) -> float:
    return float(math.prod(t.shape) * t.dtype.itemsize)


def _between(small: float, large: float) -> Amount:
    row = (large - small) / _ROWS
    return Amount(small - row * _ROWS, row)


def _work(a: Node, b: Node) -> Work:
    small, large = _product(a), _product(b)
    return Work(
        a.first,
        a.call.op.name,
        a.call.attrs,
        [
            x if isinstance(x, int) and isinstance(t, Aval) else None
            for x, t in zip(a.args, a.call.types, strict=True)
        ],
        list(a.results),
        _between(_flops(a), _flops(b)),
        tuple(_between(x, y) for x, y in zip(small, large, strict=True)),
        a.call.op.infer == "elementwise" or a.call.op.name in _ELEMENTWISE,
    )


# Ops that XLA fuses with their neighbours, beside those that are declared elementwise.
_ELEMENTWISE = {"dropout", "cast", "gelu", "expand", "reshape", "unsqueeze", "squeeze", "detach"}


def _product(node: Node) -> tuple[float, ...]:
    """(rows, columns, inner) of a product, else nothing."""
    call = node.call
    name, out = call.op.name, call.outs[0].shape
    if name in ("linear", "matmul") and len(out) >= 1:
        x: Any = call.types[0]
        at = -2 if call.attrs.get("transpose_x") and len(x.shape) > 1 else -1
        rows = out[-2] if len(out) > 2 and len(call.types[1].shape) > 2 else math.prod(out[:-1])  # type: ignore[union-attr]
        return float(rows), float(out[-1]), float(x.shape[at])
    if name.startswith("conv"):
        weight: Any = call.types[1]
        inner = math.prod(weight.shape[1:])
        return math.prod(out) / weight.shape[0], float(weight.shape[0]), float(inner)
    return ()


def _flops(node: Node) -> float:
    """Multiplications and additions of products and attention; one per result of anything else."""
    call = node.call
    out = float(math.prod(call.outs[0].shape))
    if call.op.name == "attention":
        query: Any = call.types[0]
        key: Any = call.types[1]
        seen = 0.5 if call.attrs.get("causal") else 1.0
        return 4.0 * seen * math.prod(query.shape) * key.shape[1]
    dims = _product(node)
    return 2.0 * out * dims[2] if dims else out
