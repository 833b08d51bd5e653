"""What can be computed at export: steps of lowerings whose operands are all known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.lite.writer import GraphWriter, Operand

if TYPE_CHECKING:
    from bireme.lite.primitives import Equation

_MOST = 1 << 22  # elements of a result


def _select(which: Any, *cases: Any) -> Any:
    return np.choose(np.asarray(which, np.intp), cases)


_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "square": np.square, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert,
    "select_n": _select, "floor": np.floor,
}  # fmt: skip


def folded(g: GraphWriter, eqn: Equation, xs: Sequence[Operand]) -> Operand | None:
    """The result as a constant, or None."""
    arrays = [g.array(x) for x in xs]
    if not xs or any(a is None for a in arrays):
        return None
    name, t = eqn.primitive.name, eqn.outvars[0].aval
    if not all(type(d) is int for d in t.shape) or np.prod(t.shape, dtype=np.int64) > _MOST:
        return None
    if not all(_fits(x) for x in xs):
        return None
    with np.errstate(all="ignore"):
        made = _value(name, eqn, [a for a in arrays if a is not None], t)
    if made is None:
        return None
    stored = np.asarray(made, t.dtype, order="C")
    constant = g.constant(stored)
    return Operand(constant.index, constant.shape, tuple(t.shape), constant.dtype)


def _fits(x: Operand) -> bool:
    """Whether NumPy repeats its axes as we do."""
    return len(x.shape) <= x.rank


def _value(name: str, eqn: Equation, arrays: list[np.ndarray], t: Any) -> Any:
    function = _FOLDED.get(name)
    if function is not None:
        return function(*arrays)
    x = arrays[0]
    if name == "div":
        y = arrays[1]
        if x.dtype.kind == "f":
            return np.divide(x, y)
        return np.trunc(x / y) if np.all(y != 0) and np.abs(x).max(initial=0) < 2**50 else None
    if name == "convert_element_type":
        inside = x.dtype.kind != "f" or np.dtype(t.dtype).kind == "f"
        return x.astype(t.dtype) if inside or np.isfinite(x).all() else None
    if name == "integer_pow" and eqn.params["y"] > 0:
        return x ** eqn.params["y"]
    return None
