"""The text of a TorchScript program as functions and classes.

The text is a part of Python, so Python's parser reads it (which runs nothing). How long it is and
how deep it nests is checked before.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from bireme.convert.torch.program import TorchFileError
from bireme.convert.torch.script.values import Function, ScriptClass, Value

MAX_TEXT = 48 << 20  # characters of all files; a traced GPT-2 has a million
_MAX_DEPTH = 80  # brackets inside brackets, and blocks inside blocks
_TOKEN = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[()\[\]{}]|\n +")
_STATEMENTS = (
    ast.Assign,
    ast.AnnAssign,
    ast.Expr,
    ast.If,
    ast.While,
    ast.For,
    ast.Return,
    ast.Pass,
    ast.With,
    ast.Delete,
)
_EXPRESSIONS = (
    ast.Name,
    ast.Attribute,
    ast.Call,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Dict,
    ast.Subscript,
    ast.UnaryOp,
    ast.Starred,
    ast.IfExp,
)
_OTHER = (ast.expr_context, ast.keyword, ast.USub, ast.UAdd, ast.withitem)


class Library:
    """All functions and classes of a program, by their full names."""

    def __init__(self, files: dict[str, str], name: str):
        self.name = name
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, ScriptClass] = {}
        if sum(map(len, files.values())) > MAX_TEXT:
            raise TorchFileError(
                f"[convert] the program in {name!r} has more than {MAX_TEXT} signs"
            )
        for module, text in files.items():
            self._add(module, text)

    def _add(self, module: str, text: str) -> None:
        _check_depth(text, module)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in strings
                tree = ast.parse(text, module)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
            raise TorchFileError(f"[convert] {module} in {self.name!r}: {e!s:.200}") from None
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef):
                made = self._function(module, statement)
                self.functions[made.name] = made
            elif isinstance(statement, ast.ClassDef):
                made = self._class(module, statement)
                self.classes[made.name] = made
            elif not isinstance(statement, ast.Assign):  # op_version_set = 1, of old files
                raise _unusual(statement, module)

    def _function(self, prefix: str, node: ast.FunctionDef) -> Function:
        name, found = f"{prefix}.{node.name}", node.args
        if found.vararg or found.kwarg or found.kwonlyargs or node.decorator_list:
            raise _unusual(node, name)
        for statement in node.body:
            _check(statement, name)
        for default in found.defaults:
            _check(default, name)
        arguments = [*found.posonlyargs, *found.args]
        return Function(
            name,
            tuple([a.arg for a in arguments]),
            tuple(["" if a.annotation is None else ast.unparse(a.annotation) for a in arguments]),
            tuple(found.defaults),
            tuple(node.body),
            "" if node.returns is None else ast.unparse(node.returns),
        )

    def _class(self, prefix: str, node: ast.ClassDef) -> ScriptClass:
        name = f"{prefix}.{node.name}"
        kind = node.bases[0].id if node.bases and isinstance(node.bases[0], ast.Name) else ""
        if kind == "Enum":
            raise TorchFileError(f"[convert] the enumeration {name} in {self.name!r} has no rule")
        made = ScriptClass(name, kind)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                made.methods[statement.name] = self._function(name, statement)
            elif isinstance(statement, ast.AnnAssign):
                self._field(made, statement)
            elif isinstance(statement, ast.Assign):
                _assigned(made, statement)
            elif not isinstance(statement, ast.Pass | ast.Expr):
                raise _unusual(statement, name)
        return made

    def _field(self, made: ScriptClass, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise _unusual(node, made.name)
        made.fields[node.target.id] = ast.unparse(node.annotation)
        if node.value is not None:
            _check(node.value, made.name)
            made.constants[node.target.id] = node.value


def _assigned(made: ScriptClass, node: ast.Assign) -> None:
    """`__parameters__ = ["weight"]`, and types of attributes whose names are no identifiers."""
    target = node.targets[0]
    if isinstance(target, ast.Name) and target.id in ("__parameters__", "__buffers__"):
        if not isinstance(node.value, ast.List):
            raise _unusual(node, made.name)
        names = [e.value for e in node.value.elts if isinstance(e, ast.Constant)]
        setattr(made, target.id.strip("_"), tuple([str(n) for n in names]))
    elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        made.fields[str(target.slice.value)] = ast.unparse(node.value)


def _check(node: ast.AST, where: str) -> None:
    """Refuse what TorchScript does not write, before anything runs."""
    stack = [node]
    while stack:
        found = stack.pop()
        if not isinstance(found, (*_STATEMENTS, *_EXPRESSIONS, *_OTHER)):
            raise _unusual(found, where)
        if isinstance(found, ast.AnnAssign):
            stack += [n for n in (found.target, found.value) if n is not None]
        else:
            stack += list(ast.iter_child_nodes(found))


def _unusual(node: ast.AST, where: str) -> TorchFileError:
    return TorchFileError(
        f"[convert] {where}, line {getattr(node, 'lineno', 0)}: TorchScript has no "
        f"{type(node).__name__}"
    )


def _check_depth(text: str, module: str) -> None:
    depth = 0
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if piece[0] == "\n":
            depth = 0 if len(piece) < 2 * _MAX_DEPTH else _MAX_DEPTH + 1
        elif piece in "([{":
            depth += 1
        elif piece in ")]}":
            depth -= 1
        if depth > _MAX_DEPTH:
            raise TorchFileError(
                f"[convert] {module} nests more than {_MAX_DEPTH} deep, which programs do not"
            )


def calls_of(body: tuple[ast.stmt, ...]) -> Iterator[tuple[str, ast.AST]]:
    """The dotted names in a function, and `.name` for methods of its values."""
    stack: list[Value] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            if name is not None:
                yield name, node
                continue
            yield f".{node.attr}", node
        stack += list(ast.iter_child_nodes(node))


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` as text, where `a` is `torch`, `ops` or `__torch__`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in ("torch", "ops", "__torch__"):
        return None
    return ".".join([node.id, *reversed(parts)])
