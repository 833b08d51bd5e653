"""Gradients of tables that few rows were looked up in: the rows that they reach, and no others.

The backward pass of `F.embedding(sparse=True)` records nothing. It gives the table a `RowGradient`:
a tensor whose contents are recorded only if something reads them. Until then it holds what they
would be made of, the gradient of each result and the numbers of its rows, and a sum of such
gradients holds what its terms hold. Optimizers whose rule leaves rows without gradient as they are
take `merged()`, each row once. Whoever reads `grad` (`numpy()`, a hook, another optimizer) has the
whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from bireme.core import autograd
from bireme.core.aval import Aval, aval
from bireme.core.dtype import float32, int64
from bireme.core.op import TENSOR_TYPES, Op, op
from bireme.core.tensor import Tensor
from bireme.core.trace import Trace, Value, record, state
from bireme.core.value import overwrite
from bireme.ops.creation import ones_of
from bireme.ops.math import plus
from bireme.ops.nn_support import scatter_add, wide

# A sum of more lookups than this is merged: a pass over many small batches stays a few arrays.
_MOST_TERMS = 8

_NO_TABLE = aval((0, 0), float32)


class Term(NamedTuple):
    """What one lookup adds: row `ids[i]` of the table gets `rows[i]`, unless it is `padding`."""

    ids: Value
    rows: Value
    padding: int


def _flat(xp: Any, ids: list[Any], rows: list[Any], table: Aval, paddings: Any) -> tuple[Any, Any]:
    """All numbers in one vector, and all rows in one matrix. The number of a row that nobody wants
    is the number of rows in the table, one too many."""
    count = table.shape[0]
    numbers = []
    for each, padding in zip(ids, paddings, strict=True):
        flat = xp.reshape(each, (-1,)).astype(np.int64)
        numbers.append(flat if padding < 0 else xp.where(flat == padding, count, flat))
    parts = [wide(xp, xp.reshape(r, (-1, *table.shape[1:]))) for r in rows]
    if len(numbers) == 1:
        return numbers[0], parts[0]
    return xp.concatenate(numbers), xp.concatenate(parts)


@op(
    inputs=("*ids", "*rows"),
    differentiable=False,
    infer=lambda ids, rows, table, paddings: table,
)
def rows_in_place(xp, ids, rows, table=_NO_TABLE, paddings=()):
    """A table of zeros with `rows` added at their numbers."""
    numbers, values = _flat(xp, ids, rows, table, paddings)
    if xp is np:
        wanted = numbers < table.shape[0]
        numbers, values = numbers[wanted], values[wanted]
    whole = xp.zeros(table.shape, values.dtype)
    if xp is np:
        return scatter_add(xp, whole, numbers, values).astype(table.dtype.numpy)
    return whole.at[numbers].add(values, mode="drop").astype(table.dtype.numpy)


def _most_rows(ids: list[Aval], table: Aval) -> Any:
    """How many different rows there can be."""
    count: Any = sum([t.size for t in ids])
    if count.__class__ is int and table.shape[0].__class__ is int:
        return min(count, table.shape[0])
    return count


def _merged_types(ids: list[Aval], rows: list[Aval], table: Aval, **_: Any) -> tuple[Aval, Aval]:
    count = _most_rows(ids, table)
    return aval((count,), int64), aval((count, *table.shape[1:]), table.dtype)


def _merged_on_numpy(xp, ids, rows, table=_NO_TABLE, paddings=()):
    numbers, values = _flat(xp, ids, rows, table, paddings)
    count = min(len(numbers), table.shape[0])
    found, group = np.unique(numbers, return_inverse=True)
    sums = scatter_add(xp, np.zeros((len(found), *table.shape[1:]), values.dtype), group, values)
    once = np.full((count,), table.shape[0], np.int64)
    merged = np.zeros((count, *table.shape[1:]), table.dtype.numpy)
    used = int(np.searchsorted(found, table.shape[0]))
    once[:used], merged[:used] = found[:used], sums[:used]
    return once, merged


@op(
    inputs=("*ids", "*rows"),
    differentiable=False,
    infer=_merged_types,
    numpy=_merged_on_numpy,
)
def merge_rows(xp, ids, rows, table=_NO_TABLE, paddings=()):
    """Each number once, in order, and the sum of its rows. There is always room for as many as
    there could be: what is left over has a number beyond the table, and zeros."""
    numbers, values = _flat(xp, ids, rows, table, paddings)
    total = numbers.shape[0]
    count = total
    if total.__class__ is int and table.shape[0].__class__ is int:
        count = min(total, table.shape[0])
    # XLA sorts plain integers several times faster than pairs, so number and place are one integer.
    places = xp.arange(total, dtype=np.int64)
    both = xp.sort(numbers * total + places)
    numbers, order = both // total, both % total
    new = xp.concatenate([xp.ones((1,), bool), numbers[1:] != numbers[:-1]])
    group = xp.cumsum(new) - 1
    wanted = xp.where(numbers < table.shape[0], group, count)
    merged = xp.zeros((count, *table.shape[1:]), values.dtype)
    merged = merged.at[wanted].add(values[order], mode="drop")
    once = xp.full((count,), table.shape[0], np.int64).at[wanted].set(numbers, mode="drop")
    return once, merged.astype(table.dtype.numpy)


class RowGradient(Tensor):
    """The gradient of a table: zeros but for some rows. See the head of this file."""

    _dense: Value | None = None
    _terms: tuple[Term, ...]

    def __init__(self, table: Aval, terms: tuple[Term, ...], is_merged: bool = False):
        self._table = table
        self._terms = terms
        self._is_merged = is_merged
        self._node = None

    @property
    def _value(self) -> Value:  # pyright: ignore[reportIncompatibleVariableOverride] (there set)
        if self._dense is None:
            # A capture takes this tensor for an input, with its whole contents. It must not see
            # what they are made of, which the next call would find in no tensor.
            trace = state.trace if self._is_known() else Trace(tape=False)
            (self._dense,) = self._made_by(rows_in_place.op, trace)
        return self._dense

    @_value.setter
    def _value(self, value: Value) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Somebody writes into the gradient: it is like any other from now on."""
        self._dense, self._terms = value, ()

    def _is_known(self) -> bool:
        """Whether the current trace may compute with the rows themselves."""
        return all(state.trace.may_use(t.rows) for t in self._terms)

    def _made_by(self, made_by: Op, trace: Trace) -> list[Value]:
        ids, rows = [t.ids for t in self._terms], [t.rows for t in self._terms]
        values = (*ids, *rows)
        attrs = {"table": self._table, "paddings": tuple([t.padding for t in self._terms])}
        call = made_by.call_with(
            tuple([v.aval for v in values]), (len(ids), len(rows)), attrs, (None,) * len(values)
        )
        return record(call, trace, values)

    def merged(self) -> RowGradient | None:
        """The same with each row once; None for a gradient that can only be taken as a whole."""
        if not self._terms or not self._is_known():
            return None
        if self._is_merged:
            return self
        ids, rows = self._made_by(merge_rows.op, state.trace)
        return RowGradient(self._table, (Term(ids, rows, -1),), True)

    @property
    def numbers(self) -> Tensor:
        """Of a merged gradient: the rows' numbers, in order."""
        return Tensor(self._terms[0].ids, None)

    @property
    def rows(self) -> Tensor:
        """Of a merged gradient: its rows."""
        return Tensor(self._terms[0].rows, None)

    def with_rows(self, rows: Value) -> RowGradient:
        """Of a merged gradient: one with other rows at the same places."""
        return RowGradient(self._table, (self._terms[0]._replace(rows=rows),), True)

    def become(self, other: RowGradient) -> None:
        """Take over the rows of another gradient of the table."""
        if self._dense is not None:
            overwrite(self._dense)
        state.trace.undo.append(_Became(self, self._former(state.trace)))
        self._dense, self._terms, self._is_merged = None, other._terms, other._is_merged

    def plus(self, other: RowGradient) -> RowGradient | None:
        """The sum; None where only a sum of the whole contents will do."""
        if not (self._terms and other._terms and self._is_known() and other._is_known()):
            return None
        made = RowGradient(self._table, (*self._terms, *other._terms))
        return made if len(made._terms) <= _MOST_TERMS else made.merged()

    def _former(self, trace: Trace) -> Callable[[Any], Tensor]:
        if not self._terms:
            return super()._former(trace)
        kept = [(_noted(trace, t.ids), _noted(trace, t.rows), t.padding) for t in self._terms]
        table, is_merged = self._table, self._is_merged

        def restored(failure: Any) -> Tensor:
            terms = [Term(failure.value(i), failure.value(r), p) for i, r, p in kept]
            return RowGradient(table, tuple(terms), is_merged)

        return restored

    def __reduce__(self) -> Any:
        return Tensor(self._value, None).__reduce__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return Tensor(self._value, None).__deepcopy__(memo)


class _Became:
    """A gradient of rows gets other rows; taken back if the run fails (core/rollback.py)."""

    __slots__ = ("former", "gradient")

    def __init__(self, gradient: RowGradient, former: Callable[[Any], Any]):
        self.gradient, self.former = ref(gradient), former

    def take_back(self, failure: Any) -> None:
        gradient = self.gradient()
        if gradient is not None:
            former = self.former(failure)
            gradient._terms, gradient._is_merged = former._terms, former._is_merged
            gradient._dense = None


TENSOR_TYPES.add(RowGradient)


def _noted(trace: Trace, value: Value) -> int | Value:
    slot = trace.known_slot(value)
    return value if slot is None else slot


class LookupNode(autograd.GradNode):
    """A lookup on the way to a loss, whose table gets a gradient of rows."""

    __slots__ = ()

    def apply(self, grads: list[Tensor | None], create_graph: bool) -> Any:
        (grad,) = grads
        if create_graph or grad is None or self.saved is None:
            return super().apply(grads, create_graph)
        self.check_saved(self.saved)
        (ids,) = self.saved
        table = self.call.types[1]
        assert isinstance(table, Aval)  # noqa: S101 (a lookup's second input is its table)
        term = Term(ids, grad._value, self.call.attrs["padding_idx"])
        return None, RowGradient(table, (term,))


def by_rows(made: Tensor) -> Tensor:
    """Let the table that `made` was looked up in have a gradient of rows."""
    if made._node.__class__ is autograd.GradNode:
        made._node.__class__ = LookupNode
    return made


def _sum(a: Any, b: Any) -> Any:
    """The sum of two gradients of one tensor."""
    if a.__class__ is RowGradient and b.__class__ is RowGradient:
        total = a.plus(b)
        if total is not None:
            return total
    return plus(a, b)


autograd.bind_ops(ones_of, _sum)


def by_row(grads: list[Any]) -> list[Any]:
    """The same gradients, with each row once in those of rows."""
    merged = [g.merged() if g.__class__ is RowGradient else None for g in grads]
    return [g if m is None else m for g, m in zip(grads, merged, strict=True)]


def contents(grads: list[Any]) -> list[Any]:
    """The tensors behind gradients from `by_row`: rows where there is no more than that. What
    leaves zeros as they are may be computed on them."""
    return [g.rows if is_by_row(g) else g for g in grads]


def with_contents(grads: list[Any], values: list[Value]) -> list[Any]:
    """Gradients like these with new contents, in the order of `contents`."""
    return [
        g.with_rows(v) if is_by_row(g) else Tensor(v, None)
        for g, v in zip(grads, values, strict=True)
    ]


def put_gradients(grads: list[Any], new: list[Any]) -> None:
    """Write new gradients, from `with_contents`, into those that tensors have."""
    for grad, made in zip(grads, new, strict=True):
        if is_by_row(made):
            grad.become(made)
        else:
            grad._put(made._value)


def is_by_row(grad: Any) -> bool:
    """Whether this gradient has each row once, and nothing else."""
    return grad.__class__ is RowGradient and grad._is_merged and bool(grad._terms)
