"""Recording control flow: from Python functions over values to `cond`, `while_loop` and `scan`.

Values are tensors, numbers, and lists, tuples and dicts of them, as Python code has them in its
variables. What differs between two branches, or changes in a loop, must be a tensor of one type
(a number becomes one); everything else stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bireme.capture.recorder import recording_into
from bireme.capture.subgraph import Body, BodyTrace
from bireme.core import dtype as dt
from bireme.core import views
from bireme.core.aval import Aval, aval
from bireme.core.errors import CaptureError
from bireme.core.op import TENSOR_TYPES
from bireme.core.tensor import Tensor
from bireme.core.trace import Trace, Value, state
from bireme.core.value import Overwritten, keep
from bireme.ops import control_flow as ops
from bireme.ops.creation import full
from bireme.ops.math_unary import assign_value


class Undefined:
    """In place of a variable that has no value yet."""

    def __repr__(self) -> str:
        return "no value"


UNDEFINED = Undefined()


def is_known(value: Value) -> bool:
    """Whether a value can be looked at now: it has one, or eager code is about to compute it."""
    maker = value.trace  # a recorder of graphs, or what computes the value when it is read
    return value.buf is not None or maker.__class__ is Trace or not isinstance(maker, Trace)


def is_symbolic(x: Any) -> bool:
    """Whether `x` is a tensor whose value only a run of the graph will know."""
    return x.__class__ in TENSOR_TYPES and not is_known(x._value)


# --- trees of values ------------------------------------------------------------------------


def leaves_of(tree: Any) -> list[Any]:
    """Everything in a tree that is not a list, tuple or dict."""
    found: list[Any] = []
    map_leaves(found.append, tree)
    return found


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree again (new lists and dicts), with `function` of every leaf."""
    kind = tree.__class__
    if kind is list or kind is tuple:
        return kind([map_leaves(function, t) for t in tree])
    if isinstance(tree, dict) and kind in DICTS:
        made = kind()
        made.update({k: map_leaves(function, v) for k, v in tree.items()})
        return made
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind(*[map_leaves(function, t) for t in tree])
    return function(tree)


def _dict_kinds() -> tuple[type, ...]:
    from collections import OrderedDict

    return (dict, OrderedDict)


DICTS = _dict_kinds()


def same_shape(a: Any, b: Any) -> bool:
    """Whether two trees differ in their leaves only."""
    if a.__class__ is not b.__class__:
        return not _is_tree(a) and not _is_tree(b)
    if isinstance(a, dict) and a.__class__ in DICTS:
        return list(a) == list(b) and all(same_shape(a[k], b[k]) for k in a)
    if _is_tree(a):
        return len(a) == len(b) and all(map(same_shape, a, b))
    return True


def _is_tree(x: Any) -> bool:
    kind = x.__class__
    return kind in (list, tuple, *DICTS) or (isinstance(x, tuple) and hasattr(x, "_fields"))


def put_back(original: Any, new: Any) -> Any:
    """`new`, inside the very lists and dicts of `original` where those were changed in place."""
    if original.__class__ is list and new.__class__ is list:
        original[:] = [
            put_back(o, n) for o, n in zip(original, new, strict=False)
        ] + new[len(original) :]  # fmt: skip
        return original
    if original.__class__ in DICTS and new.__class__ is original.__class__:
        made = {k: put_back(original.get(k), v) for k, v in new.items()}
        original.clear()
        original.update(made)
        return original
    return new


def is_number(x: object) -> bool:
    return x.__class__ in (bool, int, float)


def number_type(*numbers: Any) -> Aval:
    """The tensor type for Python numbers that turn out to vary."""
    kinds = {n.__class__ for n in numbers}
    if float in kinds:
        return aval((), dt.default_float())
    return aval((), dt.bool_ if kinds == {bool} else dt.int64)


def as_type(x: Any, t: Aval) -> Tensor:
    """A number, or nothing, as a tensor of this type."""
    return full(list(t.shape), 0 if x is UNDEFINED else x, t.dtype)


def fits(x: Any, t: Aval) -> bool:
    """Whether a Python number can stand for a tensor of type `t`."""
    if x is UNDEFINED:
        return True
    if not is_number(x):
        return False
    if x.__class__ is bool or t.dtype is dt.bool_:
        return x.__class__ is bool and t.dtype is dt.bool_
    return x.__class__ is int or t.dtype.differentiable


def describe(x: Any) -> str:
    if x.__class__ in TENSOR_TYPES:
        return f"a {x._value.aval} tensor"
    if is_number(x) or x is None or x.__class__ is str:
        return repr(x)
    return repr(x) if x is UNDEFINED else f"a value of type {type(x).__name__}"


def unchanged(a: Any, b: Any) -> bool:
    """Whether a leaf that is no tensor stays what it is."""
    if a is b:
        return True
    if a.__class__ is not b.__class__ or a.__class__ in TENSOR_TYPES:
        return False
    try:
        return bool(a == b)
    except Exception:  # a comparison of the user's that raises says that they are not equal
        return False


# --- branches -------------------------------------------------------------------------------


class Out:
    """A tensor that a body results in: where it is, and what Python held."""

    __slots__ = ("slot", "tensor", "tracked", "type")

    def __init__(self, trace: BodyTrace, tensor: Tensor):
        value = tensor._value
        self.slot = trace.slot_of(value, tensor)
        self.type = value.aval
        self.tracked = tensor._node is not None
        self.tensor = tensor


class Branch:
    """One side of a choice, recorded."""

    def __init__(self, function: Callable[[], Any]):
        self.trace = trace = BodyTrace(state.trace, ())
        with recording_into(trace):
            result = function()
            self.result = map_leaves(
                lambda x: Out(trace, x) if x.__class__ in TENSOR_TYPES else x, result
            )
            self.writes = {
                id(t): (t, old, Out(trace, t)) for t, old in trace.outer_writes()
            }  # fmt: skip
            self.checks = [(Out(trace, ok), why) for ok, why in trace.checks]

    def cast(self, out: Out, t: Aval) -> Out:
        """A result in another dtype, converted where it is made."""
        if out.type is t:
            return out
        with recording_into(self.trace):
            return Out(self.trace, out.tensor.astype(t.dtype))


_CAST = (dt.float16, dt.bfloat16, dt.float32)


def under_autocast(a: Aval, b: Aval) -> Aval | None:
    """The wider of two types that autocast made differ, None if it did not."""
    if state.trace.amp is None or a.shape != b.shape:
        return None
    if a.dtype is b.dtype or a.dtype not in _CAST or b.dtype not in _CAST:
        return None
    return aval(a.shape, dt.float32)


class _Choice:
    """What two branches make, side by side; becomes the `cond` op."""

    def __init__(self, pred: Tensor, sides: tuple[Branch, Branch]):
        self.pred = pred
        self.sides = sides
        self.pairs: list[tuple[Any, Any]] = []  # each a slot, or the Value of an operand
        self.tracked: list[bool] = []
        self.extra: dict[int, Tensor] = {}  # operands that no branch met

    def value_of(self, x: Any, t: Aval) -> Any:
        if isinstance(x, Out):
            return x.slot
        made = as_type(x, t)
        return self.outside(made)

    def outside(self, tensor: Tensor) -> Value:
        self.extra[id(tensor._value)] = tensor
        return tensor._value

    def add(self, a: Any, b: Any, tracked: bool) -> _Made:
        self.pairs.append((a, b))
        self.tracked.append(tracked)
        return _Made(len(self.pairs) - 1)

    def merge(self, a: Any, b: Any, what: str) -> _Merged:
        """The common value of two trees."""
        if isinstance(a, Out) and isinstance(b, Out) and a.tensor is b.tensor:
            return _Kept(a.tensor)  # one outer tensor; what happened to it is among the writes
        if isinstance(a, Out) or isinstance(b, Out):
            return self._merge_tensors(a, b, what)
        known = b if a is UNDEFINED else a
        if _is_tree(known) and (a is UNDEFINED or b is UNDEFINED or _alike(a, b)):
            keys = list(known) if isinstance(known, dict) else range(len(known))
            parts = [self.merge(_part(a, k), _part(b, k), what) for k in keys]
            return _Parts(known, parts)
        if a is UNDEFINED or b is UNDEFINED or unchanged(a, b):
            return _Kept(known)
        if is_number(a) and is_number(b):
            t = number_type(a, b)
            return self.add(self.value_of(a, t), self.value_of(b, t), False)
        raise CaptureError(_differ(what, a, b))

    def _merge_tensors(self, a: Any, b: Any, what: str) -> _Made:
        if isinstance(a, Out) and isinstance(b, Out) and (wide := under_autocast(a.type, b.type)):
            a, b = (side.cast(x, wide) for side, x in zip(self.sides, (a, b), strict=True))
        t = (a if isinstance(a, Out) else b).type
        for x in (a, b):
            if not (x.type is t if isinstance(x, Out) else fits(x, t)):
                raise CaptureError(_differ(what, a, b))
        tracked = any(isinstance(x, Out) and x.tracked for x in (a, b))
        return self.add(self.value_of(a, t), self.value_of(b, t), tracked)

    def record(self) -> list[Tensor]:
        if not self.pairs:
            return []
        operands = {**self.sides[0].trace.operands, **self.sides[1].trace.operands, **self.extra}
        values = [t._value for t in operands.values()]
        bodies = [
            side.trace.body([p[i] for p in self.pairs], values) for i, side in enumerate(self.sides)
        ]
        keys = [k for s, b in zip(self.sides, bodies, strict=True) for k in draw(s.trace, b)]
        made = ops.cond(self.pred, list(operands.values()), keys, *bodies)
        for tensor, tracked in zip(made, self.tracked, strict=True):
            if not tracked:
                tensor._node = None
        return made


class _Merged(Protocol):
    """What a value is after the choice."""

    def finish(self, made: list[Tensor]) -> Any: ...


class _Kept:
    """A value that both branches agree on."""

    def __init__(self, value: Any):
        self.value = value

    def finish(self, made: list[Tensor]) -> Any:
        return self.value


class _Made:
    """A result of the op."""

    def __init__(self, at: int):
        self.at = at

    def finish(self, made: list[Tensor]) -> Any:
        return made[self.at]


class _Parts:
    """A list, tuple or dict like `like`."""

    def __init__(self, like: Any, parts: list[_Merged]):
        self.like = like
        self.parts = parts

    def finish(self, made: list[Tensor]) -> Any:
        items = [p.finish(made) for p in self.parts]
        if not isinstance(self.like, dict):
            kind = self.like.__class__
            return kind(*items) if hasattr(kind, "_fields") else kind(items)
        whole = self.like.__class__()
        whole.update(zip(self.like, items, strict=True))
        return whole


def _part(tree: Any, key: Any) -> Any:
    return UNDEFINED if tree is UNDEFINED else tree[key]


def _alike(a: Any, b: Any) -> bool:
    if a.__class__ is not b.__class__:
        return False
    return list(a) == list(b) if isinstance(a, dict) else len(a) == len(b)


def _differ(what: str, a: Any, b: Any) -> str:
    def show(x: Any) -> str:
        return f"a {x.type} tensor" if isinstance(x, Out) else describe(x)

    return (
        f"{what} is {show(a)} in one branch and {show(b)} in the other; a condition that depends "
        "on a tensor needs the same kind of value from both"
    )


def draw(trace: BodyTrace, body: Body) -> list[int]:
    """The numbers of the random keys that a body takes."""
    return [n for g in trace.generators[: body.n_keys // 2] for n in g.next_key()]


def branch(
    pred: Tensor,
    then: Callable[[], Any],
    other: Callable[[], Any],
    names: Sequence[str] | None = None,
) -> Any:
    """The result of `then()` or of `other()`, as `pred` will say. With `names` the results are
    lists, and the names of their items are for messages."""
    if pred.size != 1:
        raise CaptureError(
            f"a condition must be a tensor with one element. Received: shape {pred.shape}; reduce "
            "it first, for example with .any() or .all()"
        )
    sides = (Branch(then), Branch(other))
    choice = _Choice(pred, sides)
    a, b = sides[0].result, sides[1].result
    if names is None:
        merged = [choice.merge(a, b, "the result")]
    else:
        merged = [choice.merge(x, y, f"'{n}'") for n, x, y in zip(names, a, b, strict=True)]
    written = {**sides[0].writes, **sides[1].writes}
    places = {}
    for key, (tensor, old, _) in written.items():
        news = [s.writes[key][2] if key in s.writes else None for s in sides]
        a, b = [
            choice.outside(Tensor(old, tensor._node)) if new is None else new.slot for new in news
        ]
        places[key] = choice.add(a, b, any(new is not None and new.tracked for new in news))
    checks = []
    for side in sides:
        for ok, why in side.checks:
            fine = choice.outside(full([], True, "bool"))
            pair = (ok.slot, fine) if side is sides[0] else (fine, ok.slot)
            checks.append((choice.add(pair[0], pair[1], False), why))
    made = choice.record()
    for key, at in places.items():
        write(written[key][0], at.finish(made))
    for at, why in checks:
        state.trace.checks.append((at.finish(made), why))  # type: ignore[attr-defined]
    results = [m.finish(made) for m in merged]
    return results[0] if names is None else results


def write(tensor: Tensor, new: Tensor) -> None:
    """Give an outer tensor the contents that a graph branch or loop left in it."""
    old = tensor._value
    needed = not isinstance(old, Overwritten)
    if new._node is None:
        tensor._put(new._value)
    elif views.has_family(tensor):
        # The others would get the new contents without their history, once more after the op.
        raise CaptureError(
            "a tensor that shares its memory with a view is changed in place in a branch or loop "
            "that depends on a tensor, and needs a gradient; use the out-of-place form"
        )
    else:
        views.assign(tensor, new, "control flow")
    # The op itself took the old contents and may use them for its gradient.
    if needed:
        keep(old)


def same(x: Tensor) -> Tensor:
    """The tensor as the result of an op, so that it may be changed in place."""
    return assign_value(x)
