"""Python functions without jumps: `return`, `break` and `continue` become flags.

Statements after one that may have jumped are put under `if not flag:`. With plain Python values the
flags are plain booleans and cost a test; with tensors they are tensors, and the test becomes a
graph branch like any other `if`.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
LOOPS = (ast.For, ast.While)
PREFIX = "_br_"

_count = itertools.count(1)


def fresh(kind: str) -> str:
    """A name that no user's variable has."""
    return f"{PREFIX}{kind}_{next(_count)}"


def parse(source: str, at: ast.AST) -> list[ast.stmt]:
    """Statements that count as written where `at` is."""
    made = ast.parse(source).body
    for node in made:
        for inner in ast.walk(node):
            ast.copy_location(inner, at)
            if hasattr(inner, "lineno"):  # the first line only: CPython reports a call's last one
                inner.end_lineno, inner.end_col_offset = inner.lineno, inner.col_offset  # type: ignore[attr-defined]
    return made


def name(identifier: str, at: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(identifier, ast.Load()), at)


def negated(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def both(first: ast.expr, second: ast.expr) -> ast.expr:
    return ast.copy_location(ast.BoolOp(ast.And(), [first, second]), second)


def contains(
    nodes: list[ast.stmt] | ast.AST, wanted: type | tuple[type, ...], not_in: tuple[type, ...] = ()
) -> bool:
    """Whether one of `wanted` is among the nodes, outside nested functions and `not_in`."""
    for node in nodes if isinstance(nodes, list) else [nodes]:
        if isinstance(node, wanted):
            return True
        if isinstance(node, (*FUNCTIONS, *not_in)):
            continue
        for child in ast.iter_child_nodes(node):
            if isinstance(child, wanted):
                return True
            if not isinstance(child, (*FUNCTIONS, *not_in)) and contains(child, wanted, not_in):
                return True
    return False


def lower_jumps(function: ast.FunctionDef) -> None:
    """Rewrite the body: at most one `return` is left, at the end, and no break or continue."""
    body = function.body
    if contains(body[:-1], ast.Return) or (
        not isinstance(body[-1], ast.Return) and contains(body[-1], ast.Return)
    ):
        function.body = _Returns(function).run()
    function.body = _loops(function.body)


def _always_returns(body: list[ast.stmt]) -> bool:
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return _always_returns(last.body) and _always_returns(last.orelse)
    return isinstance(last, ast.Return | ast.Raise)


def _move_rest(body: list[ast.stmt]) -> list[ast.stmt]:
    """Put the statements after `if c: return …` into its else, so that both sides end in a return:
    then no value has to be invented for the side that did not return."""
    for i, s in enumerate(body):
        if not isinstance(s, ast.If):
            continue
        rest = body[i + 1 :]
        if contains(s, ast.Return) and rest:
            if _always_returns(s.body):
                s.orelse = s.orelse + rest
                body = body[: i + 1]
            elif _always_returns(s.orelse):
                s.body = s.body + rest
                body = body[: i + 1]
        s.body, s.orelse = _move_rest(s.body), _move_rest(s.orelse)
        if len(body) == i + 1:
            break
    return body


class _Returns:
    """`return v` becomes `value = v; done = True`."""

    def __init__(self, function: ast.FunctionDef):
        self.function = function
        self.done, self.value = fresh("done"), fresh("value")

    def run(self) -> list[ast.stmt]:
        body = self.function.body
        last = body[-1]
        if not _always_returns(body):
            body = [*body, ast.copy_location(ast.Return(None), last)]
        body = self.lower(_move_rest(body), False)
        start = parse(f"{self.done} = False\n{self.value} = {PREFIX}.UNDEFINED", body[0])
        return [*start, *body, *parse(f"return {self.value}", last)]

    def lower(self, body: list[ast.stmt], in_loop: bool) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for i, s in enumerate(body):
            if isinstance(s, ast.Return):
                value = s.value or ast.copy_location(ast.Constant(None), s)
                target = ast.copy_location(ast.Name(self.value, ast.Store()), s)
                made.append(ast.copy_location(ast.Assign([target], value), s))
                made += parse(f"{self.done} = True", s)
                if in_loop:
                    made.append(ast.copy_location(ast.Break(), s))
                return made
            made.append(s)
            if not isinstance(s, FUNCTIONS) and contains(s, ast.Return):
                _each_block(s, lambda b, s=s: self.lower(b, in_loop or isinstance(s, LOOPS)))
                if isinstance(s, LOOPS) and in_loop:
                    made += parse(f"if {self.done}: break", s)
                rest = self.lower(body[i + 1 :], in_loop)
                if rest:
                    (guard,) = parse(f"if not {self.done}: pass", rest[0])
                    guard.body = rest  # type: ignore[attr-defined]
                    made.append(guard)
                return made
        return made


def _each_block(statement: ast.stmt, function: Callable[[list[ast.stmt]], list[ast.stmt]]) -> None:
    """Replace every list of statements that belongs to a statement."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(statement, field, None)
        if block:
            setattr(statement, field, function(block))
    for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        handler.body = function(handler.body)


def _loops(body: list[ast.stmt]) -> list[ast.stmt]:
    """Lower break and continue in every loop among these statements, innermost first."""
    made: list[ast.stmt] = []
    for s in body:
        if isinstance(s, FUNCTIONS):
            made.append(s)
            continue
        _each_block(s, _loops)
        if isinstance(s, LOOPS):
            made += _loop(s)
        else:
            made.append(s)
    return made


def _test_inside(loop: ast.While) -> None:
    """`while (y := f()): A` becomes `while True: if not (y := f()): break` and A, so that y is a
    variable of the body."""
    jumps = (ast.Break, ast.Continue)
    if not contains(loop.test, ast.NamedExpr) or contains(loop.orelse, jumps, LOOPS):
        return
    (leave,) = parse("if 0: break", loop.test)
    leave.test = negated(loop.test)  # type: ignore[attr-defined]
    leave.body = [*loop.orelse, *leave.body]  # type: ignore[attr-defined]
    loop.test = ast.copy_location(ast.Constant(True), loop.test)
    loop.body, loop.orelse = [leave, *loop.body], []


def _loop(loop: ast.For | ast.While) -> list[ast.stmt]:
    if isinstance(loop, ast.While):
        _test_inside(loop)
    before: list[ast.stmt] = []
    after: list[ast.stmt] = []
    orelse, loop.orelse = loop.orelse, []
    breaks = contains(loop.body, ast.Break, LOOPS)
    stop, skip = fresh("break"), fresh("continue")
    flags = [stop] if breaks else []
    if contains(loop.body, ast.Continue, LOOPS):
        flags.append(skip)
    loop.stop = stop if breaks else None  # type: ignore[union-attr]
    if flags:
        loop.body = _jumps(loop.body, stop, skip, flags)
        if skip in flags:
            loop.body = [*parse(f"{skip} = False", loop.body[0]), *loop.body]
    if breaks:
        before = parse(f"{stop} = False", loop)
        if isinstance(loop, ast.While):
            loop.test = both(negated(name(stop, loop.test)), loop.test)
    if orelse and breaks:
        (guard,) = parse(f"if not {stop}: pass", orelse[0])
        guard.body = orelse  # type: ignore[attr-defined]
        after = [guard]
    elif orelse:
        after = orelse
    return [*before, loop, *after]


def _jumps(body: list[ast.stmt], stop: str, skip: str, flags: list[str]) -> list[ast.stmt]:
    made: list[ast.stmt] = []
    jumps = (ast.Break, ast.Continue)
    for i, s in enumerate(body):
        if isinstance(s, jumps):
            made += parse(f"{stop if isinstance(s, ast.Break) else skip} = True", s)
            return made
        made.append(s)
        if not isinstance(s, (*FUNCTIONS, *LOOPS)) and contains(s, jumps, LOOPS):
            _each_block(s, lambda b: _jumps(b, stop, skip, flags))
            rest = _jumps(body[i + 1 :], stop, skip, flags)
            if rest:
                (guard,) = parse(f"if not ({' or '.join(flags)}): pass", rest[0])
                guard.body = rest  # type: ignore[attr-defined]
                made.append(guard)
            return made
    return made
