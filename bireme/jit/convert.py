"""From functions to rewritten functions, and which functions are rewritten at all."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import logging
import os
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from bireme.core.errors import is_internal
from bireme.jit import impure, sources
from bireme.jit.lowering import PREFIX
from bireme.jit.transform import Rewriter, mangle

logger = logging.getLogger("bireme.jit")

# Packages that compute nothing with tensors of ours, or are no business of a graph.
_IGNORED = {
    "numpy", "jax", "jaxlib", "scipy", "logging", "pytest", "_pytest", "hypothesis", "tqdm", "PIL",
}  # fmt: skip
_STDLIB = tuple(
    os.path.realpath(sysconfig.get_paths()[key]) + os.sep for key in ("stdlib", "platstdlib")
)
_SITE = tuple(
    os.path.realpath(sysconfig.get_paths()[key]) + os.sep for key in ("purelib", "platlib")
)

_rewritten: dict[types.CodeType, types.CodeType | None] = {}


class _Settings:
    code_level = -1


def ignore_module(modules: Any) -> None:
    """Leave all functions of these modules as they are when functions are captured."""
    for module in modules if isinstance(modules, list | tuple | set) else [modules]:
        _IGNORED.add(module if isinstance(module, str) else module.__name__)
    _is_ignored.cache_clear()


@functools.lru_cache(maxsize=4096)
def _is_ignored(module: str) -> bool:
    parts = module.split(".")
    return any(".".join(parts[: i + 1]) in _IGNORED for i in range(len(parts)))


def is_users(function: types.FunctionType) -> bool:
    """Whether a function is the user's: neither ours, nor Python's, nor to be left alone."""
    if getattr(function, "_not_to_static", False) or _is_ignored(function.__module__ or ""):
        return False
    return _is_users_file(function.__code__.co_filename)


def is_users_module(module: types.ModuleType | None) -> bool:
    """The same for a module, whose variables may be the user's settings."""
    filename = getattr(module, "__file__", None)
    name = getattr(module, "__name__", "")
    return bool(filename) and not _is_ignored(name) and _is_users_file(str(filename))


@functools.lru_cache(maxsize=4096)
def _is_users_file(filename: str) -> bool:
    if is_internal(filename):
        return False
    path = os.path.realpath(filename)
    return path.startswith(_SITE) or not path.startswith(_STDLIB)


def convert(function: types.FunctionType) -> types.FunctionType:
    """The function with its control flow rewritten; the function itself where there is nothing
    to rewrite or no source."""
    if not is_users(function):
        return function
    code = function.__code__
    if code not in _rewritten:
        _rewritten[code] = _rewrite(function)
    new = _rewritten[code]
    if new is None:
        return function
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    cells[PREFIX] = types.CellType(sys.modules["bireme.jit.runtime"].Names(function, cells))
    closure = tuple([cells[n] for n in new.co_freevars])
    made = types.FunctionType(
        new, function.__globals__, function.__name__, function.__defaults__, closure
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


def _rewrite(function: types.FunctionType) -> types.CodeType | None:
    code = function.__code__
    skipped = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if code.co_flags & skipped or code.co_name.startswith(PREFIX):
        return None
    tree = _syntax(code)
    if tree is None:
        logger.info("%s has no source and is left as it is", function.__qualname__)
        return None
    tree = copy.deepcopy(tree)
    mangle(tree, _owner(function))
    rewriter = Rewriter(frozenset(code.co_freevars))
    if isinstance(tree, ast.FunctionDef):
        tree.decorator_list = []
        made: ast.stmt = rewriter.visit(tree)
        # Under its own name it would hide a global that it calls: itself, if it is recursive.
        tree.name = PREFIX + "function"
    else:
        assign = ast.Assign([ast.Name(PREFIX + "lambda", ast.Store())], rewriter.visit(tree))
        made = ast.copy_location(assign, tree)
    # Only compiled, never run: it gives the function's free variables somewhere to be free from.
    outside = ast.parse("def factory():\n    pass").body[0]
    free = sorted({*code.co_freevars, PREFIX, "__class__"})
    bind = ast.parse(" = ".join(free) + " = None").body
    outside.body = [*bind, made]  # type: ignore[attr-defined]
    module = ast.fix_missing_locations(ast.Module([outside], []))
    if _Settings.code_level >= 0:
        logger.log(logging.WARNING, "%s:\n%s", function.__qualname__, ast.unparse(made))
    logger.info("rewrote the control flow of %s", function.__qualname__)
    compiled = compile(module, code.co_filename, "exec", dont_inherit=True, flags=_future(code))
    (factory,) = [c for c in compiled.co_consts if isinstance(c, types.CodeType)]
    inner = [c for c in factory.co_consts if isinstance(c, types.CodeType)][-1]
    return inner.replace(co_name=code.co_name, co_qualname=code.co_qualname)


def _future(code: types.CodeType) -> int:
    import __future__

    every = [getattr(__future__, n).compiler_flag for n in __future__.all_feature_names]
    return functools.reduce(lambda a, b: a | b, [f for f in every if code.co_flags & f], 0)


def _owner(function: types.FunctionType) -> str | None:
    """The class that a method was written in."""
    parts = function.__qualname__.split(".")
    return parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else None


def _syntax(code: types.CodeType) -> ast.FunctionDef | ast.Lambda | None:
    """The syntax that a code object was compiled from, with the lines of its file."""
    try:
        lines, start = inspect.getsourcelines(code)
    except (OSError, TypeError, IndentationError):
        return None
    text = textwrap.dedent("".join(lines))
    if code.co_name == "<lambda>":
        return _lambda(code, text, start)
    try:
        tree = ast.parse(text).body[0]
    except SyntaxError:
        return None
    if not isinstance(tree, ast.FunctionDef) or tree.name != code.co_name:
        return None
    ast.increment_lineno(tree, start - 1)
    return tree


def _lambda(code: types.CodeType, text: str, start: int) -> ast.Lambda | None:
    """The one lambda in these lines with this code; None if that cannot be told."""
    tree: ast.Module | None = None
    # The lines may be a part of a statement: f(lambda x: …, or a chained call.
    for source in (text, f"({text.strip().rstrip(',')})", f"f({text.strip()}", f"({text.strip()}"):
        try:
            tree = ast.parse(source)
            break
        except SyntaxError:
            continue
    if tree is None:
        return None
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda)]
    names = code.co_varnames[: code.co_argcount]
    found = [n for n in found if tuple(a.arg for a in (*n.args.posonlyargs, *n.args.args)) == names]
    if len(found) > 1:
        found = [n for n in found if _same_code(n, code)]
    if len(found) != 1:
        return None
    ast.increment_lineno(found[0], start - 1)
    return found[0]


def _same_code(node: ast.Lambda, code: types.CodeType) -> bool:
    free = "".join(f"    {n} = 0\n" for n in code.co_freevars)
    wrapped = f"def f():\n{free}    return {ast.unparse(node)}"
    (outer,) = [c for c in compile(wrapped, "", "exec").co_consts if isinstance(c, types.CodeType)]
    inner = [c for c in outer.co_consts if isinstance(c, types.CodeType)]
    return bool(inner) and (inner[0].co_code, inner[0].co_names) == (code.co_code, code.co_names)


def call(function: Any) -> Any:
    """What to call in place of `function` in a rewritten function."""
    kind = function.__class__
    if kind is types.FunctionType:
        new = convert(function)
        return impure.replaced(function) if new is function else new
    if kind is types.MethodType:
        inner = function.__func__
        if inner.__class__ is not types.FunctionType:
            return impure.replaced(function)
        new = convert(inner)
        if new is inner:
            return impure.replaced(function)
        return types.MethodType(new, function.__self__)
    if kind is type:
        return sources.BUILTINS.get(function) or impure.replaced(function)
    if kind is types.BuiltinFunctionType or kind is types.MethodDescriptorType:
        own = sources.BUILTINS.get(function)
        return own or sources.watched(impure.replaced(function))
    if kind is functools.partial:
        return functools.partial(call(function.func), *function.args, **function.keywords)
    if hasattr(function, "sublayers") and hasattr(function, "forward"):
        return _layer_call(function)
    plain: Any = next((c.__dict__["__call__"] for c in kind.__mro__ if "__call__" in c.__dict__), 0)
    if plain.__class__ is types.FunctionType and is_users(plain):
        return types.MethodType(convert(plain), function)
    return impure.replaced(function)


def _layer_call(layer: Any) -> Callable[..., Any]:
    forward = _users_forward(layer)
    if forward is None:
        return layer

    def run(*args: Any, **kwargs: Any) -> Any:
        with converted_layers([layer]):
            return layer(*args, **kwargs)

    return run


def _users_forward(layer: Any) -> types.FunctionType | None:
    """The layer's own forward, if it is still to be rewritten."""
    forward: Any = getattr(type(layer), "forward", None)
    if "forward" in layer.__dict__ or forward.__class__ is not types.FunctionType:
        return None
    return forward if is_users(forward) else None


@contextmanager
def converted_layers(layers: Iterable[Any]) -> Iterator[None]:
    """Let layers run their rewritten forward, also where the library calls them."""
    changed = []
    try:
        for layer in layers:
            forward = _users_forward(layer)
            if forward is not None:
                layer.__dict__["forward"] = types.MethodType(convert(forward), layer)
                changed.append(layer)
        yield
    finally:
        for layer in changed:
            layer.__dict__.pop("forward", None)


def set_code_level(level: int = 100, also_to_stdout: bool = False) -> None:
    """Log every function as it looks after its control flow was rewritten (level >= 0)."""
    _Settings.code_level = level
    if also_to_stdout:
        _to_stdout()


def set_verbosity(level: int = 0, also_to_stdout: bool = False) -> None:
    """Log which functions are rewritten (level >= 1), through the logger `bireme.jit`."""
    logger.setLevel(logging.INFO if level >= 1 else logging.WARNING)
    if also_to_stdout:
        _to_stdout()


def _to_stdout() -> None:
    if not any(getattr(h, "stream", None) is sys.stdout for h in logger.handlers):
        logger.addHandler(logging.StreamHandler(sys.stdout))
