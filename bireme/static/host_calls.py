"""Calls in a static program of functions that read their tensors.

Such a call is a node of the graph, but no part of a compiled program: a run cuts the graph there
(`Cut`), computes what comes before, calls the function with the tensors, and goes on with its
results, whose sizes are known then. The gradient of a call is one more such node: it calls the
function again, recording its ops, and takes their gradient.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bireme.capture import symbols, tree
from bireme.capture.rewrite import GraphBuilder
from bireme.core import autograd, dims
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, Node
from bireme.core.op import Call, op
from bireme.core.tensor import Tensor, constant
from bireme.ops.contents import Result
from bireme.ops.creation import zeros_like
from bireme.static.program_op import ProgramOp
from bireme.static.recorder import ProgramTrace

NAME = "call_with_contents"
SIZES = "read_sizes"
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _types(xs: Any, function: Any, shapes: Any, dtypes: Any) -> Any:
    return tuple([aval(s, dt.as_dtype(d)) for s, d in zip(shapes, dtypes, strict=True)])


def _rule(xp: Any, grads: Any, xs: Any) -> Any:
    raise AssertionError("an executor runs these calls itself")


@op(name=NAME, inputs=("*xs",), infer=_types, vjp=_rule, fallible=True)
def _call(xp, xs, function=None, shapes=(), dtypes=()):
    """The tensors that a Python function makes of tensors, as a list."""
    raise AssertionError("an executor runs these calls itself")


def record_call(
    into: ProgramTrace,
    function: Callable[..., Any],
    results: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Record the call, unless all its tensors follow from constants."""
    tensors, structure = tree.flatten((args, kwargs))
    if all(into.fold(t._value) for t in tensors):
        return function(*args, **kwargs)
    specs: list[Result] = []
    declared = results(*args, **kwargs)
    _map_results(specs.append, declared)

    def run(given: list[Tensor]) -> list[Tensor]:
        now_args, now_kwargs = tree.unflatten(structure, given)
        found: list[Tensor] = []
        _map_results(found.append, function(*now_args, **now_kwargs))
        return found

    count = len(into.code)
    shapes = [
        tuple(
            symbols.symbol(f"size{count}_{i}_{axis}") if d is None else d
            for axis, d in enumerate(spec.shape)
        )
        for i, spec in enumerate(specs)
    ]
    names = tuple([spec.dtype.name for spec in specs])
    outs = iter(_call(tensors, run, tuple(shapes), names))
    return _map_results(lambda _: next(outs), declared)


@op(
    name=SIZES,
    inputs=("*xs",),
    infer=lambda xs, names: tuple([aval((symbols.symbol(n),), dt.bool_) for n in names]),
    differentiable=False,
    fallible=True,
)
def _sizes(xp, xs, names=()):
    """A result for each element of a tensor, whose size is that element."""
    raise AssertionError("an executor runs these calls itself")


def record_sizes(into: ProgramTrace, tensor: Tensor) -> list[Any]:
    """Symbols for the elements of a tensor of sizes."""
    names = [f"read{len(into.code)}_{i}" for i in range(tensor._value.aval.size)]
    _sizes([tensor.detach()], tuple(names))
    return [symbols.symbol(n) for n in names]


def symbols_in(value: object) -> set[str]:
    """The names of the open sizes in a type, an attribute, or containers of them."""
    if isinstance(value, Aval):
        return set() if value.is_static else symbols_in(value.shape)
    if isinstance(value, dict):
        return set().union(*map(symbols_in, value.values()))
    if isinstance(value, list | tuple):
        return set().union(*map(symbols_in, value))
    return set(_SYMBOL.findall(str(value))) if dims.is_dim_expression(value) else set()


def with_sizes(graph: Graph) -> list[Node]:
    """The nodes that the outputs depend on, also by the sizes that are read in other nodes."""
    readers: dict[str, Node] = {}
    for node in graph.nodes:
        if node.call.op.name == SIZES:
            readers.update(dict.fromkeys(node.call.attrs["names"], node))
    outputs = graph.outputs
    needed = graph.needed()
    while readers:
        used = symbols_in([(n.call.types, n.call.outs, n.call.attrs) for n in needed])
        found = [n for s, n in readers.items() if s in used and n not in needed]
        if not found:
            break
        graph.outputs = [*graph.outputs, *[r for n in found for r in n.results]]
        needed = graph.needed()
    graph.outputs = outputs
    return needed


def _map_results(function: Callable[[Any], Any], made: Any) -> Any:
    """`function` of each tensor (or Result) in tuples and lists."""
    if isinstance(made, Result) or not isinstance(made, list | tuple):
        return function(made)
    return type(made)([_map_results(function, part) for part in made])


def is_host_call(node: Node) -> bool:
    call = node.call
    if isinstance(call.op, GradOp):
        return call.attrs["forward"].op.name == NAME
    return call.op.name in (NAME, SIZES)


def has_host_calls(graph: Graph) -> bool:
    return any(map(is_host_call, graph.nodes))


@dataclass
class Piece:
    """A part of a program that is compiled: which values it takes, and which it makes."""

    op: ProgramOp
    inputs: list[int]
    outputs: list[int]


class Cut:
    """A graph in pieces, with the calls between them."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.steps: list[Piece | Node] = []
        users = _last_users(graph)
        part: list[Node] = []
        for i, node in enumerate(graph.nodes):
            if is_host_call(node):
                self._close(part, users, i)
                self.steps.append(node)
                part = []
            else:
                part.append(node)
        self._close(part, users, len(graph.nodes))
        self.parts = sorted({p for s in self.steps if isinstance(s, Piece) for p in s.op.parts})

    def _close(self, part: list[Node], users: dict[int, int], end: int) -> None:
        """Make a piece of the nodes before the `end`-th, for what is used from there on."""
        made = [r for n in part for r in n.results]
        outputs = [r for r in made if users.get(r, -1) >= end]
        if not outputs:
            return
        builder = GraphBuilder(self.graph)
        types = self.graph.value_types()
        inputs: list[int] = []
        for node in part:
            for ref in node.args:
                if not isinstance(ref, int) or ref in builder.refs or ref in made:
                    continue
                if ref >= 0:
                    builder.refs[ref] = builder.input(types[ref])
                else:
                    builder.copy_input(ref)
                if ref >= 0 or -1 - ref not in self.graph.constants:
                    inputs.append(ref)
            builder.copy(node)
        self.steps.append(Piece(ProgramOp(builder.finish(outputs)), inputs, outputs))

    def run(self, given: dict[int, Tensor], run_piece: Callable[..., list[Tensor]]) -> list[Tensor]:
        """The outputs for these inputs, by reference."""
        sizes = self._first_sizes(given)
        values = dict(given)
        for ref, array in self.graph.constants.items():
            values[-1 - ref] = constant(array)
        for step in self.steps:
            if isinstance(step, Piece):
                made = run_piece(step.op, [values[r] for r in step.inputs], sizes)
                values.update(zip(step.outputs, made, strict=True))
                continue
            args = [values[a] if isinstance(a, int) else None for a in step.args]
            if step.call.op.name == SIZES and args[0] is not None:
                sizes.update(_read(step.call, args[0]))
                continue
            made = _run_call(step.call, args)
            values.update(zip(step.results, made, strict=True))
            for declared, tensor in zip(step.call.outs, made, strict=True):
                for d, size in zip(declared.shape, tensor.shape, strict=True):
                    if type(d) is not int:
                        sizes.setdefault(str(d), size)
        return [values[o] for o in self.graph.outputs]

    def _first_sizes(self, given: dict[int, Tensor]) -> dict[str, int]:
        """The sizes that the inputs show; not those of symbols that stand for several sizes."""
        sizes: dict[str, int] = {}
        unclear: set[str] = set()
        for ref, tensor in given.items():
            for d, size in zip(self.graph.inputs[-1 - ref].shape, tensor.shape, strict=True):
                if type(d) is not int and sizes.setdefault(str(d), size) != size:
                    unclear.add(str(d))
        return {name: size for name, size in sizes.items() if name not in unclear}


def _last_users(graph: Graph) -> dict[int, int]:
    """For each value the number of the last node that reads it; outputs are read at the end."""
    users = {a: i for i, n in enumerate(graph.nodes) for a in n.args if isinstance(a, int)}
    users.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    return users


def _read(call: Call, tensor: Tensor) -> dict[str, int]:
    numbers = tensor.numpy().reshape(-1).tolist()
    if min(numbers, default=0) < 0:
        raise InvalidArgument(
            f"a size that a program reads from a tensor must not be negative. Received: {numbers}; "
            "write a size that follows from the others as -1 in the list of sizes itself"
        )
    return dict(zip(call.attrs["names"], numbers, strict=True))


def _run_call(call: Call, args: list[Any]) -> list[Tensor]:
    if not isinstance(call.op, GradOp):
        return call.attrs["function"]([a.detach() for a in args])
    forward: Call = call.attrs["forward"]
    count = call.layout[0]
    inputs = [a.detach() for a in args[count:]]
    needs = call.attrs["needs"]
    for i in needs:
        inputs[i].stop_gradient = False
    outs = forward.attrs["function"](inputs)
    pairs = [(o, g) for o, g in zip(outs, args[:count], strict=True) if o._node is not None]
    wanted = [inputs[i] for i in needs]
    if not pairs:
        return [zeros_like(x) for x in wanted]
    found = autograd.run_backward(
        [o for o, _ in pairs],
        [g for _, g in pairs],
        False,
        False,
        targets=[x._node for x in wanted],
    )
    return [zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]
