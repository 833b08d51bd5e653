"""Calling an op on whole groups of tensors: all parameters, all gradients.

An optimizer's step or a gradient clip is one entry in the trace, however many parameters there
are. Such a call stands outside autograd and autocast, and its numbers (learning rate, clip norm)
keep double precision until the op casts them, whatever the parameters' dtypes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from bireme.core import eviction
from bireme.core.aval import FLOAT, INT
from bireme.core.op import Call, Op
from bireme.core.trace import Value, record_many, state
from bireme.core.value import keep, overwrite_all


def apply(op: Op, inputs: tuple[Any, ...], attrs: tuple[Any, ...] = ()) -> list[Value]:
    """Record `op` on tensors, lists of tensors, numbers and None; returns its results."""
    return Repeated(op)(inputs, attrs)


class Repeated:
    """An op that is called again and again on inputs of the same types.

    It remembers the last Call, so that a steady training step compares types and hashes nothing.
    """

    __slots__ = ("_attrs", "_call", "_layout", "_op", "_types")

    def __init__(self, op: Op):
        self._op = op
        self._call: Call | None = None
        self._types: list[Any] = []
        self._layout: list[int] = []
        self._attrs: tuple[Any, ...] = ()

    def __call__(self, inputs: tuple[Any, ...], attrs: tuple[Any, ...] = ()) -> list[Value]:
        values: list[Value] = []
        floats: list[float] = []
        types: list[Any] = []
        layout: list[int] = []
        for x in inputs:
            if x.__class__ is list:
                many = [t._value for t in x]
                values += many
                types += [v.aval for v in many]
                layout.append(len(x))
                continue
            layout.append(-1)
            if x is None:
                types.append(None)
            elif x.__class__ is float:
                floats.append(x)
                types.append(FLOAT)
            else:
                values.append(x._value)
                types.append(x._value.aval)
        call = self._call
        if call is None or types != self._types or layout != self._layout or attrs != self._attrs:
            casts = tuple([t.dtype if t is FLOAT or t is INT else None for t in types])
            named = dict(zip(self._op.attr_names, attrs, strict=True))
            call = self._op.call_with(tuple(types), tuple(layout), named, casts)
            self._call, self._types, self._layout, self._attrs = call, types, layout, attrs
        eviction.use(call)
        return record_many(call, state.trace, values, floats, inputs)


def put_all(tensors: list[Any], values: list[Value]) -> None:
    """`tensor._put(value)` for each pair."""
    if [t for t in tensors if t._view is not None or t._views]:
        for tensor, value in zip(tensors, values, strict=True):
            tensor._put(value)
        return
    former = [t._value for t in tensors]
    state.trace.wrote_all(tensors, former)
    try:
        for tensor, value in zip(tensors, values, strict=True):
            tensor._value = value
        overwrite_all(former)
    except BaseException:  # Ctrl-C: all tensors are written or none
        for tensor, old in zip(tensors, former, strict=True):
            tensor._value = old
            keep(old)
        raise


def wide(xp: ModuleType, x: Any) -> Any:
    """`x` in a type that sums and products are safe in: half precisions become float32."""
    return x.astype("float32") if x.dtype.itemsize < 4 else x


def same_types(*groups: Any, **attrs: Any) -> tuple[Any, ...]:
    """Type inference of an op whose results are like its first input list."""
    return tuple(groups[0])
