"""Symbolic dimensions: making them, and putting numbers in their place.

A captured graph may say `batch` where a size is not known yet. All symbols live in one scope,
so that two graphs that say `batch` share their types. Expressions are written and read as text
(`4*batch + 3`, `floordiv(seq, 2)`), which is also how a saved graph holds them.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from bireme.core.aval import Aval, aval
from bireme.core.dims import is_dim_expression
from bireme.core.errors import InvalidArgument
from bireme.host import jax_door

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MULTIPLE = re.compile(r"([1-9][0-9]{0,8})\*([A-Za-z_][A-Za-z0-9_]*)\Z")
_MAX_EXPRESSION = 500  # characters; real ones are far shorter
_MAX_EXPONENT = 16
_MAX_TERMS = 200  # of an expression that is multiplied out
_MAX_SIZE = 1 << 62
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": lambda a, b: (a + b + abs(a - b)) // 2 if _are_arrays(a, b) else max(a, b),
    "min": lambda a, b: (a + b - abs(a - b)) // 2 if _are_arrays(a, b) else min(a, b),
}
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b if 0 <= b <= _MAX_EXPONENT else _refuse("an exponent above 16"),
}


def _are_arrays(*sizes: Any) -> bool:
    """Whether one of them is an array: the size that a program for many sizes is given."""
    return any(hasattr(size, "dtype") for size in sizes)


def _refuse(what: str) -> int:
    raise InvalidArgument(f"a dimension expression must not hold {what}")


@functools.cache
def _scope() -> Any:
    return jax_door.jax().export.SymbolicScope()


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Any:
    """The dimension that `text` stands for: a symbol or an expression of symbols."""
    _check(syntax_tree(text))
    try:
        (dim,) = jax_door.jax().export.symbolic_shape(text, scope=_scope())
    except (ValueError, TypeError) as e:  # JAX knows fewer ways to write a number than Python
        raise InvalidArgument(f"{text!r} is not a dimension expression: {e}") from None
    return dim


def _check(node: ast.expr) -> tuple[int, int | None]:
    """(how many terms it has when it is multiplied out, its value if there are no symbols in it).

    JAX multiplies out, and computes powers of any size: what would take long is refused before.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return 1, _fitting(node.value)
    if isinstance(node, ast.Name):
        if not _NAME.match(node.id):
            _refuse(f"the name {node.id!r}")
        return 1, None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        terms, value = _check(node.operand)
        return terms, None if value is None else -value
    if _is_function(node):
        for argument in node.args:
            _check(argument)
        return 1, None
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        (left, a), (right, b) = _check(node.left), _check(node.right)
        if isinstance(node.op, ast.Pow):
            if b is None or not 0 <= b <= _MAX_EXPONENT:
                _refuse(f"an exponent that is no number up to {_MAX_EXPONENT}")
            terms = left ** (b or 0)
        elif isinstance(node.op, ast.Mult):
            terms = left * right
        else:
            terms = left + right if isinstance(node.op, ast.Add | ast.Sub) else 1
        if terms > _MAX_TERMS:
            _refuse(f"more than {_MAX_TERMS} terms")
        if a is None or b is None:
            return terms, None
        return terms, _fitting(_OPERATORS[type(node.op)](a, b))
    return _refuse(f"{ast.unparse(node)!r:.100}"), None


def _is_function(node: ast.expr) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _FUNCTIONS
        and len(node.args) == 2
        and not node.keywords
    )


def _fitting(size: int) -> int:
    if not isinstance(size, int):  # the open size of a graph around this one
        return size
    return size if -_MAX_SIZE < size < _MAX_SIZE else _refuse("a number above 2^62")


def symbol(name: str) -> Any:
    """The symbolic dimension of this name."""
    if not _NAME.match(name) or name in _FUNCTIONS:
        raise InvalidArgument(
            f"a dimension's name must be an identifier, such as 'batch'. Received: {name!r}"
        )
    return parse(name)


@functools.lru_cache(maxsize=256)
def bounded(name: str, low: int, high: int) -> Any:
    """The symbolic dimension of this name, which is known to lie between two sizes. It has a scope
    of its own: no other graph may use the name."""
    export = jax_door.jax().export
    scope = export.SymbolicScope([f"{name} >= {low}", f"{name} <= {high}"])
    (dim,) = export.symbolic_shape(name, scope=scope)
    return dim


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """The size of a dimension expression once its symbols are known."""
    return _evaluate(syntax_tree(text), sizes)


@functools.lru_cache(maxsize=4096)
def syntax_tree(text: str) -> ast.expr:
    if len(text) > _MAX_EXPRESSION:
        raise InvalidArgument(f"a dimension expression of {len(text)} characters is too long")
    try:
        return ast.parse(text.replace("^", "**").strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise InvalidArgument(f"{text!r} is not a dimension expression") from None


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in sizes:
            raise InvalidArgument(f"the size of dimension {node.id!r} is not known")
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, sizes)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluate(node.left, sizes), _evaluate(node.right, sizes)
        return _fitting(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        function = _FUNCTIONS.get(node.func.id)
        if function is not None and not node.keywords:
            return _fitting(function(*[_evaluate(a, sizes) for a in node.args]))
    return _refuse(f"{ast.unparse(node)!r}")


def unknown(dim: object) -> tuple[str, int]:
    """(symbol, factor) of an input's open dimension, such as `batch` or `32*height`."""
    text = str(dim)
    found = _MULTIPLE.match(text)
    return (found[2], int(found[1])) if found else (text, 1)


def solve(
    declared: list[Aval], given: list[Aval], names: list[str] | None = None
) -> dict[str, int]:
    """Sizes of the symbols in `declared` from the types that were `given`, or a clear error."""
    sizes: dict[str, int] = {}
    for i, (want, have) in enumerate(zip(declared, given, strict=True)):
        name = names[i] if names else f"input {i}"
        if want.dtype is not have.dtype or want.ndim != have.ndim:
            raise InvalidArgument(f"{name} must be {want}. Received: {have}")
        for axis, (w, h) in enumerate(zip(want.shape, have.shape, strict=True)):
            if type(w) is int:
                if w != h:
                    raise InvalidArgument(
                        f"dimension {axis} of {name} must be {w}, as in {want}. Received: {have}"
                    )
                continue
            symbol_name, factor = unknown(w)
            if h % factor:
                raise InvalidArgument(
                    f"dimension {axis} of {name} must be a multiple of {factor}, as in {want}. "
                    f"Received: {have}"
                )
            if sizes.setdefault(symbol_name, h // factor) != h // factor:
                raise InvalidArgument(
                    f"dimension {axis} of {name} is {h}, but another input has {w} = "
                    f"{sizes[symbol_name] * factor}. Give the dimensions different names in "
                    "InputSpec if they may differ"
                )
    return sizes


def substitute_type(t: Aval, sizes: Mapping[str, int]) -> Aval:
    """The type with every symbol replaced by its size."""
    if t.is_static:
        return t
    shape = tuple([d if type(d) is int else evaluate(str(d), sizes) for d in t.shape])
    return aval(shape, t.dtype)


def substitute(value: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with every symbol replaced by its size."""
    if type(value) is tuple:
        return tuple([substitute(v, sizes) for v in value])
    if isinstance(value, slice):
        return slice(*[substitute(v, sizes) for v in (value.start, value.stop, value.step)])
    if hasattr(value, "with_sizes"):  # a graph inside the graph
        return value.with_sizes(sizes)
    return evaluate(str(value), sizes) if is_dim_expression(value) else value
