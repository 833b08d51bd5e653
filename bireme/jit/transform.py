"""The syntax of a function, rewritten so that `if`, loops and logic call `runtime`.

    if test: A                      def then(): nonlocal y; A
    else: B                         def other(): nonlocal y; B
                          becomes   run_if(test, then, other, get, set, names)

`get` and `set` read and write the variables (and attributes, and containers) that A or B may
change. All new code carries the line of the user's statement that it stands for.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bireme.jit.lowering import FUNCTIONS, PREFIX, contains, fresh, lower_jumps, parse
from bireme.jit.sources import MUTATORS

# Functions that look at their caller's frame: they must be called from it, as they are.
_FRAME = frozenset(("super", "locals", "globals", "vars", "dir", "eval", "exec"))


# An open size on the left of a tensor: its own operator does not accept tensors.
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


class NameScope:
    """The variables of one function."""

    def __init__(
        self,
        function: ast.FunctionDef | ast.Lambda,
        outer: NameScope | None,
        free: frozenset[str],
    ):
        arguments = function.args
        params = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        params += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        self.first = params[0].arg if params else None
        self.outer = outer
        self.free = free
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.params = {p.arg for p in params}
        body = function.body if isinstance(function.body, list) else []
        for node in inside(body):
            if isinstance(node, ast.Global):
                self.globals.update(node.names)
            elif isinstance(node, ast.Nonlocal):
                self.nonlocals.update(node.names)
        self.locals = (self.params | stored(body)) - self.globals - self.nonlocals
        self.loads = loaded(body)

    def declaration(self, names: set[str]) -> str:
        """The statements that let an inner function assign to these variables."""
        inner = {n for n in names if self._is_in_function(n)}
        lines = []
        if inner:
            lines.append(f"nonlocal {', '.join(sorted(inner))}")
        if names - inner:
            lines.append(f"global {', '.join(sorted(names - inner))}")
        return "\n".join(lines)

    def where(self, name: str) -> str:
        """Whether a variable is "inside" the rewritten function, "closed" over or "outer"."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.globals:
                return "outer"
            if name in scope.locals:
                return "inside"
            scope = scope.outer
        return "closed" if name in self.free else "outer"

    def _is_in_function(self, name: str) -> bool:
        if name in self.globals:
            return False
        if name in self.locals:
            return True
        if self.outer is not None:
            return self.outer._is_in_function(name)
        return name in self.free


def loaded(body: list[ast.stmt]) -> Counter[str]:
    """How often each variable is read in these statements, nested functions included."""
    nodes = [n for s in body for n in ast.walk(s)]
    names = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return Counter([n.id for n in names])


def inside(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Every node below these statements that belongs to the same function."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, FUNCTIONS):
            stack += getattr(node, "decorator_list", [])
        else:
            stack += ast.iter_child_nodes(node)


_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def stored(body: list[ast.stmt]) -> set[str]:
    """The variables that these statements may give a value."""
    found: set[str] = set()
    hidden: set[int] = set()  # targets of comprehensions are theirs alone
    for node in inside(body):
        if isinstance(node, _COMPREHENSIONS):
            for part in node.generators:
                hidden.update(id(n) for n in ast.walk(part.target))
    for node in inside(body):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            if id(node) not in hidden:
                found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((a.asname or a.name).split(".")[0] for a in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return found


def changed_elsewhere(body: list[ast.stmt]) -> list[str]:
    """Attributes that are assigned (`self.n`), and containers that are changed (`out` of
    `out.append(x)`, `d` of `d[k] = x`), as source."""
    found: dict[str, None] = {}
    for node in inside(body):
        target: ast.AST | None = None
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            target = node
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target = node.value
            while isinstance(target, ast.Subscript):
                target = target.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in MUTATORS
        ):
            target = node.func.value
        if target is not None and _is_path(target):
            found[ast.unparse(target)] = None
    return list(found)


def _is_path(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_simple(node: ast.AST) -> bool:
    """Whether reading an expression twice is the same as once: names, attributes, elements."""
    if isinstance(node, ast.Attribute):
        return _is_simple(node.value)
    if isinstance(node, ast.Subscript):
        return _is_simple(node.value) and (
            isinstance(node.slice, ast.Constant) or _is_simple(node.slice)
        )
    return isinstance(node, ast.Name)


class Places:
    """The variables, attributes and containers that a branch or loop may change."""

    def __init__(self, scope: NameScope, body: list[ast.stmt], at: ast.stmt):
        own = stored(body)
        paths = changed_elsewhere(body)
        # A container that lives under a variable which the body makes anew is not outer state.
        self.names = sorted(own | {p for p in paths if "." not in p and p not in own})
        self.paths = [p for p in paths if "." in p and p.split(".")[0] not in own]
        inner = loaded([at])
        self.wanted = [scope.loads[n] > inner[n] or n not in own for n in self.names]
        self.declaration = scope.declaration(set(self.names))

    @property
    def shown(self) -> str:
        return repr([*self.names, *self.paths])

    @property
    def used_after(self) -> str:
        return repr([*self.wanted, *[True] * len(self.paths)])

    def accessors(self, get: str, put: str) -> str:
        """Source of the functions that read and write all places."""
        everything = [*self.names, *self.paths]
        reads = ", ".join(f"{PREFIX}.get(lambda: {p})" for p in everything)
        lines = [f"def {get}():", f"    return [{reads}]", f"def {put}({PREFIX}v):"]
        lines += ["    " + line for line in self.declaration.splitlines()]
        for i, n in enumerate(self.names):
            lines += [f"    {n} = {PREFIX}v[{i}]", f"    if {n} is {PREFIX}.UNDEFINED: del {n}"]
        for i, p in enumerate(self.paths, len(self.names)):
            lines.append(f"    if {PREFIX}v[{i}] is not {PREFIX}.UNDEFINED: {p} = {PREFIX}v[{i}]")
        lines.append("    return None")
        if self.paths:
            split = [p.rpartition(".") for p in self.paths]
            pairs = ", ".join(f"({PREFIX}.get(lambda: {a}), {b!r})" for a, _, b in split)
            lines.append(f"{get}.holders = lambda: [{pairs}]")
        return "\n".join(lines)


class Rewriter(ast.NodeTransformer):
    """Rewrites one function and those inside it."""

    def __init__(self, free: frozenset[str]):
        self.free = free
        self.scope: NameScope | None = None
        self.bound: list[set[str]] = []  # by the comprehensions around
        self.tests: set[int] = set()  # `and` and `or` of which only the truth matters
        self.tried = False  # inside a `try` that catches something

    # --- functions ------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        if contains(node.body, (ast.Yield, ast.YieldFrom, ast.Await)):
            return node
        lower_jumps(node)
        tried, self.tried = self.tried, False
        outer, self.scope = self.scope, NameScope(node, self.scope, self.free)
        names = sorted(self.scope.locals - self.scope.params)
        # Variables that only branches and loops assign are assigned in inner functions from now on.
        # This statement, which never runs, makes them variables of this function.
        bind = parse(f"if 0: {' = '.join(names)} = None", node.body[0]) if names else []
        node.body = [*bind, *self.block(node.body)]
        self.scope, self.tried = outer, tried
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        outer, self.scope = self.scope, NameScope(node, self.scope, self.free)
        node.body = self.visit(node.body)
        self.scope = outer
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for s in body:
            new = self.visit(s)
            made += new if isinstance(new, list) else [new]
        return made

    # --- statements -----------------------------------------------------------------------

    def _function(
        self, title: str, body: list[ast.stmt], places: Places, at: ast.AST, argument: str = ""
    ) -> ast.stmt:
        source = f"def {title}({argument}):\n    pass"
        (made,) = parse(source, at)
        start = parse(places.declaration, at) if places.declaration else []
        made.body = [*start, *body] or made.body  # pyright: ignore[reportAttributeAccessIssue]
        return made

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt | ast.AST]:
        assert self.scope is not None  # noqa: S101 (statements are inside a function)
        places = Places(self.scope, [*node.body, *node.orelse], node)
        test = self._test(node.test)
        then, other, get, put = fresh("then"), fresh("else"), fresh("get"), fresh("set")
        made = [self._function(then, self.block(node.body), places, node)]
        made.append(self._function(other, self.block(node.orelse), places, node))
        made += parse(places.accessors(get, put), node)
        (call,) = parse(f"{PREFIX}.run_if(0, {then}, {other}, {get}, {put}, {places.shown})", node)
        call.value.args[0] = test  # pyright: ignore[reportAttributeAccessIssue]
        return [*self._told(places, node), *made, call]

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt | ast.AST]:
        assert self.scope is not None  # noqa: S101
        places = Places(self.scope, node.body, node)
        test, body, get, put = fresh("test"), fresh("body"), fresh("get"), fresh("set")
        (tested,) = parse(f"def {test}():\n    return 0", node.test)
        tested.body[0].value = self._test(node.test)  # pyright: ignore[reportAttributeAccessIssue]
        made = [tested, self._function(body, self.block(node.body), places, node)]
        made += parse(places.accessors(get, put), node)
        made += parse(
            f"{PREFIX}.run_while({test}, {body}, {get}, {put}, {places.shown}, "
            f"{places.used_after})",
            node,
        )
        return [*self._told(places, node), *made]

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt | ast.AST]:
        assert self.scope is not None  # noqa: S101
        item = fresh("item")
        (bind,) = parse(f"_ = {item}", node.target)
        bind.targets = [node.target]  # pyright: ignore[reportAttributeAccessIssue]
        places = Places(self.scope, [bind, *node.body], node)
        source = self.visit(node.iter)
        body, get, put = fresh("body"), fresh("get"), fresh("set")
        inner = self.block([bind, *node.body])
        made = [self._function(body, inner, places, node, item)]
        made += parse(places.accessors(get, put), node)
        stop = getattr(node, "stop", None)
        going = "None" if stop is None else f"lambda: {PREFIX}.not_({stop})"
        (call,) = parse(
            f"{PREFIX}.run_for(0, {body}, {going}, {get}, {put}, {places.shown}, "
            f"{places.used_after})",
            node,
        )
        call.value.args[0] = source  # pyright: ignore[reportAttributeAccessIssue]
        return [*self._told(places, node), *made, call]

    def visit_Assert(self, node: ast.Assert) -> ast.AST | list[ast.stmt | ast.AST]:
        (call,) = parse(f"{PREFIX}.check(0, lambda: None, {self.tried})", node)
        call.value.args[0] = self._test(node.test)  # pyright: ignore[reportAttributeAccessIssue]
        if node.msg is not None:
            call.value.args[1].body = self.visit(node.msg)  # pyright: ignore[reportAttributeAccessIssue]
        return call

    def visit_Try(self, node: ast.Try) -> ast.AST | list[ast.stmt | ast.AST]:
        tried, self.tried = self.tried, self.tried or bool(node.handlers)
        node.body = self.block(node.body)
        self.tried = tried
        for handler in node.handlers:
            handler.body = [*parse(f"{PREFIX}.caught()", handler), *self.block(handler.body)]
        node.orelse, node.finalbody = self.block(node.orelse), self.block(node.finalbody)
        return node

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt | ast.AST]:
        node.items = [self.visit(i) for i in node.items]
        (body,) = parse(f"try: pass\nexcept Exception: {PREFIX}.caught(); raise", node)
        body.body = self.block(node.body)  # pyright: ignore[reportAttributeAccessIssue]
        node.body = [body]
        return node

    def _test(self, node: ast.expr) -> Any:
        """An expression of which only the truth matters, rewritten."""
        self._mark(node)
        return self.visit(node)

    def _mark(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp):
            self.tests.add(id(node))
            for value in node.values:
                self._mark(value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._mark(node.operand)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt | ast.AST]:
        told = self._announced(list(node.targets), node)
        return [*told, self.generic_visit(node)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | list[ast.stmt | ast.AST]:
        told = self._announced([node.target], node) if node.value is not None else []
        return [*told, self.generic_visit(node)]

    def visit_Delete(self, node: ast.Delete) -> ast.AST | list[ast.stmt | ast.AST]:
        return [*self._announced(list(node.targets), node), self.generic_visit(node)]

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.stmt | ast.AST]:
        told: list[ast.stmt] = []
        if _is_simple(node.target):
            # The target is read, and a list is changed in place.
            source = ast.unparse(node.target)
            told += self.block(parse(source, node))
            told.append(self._tell("will_change", source, None, node))
        told += self._announced([node.target], node)
        return [*told, self.generic_visit(node)]

    def _announced(self, targets: list[ast.expr], at: ast.stmt) -> list[ast.stmt]:
        """Statements that tell of outer variables, attributes and elements about to change."""
        assert self.scope is not None  # noqa: S101
        told: list[ast.stmt] = []
        for node in [n for t in targets for n in ast.walk(t)]:
            if isinstance(getattr(node, "ctx", None), ast.Load):
                continue
            if isinstance(node, ast.Attribute) and _is_simple(node.value):
                told.append(self._tell("will_set", ast.unparse(node.value), node.attr, at))
            elif isinstance(node, ast.Subscript) and _is_simple(node.value):
                told.append(self._tell("will_change", ast.unparse(node.value), None, at))
            elif isinstance(node, ast.Name) and not node.id.startswith(PREFIX):
                where = self.scope.where(node.id)
                if where != "inside":
                    told += parse(f"{PREFIX}.will_set_{where}({node.id!r})", at)
        return told

    def _tell(self, what: str, source: str, name: str | None, at: ast.AST) -> ast.stmt:
        """The statement that says what is about to happen to the object that `source` gives."""
        (made,) = parse(f"{PREFIX}.{what}(lambda: {source})", at)
        call: Any = made.value  # pyright: ignore[reportAttributeAccessIssue]
        call.args[0].body = self._read(call.args[0].body, False)
        if name is not None:
            call.args.append(ast.copy_location(ast.Constant(name), at))
        return made

    def _told(self, places: Places, at: ast.stmt) -> list[ast.stmt]:
        """The same for all that a branch or loop may change."""
        assert self.scope is not None  # noqa: S101
        split = [p.rpartition(".") for p in places.paths]
        told = [self._tell("will_set", a, b, at) for a, _, b in split]
        lines = [f"{PREFIX}.may_change(lambda: {a}, {b!r})" for a, _, b in split]
        for name in places.names:
            if self.scope.where(name) != "inside":
                told += parse(f"{PREFIX}.will_set_{self.scope.where(name)}({name!r})", at)
                lines.append(f"{PREFIX}.may_change(lambda: {name})")
        return told + parse("\n".join(lines), at)

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        # Patterns are no expressions: they stay as they are.
        node.guard = None if node.guard is None else self.visit(node.guard)
        node.body = self.block(node.body)
        return node

    # --- expressions ----------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._read(node, True)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._read(node, True)

    def _read(self, node: ast.expr, deep: bool) -> ast.expr:
        """A variable or attribute; with `deep`, what a container holds is read too."""
        flag: ast.expr = ast.copy_location(ast.Constant(deep), node)
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id.startswith(PREFIX):
                return node
            node.value = self._read(node.value, False)
            if not isinstance(node.ctx, ast.Load):
                return node
            name = ast.copy_location(ast.Constant(node.attr), node)
            return self._call("attr", [node.value, name, flag], node)
        if not isinstance(node, ast.Name):
            return self.visit(node)
        if not isinstance(node.ctx, ast.Load) or not self._is_read(node.id):
            return node
        assert self.scope is not None  # noqa: S101
        name = ast.copy_location(ast.Constant(node.id), node)
        if self.scope.where(node.id) == "closed":
            return self._call("closed", [name, node, flag], node)
        return self._call("outer", [name, flag], node)

    def _is_read(self, name: str) -> bool:
        """Whether a variable is one from outside."""
        if self.scope is None or name.startswith(PREFIX) or name in ("__class__", *_FRAME):
            return False
        return self.scope.where(name) != "inside" and not any(name in b for b in self.bound)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        sliced = contains(node.slice, ast.Slice)
        node.value = self._read(node.value, sliced and isinstance(node.ctx, ast.Load))
        node.slice = self.visit(node.slice)
        if sliced or not isinstance(node.ctx, ast.Load):
            return node
        return self._call("item", [node.value, node.slice], node)

    def _comprehension(self, node: Any) -> ast.AST:
        targets = [n for g in node.generators for n in ast.walk(g.target)]
        self.bound.append({n.id for n in targets if isinstance(n, ast.Name)})
        self.generic_visit(node)
        self.bound.pop()
        return node

    visit_ListComp = visit_SetComp = _comprehension  # noqa: N815
    visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def _later(self, expression: ast.expr) -> ast.Lambda:
        nothing = ast.arguments([], [], None, [], [], None, [])
        return ast.copy_location(ast.Lambda(nothing, self.visit(expression)), expression)

    def _call(self, function: str, arguments: list[ast.expr], at: ast.AST) -> ast.expr:
        (made,) = parse(f"{PREFIX}.{function}()", at)
        made.value.args = arguments  # pyright: ignore[reportAttributeAccessIssue]
        return made.value  # pyright: ignore[reportAttributeAccessIssue]

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, _ARITHMETIC):
            return node
        kind = ast.copy_location(ast.Constant(type(node.op).__name__), node)
        return self._call("arithmetic", [kind, node.left, node.right], node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if contains(node, (ast.NamedExpr, ast.Await, ast.Yield)):
            return self.generic_visit(node)
        kind = "and" if isinstance(node.op, ast.And) else "or"
        only_truth = id(node) in self.tests
        operands: list[ast.expr] = [self._later(v) for v in node.values]
        if only_truth:
            return self._call(kind + "_", operands, node)
        return self._call("either", [ast.copy_location(ast.Constant(kind), node), *operands], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if not isinstance(node.op, ast.Not):
            return self.generic_visit(node)
        return self._call("not_", [self._test(node.operand)], node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        if contains(node, (ast.NamedExpr, ast.Await, ast.Yield)):
            return self.generic_visit(node)
        sides = [self._later(node.body), self._later(node.orelse)]
        return self._call("choose", [self._test(node.test), *sides], node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) == 1 or contains(node, (ast.NamedExpr, ast.Await, ast.Yield)):
            return self.generic_visit(node)
        kinds: list[ast.expr] = [
            ast.copy_location(ast.Constant(type(o).__name__), node) for o in node.ops
        ]
        rest: list[ast.expr] = [self._later(c) for c in node.comparators]
        pairs: list[ast.expr] = [
            ast.copy_location(ast.Tuple([k, r], ast.Load()), node)
            for k, r in zip(kinds, rest, strict=True)
        ]
        return self._call("compare", [self.visit(node.left), *pairs], node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        if isinstance(function, ast.Name) and function.id in _FRAME:
            first = self.scope and self._method_scope().first
            if function.id == "super" and not node.args and first:
                node.args = [ast.Name("__class__", ast.Load()), ast.Name(first, ast.Load())]
                for a in node.args:
                    ast.copy_location(a, node)
                return node
            return self.generic_visit(node)
        if isinstance(function, ast.Attribute) and function.attr in MUTATORS:
            owner = self._read(function.value, False)
            method: ast.expr = ast.copy_location(ast.Constant(function.attr), function)
            node.func = self._call("mutator", [owner, method], function)
        else:
            node.func = self.visit(function)
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        node.func = self._call("call", [node.func], node.func)
        return node

    def _method_scope(self) -> NameScope:
        scope = self.scope
        assert scope is not None  # noqa: S101
        while scope.outer is not None:
            scope = scope.outer
        return scope


def mangle(tree: ast.AST, owner: str | None) -> None:
    """Spell private names (`self.__x`) as the class that they were written in does."""
    if owner is None:
        return
    prefix = "_" + owner.lstrip("_")
    for node in ast.walk(tree):
        for field in ("attr", "id"):
            spelled = getattr(node, field, None)
            if isinstance(spelled, str) and spelled.startswith("__") and not spelled.endswith("__"):
                setattr(node, field, prefix + spelled)
