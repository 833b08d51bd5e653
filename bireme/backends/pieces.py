"""A lowering as a graph of elementwise functions and sums, without its arrays.

An op's body is written in array functions. Here it runs on `Piece`s, which have a shape and a type
and no contents, and note the functions that they go through; `fused.py` makes one pass over memory
of them. A body that does anything else (it reads contents, it gathers, it calls NumPy or JAX
itself) raises `NotFused`, and runs as it is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.host.arrays import Array

FLOAT, WORD, MASK, LONG, DOUBLE = "float32", "uint32", "bool", "int64", "float64"
Shape = tuple[int, ...]
Axes = int | tuple[int, ...] | None


class NotFused(Exception):
    """A body that is no composition of elementwise functions and sums."""


class Piece:
    """What a function returned: an array that is never there as a whole."""

    __slots__ = ("args", "kind", "op", "shape", "value")
    __array_ufunc__ = None  # NumPy's operators leave the work to ours

    def __init__(
        self, op: str, args: tuple[Piece, ...], shape: Shape, kind: str, value: Any = None
    ):
        self.op, self.args, self.shape, self.kind, self.value = op, args, shape, kind, value

    __hash__ = object.__hash__

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.kind)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotFused("a piece is no NumPy array")

    def __bool__(self) -> bool:
        raise NotFused("contents were read")

    __float__ = __int__ = __index__ = __iter__ = __len__ = __bool__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise NotFused(name)

    def astype(self, dtype: np.dtype[Any] | type[Any] | str, copy: bool = True) -> Piece:
        return _cast(self, np.dtype(dtype).name)

    def reshape(self, *shape: Any) -> Piece:
        return _reshape(self, shape[0] if len(shape) == 1 else shape)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Piece:
        return _sum(self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Piece:
        return _mean(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Piece:
        return _reduced("row_maximum", self, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Piece:
        return _reduced("row_minimum", self, axis, keepdims)


def constant(value: Array | float, kind: str, shape: Shape = ()) -> Piece:
    """An array of equal numbers."""
    return Piece("constant", (), shape, kind, np.dtype(kind).type(value))


def _kind_of(value: Any) -> str | None:
    """The type of a number that has one."""
    dtype = getattr(value, "dtype", None)
    return None if dtype is None else dtype.name


def _piece(value: Any, beside: str | None) -> Piece:
    """An operand as a piece; Python's numbers take the type of what is beside them."""
    if value.__class__ is Piece:
        return value
    kind = _kind_of(value)
    if kind is not None:
        if kind not in (FLOAT, WORD, MASK) or np.size(value) != 1:
            raise NotFused("an array among the constants")
        return constant(np.reshape(value, ()), kind, np.shape(value))
    if isinstance(value, bool):
        if beside not in (MASK, FLOAT):
            raise NotFused("a bool beside numbers")
        return constant(value, beside)
    if isinstance(value, int) and beside in (FLOAT, WORD):
        if beside == WORD and not 0 <= value < 2**32:
            raise NotFused("a number beyond its type")
        return constant(value, beside)
    if isinstance(value, float) and beside == FLOAT:
        return constant(value, FLOAT)
    raise NotFused("an operand of another kind")


def _pieces(*values: Any) -> tuple[list[Piece], str]:
    """Operands as pieces of one type."""
    kinds = {k for v in values if (k := v.kind if v.__class__ is Piece else _kind_of(v))}
    weak = FLOAT if any(isinstance(v, float) and _kind_of(v) is None for v in values) else None
    if kinds == {MASK} and weak is None and any(type(v) is int for v in values):
        raise NotFused("whole numbers")
    if kinds == {MASK, FLOAT} or (kinds == {MASK} and weak):
        kinds = {FLOAT}
    if len(kinds) != 1:
        raise NotFused("operands of several types")
    kind = kinds.pop()
    return [_cast(_piece(v, kind), kind) for v in values], kind


def _cast(x: Piece, kind: str) -> Piece:
    if x.kind == kind:
        return x
    if x.op == "constant" and kind in (FLOAT, WORD, MASK):
        return constant(x.value, kind, x.shape)
    name = _CASTS.get((x.kind, kind))
    if name is None:
        raise NotFused(f"from {x.kind} to {kind}")
    return Piece(name, (x,), x.shape, kind)


_CASTS = {
    (MASK, FLOAT): "mask_to_float",
    (WORD, FLOAT): "word_to_float",
    (LONG, WORD): "low_word",
    (LONG, FLOAT): "long_to_float",
    (DOUBLE, FLOAT): "double_to_float",
}


def _broadcast(*pieces: Piece) -> Shape:
    first = pieces[0].shape
    if all(p.shape == first for p in pieces):
        return first
    return np.broadcast_shapes(*[p.shape for p in pieces])


# --- functions ----------------------------------------------------------------------------------


def _unary(name: str) -> Callable[[Any], Piece]:
    def call(x: Any) -> Piece:
        (x,), kind = _pieces(x)
        if kind != FLOAT:
            raise NotFused(f"{name} of {kind}")
        return Piece(name, (x,), x.shape, FLOAT)

    return call


def _binary(name: str, of_words: str | None = None, of_masks: str | None = None) -> Any:
    names = {FLOAT: name, WORD: of_words, MASK: of_masks}

    def call(x: Any, y: Any) -> Piece:
        (x, y), kind = _pieces(x, y)
        known = names.get(kind)
        if not known:
            raise NotFused(f"{name} of {kind}")
        return Piece(known, (x, y), _broadcast(x, y), kind)

    return call


def _comparison(name: str, of_words: Callable[[Piece, Piece], Piece] | None = None) -> Any:
    def call(x: Any, y: Any) -> Piece:
        (x, y), kind = _pieces(x, y)
        if kind == WORD and of_words is not None:
            return of_words(x, y)
        if kind != FLOAT:
            raise NotFused(f"{name} of {kind}")
        return Piece(name, (x, y), _broadcast(x, y), MASK)

    return call


def _words(name: str, x: Piece, y: Piece) -> Piece:
    return Piece(name, (x, y), _broadcast(x, y), MASK)


def _not(x: Any) -> Piece:
    if x.__class__ is not Piece or x.kind != MASK:
        raise NotFused("not of numbers")
    return Piece("not", (x,), x.shape, MASK)


_add = _binary("add", "add_words")
_subtract = _binary("subtract")
_divide = _binary("divide")
_maximum, _minimum = _binary("maximum"), _binary("minimum")
_or, _and = _binary("", "or", "or"), _binary("", "and", "and")
_xor = _binary("", "xor", "xor")
_negative = _unary("negative")


_shift = _binary("", "shift_right")
_multiply_numbers = _binary("multiply", "multiply_words")


def _multiply(x: Any, y: Any) -> Piece:
    for a, b in ((x, y), (y, x)):
        if a.__class__ is Piece and a.kind == DOUBLE and isinstance(b, int | float):
            factor = constant(b, DOUBLE)
            return Piece("multiply_doubles", (a, factor), a.shape, DOUBLE)
    return _multiply_numbers(x, y)


def _square(x: Any) -> Piece:
    return _multiply(x, x)


def _power(x: Any, y: Any) -> Piece:
    if y.__class__ is Piece or not isinstance(y, int | float):
        return _binary("power")(x, y)
    if y == 2:
        return _square(x)
    return _unary("square_root")(x) if y == 0.5 else _binary("power")(x, y)


def _where(mask: Any, x: Any, y: Any) -> Piece:
    (x, y), kind = _pieces(x, y)
    if mask.__class__ is not Piece or mask.kind != MASK:
        raise NotFused("a condition of numbers")
    return Piece("select", (mask, x, y), _broadcast(mask, x, y), kind)


def _clip(x: Any, low: Any = None, high: Any = None) -> Piece:
    x = x if low is None else _maximum(x, low)
    return x if high is None else _minimum(x, high)


def _sigmoid(x: Any) -> Piece:
    return _divide(1.0, _add(1.0, _unary("exp")(_negative(x))))


# --- forms --------------------------------------------------------------------------------------


def _reshape(x: Piece, shape: Any) -> Piece:
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple([int(d) for d in shape])
    if -1 in shape:
        rest = math.prod([d for d in shape if d != -1])
        if shape.count(-1) > 1 or rest == 0 or x.size % rest:
            raise NotFused("a shape that does not fit")
        shape = tuple([x.size // rest if d == -1 else d for d in shape])
    if math.prod(shape) != x.size:
        raise NotFused("a shape that does not fit")
    if shape == x.shape:
        return x
    return Piece("reshape", (x,), shape, x.kind)


def _expand_dims(x: Piece, axis: Any) -> Piece:
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    ndim = x.ndim + len(given)
    new, own = {a % ndim for a in given}, iter(x.shape)
    return _reshape(x, tuple([1 if i in new else next(own) for i in range(ndim)]))


def _squeeze(x: Piece, axis: Any = None) -> Piece:
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    gone = {a % x.ndim for a in axes if x.shape[a] == 1}
    return _reshape(x, tuple([d for i, d in enumerate(x.shape) if i not in gone]))


def _broadcast_to(x: Any, shape: Any) -> Piece:
    if x.__class__ is not Piece:
        x = _piece(x, FLOAT)
    shape = tuple(shape)
    return (
        x
        if x.shape == shape
        else Piece("spread", (x,), np.broadcast_shapes(x.shape, shape), x.kind)
    )


def _reduced(name: str, x: Any, axis: Any, keepdims: bool) -> Piece:
    if x.__class__ is not Piece or x.kind != FLOAT or x.size == 0:
        raise NotFused("a sum of other numbers")
    if axis is None:
        raise NotFused("a sum of everything")
    given = axis if isinstance(axis, tuple | list) else (axis,)
    axes = {a % x.ndim for a in given}
    kept = tuple([1 if i in axes else d for i, d in enumerate(x.shape)])
    shape = kept if keepdims else tuple([d for i, d in enumerate(x.shape) if i not in axes])
    # Axes of one element are anywhere.
    summed = [i in axes for i, d in enumerate(x.shape) if d != 1]
    if not any(summed):
        return _reshape(x, shape)
    if all(summed):
        raise NotFused("a sum of everything")
    if summed == sorted(summed):
        return Piece(name, (x,), shape, FLOAT, math.prod([x.shape[i] for i in axes]))
    if summed == sorted(summed, reverse=True) and name == "row_sum":
        return Piece("column_sum", (x,), shape, FLOAT, math.prod(kept))
    raise NotFused("a sum over axes in the middle")


def _sum(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Piece:
    if dtype is not None and np.dtype(dtype).name != FLOAT:
        raise NotFused("a sum in another type")
    return _reduced("row_sum", x, axis, keepdims)


def _mean(x: Any, axis: Any = None, keepdims: bool = False) -> Piece:
    total = _reduced("row_sum", x, axis, keepdims)
    return _divide(total, float(x.size // max(total.size, 1)))


def _filled(value: Any) -> Callable[..., Piece]:
    def call(shape: Any, dtype: Any = np.float64) -> Piece:
        kind = np.dtype(dtype).name
        if kind not in (FLOAT, WORD, MASK):
            raise NotFused("other numbers")
        return constant(value, kind, (shape,) if isinstance(shape, int) else tuple(shape))

    return call


def _filled_like(value: Any) -> Callable[..., Piece]:
    return lambda x, dtype=None: _filled(value)(x.shape, x.dtype if dtype is None else dtype)


def _full_like(x: Any, value: Any, dtype: Any = None) -> Piece:
    if value.__class__ is Piece:
        raise NotFused("a fill that is computed")
    return _filled(value)(x.shape, x.dtype if dtype is None else dtype)


def _arange(stop: Any, *more: Any, dtype: Any = None) -> Piece:
    if more or dtype is None or np.dtype(dtype).name != WORD or not 1 < stop <= 2**32:
        raise NotFused("a range")
    return Piece("position", (), (stop,), WORD)


def _asarray(x: Any, dtype: Any = None) -> Piece:
    kind = None if dtype is None else np.dtype(dtype).name
    if x.__class__ is not Piece:
        x = _piece(x, kind)
    return x if kind is None else _cast(x, kind)


def _single_long(x: Any) -> Piece:
    if x.__class__ is not Piece or x.kind != LONG:
        raise NotFused("a key that is no number")
    return x


class _Namespace:
    """`numpy` for pieces."""

    computes_at_once = True  # see core/lowering.py

    @staticmethod
    def random_bits(seed: Any, offset: Any, shape: Shape, word: int) -> Piece:
        """What `bits` in ops/random_bits.py makes, in four instructions."""
        size = math.prod(shape)
        if not 1 < size <= 2**32:
            raise NotFused("one draw, or very many")
        names = [_single_long(seed), _single_long(offset)]
        key = [
            Piece("key_word", (*names, constant(which + 4 * word, WORD)), (), WORD)
            for which in range(3)
        ]
        return _reshape(Piece("draws", tuple(key), (size,), WORD), shape)

    def __init__(self) -> None:
        functions: dict[str, Any] = {
            "abs": _unary("absolute"), "absolute": _unary("absolute"), "add": _add,
            "arange": _arange, "asarray": _asarray, "broadcast_to": _broadcast_to,
            "ceil": _unary("ceil"), "clip": _clip, "conj": lambda x: x, "cos": _unary("cos"),
            "divide": _divide, "equal": operator.eq, "erf": _unary("erf"), "exp": _unary("exp"),
            "expand_dims": _expand_dims, "expm1": _unary("expm1"), "floor": _unary("floor"),
            "full_like": _full_like, "greater": operator.gt, "greater_equal": operator.ge,
            "less": operator.lt, "less_equal": operator.le, "log": _unary("log"),
            "log1p": _unary("log1p"), "logical_and": _and, "logical_not": _not,
            "logical_or": _or, "max": Piece.max, "maximum": _maximum, "mean": _mean,
            "min": Piece.min, "minimum": _minimum, "multiply": _multiply, "negative": _negative,
            "not_equal": operator.ne, "ones": _filled(1), "ones_like": _filled_like(1),
            "power": _power, "real": lambda x: x, "reshape": _reshape, "rint": _unary("round"),
            "round": _unary("round"), "sign": _unary("sign"), "sin": _unary("sin"),
            "sqrt": _unary("square_root"), "square": _square, "squeeze": _squeeze,
            "subtract": _subtract, "sum": _sum, "tanh": _unary("tanh"), "true_divide": _divide,
            "where": _where, "zeros": _filled(0), "zeros_like": _filled_like(0),
        }  # fmt: skip
        types = ("float32", "float64", "uint32", "int32", "int64", "bool_", "inf", "nan", "pi")
        for name in types:
            functions[name] = getattr(np, name)
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        raise NotFused(name)


namespace = _Namespace()


def _add_operators() -> None:
    pairs = {
        "add": _add, "sub": _subtract, "mul": _multiply, "truediv": _divide, "pow": _power,
        "xor": _xor, "and": _and, "or": _or, "rshift": _shift,
    }  # fmt: skip
    for name, function in pairs.items():
        setattr(Piece, f"__{name}__", function)
        setattr(Piece, f"__r{name}__", lambda x, y, function=function: function(y, x))
    below = lambda x, y: _words("less_words", x, y)  # noqa: E731
    same = lambda x, y: _words("equal_words", x, y)  # noqa: E731
    comparisons = {
        "lt": _comparison("less", below),
        "le": _comparison("less_equal", lambda x, y: _not(below(y, x))),
        "gt": _comparison("greater", lambda x, y: below(y, x)),
        "ge": _comparison("greater_equal", lambda x, y: _not(below(x, y))),
        "eq": _comparison("equal", same),
        "ne": _comparison("not_equal", lambda x, y: _not(same(x, y))),
    }
    for name, function in comparisons.items():
        setattr(Piece, f"__{name}__", function)
    Piece.__neg__ = _negative  # type: ignore[attr-defined]
    Piece.__abs__ = _unary("absolute")  # type: ignore[attr-defined]
    Piece.__invert__ = _not  # type: ignore[attr-defined]


_add_operators()
