"""A TorchScript program as a Layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bireme.convert.captured import CapturedCalls
from bireme.convert.torch.program import TorchFileError, memory_of
from bireme.convert.torch.script.archive import Script
from bireme.convert.torch.script.calls import is_known
from bireme.convert.torch.script.counts import as_tensor
from bireme.convert.torch.script.interpreter import Interpreter
from bireme.convert.torch.script.source import calls_of
from bireme.convert.torch.script.values import (
    Count,
    Function,
    Record,
    ScriptClass,
    ScriptObject,
    Uninitialized,
    Value,
)
from bireme.core.cache import BoundedCache
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.jit.translated_layer import place
from bireme.nn.layer.layer import Layer

_MAX_MODULES = 100_000


class ScriptModel(Layer):
    """A model that `torch.jit.save` wrote. Parameters and buffers have PyTorch's names, and the
    methods that the program has can be called by their names."""

    def __init__(self, script: Script):
        super().__init__()
        self._root = script.root
        self._library = script.library
        self._examples = script.examples
        self._known: dict[str, Tensor] = {}
        self._modules: list[tuple[ScriptObject, Layer]] = []
        self._shared: dict[object, Tensor] = {}
        self._seen: set[int] = set()
        self._adopt(script.root, "", self)
        constants = [self._constant(c, f"constant.{i}") for i, c in enumerate(script.constants)]
        self._program = Interpreter(script.library, constants)
        self._program.hold(script.root)
        kind = self._class_of(script.root)
        if "forward" not in kind.methods:
            raise TorchFileError(
                f"[convert] {kind.name} has no forward; it has {', '.join(kind.methods) or 'none'}"
            )
        _check_ops(self._library, self._modules, kind.methods["forward"])
        for name in kind.methods:
            if name != "forward" and name.isidentifier() and not hasattr(self, name):
                self.__dict__[name] = self._method(name)
        self._calls: BoundedCache[Value, CapturedCalls] = BoundedCache(64)
        self.eval()

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, in order."""
        return list(self._forward().parameters[1:])

    def input_specs(self) -> list[Value]:
        """The inputs with which the program was traced, as InputSpec. A scripted program has no
        sizes: give `jit.save` specs of your own."""
        from bireme.static import InputSpec

        examples, names = self._examples, self.input_names
        if examples is None:
            raise InvalidArgument(
                "a scripted program says nothing about the sizes of its inputs "
                f"({', '.join(names)}). Give them: jit.save(model, path, [InputSpec(shape, dtype)])"
            )
        found = []
        for name, value in zip(names, examples, strict=False):
            if not isinstance(value, np.ndarray):
                raise InvalidArgument(
                    f"the input {name!r} is a {type(value).__name__}, not a tensor; a model of "
                    "tensors can be saved, which calls this one"
                )
            found.append(InputSpec(list(value.shape), value.dtype.name, name))
        return found

    def forward(self, *inputs: Value, **named: Value) -> Value:
        for module, layer in self._modules:
            module.attributes["training"] = layer.training
        given = _bound(self._forward(), inputs, named)
        tensors: list[Tensor] = []
        shape = _shape_of(given, tensors)
        if shape is None or not tensors:
            return self._run("forward", given)
        key = (shape, tuple([layer.training for _, layer in self._modules]))
        calls = self._calls.get(key)
        if calls is None:
            calls = CapturedCalls(
                lambda tensors: self._run("forward", _rebuilt(shape, list(tensors.values()))),
                self._known,
                "a TorchScript model",
            )
            self._calls.add(key, calls)
        return calls({f"x{i}": t for i, t in enumerate(tensors)})

    def _run(self, name: str, given: dict[str, Value]) -> Value:
        function = self._class_of(self._root).methods[name]
        return _result(self._program.run(function, [self._root], given))

    def _forward(self) -> Function:
        return self._class_of(self._root).methods["forward"]

    def _class_of(self, value: ScriptObject) -> ScriptClass:
        found = self._library.classes.get(value.kind)
        if found is None:
            raise TorchFileError(f"[convert] the program lacks the class {value.kind!r:.200}")
        return found

    def _method(self, name: str) -> Callable[..., Value]:
        def call(*inputs: Value, **named: Value) -> Value:
            for module, layer in self._modules:
                module.attributes["training"] = layer.training
            function = self._class_of(self._root).methods[name]
            return self._run(name, _bound(function, inputs, named))

        return call

    # --- state ------------------------------------------------------------------------------

    def _adopt(self, module: ScriptObject, path: str, layer: Layer) -> None:
        """Give the layer the tensors of a module and of those below it."""
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        if len(self._modules) >= _MAX_MODULES:
            raise TorchFileError(f"[convert] the program has more than {_MAX_MODULES} modules")
        kind = self._class_of(module)
        if kind.kind == "Module":
            self._modules.append((module, layer))
        for name, value in module.attributes.items():
            where = f"{path}.{name}" if path else name
            if isinstance(value, ScriptObject):
                self._adopt(value, where, _below(layer, name))
                continue
            trained = name in kind.parameters
            made = self._tensors(value, where, trained)
            module.attributes[name] = made
            if isinstance(made, Tensor) and (trained or name in kind.buffers):
                place(layer, name, made)

    def _tensors(self, value: Value, where: str, trained: bool = False) -> Value:
        """An attribute with tensors for its arrays."""
        if isinstance(value, np.ndarray):
            return self._tensor(value, where, trained)
        if isinstance(value, list):
            value[:] = [self._tensors(v, f"{where}.{i}") for i, v in enumerate(value)]
            return value
        if isinstance(value, tuple):
            return tuple([self._tensors(v, f"{where}.{i}") for i, v in enumerate(value)])
        if isinstance(value, dict):
            value.update({k: self._tensors(v, f"{where}.{k}") for k, v in value.items()})
        if isinstance(value, ScriptObject):
            self._adopt(value, where, Layer())
        return value

    def _tensor(self, array: np.ndarray, where: str, trained: bool) -> Tensor:
        memory = memory_of(array)
        made = self._shared.get(memory) if array.size else None
        if made is None:
            made = constant(np.ascontiguousarray(array).reshape(array.shape))
            if trained and made.dtype.is_floating:
                made = Parameter(made._value, True, where)
            self._shared[memory] = made
            self._known[where] = made
        return made

    def _constant(self, value: Value, where: str) -> Value:
        if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "bif":
            name = "bool" if value.dtype.kind == "b" else value.dtype.name
            return Count(value.item(), name)
        return self._tensors(value, where)


def _below(layer: Layer, name: str) -> Layer:
    """The layer for a module's module."""
    found = layer._sub_layers.get(name)
    if found is None:
        found = Layer()
        layer.add_sublayer(name, found)
    return found


# --- arguments and results ------------------------------------------------------------------


def _bound(
    function: Function, inputs: Sequence[Value], named: dict[str, Value]
) -> dict[str, Value]:
    names = function.parameters[1:]
    given = dict(zip(names, inputs, strict=False))
    required = names[: len(names) - len(function.defaults)]
    unknown = [n for n in named if n not in names or n in given]
    given.update(named)
    if len(inputs) > len(names) or unknown or any(n not in given for n in required):
        raise InvalidArgument(
            f"this model takes {', '.join(names) or 'no inputs'}. Received: {len(inputs)} inputs"
            + (f" and the names {sorted(named)}" if named else "")
        )
    types = dict(zip(names, function.types[1:], strict=True))
    return {n: _converted(v, types[n]) for n, v in given.items()}


def _converted(value: Value, kind: str) -> Value:
    """An input as the program takes it."""
    if isinstance(value, np.ndarray):
        return constant(value)
    if isinstance(value, list) and kind.startswith("Tuple"):
        value = tuple(value)
    if isinstance(value, list | tuple):
        return type(value)([_converted(v, "") for v in value])
    if isinstance(value, dict):
        return {k: _converted(v, "") for k, v in value.items()}
    if kind == "float" and type(value) is int:
        return float(value)
    if kind == "Tensor" and not isinstance(value, Tensor):
        raise InvalidArgument(f"an input must be a tensor. Received: {value!r:.200}")
    return value


def _shape_of(value: Value, tensors: list[Tensor]) -> Value:
    """A nested value without its tensors, which are collected; None if it has no such key."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return ("tensor", len(tensors) - 1)
    if isinstance(value, list | tuple):
        parts = [_shape_of(v, tensors) for v in value]
        return None if None in parts else (type(value).__name__, *parts)
    if isinstance(value, dict):
        parts = [_shape_of(v, tensors) for v in value.values()]
        return None if None in parts else ("dict", tuple(value), *parts)
    if value is None or isinstance(value, bool | int | float | str):
        return ("value", type(value).__name__, value)
    return None


def _rebuilt(shape: Value, tensors: list[Tensor]) -> Value:
    kind, *rest = shape
    if kind == "tensor":
        return tensors[rest[0]]
    if kind == "value":
        return rest[1]
    if kind == "dict":
        keys, *parts = rest
        return {k: _rebuilt(p, tensors) for k, p in zip(keys, parts, strict=True)}
    made = [_rebuilt(p, tensors) for p in rest]
    return made if kind == "list" else tuple(made)


def _result(value: Value) -> Value:
    if isinstance(value, Count):
        return as_tensor(value)
    if isinstance(value, Record):
        return tuple([_result(v) for v in value])
    if isinstance(value, list | tuple):
        return type(value)([_result(v) for v in value])
    if isinstance(value, dict):
        return {k: _result(v) for k, v in value.items()}
    if isinstance(value, ScriptObject | Uninitialized):
        raise TorchFileError("[convert] a result is an object of the program")
    return value


# --- what has a rule ------------------------------------------------------------------------


def _check_ops(library: Value, modules: list[tuple[ScriptObject, Layer]], start: Function) -> None:
    """Refuse a program whose forward calls what has no rule, and name all of it."""
    missing: dict[str, str] = {}
    for function in _reached(library, modules, start):
        for name, node in calls_of(function.body):
            if not name.startswith((".", "__torch__.")) and not is_known(name):
                line = getattr(node, "lineno", 0)
                missing.setdefault(name, f"{function.name.removeprefix('__torch__.')}, line {line}")
    if missing:
        listed = "; ".join(f"{op} ({where})" for op, where in missing.items())
        raise TorchFileError(
            f"[convert] {len(missing)} operation(s) of this model have no rule: {listed}. Add "
            "rules for them in bireme.convert.torch.aten"
        )


def _reached(
    library: Value, modules: list[tuple[ScriptObject, Layer]], start: Function
) -> Iterator[Function]:
    """The functions that may be called: of methods, all of a called name in the modules."""
    kinds = {m.kind for m, _ in modules}
    by_name: dict[str, list[Function]] = {}
    for kind in sorted(kinds):
        for name, method in library.classes[kind].methods.items():
            by_name.setdefault(f".{name}", []).append(method)
    stack, seen = [start], {start.name}
    while stack:
        function = stack.pop()
        yield function
        for name, _ in calls_of(function.body):
            found = by_name.get(name, [])
            if name in library.functions:
                found = [library.functions[name]]
            elif name.endswith(".__new__") and name.removesuffix(".__new__") in library.classes:
                found = list(library.classes[name.removesuffix(".__new__")].methods.values())
            for inner in found:
                if inner.name not in seen:
                    seen.add(inner.name)
                    stack.append(inner)
