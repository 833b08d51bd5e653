"""Branches and loops as functions.

Where the condition is known (eager code) Python decides; in a capture the branches become graphs
inside the graph, with gradients of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch, user_line
from bireme.core.tensor import Tensor
from bireme.core.trace import state
from bireme.ops import control_loops, control_record
from bireme.ops.checks import check
from bireme.ops.logic import equal


def _callable(function: Any, op: str, name: str) -> None:
    if not callable(function):
        raise TypeMismatch(f"[{op}] {name} must be callable. Received: {type(function).__name__}")


def _predicate(pred: Any, op: str, what: str) -> Tensor:
    if not isinstance(pred, Tensor):
        raise TypeMismatch(f"[{op}] {what} must be a Tensor. Received: {type(pred).__name__}")
    if pred.size != 1:
        raise TypeMismatch(f"[{op}] {what} must have one element. Received: shape {pred.shape}")
    return pred


def _nothing() -> None:
    return None


def cond(
    pred: Tensor,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
    return_names: Sequence[str] | None = None,
) -> Any:
    """`true_fn()` if `pred` is true, else `false_fn()`. In a graph both must give the same kinds
    of values; `return_names` are their names in messages.

        y = paddle.static.nn.cond(x.sum() > 0, lambda: x * 2, lambda: -x)
    """
    _predicate(pred, "cond", "pred")
    for what, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        if function is not None:
            _callable(function, "cond", what)
    then, other = true_fn or _nothing, false_fn or _nothing
    if not control_record.is_symbolic(pred) or state.trace.fold(pred._value):
        return then() if pred else other()
    if return_names is None:
        return control_record.branch(pred, then, other)

    def listed(function: Callable[[], Any]) -> Callable[[], list[Any]]:
        return lambda: list(function())

    made = control_record.branch(pred, listed(then), listed(other), list(return_names))
    return tuple(made)


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    is_test: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Repeat `body(*vars)`, which gives the new variables, while `cond(*vars)` is true.

    `is_test` tells Paddle that no gradient will be asked for; here nothing is kept either way
    unless one is.

        i, x = paddle.static.nn.while_loop(lambda i, x: i < n, lambda i, x: [i + 1, x * x], [i, x])
    """
    _callable(cond, "while_loop", "cond")
    _callable(body, "while_loop", "body")
    if not isinstance(loop_vars, list | tuple):
        raise TypeMismatch(
            f"[while_loop] loop_vars must be a list or tuple. Received: {type(loop_vars).__name__}"
        )
    if not loop_vars:
        raise InvalidArgument("[while_loop] loop_vars must not be empty")
    values = list(loop_vars)

    def step(now: list[Any]) -> list[Any]:
        new = body(*now)
        new = list(new) if isinstance(new, list | tuple) else [new]
        if len(new) != len(now):
            raise InvalidArgument(
                f"[while_loop] body must return as many values as there are loop_vars: {len(now)}. "
                f"Received: {len(new)}"
            )
        return new

    def test(now: list[Any]) -> Tensor:
        pred = _predicate(cond(*now), "while_loop", "the result of cond")
        if pred.dtype is not dt.bool_:
            raise TypeMismatch(
                f"[while_loop] cond must give a bool tensor. Received: {pred.dtype.name}"
            )
        return pred

    pred = test(values)
    while not control_record.is_symbolic(pred):
        if not pred:
            return values
        values = step(values)
        pred = test(values)
    names = [f"loop_vars[{i}]" for i in range(len(values))]
    return control_loops.while_loop(test, step, names, values)


def case(
    pred_fn_pairs: Sequence[tuple[Tensor, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The result of the function beside the first predicate that is true; otherwise of `default`,
    or of the last function if there is none."""
    if not isinstance(pred_fn_pairs, list | tuple):
        raise TypeMismatch(
            "[case] pred_fn_pairs must be a list or tuple. Received: "
            f"{type(pred_fn_pairs).__name__}"
        )
    pairs = list(pred_fn_pairs)
    if not pairs:
        raise InvalidArgument("[case] pred_fn_pairs must not be empty")
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeMismatch(
                f"[case] each of pred_fn_pairs is a tuple (predicate, function). Received: {pair!r}"
            )
        _predicate(pair[0], "case", "a predicate")
        _callable(pair[1], "case", "the function of each pair")
    if default is None:
        default = pairs.pop()[1]
    else:
        _callable(default, "case", "default")
    return _first_of(pairs, default)


def _first_of(pairs: list[tuple[Tensor, Any]], default: Callable[[], Any]) -> Any:
    if not pairs:
        return default()
    (pred, function), *rest = pairs
    return cond(pred, function, lambda: _first_of(rest, default))


def switch_case(
    branch_index: Tensor,
    branch_fns: dict[int, Callable[[], Any]]
    | Sequence[Callable[[], Any] | tuple[int, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The result of the function whose number is `branch_index`; otherwise of `default`, or of the
    function with the highest number if there is none.

    `branch_fns` is a dict {number: function}, a list of such pairs, or a list of functions.
    """
    _predicate(branch_index, "switch_case", "branch_index")
    if not branch_index.dtype.is_integer:
        raise TypeMismatch(
            "[switch_case] branch_index must be an integer tensor. Received: "
            f"{branch_index.dtype.name}"
        )
    table = _numbered(branch_fns)
    if default is None:
        default = table.pop(max(table))
    else:
        _callable(default, "switch_case", "default")
    pairs = [(equal(branch_index, number), function) for number, function in table.items()]
    return _first_of(pairs, default)


def _numbered(branch_fns: Any) -> dict[int, Callable[[], Any]]:
    if not isinstance(branch_fns, list | tuple | dict):
        raise TypeMismatch(
            "[switch_case] branch_fns must be a list, tuple or dict. Received: "
            f"{type(branch_fns).__name__}"
        )
    items: list[Any] = list(branch_fns.items() if isinstance(branch_fns, dict) else branch_fns)
    if items and all(callable(f) for f in items):
        items = list(enumerate(items))
    table: dict[int, Callable[[], Any]] = {}
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], int):
            raise TypeMismatch(
                f"[switch_case] each of branch_fns is a pair (int, function). Received: {item!r}"
            )
        number, function = item
        _callable(function, "switch_case", f"the function of {number}")
        if number in table:
            raise InvalidArgument(
                f"[switch_case] every number in branch_fns must be unique. Received: {number} twice"
            )
        table[number] = function
    if not table:
        raise InvalidArgument("[switch_case] branch_fns must not be empty")
    return table


def Assert(  # noqa: N802 (Paddle's name)
    cond: Tensor, data: Sequence[Tensor] | None = None, summarize: int = 20, name: str | None = None
) -> None:
    """Raise ValueError unless `cond` is true; the message shows `summarize` elements of each of
    `data` where they are known. In a captured function it is raised by the call."""
    _predicate(cond, "Assert", "cond")
    shown = ""
    for tensor in data or ():
        if not control_record.is_symbolic(tensor):
            flat = tensor.numpy().ravel().tolist()
            kept = flat if summarize < 0 else flat[:summarize]
            shown += f" {tensor.name}: {kept}"
    check(cond, f"[Assert] the condition at {user_line()} is false.{shown}", InvalidArgument)


__all__ = ["Assert", "case", "cond", "switch_case", "while_loop"]
