"""Runs a TorchScript program: eagerly, or into a capture.

Statements and expressions are those that `source` has checked. A condition or a trip count that is
known decides at once; one that only a run can tell becomes a branch or a loop of the graph.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from bireme.capture.recorder import is_capturing
from bireme.convert.torch.program import TorchFileError
from bireme.convert.torch.script.calls import Calls
from bireme.convert.torch.script.counts import as_tensor
from bireme.convert.torch.script.source import Library, dotted
from bireme.convert.torch.script.values import (
    UNSET,
    Address,
    Bound,
    Count,
    Function,
    Record,
    ScriptObject,
    Uninitialized,
    Value,
)
from bireme.core.errors import BiremeError, CaptureError
from bireme.core.tensor import Tensor
from bireme.core.trace import state
from bireme.ops.control_loops import while_loop
from bireme.ops.control_record import UNDEFINED, branch, is_symbolic

MAX_STEPS = 20_000_000  # statements of one call
_MAX_CALLS = 150  # functions inside functions
_NAMES: dict[str, Value] = {"inf": float("inf"), "nan": float("nan"), "None": None}
_WRONG = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)

Scope = dict[str, Value]


class Raised(BiremeError):
    """What the program itself raises."""


class Interpreter:
    """Runs the functions of one program. `constants` are the tensors that its text refers to."""

    def __init__(self, library: Library, constants: Sequence[Value]):
        self.library, self.constants = library, constants
        self.calls = Calls(self)
        self.held: dict[int, Value] = {}
        self._steps = 0
        self._depth = 0
        self._undecided = 0  # branches and loops of the graph that are being recorded

    def run(self, function: Function, args: Sequence[Value], named: dict[str, Value]) -> Value:
        """The result of a function, from outside."""
        self._steps = 0
        return self.call(function, args, named)

    def call(self, function: Function, args: Sequence[Value], named: dict[str, Value]) -> Value:
        if self._depth >= _MAX_CALLS:
            raise TorchFileError(f"[convert] calls are nested more than {_MAX_CALLS} deep")
        scope = self._arguments(function, args, named)
        self._depth += 1
        try:
            done = self.block(function.body, scope, function.name)
        finally:
            self._depth -= 1
        return done[0] if done else None

    def method(
        self, target: Value, name: str, args: Sequence[Value], named: dict[str, Value]
    ) -> Value:
        """The result of a method of an object."""
        kind = self.library.classes.get(target.kind) if isinstance(target, ScriptObject) else None
        found = None if kind is None else kind.methods.get(name)
        if found is None:
            raise TorchFileError(f"[convert] {_kind_of(target)} has no method {name!r:.100}")
        return self.call(found, [target, *args], named)

    def _arguments(
        self, function: Function, args: Sequence[Value], named: dict[str, Value]
    ) -> Scope:
        names = function.parameters
        scope = dict(zip(names, args, strict=False))
        if len(args) > len(names) or set(named) - set(names) or set(named) & set(scope):
            raise TorchFileError(
                f"[convert] {function.name} takes {', '.join(names)}. Received: {len(args)} "
                f"arguments" + (f" and {sorted(named)}" if named else "")
            )
        scope.update(named)
        first = len(names) - len(function.defaults)
        for name, default in zip(names[first:], function.defaults, strict=True):
            if name not in scope:
                scope[name] = self.value(default, {})
        missing = [n for n in names if n not in scope]
        if missing:
            raise TorchFileError(f"[convert] {function.name} lacks {', '.join(missing)}")
        return scope

    # --- statements -------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], scope: Scope, where: str) -> tuple[Value] | None:
        """Runs statements; (the result,) if they return."""
        for node in body:
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise TorchFileError(f"[convert] a call took more than {MAX_STEPS} steps")
            try:
                done = self._statement(node, scope, where)
            except BiremeError as e:
                _locate(e, where, node)
                raise
            except _WRONG as e:
                made = TorchFileError(f"{type(e).__name__}: {e!s:.300}")
                _locate(made, where, node)
                raise made from e
            if done is not None:
                return done
        return None

    def _statement(self, node: ast.stmt, scope: Scope, where: str) -> tuple[Value] | None:
        if isinstance(node, ast.Assign):
            value = self.value(node.value, scope)
            for target in node.targets:
                self._assign(target, value, scope)
        elif isinstance(node, ast.Expr):
            self.value(node.value, scope)
        elif isinstance(node, ast.Return):
            return (None if node.value is None else self.value(node.value, scope),)
        elif isinstance(node, ast.If):
            return self._if(node, scope, where)
        elif isinstance(node, ast.For):
            return self._for(node, scope, where)
        elif isinstance(node, ast.While):
            return self._while(node, scope, where)
        elif isinstance(node, ast.With):
            return self._with(node, scope, where)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign(node.target, self.value(node.value, scope), scope)
        elif isinstance(node, ast.Delete):
            self._delete(node, scope)
        return None

    def _assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = list(value)
            if len(items) != len(target.elts):
                raise TorchFileError(f"{len(items)} values for {len(target.elts)} names")
            for part, item in zip(target.elts, items, strict=True):
                self._assign(part, item, scope)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, scope)
            if not isinstance(owner, ScriptObject):
                raise TorchFileError(f"{_kind_of(owner)} has no attributes")
            self.calls.set_attribute(owner, target.attr, value)
        elif isinstance(target, ast.Subscript):
            items = self.value(target.value, scope)
            self.check_change("a container", items)
            items[self.value(target.slice, scope)] = value
        else:
            raise TorchFileError(f"nothing can be assigned to a {type(target).__name__}")

    def _delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                items = self.value(target.value, scope)
                self.check_change("a container", items)
                del items[self.value(target.slice, scope)]
            elif isinstance(target, ast.Name):
                scope.pop(target.id, None)

    def hold(self, value: Value) -> None:
        """Note the objects and containers that outlive a call, in the model's attributes."""
        if isinstance(value, ScriptObject | list | dict) and id(value) not in self.held:
            self.held[id(value)] = value
            inner = value.attributes if isinstance(value, ScriptObject) else value
            for item in inner.values() if isinstance(inner, dict) else inner:
                self.hold(item)
        elif isinstance(value, tuple):
            for item in value:
                self.hold(item)

    def check_change(self, what: str, target: Value = None) -> None:
        """Raise where a change would happen in both branches of a graph, or while a graph is
        captured and not when it runs."""
        if self._undecided or (id(target) in self.held and is_capturing()):
            raise CaptureError(
                f"{what} changes, which no graph holds; call the model directly, one call at a time"
            )

    def _if(self, node: ast.If, scope: Scope, where: str) -> tuple[Value] | None:
        test = self.truth(self.value(node.test, scope))
        if not isinstance(test, Tensor):
            return self.block(node.body if test else node.orelse, scope, where)
        sides = (node.body, node.orelse)
        known = set(scope)
        first, second = (_stored(side) for side in sides)
        names = sorted(n for n in first | second if n in known or n in (first & second))

        def taken(side: Sequence[ast.stmt]) -> Callable[[], list[Value]]:
            def run() -> list[Value]:
                inner = dict(scope)
                if self.block(side, inner, where) is not None:
                    raise CaptureError("a branch that only a run can decide returns")
                return [_outward(inner.get(n, UNDEFINED)) for n in names]

            return run

        self._undecided += 1
        try:
            made = branch(test, taken(sides[0]), taken(sides[1]), names)
        finally:
            self._undecided -= 1
        scope.update(zip(names, [_inward(m) for m in made], strict=True))
        return None

    def _while(self, node: ast.While, scope: Scope, where: str) -> tuple[Value] | None:
        while True:
            test = self.truth(self.value(node.test, scope))
            if isinstance(test, Tensor):
                self._open_loop(node, scope, where)
                return None
            if not test:
                return None
            self._steps += 1
            done = self.block(node.body, scope, where)
            if done is not None:
                return done

    def _open_loop(self, node: ast.While, scope: Scope, where: str) -> None:
        names = sorted(_stored(node.body) & set(scope))

        def holds(values: list[Value]) -> Value:
            test = self.truth(self.value(node.test, {**scope, **_named(names, values)}))
            return test if isinstance(test, Tensor) else bool(test)

        def step(values: list[Value]) -> list[Value]:
            inner = {**scope, **_named(names, values)}
            if self.block(node.body, inner, where) is not None:
                raise CaptureError("a loop that only a run can end returns")
            return [_outward(inner[n]) for n in names]

        self._undecided += 1
        try:
            made = while_loop(holds, step, names, [_outward(scope[n]) for n in names])
        finally:
            self._undecided -= 1
        scope.update(_named(names, made))

    def _for(self, node: ast.For, scope: Scope, where: str) -> tuple[Value] | None:
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise TorchFileError("a loop goes over something that is no range")
        count = self.whole(self.value(call.args[0], scope), "the trips of a loop")
        if not isinstance(count, int):
            raise CaptureError(
                f"a loop takes {count} turns, an open size. Fix it in the input specs, or call "
                "the model directly"
            )
        at = 0
        while at < count:
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise TorchFileError(f"[convert] a call took more than {MAX_STEPS} steps")
            self._assign(node.target, at, scope)
            done = self.block(node.body, scope, where)
            if done is not None:
                return done
            at += 1
        return None

    def _with(self, node: ast.With, scope: Scope, where: str) -> tuple[Value] | None:
        managers = []
        tape = state.trace.tape
        try:
            for item in node.items:
                manager = self.value(item.context_expr, scope)
                entered = self.method(manager, "__enter__", [], {})
                managers.append(manager)
                if item.optional_vars is not None:
                    self._assign(item.optional_vars, entered, scope)
            done = self.block(node.body, scope, where)
            for manager in reversed(managers):
                self.method(manager, "__exit__", [None, None, None], {})
            return done
        except BaseException:
            state.trace.tape = tape
            raise

    # --- expressions ------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope) -> Value:
        if isinstance(node, ast.Name):
            return self._named(node.id, scope)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Call):
            return self.calls.call(node, scope)
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            if name is not None:
                return Address(name)
            if isinstance(node.value, ast.Name) and node.value.id == "CONSTANTS":
                return self._constant(node.attr)
            return self.attribute(self.value(node.value, scope), node.attr)
        if isinstance(node, ast.List):
            return [self.value(e, scope) for e in node.elts]
        if isinstance(node, ast.Tuple):
            return tuple([self.value(e, scope) for e in node.elts])
        if isinstance(node, ast.Dict):
            return {
                self.value(k, scope): self.value(v, scope)
                for k, v in zip(node.keys, node.values, strict=True)
                if k is not None
            }
        if isinstance(node, ast.Subscript):
            items, at = self.value(node.value, scope), self.value(node.slice, scope)
            return items[self.whole(at, "an index") if isinstance(items, list | tuple) else at]
        if isinstance(node, ast.UnaryOp):
            operand = self.value(node.operand, scope)
            return -operand if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.IfExp):
            test = self.truth(self.value(node.test, scope))
            if isinstance(test, Tensor):
                raise CaptureError("an expression that only a run can decide")
            return self.value(node.body if test else node.orelse, scope)
        raise TorchFileError(f"there is no rule for a {type(node).__name__}")

    def _named(self, name: str, scope: Scope) -> Value:
        if name in scope:
            return scope[name]
        if name in _NAMES:
            return _NAMES[name]
        if name in self.calls.functions:
            return Address(name)
        raise TorchFileError(f"the name {name!r:.100} has no value")

    def _constant(self, name: str) -> Value:
        at = int(name[1:]) if name[:1] == "c" and name[1:].isdigit() else -1
        if not 0 <= at < len(self.constants):
            raise TorchFileError(f"there is no constant {name!r:.40}")
        return self.constants[at]

    def attribute(self, owner: Value, name: str) -> Value:
        if isinstance(owner, ScriptObject):
            if name in owner.attributes:
                return owner.attributes[name]
            kind = self.library.classes.get(owner.kind)
            if kind is not None and name in kind.methods:
                return Bound(owner, name)
            if kind is not None and name in kind.constants:
                return self.value(kind.constants[name], {})
        if isinstance(owner, Record) and name in owner._fields:
            return owner[owner._fields.index(name)]
        raise TorchFileError(f"{_kind_of(owner)} has no attribute {name!r:.100}")

    # --- numbers out of tensors -------------------------------------------------------------

    def truth(self, value: Value) -> Value:
        """A condition as a bool, or as a tensor if only a run can tell."""
        if isinstance(value, Count):
            value = value.value
        if isinstance(value, Tensor):
            if is_symbolic(value) and not state.trace.fold(value._value):
                return value.reshape([]).astype("bool")
            return bool(value)
        return self.calls.is_true(value)

    def whole(self, value: Value, what: str) -> Value:
        """An integer, or the expression of an open size, out of what may be a tensor."""
        if isinstance(value, Count):
            return value.value
        if isinstance(value, Tensor):
            if is_symbolic(value) and not state.trace.fold(value._value):
                raise CaptureError(f"{what} depends on the values of tensors")
            return int(value)
        return value


def _named(names: Sequence[str], values: Sequence[Value]) -> Scope:
    return {n: _inward(v) for n, v in zip(names, values, strict=True)}


def _outward(value: Value) -> Value:
    if isinstance(value, Count):
        return as_tensor(value)
    if isinstance(value, Record):
        return tuple(value)
    return UNDEFINED if isinstance(value, Uninitialized) else value


def _inward(value: Value) -> Value:
    return UNSET if value is UNDEFINED else value


def _stored(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements assign."""
    return {
        n.id
        for statement in body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _kind_of(value: Value) -> str:
    return value.kind if isinstance(value, ScriptObject) else f"a {type(value).__name__}"


def _locate(error: BiremeError, where: str, node: ast.stmt) -> None:
    """Say once in which line of the program something went wrong."""
    if not getattr(error, "located", False):
        text = ast.unparse(node).partition("\n")[0] if not isinstance(error, Raised) else ""
        place = f"{where.removeprefix('__torch__.')}, line {node.lineno}"
        error.args = (f"[convert] {place}: {error}" + (f" (in {text:.160})" if text else ""),)
        error.located = True  # type: ignore[attr-defined]
