"""Imported models as Layers: runs a Program by its Rules, eagerly or into a capture."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bireme.convert.captured import CapturedCalls
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.program import Graph, Input, Node, Program, Rules, nodes_of
from bireme.core.dtype import as_dtype
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.io.foreign import possible_shape
from bireme.jit.translated_layer import place
from bireme.nn.layer.layer import Layer
from bireme.ops.creation import to_tensor
from bireme.ops.dimensions import dimensions

_SMALL = 1024  # integers of up to so many elements stay known, so that shapes can come from them
_MAX_DEPTH = 32  # of functions that call each other
_MAX_STEPS = 250_000  # nodes that one call may run
MAX_BYTES = 1 << 33  # of one value that a file asks for


class View:
    """What a rule sees of its node."""

    __slots__ = ("node", "run")

    def __init__(self, node: Node, run: Run):
        self.node, self.run = node, run

    def attr(self, name: str, default: Any = None) -> Any:
        return self.node.attrs.get(name, default)

    def call(self, name: str, *values: Any) -> list[Any]:
        """The results of one of the program's functions."""
        graph = self.run.functions.get(name)
        if graph is None:
            raise ModelFileError(f"there is no function {name!r:.100}")
        return self.run.graph(graph, dict(zip(graph.inputs, values, strict=True)))


class Run:
    """One run over a program."""

    def __init__(self, program: Program, rules: Rules):
        self.functions = program.functions
        self._rules = rules
        self._depth = self._steps = 0

    def graph(self, graph: Graph, given: Mapping[str, Any]) -> list[Any]:
        """The results of a graph whose inputs (and weights) are `given`, by name."""
        if self._depth >= _MAX_DEPTH:
            raise ModelFileError(f"functions call each other more than {_MAX_DEPTH} deep")
        self._depth += 1
        scope: dict[str, Any] = {**graph.weights, **given}
        for node in graph.nodes:
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise ModelFileError(f"one call runs more than {_MAX_STEPS} nodes")
            self._node(node, scope)
        self._depth -= 1
        return [_found(scope, name) for name in graph.outputs]

    def _node(self, node: Node, scope: dict[str, Any]) -> None:
        try:
            made = self._made(node, [_found(scope, name) if name else None for name in node.inputs])
        except BiremeError as e:
            first = str(e.args[0]) if e.args else ""
            if not first.startswith("[convert]"):
                e.args = (f"[convert] {node.op} ({node.where}): {first}", *e.args[1:])
            raise
        except _DAMAGE as e:
            raise ModelFileError(
                f"[convert] {node.op} ({node.where}): {type(e).__name__}: {e!s:.300}"
            ) from e
        results = made if isinstance(made, list) else [made]
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                scope[name] = value

    def _made(self, node: Node, values: list[Any]) -> Any:
        view = View(node, self)
        fold = self._rules.fold(node.op)
        if fold is not None and all(v is None or isinstance(v, np.ndarray) for v in values):
            made = fold(view, *values)
            if made is not None:
                return made
        entry = self._rules.entry(node.op)
        for i, value in enumerate(values):
            if entry.is_static(i):
                values[i] = value.numpy() if isinstance(value, Tensor) else value
            elif isinstance(value, np.ndarray) and not entry.as_is:
                values[i] = to_value(value)
        return entry.rule(view, *values)


_DAMAGE = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
)


def _found(scope: Mapping[str, Any], name: str) -> Any:
    try:
        return scope[name]
    except KeyError:
        raise ModelFileError(f"the value {name!r:.100} is used but never made") from None


def to_value(known: Any) -> Tensor:
    """A known value as a tensor; sizes that are open become data of the graph."""
    if isinstance(known, Tensor):
        return known
    if known.dtype == object:
        items = known.ravel().tolist()
        if all(type(i) is int for i in items):
            return to_tensor(known.astype(np.int64))
        if any(isinstance(i, bytes | str) for i in items):
            raise UnsupportedModel("text has no tensors")
        return dimensions(dims=tuple(items)).reshape(list(known.shape))
    return to_tensor(known)


def check_size(shape: Sequence[Any], what: str = "a result") -> None:
    """Refuse a value that could not be held, before anyone tries to make it."""
    sizes = [d for d in shape if type(d) is int]
    if not possible_shape(sizes) or math.prod(sizes) * 4 > MAX_BYTES:
        raise ModelFileError(f"{what} cannot have the shape {list(shape)!r:.200}")


class ImportedModel(Layer):
    """A model of another framework, in eval mode. Parameters have the file's names."""

    def __init__(self, program: Program, rules: Rules):
        super().__init__()
        rules.check(program)
        self._program, self._rules = program, rules
        self._values: dict[str, Any] = {}  # weights by the graph's names
        self._state: dict[str, Tensor] = {}  # the same by the state dict's
        self._hold_weights()
        self._calls = CapturedCalls(self._run, self._state, f"a {program.source} model")
        self.eval()

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, in order."""
        return [i.label for i in self._program.inputs]

    @property
    def output_names(self) -> list[str]:
        """The names of the results, in order."""
        return list(self._program.outputs)

    def input_specs(self) -> list[Any]:
        """The inputs as InputSpec, for jit.save; sizes that the file leaves open are None."""
        from bireme.static import InputSpec

        specs = []
        for declared in self._program.inputs:
            if declared.shape is None:
                raise UnsupportedModel(
                    f"the input {declared.label!r} has no shape in the file: give jit.save an "
                    "InputSpec of your own"
                )
            specs.append(InputSpec(list(declared.shape), declared.dtype, _word(declared.label)))
        return specs

    def op_counts(self) -> dict[str, int]:
        """How often the model has each op."""
        return dict(Counter(n.op for n in nodes_of(self._program)).most_common())

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self._calls(self._given(inputs, named))

    def _given(self, inputs: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        labels = self.input_names
        given = dict(zip(labels, inputs, strict=False))
        given.update(named)
        if len(inputs) > len(labels) or set(given) != set(labels):
            raise InvalidArgument(
                f"this model takes {', '.join(labels) or 'no inputs'}. Received: {len(inputs)} "
                "inputs" + (f" and the names {sorted(named)}" if named else "")
            )
        return {i.label: _checked(i, given[i.label]) for i in self._program.inputs}

    def _run(self, given: dict[str, Any]) -> Any:
        values = dict(self._values)
        values.update({i.name: given[i.label] for i in self._program.inputs})
        outs = Run(self._program, self._rules).graph(self._program.graph, values)
        made = [to_value(o) if isinstance(o, np.ndarray) else o for o in outs]
        return made[0] if len(made) == 1 else made

    # --- weights ----------------------------------------------------------------------------

    def _hold_weights(self) -> None:
        program = self._program
        static = _static_names(program, self._rules)
        taken: set[str] = set()
        for name, array in program.weights.items():
            trained = name in program.trained
            if not _has_tensors(array.dtype):
                self._values[name] = array
                continue
            small = array.size <= _SMALL and array.dtype.kind not in "f"
            if not trained and (name in static or small or array.ndim == 0):
                self._values[name] = array
                continue
            label = _free_label(program.labels.get(name, name), taken)
            made: Tensor = constant(np.ascontiguousarray(array).reshape(array.shape))
            if trained and made.dtype.is_floating:
                made = Parameter(made._value, True, label)
            self._values[name] = self._state[label] = made
            place(self, label, made)


def _static_names(program: Program, rules: Rules) -> set[str]:
    """Weights whose contents decide shapes."""
    graphs = [program.graph, *program.functions.values()]
    nodes = [n for g in graphs for n in g.nodes]
    return {
        name
        for n in nodes
        for i, name in enumerate(n.inputs)
        if name in program.weights and rules.entry(n.op).is_static(i)
    }


def _has_tensors(dtype: np.dtype) -> bool:
    if dtype.kind in "OUSTV" and not dtype.name.startswith(("bfloat", "float8")):
        return False
    try:
        as_dtype(dtype)
    except (BiremeError, TypeError, ValueError):
        return False
    return True


_ODD = re.compile(r"[^\w/:.-]")


def _free_label(name: str, taken: set[str]) -> str:
    """A name that a state dict can hold, and nobody else's: no part of it is a method's."""
    parts = []
    for part in _ODD.sub("_", name)[:400].split("."):
        part = part or "_"
        parts.append(part + "_" if hasattr(Layer, part) or part.startswith("__") else part)
    label = ".".join(parts[:-1][:8] + parts[-1:])
    # A name may be a part of another one's path: that would be a weight and a layer.
    inside = {label.rsplit(".", i)[0] for i in range(1, label.count(".") + 1)}
    while label in taken or any(t.startswith(label + ".") for t in taken if len(t) > len(label)):
        label += "_"
    if inside & taken:
        return _free_label(label.replace(".", "_"), taken)
    taken.add(label)
    return label


def _word(label: str) -> str:
    made = "".join(c if c.isalnum() and c.isascii() else "_" for c in label)
    return made if made[:1].isalpha() or made[:1] == "_" else f"x_{made}"


def _checked(declared: Input, value: Any) -> Tensor:
    made = value if isinstance(value, Tensor) else to_tensor(np.asarray(value))
    fits = made.dtype.name == declared.dtype
    if declared.shape is not None:
        fits = fits and made.ndim == len(declared.shape)
        fits = fits and all(
            declared.free or d == have
            for d, have in zip(declared.shape, made.shape, strict=True)
            if type(d) is int and type(have) is int
        )
    if not fits:
        shape = "" if declared.shape is None else _shown(declared.shape)
        raise InvalidArgument(
            f"the input {declared.label!r} is {declared.dtype}{shape} in the file. Received: "
            f"{made.dtype.name}{_shown(made.shape)}"
        )
    return made


def _shown(shape: Sequence[Any]) -> str:
    return f"[{', '.join('any' if d is None else str(d) for d in shape)}]"


__all__ = ["ImportedModel", "Run", "View", "check_size", "to_value"]
