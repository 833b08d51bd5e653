"""No public function takes an argument that it never looks at, unless a page says why.

`docs/differences.md` has the list, under "Hints that change nothing here": rows of the form
"| `name(argument, other)`, `Class.method(argument)` | reason |", names as they are defined.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pathlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import bireme

PAGE = pathlib.Path(bireme.__file__).parents[1] / "docs" / "differences.md"
HEADING = "## Hints that change nothing here"
# Parts that no program for Paddle imports from: the engine and the tools.
INNER = ("api", "backends", "capture", "cli", "compat_later", "convert", "core", "demo", "host")
INNER += ("kernels", "passes")
# Methods that do nothing and are there to be overridden.
HOOKS = re.compile(r"Callback\.on_\w+|Layer\.(forward|backward)|Metric\.update")
# Methods whose arguments each class chooses, though a base class has one of the name.
OWN_ARGUMENTS = ("forward", "minimize")
# Arguments of a protocol that this side of it has no use for.
PROTOCOL = {
    "BaseQuanter.forward": {"input"},  # abstract
    "BeamSearchDecoder.finalize": {"sequence_lengths"},
    "BeamSearchDecoder.step": {"time"},
    "Placement.is_shard": {"dim"},
}


@functools.cache
def functions_in(file: str) -> dict[int, tuple[str, ast.FunctionDef]]:
    """The functions of a file by the line on which they (or their decorators) begin."""
    found: dict[int, tuple[str, ast.FunctionDef]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef):
                first = child.decorator_list[0].lineno if child.decorator_list else child.lineno
                found[first] = prefix + child.name, child
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(pathlib.Path(file).read_text()), "")
    return found


def unread(node: ast.FunctionDef) -> list[str]:
    """The parameters that the body never reads."""
    body = [s for s in node.body if not _is_text(s)]
    if len(body) == 1 and isinstance(body[0], ast.Raise):
        return []  # for a subclass to say
    loads = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Name)]
    if any(n.id == "locals" for n in loads):
        return []
    read = {n.id for n in loads if isinstance(n.ctx, ast.Load)}
    args = node.args
    given = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    names = [a.arg for a in given if a is not None]
    own = ("self", "cls", "name", "xp", "ctx")
    return [n for n in names if n not in read and n not in own and not n.startswith("_")]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def public_modules() -> Iterator[Any]:
    yield bireme
    for info in pkgutil.walk_packages(bireme.__path__, "bireme."):
        parts = info.name.split(".")[1:]
        if parts[0] in INNER or any(p.startswith("_") for p in parts):
            continue
        module = importlib.import_module(info.name)
        if getattr(module, "__all__", None):
            yield module


def public_functions() -> Iterator[tuple[Any, type | None]]:
    """(function, class) of everything that a program can call by a public name."""
    for module in public_modules():
        for name in module.__all__:
            thing = getattr(module, name, None)
            if isinstance(thing, type) and thing.__module__.startswith("bireme"):
                for cls in thing.__mro__[:-1]:
                    for attribute, value in vars(cls).items():
                        inner = getattr(value, "__func__", value)
                        public = attribute == "__init__" or not attribute.startswith("_")
                        if public and inspect.isfunction(inner):
                            yield inner, cls
            elif callable(thing):
                yield thing, None


def lowering_of(function: Any) -> Any:
    """What a generated function of an op runs, or the function itself."""
    op = getattr(function, "op", None)
    return getattr(op, "body", None) or inspect.unwrap(function)


def overrides(cls: type | None, name: str) -> bool:
    """Whether a base class has the method too, which then fixes what it is given."""
    if name in OWN_ARGUMENTS:
        return False
    return cls is not None and any(name in vars(base) for base in cls.__mro__[1:-1])


def found() -> dict[str, set[str]]:
    result: dict[str, set[str]] = {}
    for function, cls in public_functions():
        inner = lowering_of(function)
        code = getattr(inner, "__code__", None)
        if code is None or not code.co_filename.startswith(str(PAGE.parents[1] / "bireme")):
            continue
        named = functions_in(code.co_filename).get(code.co_firstlineno)
        if named is None or HOOKS.fullmatch(named[0]):
            continue
        title, node = named
        if node.name != "__init__" and overrides(cls, node.name):
            continue
        missing = set(unread(node)) - PROTOCOL.get(title, set())
        if missing:
            result.setdefault(title.removesuffix(".__init__"), set()).update(missing)
    return result


def listed() -> dict[str, set[str]]:
    text = PAGE.read_text()
    assert HEADING in text
    part = text.split(HEADING, 1)[1].split("\n## ", 1)[0]
    result: dict[str, set[str]] = {}
    for name, arguments in re.findall(r"`([\w.]+)\(([\w, ]+)\)`", part):
        result.setdefault(name, set()).update(a.strip() for a in arguments.split(","))
    return result


def test_no_argument_is_ignored_in_silence() -> None:
    ours, page = found(), listed()
    silent = {n: sorted(a - page.get(n, set())) for n, a in ours.items() if a - page.get(n, set())}
    assert not silent, f"read these arguments, refuse them, or list them: {silent}"
    gone = {n: sorted(a - ours.get(n, set())) for n, a in page.items() if a - ours.get(n, set())}
    assert not gone, f"these have an effect by now, or another name: {gone}"


def test_the_check_sees_what_it_looks_for() -> None:
    tree = ast.parse(
        "def f(a, b, c=1, *args, _d=2, name=None, **options):\n"
        "    'text'\n"
        "    b = 3\n"
        "    return lambda: a\n"
    )
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    assert unread(function) == ["b", "c", "args", "options"]
