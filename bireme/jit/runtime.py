"""Functions that rewritten code calls (see transform.py): Python where the condition is known,
graph ops where it depends on a tensor."""

from __future__ import annotations

import builtins
import operator
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bireme.core import dims
from bireme.core.dimension import dimension
from bireme.core.errors import CaptureError, user_line
from bireme.core.op import TENSOR_TYPES
from bireme.core.tensor import Tensor
from bireme.jit.branch_effects import BranchPart, assigning, changing, containers
from bireme.jit.convert import call, is_users_module
from bireme.jit.sources import CHANGING, Source, as_source, tell_change, tell_set
from bireme.jit.watch import current
from bireme.ops import control_loops, control_record
from bireme.ops.checks import check as check_tensor
from bireme.ops.control_record import UNDEFINED, is_symbolic, map_leaves, put_back
from bireme.ops.logic import logical_and, logical_not, logical_or
from bireme.ops.math_unary import cast

UNROLLED = 32  # iterations over a tensor of known length that are recorded one by one

Get = Callable[[], list[Any]]
Put = Callable[[Sequence[Any]], None]


def get(read: Callable[[], Any]) -> Any:
    """The value of a variable or attribute, or `UNDEFINED`."""
    try:
        return read()
    except (NameError, AttributeError):
        return UNDEFINED


class Names:
    """The functions that rewritten code calls, and the outer variables of its function."""

    def __init__(self, function: types.FunctionType, cells: dict[str, types.CellType]):
        self._globals = function.__globals__
        self._cells = cells

    def __getattr__(self, name: str) -> Any:
        try:
            return globals()[name]
        except KeyError:
            raise AttributeError(name) from None

    def outer(self, name: str, deep: bool) -> Any:
        """The global `name`."""
        found = self._globals
        if name not in found:
            return _builtin(name)
        value = found[name]
        watch = current()
        if watch is not None and value.__class__ is not types.ModuleType:
            watch.entry(found, name, value, deep)
        return value

    def closed(self, name: str, value: object, deep: bool) -> Any:
        """The variable `name` of an enclosing function, which holds `value`."""
        watch = current()
        if watch is not None and name in self._cells:
            watch.cell(self._cells[name], value, deep)
        return value

    def will_set_outer(self, name: str) -> None:
        assigning(name)
        watch = current()
        if watch is not None:
            watch.will_set_entry(self._globals, name)

    def will_set_closed(self, name: str) -> None:
        assigning(name)
        watch = current()
        if watch is not None and name in self._cells:
            watch.will_set_cell(self._cells[name], name)


def _builtin(name: str) -> Any:
    try:
        return vars(builtins)[name]
    except KeyError:
        raise NameError(f"name {name!r} is not defined") from None


def attr(thing: object, name: str, deep: bool = True) -> Any:
    """`thing.name`."""
    value = getattr(thing, name)
    watch = current()
    if watch is None or isinstance(thing, Tensor):
        return value
    if isinstance(thing, types.ModuleType):
        if is_users_module(thing):
            watch.entry(thing.__dict__, name, value, deep)
    elif thing.__class__ is type and is_users_module(sys.modules.get(thing.__module__)):
        watch.outer[id(thing)] = thing
        watch.attribute(thing, name, value, deep)
    else:
        watch.attribute(thing, name, value, deep)
    return value


def item(container: Any, key: object) -> Any:
    """`container[key]`."""
    value = container[key]
    watch = current()
    if watch is not None and id(container) in watch.outer:
        if isinstance(container, dict):
            watch.entry(container, key, value, True)
        elif isinstance(container, list | tuple):
            watch.look(container)
    return value


def mutator(thing: object, name: str) -> Any:
    """`thing.append` and the like, which is about to be called."""
    if isinstance(thing, CHANGING):
        tell_change(thing)
    return attr(thing, name)


def will_set(read: Callable[[], Any], name: str) -> None:
    """`read().name` is about to get another value."""
    thing = get(read)
    if thing is not UNDEFINED:
        tell_set(thing, name)


def will_change(read: Callable[[], Any]) -> None:
    """An element of `read()` is about to get another value."""
    thing = get(read)
    if isinstance(thing, (*CHANGING, np.ndarray)):
        tell_change(thing)


def may_change(read: Callable[[], Any], name: str | None = None) -> None:
    """A branch or loop may change the container in `read()`, an outer variable, or in its
    attribute `name`."""
    watch, thing = current(), get(read)
    if watch is None or (name is not None and not watch.is_outer(thing)):
        return
    found = thing if name is None else getattr(thing, name, None)
    if isinstance(found, CHANGING):
        watch.reached(found, False)
        watch.will_change(found)


class _Variables:
    """The variables of a branch or loop, put into place before it runs and collected after."""

    def __init__(self, get: Get, put: Put, names: list[str]):
        self.get, self.put, self.names = get, put, names
        self.before = get()
        self.rebound = [False] * len(names)
        # The objects whose attributes are among the variables.
        self.holders: list[tuple[Any, str]] = getattr(get, "holders", list)()

    def run(self, values: Sequence[Any], function: Callable[[], Any]) -> list[Any]:
        """`function()` on copies of the containers; returns the new values of the variables."""
        copies = [map_leaves(lambda x: x, v) for v in values]
        self.put(copies)
        with BranchPart(self.names, copies, self.holders) as part:
            function()
        after = self.get()
        part.check(after)
        for i, (old, new) in enumerate(zip(copies, after, strict=True)):
            self.rebound[i] |= new is not old
        return after

    def test(self, values: Sequence[Any], function: Callable[[], Any]) -> Any:
        """The condition of a loop, which runs as often as it says itself."""
        self.put(values)
        with BranchPart(self.names) as part:
            holds = function()
        part.check([holds])
        return holds

    def finish(self, values: Sequence[Any]) -> None:
        """After a branch: new contents into the lists and dicts that were there before."""
        self.leave(
            [
                v if rebound else put_back(b, v)
                for b, v, rebound in zip(self.before, values, self.rebound, strict=True)
            ]
        )

    def leave(self, values: Sequence[Any]) -> None:
        for found in containers(self.before):
            changing(found)
        for thing, name in self.holders:
            changing(thing, name)
        self.put(values)

    def __enter__(self) -> _Variables:
        return self

    def __exit__(self, kind: Any, error: Any, tb: Any) -> None:
        if error is not None:
            self.put(self.before)
            if isinstance(error, CaptureError) and not hasattr(error, "at"):
                error.at = user_line()  # pyright: ignore[reportAttributeAccessIssue]
                error.args = (f"{error.args[0]} (at {error.at})",)  # pyright: ignore[reportAttributeAccessIssue]


def run_if(
    test: Any,
    then: Callable[[], Any],
    other: Callable[[], Any],
    get: Get,
    put: Put,
    names: list[str],
) -> None:
    """`if test: then() else: other()`."""
    if not is_symbolic(test):
        if test:
            then()
        else:
            other()
        return
    with _Variables(get, put, names) as variables:
        before = variables.before
        after = control_record.branch(
            test,
            lambda: variables.run(before, then),
            lambda: variables.run(before, other),
            names,
        )
    variables.finish(after)


def run_while(
    test: Callable[[], Any],
    body: Callable[[], Any],
    get: Get,
    put: Put,
    names: list[str],
    wanted: list[bool],
) -> None:
    """`while test(): body()`. It may begin in Python and go on as a graph."""
    while True:
        holds = test()
        if is_symbolic(holds):
            break
        if not holds:
            return
        body()
    with _Variables(get, put, names) as variables:
        after = control_loops.while_loop(
            lambda values: variables.test(values, test),
            lambda values: variables.run(values, body),
            names,
            variables.before,
            wanted,
        )
    variables.leave(after)


def run_for(
    over: Any,
    body: Callable[[Any], Any],
    going: Callable[[], Any] | None,
    get: Get,
    put: Put,
    names: list[str],
    wanted: list[bool],
) -> None:
    """`for item in over: body(item)`; `going()` says whether no `break` has come."""
    source = as_source(over)
    if isinstance(over, Iterator):
        changing(over)
    if source is not None:
        if type(source.length) is not int or source.length > UNROLLED:
            _graph_for(source, body, going, get, put, names, wanted)
            return
        over = source.items()
    on: Any = True
    for item in over:
        if is_symbolic(on):
            run_if(on, lambda item=item: body(item), _nothing, get, put, names)
        else:
            body(item)
        if going is not None:
            on = going()
            if not is_symbolic(on) and not on:
                return


def _nothing() -> None:
    return None


def _graph_for(
    source: Source,
    body: Callable[[Any], Any],
    going: Callable[[], Any] | None,
    get: Get,
    put: Put,
    names: list[str],
    wanted: list[bool],
) -> None:
    def once(item: Any) -> None:
        if going is None:
            body(item)
        else:
            run_if(going(), lambda: body(item), _nothing, get, put, names)

    with _Variables(get, put, names) as variables:
        if source.length.__class__ not in TENSOR_TYPES:
            after = control_loops.scan(
                lambda i, rows, values: variables.run(values, lambda: once(source.at(i, rows))),
                source.rows,
                source.length,
                names,
                variables.before,
                wanted,
            )
        else:
            count = source.length

            def more(values: list[Any]) -> Any:
                put(values[:-1])
                inside = values[-1] < count
                return inside if going is None else and_(going, lambda: inside)

            def step(values: list[Any]) -> list[Any]:
                i = values[-1]
                rows = [r[i] for r in source.rows]
                return [*variables.run(values[:-1], lambda: body(source.at(i, rows))), i + 1]

            after = control_loops.while_loop(
                more, step, [*names, "the loop's count"], [*variables.before, 0], [*wanted, True]
            )[:-1]
    variables.leave(after)


# --- logic ----------------------------------------------------------------------------------


def _truth(x: Any) -> Any:
    """A value as the operand of a logical op."""
    if x.__class__ in TENSOR_TYPES:
        return x if x.dtype.name == "bool" else cast(x, "bool")
    from bireme.ops.creation import full

    return full([], bool(x), "bool")


def and_(*operands: Callable[[], Any]) -> Any:
    """Whether `a and b`, with a tensor as the result where one of them decides."""
    return _joined(operands, logical_and, False)


def or_(*operands: Callable[[], Any]) -> Any:
    return _joined(operands, logical_or, True)


def either(kind: str, *operands: Callable[[], Any]) -> Any:
    """The value of `a and b` or `a or b`: one of the two."""
    value: Any = operands[0]()
    rest = operands[1:]
    ends = kind == "or"
    if not is_symbolic(value):
        return value if not rest or bool(value) is ends else either(kind, *rest)
    if not rest:
        return value
    sides = (lambda: value), (lambda: either(kind, *rest))
    return choose(_truth(value), *(sides if ends else reversed(sides)))


def _joined(operands: Sequence[Callable[[], Any]], join: Any, ends: bool) -> Any:
    value: Any = None
    for i, operand in enumerate(operands):
        value = operand()
        if i == len(operands) - 1:
            return value
        if is_symbolic(value):
            rest = _side(lambda i=i: _joined(operands[i + 1 :], join, ends))
            return join(_truth(value), _truth(rest))
        if bool(value) is ends:
            return value
    return value


def _side(expression: Callable[[], Any]) -> Any:
    """An expression that is computed only if a tensor says so."""
    with BranchPart() as part:
        result = expression()
    part.check([result])
    return result


def not_(x: object) -> Any:
    return logical_not(_truth(x)) if is_symbolic(x) else not x


def choose(test: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """`then() if test else other()`."""
    if not is_symbolic(test):
        return then() if test else other()
    return control_record.branch(test, lambda: _side(then), lambda: _side(other))


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Pow": operator.pow,
}  # fmt: skip


def arithmetic(kind: str, left: Any, right: Any) -> Any:
    """`left op right`. An open size stays one among integers and is a tensor among others."""
    operate = _ARITHMETIC[kind]
    if dims.is_dim_expression(left) or dims.is_dim_expression(right):
        sizes = [x.__class__ is int or dims.is_dim_expression(x) for x in (left, right)]
        if not all(sizes) or kind == "Div" or (kind == "Pow" and right.__class__ is not int):
            left, right = [dimension(x) if dims.is_dim_expression(x) else x for x in (left, right)]
            if (
                kind in ("Div", "Pow")
                and left.__class__ in TENSOR_TYPES
                and right.__class__ in (int, float)
            ):
                left = cast(left, "float32")
    return operate(left, right)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
    "Eq": operator.eq, "NotEq": operator.ne, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip


def compare(left: Any, *rest: tuple[str, Callable[[], Any]]) -> Any:
    """`a < b <= c`: every operand is computed once, and no more than are needed."""
    last = left

    def one(kind: str, operand: Callable[[], Any]) -> Any:
        nonlocal last
        here, last = last, operand()
        return _COMPARE[kind](here, last)

    return and_(*[lambda k=k, o=o: one(k, o) for k, o in rest])


def check(test: object, message: Callable[[], Any], tried: bool = False) -> None:
    """`assert test, message()`; `tried` if an `except` of the function may be waiting for it."""
    if not is_symbolic(test):
        if not test:
            said = message()
            raise AssertionError(*([] if said is None else [said]))
        return
    if tried:
        raise CaptureError(
            f"the assertion at {user_line()} is about a tensor and in a `try`; a graph is checked "
            "after its run, where nothing catches the error"
        )
    said = message()
    text = f"the assertion at {user_line()} failed" if said is None else str(said)
    check_tensor(_truth(test), text, AssertionError)


def caught() -> None:
    """An `except` of the user's has caught something, or `with` is about to be told of it. That a
    capture fails is no business of theirs."""
    error = sys.exc_info()[1]
    if isinstance(error, CaptureError):
        watch = current()
        if watch is not None:
            watch.refused = error
        raise error


__all__ = [
    "UNDEFINED", "Names", "and_", "arithmetic", "attr", "call", "caught", "check", "choose",
    "compare", "either", "get", "item", "may_change", "mutator", "not_", "or_", "run_for",
    "run_if", "run_while", "will_change", "will_set",
]  # fmt: skip
