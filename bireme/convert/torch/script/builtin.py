"""What `torch.` and `prim.` functions do with numbers, strings, lists and dictionaries.

Integers have 64 bits in PyTorch: larger ones are refused, and so are endless strings and lists.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

from bireme.convert.sizes import same_size, undecided
from bireme.convert.torch.program import TorchFileError
from bireme.convert.torch.script.values import (
    Address,
    Count,
    Device,
    Record,
    ScriptObject,
    Value,
    leaves,
)
from bireme.core.dims import is_dim_expression

_MAX_ITEMS = 10_000_000
_MAX_TEXT = 1_000_000

Plain = Callable[..., Value]


def is_size(value: object) -> bool:
    """Whether a value is the expression of an open size."""
    return is_dim_expression(value)


def fitting(value: Value) -> Value:
    """An integer, if it has 64 bits."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise TorchFileError("an integer of the program has more than 64 bits")
    return value


def same(a: Value, b: Value) -> bool:
    """Equality. Whether an open size has a certain value is not known before the run."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return same_size(a, b) if is_size(a) or is_size(b) else a == b


def _compared(function: Callable[[Value, Value], bool]) -> Plain:
    def rule(a: Value, b: Value) -> bool:
        if not is_size(a) and not is_size(b):
            return function(a, b)
        try:
            return function(a, b)
        except Exception:
            raise undecided(a, b) from None

    return rule


def _power(a: Value, b: Value) -> Value:
    return float(a) ** b  # of integers, too


def _shifted(a: int, by: int) -> int:
    if not 0 <= by < 64:
        raise TorchFileError(f"a shift by {by} bits")
    return fitting(a << by)


def _divided(a: Value, b: Value, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return a // b
    return math.trunc(a / b) if rounding_mode == "trunc" else a / b


def _joined(a: Value, b: Value, alpha: int = 1) -> Value:
    if isinstance(a, str | list) and len(a) + len(b) > _MAX_ITEMS:
        raise TorchFileError("a string or list of the program is too long")
    return fitting(a + (b if alpha == 1 else b * alpha))


def _repeated(a: Value, b: Value) -> Value:
    for many, count in ((a, b), (b, a)):
        if isinstance(many, str | list) and len(many) * max(count, 0) > _MAX_TEXT:
            raise TorchFileError("a string or list of the program is too long")
    return fitting(a * b)


def text_of(value: Value) -> str:
    """A value as PyTorch prints it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and not isinstance(value, Count):
        inner = ", ".join([repr(v) if isinstance(v, str) else text_of(v) for v in value])
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return str(value)[:_MAX_TEXT]


def _formatted(template: str, *values: Value) -> str:
    pieces = template.split("{}")
    made = pieces[0]
    for i, piece in enumerate(pieces[1:]):
        made += (text_of(values[i]) if i < len(values) else "{}") + piece
        if len(made) > _MAX_TEXT:
            raise TorchFileError("a string of the program is too long")
    return made


def _range_length(first: int, last: int, step: int) -> int:
    if step == 0:
        raise TorchFileError("a range has the step 0")
    length = (last - first + step - 1) // step if step > 0 else (first - last - step - 1) // -step
    return length if is_size(length) else max(length, 0)


def _append(items: list[Value], item: Value) -> list[Value]:
    if len(items) >= _MAX_ITEMS:
        raise TorchFileError("a list of the program is too long")
    items.append(item)
    return items


def _extend(items: list[Value], more: list[Value]) -> list[Value]:
    if len(items) + len(more) > _MAX_ITEMS:
        raise TorchFileError("a list of the program is too long")
    items.extend(more)
    return items


def _set_item(target: Value, key: Value, value: Value) -> Value:
    target[key] = value
    return target


def _delete(target: Value, key: Value) -> None:
    del target[key]


def _taken(items: Value, start: Value = None, end: Value = None, step: int = 1) -> Value:
    return items[slice(start, None if end is not None and end >= 2**62 else end, step)]


def _item(items: Value, at: Value) -> Value:
    return items[at]


def _popped(items: Value, *at: Value) -> Value:
    return items.pop(*at)


def _updated(target: dict[Value, Value], other: Value) -> dict[Value, Value]:
    target.update(other)
    return target


def _listed(value: Value) -> list[Value]:
    return list(value)


def _sorted(items: list[Value], reverse: bool = False) -> None:
    items.sort(reverse=reverse)


def _index(items: Value, item: Value, *bounds: int) -> int:
    return items.index(item, *bounds)


def _least(*values: Value) -> Value:
    return _extreme(values, operator.lt)


def _greatest(*values: Value) -> Value:
    return _extreme(values, operator.gt)


def _extreme(values: Sequence[Value], better: Callable[[Value, Value], bool]) -> Value:
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if len(values) == 2 and all(isinstance(v, list) for v in values):
        return values[0] if better(values[0], values[1]) else values[1]
    found = values[0]
    for value in values[1:]:
        try:
            found = value if better(value, found) else found
        except Exception:
            raise undecided(value, found) from None
    return found


def is_same(a: Value, b: Value) -> bool:
    return a is b or ((a is None) == (b is None) and a is not None and same(a, b))


def _not(value: Value) -> bool:
    return not value


# Of numbers, strings, lists and dictionaries: the first argument is none of PyTorch's tensors.
PLAIN: dict[str, Plain] = {
    "add": _joined,
    "sub": lambda a, b, alpha=1: fitting(a - b * alpha) if alpha != 1 else fitting(a - b),
    "mul": _repeated,
    "div": _divided,
    "floordiv": lambda a, b: a // b,
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": math.fmod,
    "pow": _power,
    "neg": lambda a: fitting(-a),
    "eq": same,
    "ne": lambda a, b: not same(a, b),
    "lt": _compared(operator.lt),
    "le": _compared(operator.le),
    "gt": _compared(operator.gt),
    "ge": _compared(operator.ge),
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__lshift__": _shifted,
    "__rshift__": lambda a, b: a >> min(max(b, 0), 64),
    "__not__": _not,
    "bitwise_not": lambda a: ~a,
    "abs": abs,
    "ceil": lambda a: fitting(math.ceil(a)),
    "floor": lambda a: fitting(math.floor(a)),
    "trunc": math.trunc,
    "round": lambda a: float(round(a)),
    "sqrt": math.sqrt,
    "exp": math.exp,
    "expm1": math.expm1,
    "log": lambda a, *b: math.log(a, *b),
    "log2": math.log2,
    "log10": math.log10,
    "log1p": math.log1p,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "atan2": math.atan2,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "gcd": math.gcd,
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "degrees": math.degrees,
    "radians": math.radians,
    "copysign": math.copysign,
    "min": _least,
    "max": _greatest,
    "sum": lambda items: fitting(sum(items)),
    "any": any,
    "all": all,
    "len": len,
    "format": _formatted,
    "__range_length": _range_length,
    "__derive_index": lambda at, first, step: first + at * step,
    "__contains__": lambda items, item: any(same(item, i) for i in items),
    "__getitem__": _item,
    "list": _listed,
    "dict": dict,
    "copy": lambda items: items.copy(),
    "slice": _taken,
    "index": _index,
    "count": lambda items, item: items.count(item),
    "keys": lambda found: list(found.keys()),
    "values": lambda found: list(found.values()),
    "items": lambda found: list(found.items()),
    "get": lambda found, key, default=None: found.get(key, default),
    "sorted": sorted,
    "ord": ord,
    "chr": chr,
    "hex": hex,
    "bin": bin,
    "join": lambda glue, items: glue.join(items),
    "split": lambda text, glue=None, most=-1: text.split(glue, most),
    "splitlines": lambda text, keep=False: text.splitlines(keep),
    "replace": lambda text, old, new, most=-1: text.replace(old, new, most),
    "find": lambda text, part, *bounds: text.find(part, *bounds),
    "startswith": lambda text, part, *bounds: text.startswith(part, *bounds),
    "endswith": lambda text, part, *bounds: text.endswith(part, *bounds),
    **{
        name: (lambda text, *args, _name=name: getattr(str, _name)(text, *args))
        for name in (
            "lower",
            "upper",
            "strip",
            "lstrip",
            "rstrip",
            "capitalize",
            "title",
            "swapcase",
            "isdigit",
            "isalpha",
            "isalnum",
            "islower",
            "isupper",
            "isspace",
            "isdecimal",
            "isnumeric",
            "rfind",
            "partition",
            "rpartition",
            "casefold",
            "isidentifier",
        )
    },
}

# The same, for those that change their list or dictionary.
CHANGING: dict[str, Plain] = {
    "append": _append,
    "extend": _extend,
    "add_": _extend,
    "insert": lambda items, at, item: items.insert(at, item),
    "pop": _popped,
    "remove": lambda items, item: items.remove(item),
    "clear": lambda items: items.clear(),
    "reverse": lambda items: items.reverse(),
    "sort": _sorted,
    "_set_item": _set_item,
    "Delete": _delete,
    "update": _updated,
    "setdefault": lambda found, key, value: found.setdefault(key, value),
    "popitem": lambda found: found.popitem(),
}


def is_plain(value: object) -> bool:
    """Whether a value is a number, a string, a container or another thing that is no tensor."""
    return (
        value is None
        or (
            isinstance(
                value,
                int
                | float
                | complex
                | str
                | list
                | tuple
                | dict
                | ScriptObject
                | Record
                | Device
                | Address,
            )
            and not isinstance(value, Count)
        )
        or is_size(value)
    )


def holds_open(value: Value) -> bool:
    """Whether an open size is somewhere in a value."""
    return any(is_size(v) for v in leaves(value))
