"""Calling an op on whole groups of tensors: all parameters, all gradients.

An optimizer's step or a gradient clip is one entry in the trace, however many parameters there
are. Such a call stands outside autograd and autocast, and its numbers (learning rate, clip norm)
keep double precision until the op casts them, whatever the parameters' dtypes.
"""

from __future__ import annotations

from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import FLOAT, INT
from bireme.core.op import Call, Op
from bireme.core.trace import Value, record, state

_calls: dict[Any, Call] = {}


def apply(op: Op, inputs: tuple[Any, ...], attrs: tuple[Any, ...] = ()) -> list[Value]:
    """Record `op` on tensors, lists of tensors, numbers and None; returns its results."""
    values: list[Any] = []
    layout: list[int] = []
    for x in inputs:
        if x.__class__ is list:
            values += [t._value for t in x]
            layout.append(len(x))
        else:
            values.append(x._value if hasattr(x, "_value") else x)
            layout.append(-1)
    types = tuple([_type(v) for v in values])
    key = (op.name, types, tuple(layout), attrs)
    call = _calls.get(key)
    if call is None:
        casts = tuple([t.dtype if t is FLOAT or t is INT else None for t in types])
        named = dict(zip(op.attr_names, attrs, strict=True))
        call = _calls.setdefault(key, Call(op, types, tuple(layout), named, casts))
    return record(call, state.trace, tuple(values))


def _type(x: Any) -> Any:
    if x is None:
        return None
    kind = x.__class__
    if kind is float:
        return FLOAT
    return INT if kind is int else x.aval


def wide(xp: Any, x: Any) -> Any:
    """`x` in a type that sums and products are safe in: half precisions become float32."""
    return x.astype("float32") if x.dtype.itemsize < 4 else x


def same_types(*groups: Any, **attrs: Any) -> tuple[Any, ...]:
    """Type inference of an op whose results are like its first input list."""
    return tuple(groups[0])


def float32_scalar() -> Any:
    from bireme.core.aval import aval

    return aval((), dt.float32)
