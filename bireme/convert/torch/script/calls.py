"""Calls of a TorchScript program: its own functions, `torch.`, `ops.prim.` and types."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bireme.convert.torch.program import TorchFileError
from bireme.convert.torch.script import counts
from bireme.convert.torch.script.builtin import CHANGING, PLAIN, fitting, is_plain, is_same, text_of
from bireme.convert.torch.script.ops import call_op, known_op
from bireme.convert.torch.script.primitive import PRIMITIVE
from bireme.convert.torch.script.values import (
    UNSET,
    Address,
    Bound,
    Count,
    Device,
    Record,
    ScriptObject,
    Value,
    leaves,
)
from bireme.core.errors import CaptureError
from bireme.core.tensor import Tensor
from bireme.core.trace import state
from bireme.ops.control_record import is_symbolic

if TYPE_CHECKING:
    from bireme.convert.torch.script.interpreter import Interpreter, Scope

_IDENTITY = ("__is__", "__isnot__")
_OF_PRIM = ("data", "min", "max", "abs", "index", "type", "Print")  # not as `torch.`
_ALIASES = {
    "_unwrap_optional": "unchecked_unwrap_optional",
    "IntImplicit": "Int",
    "FloatImplicit": "Float",
}


class Calls:
    """How one interpreter calls what is not a statement."""

    def __init__(self, interpreter: Interpreter):
        self.of = interpreter
        self.functions: dict[str, Callable[[ast.Call, Scope], Value]] = {
            "annotate": self._second,
            "unchecked_cast": self._second,
            "uninitialized": lambda node, scope: UNSET,
            "isinstance": self._isinstance,
            "getattr": self._getattr,
            "int": self._int,
            "float": self._float,
            "bool": self._bool,
            "str": lambda node, scope: text_of(self._plain(self._first(node, scope))),
            "complex": self._complex,
        }

    def call(self, node: ast.Call, scope: Scope) -> Value:
        function = node.func
        if isinstance(function, ast.Name) and function.id not in scope:
            found = self.functions.get(function.id)
            if found is None:
                raise TorchFileError(f"there is no function {function.id!r:.100}")
            return found(node, scope)
        target = self.of.value(function, scope)
        args = [self.of.value(a, scope) for a in node.args]
        named = {k.arg or "": self.of.value(k.value, scope) for k in node.keywords}
        if isinstance(target, Bound):
            return self.of.method(target.target, target.name, args, named)
        if isinstance(target, Address):
            return self.address(target.name, args, named)
        raise TorchFileError(f"a {type(target).__name__} cannot be called")

    def address(self, name: str, args: list[Value], named: dict[str, Value]) -> Value:
        library = self.of.library
        if name.startswith("__torch__."):
            if name in library.functions:
                return self.of.call(library.functions[name], args, named)
            if name in library.classes:
                return self._record(name, args, named)
            owner, _, last = name.rpartition(".")
            if last == "__new__" and owner in library.classes:
                return ScriptObject(owner)
            raise TorchFileError(f"there is no function {name!r:.200}")
        space, _, op = name.rpartition(".")
        if space == "ops.prim":
            return self._primitive(op, args, named)
        if space in ("torch", "ops.aten"):
            return self._op(op, args, named)
        return call_op(name.removeprefix("ops."), args, named)

    def _record(self, name: str, args: list[Value], named: dict[str, Value]) -> Record:
        found = self.of.library.classes[name]
        fields = tuple(found.fields)
        values = dict(zip(fields, args, strict=False))
        values.update(named)
        for field, default in found.constants.items():
            if field not in values:
                values[field] = self.of.value(default, {})
        if found.kind != "NamedTuple" or set(values) != set(fields) or len(args) > len(fields):
            raise TorchFileError(f"{name} is not made of {len(args)} values")
        return Record(fields, tuple([values[f] for f in fields]))

    # --- ops --------------------------------------------------------------------------------

    def _op(self, name: str, args: list[Value], named: dict[str, Value]) -> Value:
        name = _ALIASES.get(name, name)
        if name in _IDENTITY:
            alike = args[0] is args[1] or (
                not isinstance(args[0], Tensor)
                and not isinstance(args[1], Tensor)
                and is_same(*args)
            )
            return alike == (name == "__is__")
        if name == "__not__":
            test = self.of.truth(args[0])
            return test.logical_not() if isinstance(test, Tensor) else not test
        if name in PRIMITIVE and name not in _OF_PRIM:
            return self._primitive(name, args, named)
        first = args[0] if args else None
        if name in CHANGING and isinstance(first, list | dict):
            self.of.check_change("a container", first)
            return CHANGING[name](*args, **named)
        if name in PLAIN and args and is_plain(first):
            whole = isinstance(first, list | dict | str | tuple)
            if whole or all(is_plain(a) for a in args):
                return PLAIN[name](*args, **named)
        if any(isinstance(v, Count) for v in leaves(args)):
            made = _counted(name, args, named)
            if made is not None:
                return made
        return call_op(name, args, named)

    def _primitive(self, name: str, args: list[Value], named: dict[str, Value]) -> Value:
        found = PRIMITIVE.get(name)
        if found is None:
            raise TorchFileError(f"ops.prim.{name:.100} has no rule")
        return found(self.of, *args, **named)

    # --- functions of types -----------------------------------------------------------------

    def _first(self, node: ast.Call, scope: Scope) -> Value:
        return self.of.value(node.args[0], scope)

    def _second(self, node: ast.Call, scope: Scope) -> Value:
        """`annotate(List[int], x)`: the type is for compilers."""
        value = self.of.value(node.args[1], scope)
        if isinstance(node.args[0], ast.Name) and isinstance(value, Tensor | Count):
            if node.args[0].id == "int":
                return self.of.whole(value, "an integer")
            if node.args[0].id == "float":
                return self.real(value)
            if node.args[0].id == "number" and isinstance(value, Count):
                return value.value
        return value

    def _getattr(self, node: ast.Call, scope: Scope) -> Value:
        name = self.of.value(node.args[1], scope)
        return self.of.attribute(self._first(node, scope), str(name))

    def _plain(self, value: Value) -> Value:
        if isinstance(value, Tensor) and is_symbolic(value):
            raise CaptureError("a text depends on the values of tensors")
        return value.value if isinstance(value, Count) else value

    def _int(self, node: ast.Call, scope: Scope) -> Value:
        value = self.of.whole(self._first(node, scope), "an integer")
        return fitting(int(value)) if isinstance(value, float | bool | str) else value

    def _float(self, node: ast.Call, scope: Scope) -> Value:
        return self.real(self._first(node, scope))

    def real(self, value: Value) -> Value:
        """A number out of what may be a tensor."""
        if isinstance(value, Count):
            value = value.value
        if isinstance(value, Tensor):
            if is_symbolic(value) and not state.trace.fold(value._value):
                raise CaptureError("a number depends on the values of tensors")
            return float(value)
        if isinstance(value, int | float | str):
            return float(value)
        raise CaptureError(f"a real number depends on the open size {value}")

    def _bool(self, node: ast.Call, scope: Scope) -> Value:
        return self.of.truth(self._first(node, scope))

    def _complex(self, node: ast.Call, scope: Scope) -> complex:
        return complex(*[self.real(self.of.value(a, scope)) for a in node.args])

    def is_true(self, value: Value) -> bool:
        """A condition that is no tensor."""
        if isinstance(value, bool | int | float | str | list | dict):
            return bool(value)
        return PLAIN["ne"](value, 0)  # an open size

    def _isinstance(self, node: ast.Call, scope: Scope) -> bool:
        value = self._first(node, scope)
        kinds = node.args[1]
        wanted = kinds.elts if isinstance(kinds, ast.Tuple | ast.List) else [kinds]
        return any(self._is_of(value, kind) for kind in wanted)

    def _is_of(self, value: Value, kind: ast.expr) -> bool:
        name = ast.unparse(kind)
        if isinstance(value, Tensor | Count):
            return name == "Tensor"
        plain: dict[str, Value] = {
            "int": int,
            "float": float,
            "bool": bool,
            "str": str,
            "Device": Device,
            "NoneType": type(None),
            "complex": complex,
        }
        if name in plain:
            return type(value) is plain[name]
        if name.startswith("Optional["):
            return value is None or self._is_of(value, _inner(kind)[0])
        for prefix, container in (("List[", list), ("Dict[", dict), ("Tuple[", tuple)):
            if name.startswith(prefix):
                return type(value) is container and self._holds(value, kind)
        if isinstance(value, ScriptObject):
            return value.kind == name
        if isinstance(value, Record):
            found = self.of.library.classes.get(name)
            return found is not None and tuple(found.fields) == value._fields
        return False

    def _holds(self, value: Value, kind: ast.expr) -> bool:
        inner = _inner(kind)
        if isinstance(value, dict):
            pairs = value.items()
            return all(self._is_of(k, inner[0]) and self._is_of(v, inner[1]) for k, v in pairs)
        if isinstance(value, tuple):
            pairs = zip(value, inner, strict=False)
            return len(value) == len(inner) and all(self._is_of(v, k) for v, k in pairs)
        return all(self._is_of(v, inner[0]) for v in value)

    def set_attribute(self, owner: ScriptObject, name: str, value: Value) -> None:
        """`self.x = value`."""
        self.of.check_change(f"the attribute {name!r:.100}", owner)
        owner.attributes[name] = value
        if id(owner) in self.of.held:
            self.of.hold(value)


def _counted(name: str, args: list[Value], named: dict[str, Value]) -> Value:
    """The result of an op on numbers that a trace holds in tensors."""
    if name in ("to", "type_as") and isinstance(args[0], Count):
        from bireme.convert.torch.script.ops import dtype_argument

        wanted = dtype_argument(args[1:], named)
        return args[0] if wanted is None else counts.converted(args[0], wanted)
    if name in ("item", "ScalarImplicit", "Int") and len(args) == 1 and isinstance(args[0], Count):
        return args[0].value
    return counts.computed(name, args, named)


def _inner(kind: ast.expr) -> Sequence[ast.expr]:
    if not isinstance(kind, ast.Subscript):
        raise TorchFileError(f"the type {ast.unparse(kind):.100} is incomplete")
    return kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]


def is_known(name: str) -> bool:
    """Whether a dotted name of a program has a rule."""
    space, _, op = name.rpartition(".")
    op = _ALIASES.get(op, op)
    if space == "ops.prim":
        return op in PRIMITIVE
    if space in ("torch", "ops.aten"):
        named = op in _IDENTITY or op == "__not__" or op in PRIMITIVE
        return named or op in PLAIN or op in CHANGING or known_op(op)
    return name.startswith("__torch__") or known_op(name.removeprefix("ops."))
