"""Graphs rewritten for one platform: calls that one kernel can compute together become one call.

A kernel sees one call; what neighbours could save one another shows in the graph alone. So before a
graph is lowered, `fused` writes it anew. For each node the registry chooses a kernel as it does for
a lowering; if that has a rule (`fuse`), the rule writes calls in the node's place: fused ops, whose
body is the plain composition and whose kernel is registered like any other. What a kernel leaves
for its gradient's kernel is a further result of its call. `print(fused(graph, "gpu"))` shows it.

Rules note what they know of a value as a fact: a dataclass under its reference in the new graph.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

from bireme.capture.graph_op import inlined
from bireme.capture.rewrite import GraphBuilder
from bireme.core import dtype as dt
from bireme.core import kernels
from bireme.core.aval import FLOAT, INT, Aval, aval
from bireme.core.graph import Graph, Node, Number, Ref
from bireme.core.op import OPS, Call, InputType, Op
from bireme.host import jax_door

_PASSING = ("add", "cast")  # the gradient of their result is that of their inputs


def is_value(ref: Ref) -> TypeGuard[int]:
    """Whether an argument is a value of the graph, no number and not left out."""
    return ref.__class__ is int


@dataclass(frozen=True)
class Widened:
    """The same numbers in a narrower type."""

    narrow: int


class FusedOp(Op):
    """An op that rules write. Its body is the composition that defines it."""

    fused = True


def fused_op(
    name: str, inputs: Sequence[str], infer: Callable[..., Any], **options: Any
) -> Callable[[Callable[..., Any]], FusedOp]:
    """A fused op with these inputs; `infer` gives the results' types from theirs."""

    def define(body: Callable[..., Any]) -> FusedOp:
        params = list(inspect.signature(body).parameters)[1 + len(inputs) :]
        return FusedOp(
            name,
            tuple(inputs),
            dict.fromkeys(params),
            body,
            infer=infer,
            differentiable=False,
            register=False,
            **options,
        )

    return define


class Fuser:
    """A graph that is being written anew for a platform; rules get it, and the node to replace with
    arguments in the new graph."""

    def __init__(self, source: Graph):
        self.source = source
        self.builder = GraphBuilder(source)
        self.builder.copy_inputs()
        self.graph = self.builder.graph
        self.facts: dict[int, Any] = {}
        # What a forward call left for its gradient: references, by the call and the input of its
        # that the gradient reads.
        self.kept: dict[tuple[Call, Any], Any] = {}
        self._types: list[Aval] = []
        self._refs: dict[int, int] = {r: r for r in range(-len(source.inputs), 0)}
        self._instead: dict[int, int] = {}
        self._casts: dict[tuple[int, dt.DType], int] = {}

    def run(self, platform: str, inference: bool, chosen: Counter[kernels.Choice]) -> Graph:
        for node in self.source.nodes:
            moved = Node(node.call, tuple(map(self._moved, node.args)), node.first, node.tape)
            kernel = kernels.choose(node.call, platform, inference)
            if kernel is None or kernel.fuse is None:
                made = self.copy(moved)
            else:
                made = kernel.fuse(self, moved)
                if made:
                    kernels.count(kernel, chosen)
                else:
                    made = self.copy(moved)
            self._refs.update(zip(node.results, made, strict=True))
        self.graph.outputs = [self._moved(o) for o in self.source.outputs]  # type: ignore[misc]
        self.graph.n_floats, self.graph.n_ints = self.source.n_floats, self.source.n_ints
        self.graph.numbers = dict(self.source.numbers)
        return self.graph

    def _moved(self, ref: Ref) -> Ref:
        if ref is None or isinstance(ref, Number):
            return ref
        moved = self._refs[ref]
        return self._instead.get(moved, moved)

    # --- what rules ask -----------------------------------------------------------------------

    def type_of(self, ref: int) -> Aval:
        return self.graph.inputs[-1 - ref] if ref < 0 else self._types[ref]

    def shape(self, ref: int) -> tuple[int, ...]:
        return self.type_of(ref).shape

    def fact(self, ref: Ref, kind: type | tuple[type, ...] = object) -> Any:
        """What is known of a value, if it is of this kind."""
        found = self.facts.get(ref) if ref.__class__ is int else None  # type: ignore[arg-type]
        return found if isinstance(found, kind) else None

    # --- what rules write ---------------------------------------------------------------------

    def add(self, call: Call, args: Sequence[Ref]) -> list[int]:
        self._types += call.outs
        return list(self.builder.add(call, tuple(args)))

    def copy(self, node: Node) -> list[int]:
        """The node itself. What it would make narrow is read from where it is narrow already."""
        if any(
            self._narrow(a, c) is not None for a, c in zip(node.args, node.call.casts, strict=True)
        ):
            return self.add(*self.without_casts(node))
        made = self.half_gradient(node) or self.add(node.call, node.args)
        return self._passed_on(node, made)

    def _passed_on(self, node: Node, made: list[int]) -> list[int]:
        """The results of a gradient; of ops that pass a gradient on, that gradient."""
        forward, grad = node.call.attrs.get("forward"), node.args[0] if node.args else None
        if not isinstance(forward, Call) or forward.op.name not in _PASSING or not is_value(grad):
            return made
        t = self.type_of(grad)
        return [
            self.cast(grad, o.dtype) if o.shape == t.shape and o.dtype.is_floating else r
            for r, o in zip(made, node.call.outs, strict=True)
        ]

    def emit(
        self,
        op: Op,
        args: Sequence[Ref | list[int]],
        numbers_in: dt.DType | None = None,
        **attrs: Any,
    ) -> list[int]:
        """A call of `op`: a reference, None or a list of references for each of its inputs. Python
        numbers are taken in the type `numbers_in`."""
        layout = tuple([len(a) if isinstance(a, list) else -1 for a in args])
        flat: list[Ref] = []
        for a in args:
            flat += a if isinstance(a, list) else [a]
        types = tuple([self._input_type(r) for r in flat])
        casts = tuple([numbers_in if isinstance(r, Number) else None for r in flat])
        attrs = {**op.attr_defaults, **attrs}
        # Calls of fused ops live as long as their graph.
        make = partial(Call, op) if op.fused else op.call_with
        return self.add(make(types, layout, attrs, casts), flat)

    def _input_type(self, ref: Ref) -> InputType:
        if isinstance(ref, Number):
            return FLOAT if ref.kind == "float" else INT
        return None if ref is None else self.type_of(ref)

    def cast(self, ref: int, dtype: dt.DType | None) -> int:
        """The value in another type (None: in its own)."""
        t = self.type_of(ref)
        if dtype is None or t.dtype is dtype:
            return ref
        key = (ref, dtype)
        if key not in self._casts:
            narrow = self.fact(ref, Widened)
            if narrow is not None and self.type_of(narrow.narrow).dtype is dtype:
                return narrow.narrow
            (self._casts[key],) = self.emit(OPS["cast"], [ref], dtype=dtype.name)
            if t.dtype.itemsize == 2 and t.dtype.is_floating and dtype is dt.float32:
                self.facts[self._casts[key]] = Widened(ref)
        return self._casts[key]

    def rounded(self, ref: int, narrow: int) -> None:
        """`narrow` holds the contents of `ref` rounded to its type: nobody need round again."""
        self._casts[ref, self.type_of(narrow).dtype] = narrow

    def replace(self, ref: int, other: int) -> None:
        """Later nodes read `other`, which is equal, instead of `ref`."""
        self._instead[ref] = other

    def operands(self, node: Node) -> list[Any]:
        """The arguments in the types that the op computes in."""
        return [
            self.cast(a, c) if a.__class__ is int else a  # type: ignore[arg-type]
            for a, c in zip(node.args, node.call.casts, strict=True)
        ]

    def without_casts(self, node: Node) -> tuple[Call, list[Any]]:
        """The call on arguments that have the types that it computes in."""
        return uncast(node.call), self.operands(node)

    def saved(self, node: Node) -> dict[int, Any]:
        """Of a gradient's node: what the forward call saved, by its place there."""
        return dict(zip(_forward(node).saved_at, node.args[node.call.layout[0] :], strict=True))

    def half_gradient(self, node: Node) -> list[int] | None:
        """The gradients of a product that was computed in half precision, made in half precision
        and widened by nodes of their own; None for others."""
        forward = node.call.attrs.get("forward")
        if not isinstance(forward, Call) or forward.op.name not in ("linear", "matmul"):
            return None
        if not any(forward.casts):
            return None
        narrow = uncast(forward)
        if narrow.outs != forward.outs:
            return None
        saved = [
            a if a is None or place < 0 else self.cast(a, forward.casts[place])
            for place, a in self.saved(node).items()
        ]
        grads = node.args[: node.call.layout[0]]
        needs: tuple[int, ...] = node.call.attrs["needs"]
        call = narrow.gradient(needs, tuple([g is not None for g in grads]))
        made = self.add(call, [*grads, *saved])
        return [self.cast(r, forward.types[i].dtype) for i, r in zip(needs, made, strict=True)]  # type: ignore[union-attr]

    def _narrow(self, ref: Ref, dtype: dt.DType | None) -> int | None:
        """`ref` in a narrower type, if that is there."""
        if dtype is None or ref.__class__ is not int:
            return None
        found = self._casts.get((ref, dtype))  # type: ignore[arg-type]
        if found is not None and dtype.itemsize == 2:
            return found
        known = self.fact(ref, Widened)
        return known.narrow if known and self.type_of(known.narrow).dtype is dtype else None


def _forward(node: Node) -> Call:
    return node.call.attrs["forward"]


def uncast(call: Call) -> Call:
    """The call on inputs that have the types which it computes in."""
    types = tuple(
        [
            aval(t.shape, c) if c is not None and isinstance(t, Aval) else t
            for t, c in zip(call.types, call.casts, strict=True)
        ]
    )
    casts = tuple(
        [None if isinstance(t, Aval) else c for t, c in zip(call.types, call.casts, strict=True)]
    )
    return call.op.call_with(types, call.layout, call.attrs, casts)


def fused(
    graph: Graph,
    platform: str,
    inference: bool = False,
    chosen: Counter[kernels.Choice] | None = None,
) -> Graph:
    """The graph as it is lowered for this platform. Inputs that were added are constants, and
    numbers that were added are too."""
    if not kernels.fuses(platform):
        return graph
    return Fuser(inlined(graph)).run(platform, inference, Counter() if chosen is None else chosen)


def evaluator(graph: Graph, fused: Graph) -> Callable[..., list[Any]]:
    """A function of the inputs and numbers of `graph` that evaluates `fused` with `jax.numpy`."""
    jnp = jax_door.jnp()
    asking: list[int] = []
    if fused is not graph:  # requirements are numbered in the order of all that had been needed
        asking = [n.first for n in fused.nodes if n.call.checks]
    steps = fused.copy(outputs=[*fused.outputs, *asking]).schedule()

    def evaluate(floats: Any, ints: Any, *inputs: Any) -> list[Any]:
        constants = [fused.constants[i] for i in range(len(inputs), len(fused.inputs))]
        leaves = [*inputs, *map(jnp.asarray, constants)]
        numbers = _numbers(graph, fused, floats, ints)
        made = fused.evaluate(leaves, *numbers, lambda c, a: c.run(jnp, a), steps)
        return made[: len(graph.outputs)]

    return evaluate


def _numbers(graph: Graph, fused: Graph, floats: Any, ints: Any) -> tuple[Any, Any]:
    """What `fused` takes as numbers: those of `graph`, and its own constants."""
    if (fused.n_floats, fused.n_ints) == (graph.n_floats, graph.n_ints):
        return floats, ints
    more_floats, more_ints = fused.vectors()
    return (
        [*(floats[i] for i in range(graph.n_floats)), *more_floats[graph.n_floats :]],
        [*(ints[i] for i in range(graph.n_ints)), *more_ints[graph.n_ints :]],
    )
