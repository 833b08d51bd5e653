"""Graphs inside graphs: the body of a branch or a loop in a captured graph.

A `Body` is an attribute of a control-flow op (`ops/control_flow.py`). All outer values are inputs
of its graph, in the order in which the op passes them, so it holds no contents of its own.
`BodyTrace` records one while the surrounding capture continues.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bireme import backends
from bireme.capture import graph_io
from bireme.capture.recorder import CaptureTrace, detach_call
from bireme.capture.rewrite import GraphBuilder, specialize
from bireme.core import requirements
from bireme.core.aval import Aval
from bireme.core.cache import BoundedCache
from bireme.core.errors import CaptureError, user_line
from bireme.core.graph import Graph
from bireme.core.op import Call
from bireme.core.tensor import Tensor
from bireme.core.trace import Trace, Value
from bireme.host import jax_door
from bireme.host.arrays import Namespace

# Iteration i of a loop adds i times this to a key's offset: each has random numbers of its own.
ITERATION = 1 << 32
_MAX_SIZES = 64  # typed copies that a body with open sizes keeps


class Body:
    """A graph that an op runs, typed and without contents."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.steps = graph.schedule()
        self.nodes = [node for node, _, _ in self.steps]
        # Two numbers (seed, offset) for each time that a generator was asked.
        self.n_keys = 2 * (max(graph.keys.values(), default=-1) // 2 + 1)
        made = graph.value_types()
        self.types = tuple([made[o] if o >= 0 else graph.inputs[-1 - o] for o in graph.outputs])
        self._sized: BoundedCache[tuple[Any, ...], Body] = BoundedCache(_MAX_SIZES)

    def with_sizes(self, sizes: Mapping[str, int]) -> Body:
        """The body with sizes in place of symbols; the same object for the same sizes."""
        key = tuple(sorted(sizes.items()))
        found = self._sized.get(key)
        if found is None:
            made = specialize(self.graph, sizes)
            found = self._sized.add(key, self if made is self.graph else Body(made))
        return found

    def run(
        self, xp: Namespace, arrays: Sequence[Any], keys: Sequence[Any], turn: Any = 0
    ) -> list[Any]:
        """The results; `turn` is the number of a loop's iteration."""
        graph = self.graph
        floats, ints = graph.vectors()
        for number, part in graph.keys.items():
            ints[number.index] = keys[part] + turn * ITERATION if part % 2 else keys[part]
        step = backends.reference().run_call if xp is np else run_differentiably
        return graph.evaluate(arrays, floats, ints, step, self.steps)

    def __repr__(self) -> str:
        return "\n" + textwrap.indent(str(self.graph), "    ") + "\n  "


def run_differentiably(call: Call, arrays: list[Any]) -> Any:
    """Run a Call under JAX so that JAX differentiates it by the op's own gradient rule."""
    jax = jax_door.jax()
    types = call.types
    needs = tuple(
        [i for i, t in enumerate(types) if isinstance(t, Aval) and t.dtype.differentiable]
    )
    if not call.differentiable or not needs:
        out = call.run(jax.numpy, arrays)
        return jax.tree_util.tree_map(jax.lax.stop_gradient, out)
    present = [i for i, t in enumerate(types) if t is not None]

    def spread(given: Sequence[Any]) -> list[Any]:
        flat: list[Any] = [None] * len(types)
        for i, a in zip(present, given, strict=True):
            flat[i] = a
        return flat

    met = requirements.InnerEvidence(call.checks)

    @jax.custom_vjp
    def run(*given: Any) -> Any:
        return met.run(lambda: call.run(jax.numpy, spread(given)))

    def forward(*given: Any) -> Any:
        out, evidence = run(*given)
        return (out, evidence), (given, [out] if call.single else list(out))

    def backward(kept: Any, all_grads: Any) -> Any:
        given, outs = kept
        grads, _ = all_grads
        flat = spread(given)
        conj = jax.numpy.conj
        grads = [grads] if call.single else list(grads)
        real = tuple([o.dtype.differentiable for o in call.outs])
        back = call.gradient(needs, real)
        inputs = [conj(g) if r else None for g, r in zip(grads, real, strict=True)]
        for i, t in zip(call.saved_at, back.types[len(inputs) :], strict=True):
            inputs.append(None if t is None else flat[i] if i >= 0 else outs[-1 - i])
        found = dict(zip(needs, run_differentiably(back, inputs), strict=True))
        # Ours is the conjugate of JAX's convention (see grad_op.py).
        return tuple([conj(found[i]) if i in found else None for i in present])

    run.defvjp(forward, backward)
    given = [
        jax.numpy.asarray(arrays[i], types[i].dtype.numpy)  # type: ignore[union-attr]
        for i in present
    ]
    out, evidence = run(*given)
    met.deliver(evidence)
    return out


class BodyTrace(CaptureTrace):
    """Records a body. Values of the captures around it, and tensors from outside of all of them,
    become inputs."""

    __slots__ = ("arguments", "operands", "own", "parent")

    def __init__(self, parent: Trace, types: Sequence[Aval]):
        label = getattr(parent, "label", "a graph")
        super().__init__(label, (), parent.tape, parent.amp)
        self.parent = parent
        self.enforces = getattr(parent, "enforces", False)
        self.own: dict[int, Value] = {}  # made from data inside
        self.operands: dict[int, Tensor] = {}  # outer values, by id of the Value
        self.arguments = [Tensor(self.placeholder(t), None) for t in types]

    def may_enter(self, value: Value) -> bool:
        around: Any = self.parent
        while around is not None:
            if value.trace is around:
                return True
            around = getattr(around, "parent", None)
        return False

    def watch_grad(self, tensor: Tensor) -> None:
        getattr(self.parent, "watch_grad", _nothing)(tensor)

    def met(self, value: Value, tensor: Tensor | None) -> None:
        self.operands[id(value)] = Tensor(value, None) if tensor is None else tensor

    def made(self, value: Value) -> None:
        self.own[id(value)] = value
        self.parent.made(value)

    def read(self, tensor: Tensor) -> None:
        self.parent.read(tensor)

    def own_rule(self, what: str) -> None:
        raise CaptureError(
            f"{what} at {user_line()} is inside a branch or loop that depends on a tensor; a graph "
            "branch has the gradients of its operations only. Move it out of the branch"
        )

    def outer_writes(self) -> list[tuple[Tensor, Value]]:
        """Outer tensors that the body changed, with their former contents."""
        mine = {id(t) for t in self.arguments}
        found = []
        for w in self.written.values():
            tensor = w.tensor()
            inside = id(w.value) in self.own or tensor is None or id(tensor) in mine
            if not inside and tensor._value is not w.value:  # type: ignore[union-attr]
                found.append((tensor, w.value))
        return found  # type: ignore[return-value]

    def body(self, outputs: Sequence[int | Value], operands: Sequence[Value]) -> Body:
        """The recorded graph. Its inputs are the arguments, then `operands`; an output is a slot
        of this trace or one of the operands."""
        whole = self.graph([])
        builder = GraphBuilder(whole)
        builder.copy_inputs(len(self.arguments))
        for value in operands:
            ref = builder.input(value.aval)
            slot = self.leaves.get(value)
            if slot is not None:
                builder.refs[slot] = ref
        place = {id(v): -1 - len(self.arguments) - i for i, v in enumerate(operands)}
        for node in whole.nodes:
            results = builder.copy(node)
            if not node.tape and node.call.differentiable:
                for old, new, t in zip(node.results, results, node.call.outs, strict=True):
                    (cut,) = builder.add(detach_call(t), (new,), False)
                    builder.refs[old] = cut
        graph = builder.finish([])
        for o in outputs:
            ref: Any = place[id(o)] if isinstance(o, Value) else builder.ref(o)
            graph.outputs.append(ref)
        return Body(graph)


def _nothing(tensor: Tensor) -> None:
    """For a recorder that keeps no gradients."""


def _decode(data: Any) -> Body:
    def none(name: str) -> Any:
        raise graph_io.GraphFileError(f"a branch or loop cannot hold the constant {name!r}")

    return Body(graph_io.decode_graph(data, none))


graph_io.register_attribute("graph", Body, lambda b: graph_io.encode_graph(b.graph), _decode)
