"""An op is one definition: a lowering, and where it pays a gradient rule.

    @op(vjp=_relu_vjp)
    def relu(xp, x):
        return xp.maximum(x, 0)

`xp` is `numpy` in the cold tier and `jax.numpy` in compiled programs. From this one body come
the eager function, the graph node, type inference, the gradient of any order and both tiers.

Parameters without a default (or those named in `inputs`) are tensor inputs; Python numbers
given for them become run-time inputs. `*xs` in `inputs` marks a list of tensors. The others
are attributes: static, hashable, part of the program's structure.
"""

from __future__ import annotations

import inspect
import itertools
import numbers
import re
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from bireme.core import dims, fading, jax_door
from bireme.core import dtype as dt
from bireme.core.aval import FLOAT, INT, Aval, NumberType, aval, aval_of
from bireme.core.dtype import DType
from bireme.core.errors import (
    BiremeError,
    ShapeMismatch,
    TypeMismatch,
    not_a_tensor,
    user_line,
)
from bireme.core.kinds import Takes, check_kinds
from bireme.core.lowering import current, in_type, lowering
from bireme.core.op_codegen import generate
from bireme.core.trace import state

CALLS = fading.CALLS  # every Call by its id, as long as somebody holds it
OPS: dict[str, Op] = {}  # every op by its name; a serialised graph refers to ops by it
TENSOR_TYPES: set[type] = set()  # Tensor and its subclasses, filled by tensor.py

InputType = Aval | NumberType | None


_next_id = itertools.count()
_RESERVED = {"out", "types", "needs"}  # what a gradient rule may ask for besides inputs


class Call:
    """An op applied to attributes and input types: everything but the values."""

    __slots__ = (
        "__weakref__", "attrs", "casts", "differentiable", "floats_at", "full_grad", "grad_calls",
        "grad_outs", "id", "ints_at", "layout", "op", "out", "outs", "saved_at", "saved_for",
        "saved_if", "scalar_out", "single", "source", "tensors_at", "types",
    )  # fmt: skip

    def __init__(
        self,
        op: Op,
        types: tuple[InputType, ...],
        layout: tuple[int, ...],
        attrs: dict[str, Any],
        casts: tuple[DType | None, ...],
    ):
        self.op = op
        self.types = types  # flat: one entry per tensor, number or None
        self.layout = layout  # -1 for a single input, n for a list of n
        self.attrs = attrs
        self.casts = casts
        self.source = user_line()
        self.grad_calls: dict[Any, Call] = {}
        self.full_grad: Call | None = None  # grad_calls' entry for "everything is wanted"
        self.single, self.outs = op.infer_types(self)
        self.out: Any = self.outs[0] if self.single else None
        self.differentiable = op.differentiable and any(o.dtype.differentiable for o in self.outs)
        self.scalar_out = self.single and self.outs[0].ndim == 0
        self.saved_at, self.saved_for = self._saved_positions()
        # The recorder's plan, so that it asks no input what it is:
        self.saved_if = tuple([(i, u) for i, u in enumerate(self.saved_for) if u is not None])
        carrying = enumerate(self.outs[: op.carries])
        self.grad_outs = tuple([i for i, o in carrying if o.dtype.differentiable])
        self.tensors_at = tuple([i for i, t in enumerate(types) if isinstance(t, Aval)])
        self.floats_at = tuple([i for i, t in enumerate(types) if t is FLOAT])
        self.ints_at = tuple([i for i, t in enumerate(types) if t is INT])
        self.id = next(_next_id)
        CALLS[self.id] = self
        if self.id % fading.EVERY == fading.EVERY - 1:
            fading.fade()

    def _saved_positions(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...] | None, ...]]:
        """Where the values that the gradient needs are (>= 0 an input, < 0 the result -1 - i),
        and the inputs one of which must want a gradient for each to be kept (None: always)."""
        spans: dict[str, range] = {"out": range(-1, -1 - len(self.outs), -1)}
        at = 0
        for name, n in zip(self.op.inputs, self.layout, strict=True):
            spans[name.lstrip("*")] = range(at, at + abs(n))
            at += abs(n)
        positions: list[int] = []
        users: list[tuple[int, ...] | None] = []
        for name in self.op.saves:
            wanted = self.op.used_by.get(name)
            needed = None if wanted is None else tuple(i for u in wanted for i in spans[u])
            positions += spans[name]
            users += [needed] * len(spans[name])
        return tuple(positions), tuple(users)

    def cast(self, xp: Any, arrays: Sequence[Any]) -> list[Any]:
        """The inputs in the types that the op computes in."""
        return [
            a if c is None or a is None else in_type(xp, a, c.numpy)
            for a, c in zip(arrays, self.casts, strict=True)
        ]

    def run(self, xp: Any, arrays: Sequence[Any]) -> Any:
        """Evaluate on NumPy arrays or JAX tracers; numbers arrive as 0-d arrays."""
        if lowering.choose is not None and xp is not np:
            arrays = [current(a) for a in arrays]
            kernel = lowering.choose(self)
            if kernel is not None:
                return kernel(self, *self.cast(xp, arrays))
        return self.op.lower(xp, self, self.cast(xp, arrays))

    def group(self, flat: Sequence[Any]) -> list[Any]:
        """Flat inputs back into the op's parameters (lists where the op takes a list)."""
        grouped: list[Any] = []
        at = 0
        for n in self.layout:
            if n < 0:
                grouped.append(flat[at])
                at += 1
            else:
                grouped.append(list(flat[at : at + n]))
                at += n
        return grouped

    def input_names(self) -> list[str]:
        """A name for each flat input, for messages and printing."""
        names: list[str] = []
        for name, n in zip(self.op.inputs, self.layout, strict=True):
            plain = name.lstrip("*")
            names += [plain] if n < 0 else [f"{plain}[{i}]" for i in range(n)]
        return names

    def describe_inputs(self) -> str:
        pairs = zip(self.input_names(), self.types, strict=True)
        received = [f"{n}: {t}" for n, t in pairs if t is not None]
        received += [f"{k}={v!r}" for k, v in self.attrs.items() if v is not None]
        return ", ".join(received)

    def __repr__(self) -> str:
        return f"{self.op.name}({self.describe_inputs()})"


class Op:
    """A named operation; see the module's docstring."""

    size = 1  # how many operations this is worth when the executor weighs a compilation

    def __init__(
        self,
        name: str,
        inputs: tuple[str, ...],
        attrs: dict[str, Any],
        body: Callable[..., Any] | None,
        *,
        vjp: Callable[..., Any] | None = None,
        differentiable: bool = True,
        promote: str | None = None,
        infer: Callable[..., Any] | str | None = None,
        check: Callable[..., Any] | None = None,
        takes: Takes | None = None,
        numpy: bool | Callable[..., Any] = True,
        amp: str | None = None,
        used_by: dict[str, tuple[str, ...]] | None = None,
        usual: Sequence[str] = (),
        carries: int | None = None,
        also: dict[str, str] | None = None,
        exact: bool = False,
        register: bool = True,
    ):
        self.name = name
        self.inputs = inputs
        self.attr_defaults = attrs
        self.attr_names = tuple(attrs)
        self.body = body
        self.vjp = vjp
        self.differentiable = differentiable
        self.promote = promote
        self.infer = infer
        self.check = check
        self.takes = takes
        self.numpy = numpy
        self.amp = amp
        # One table of Calls per autocast setting; None is "autocast off".
        self.tables: dict[Any, dict[Any, Call]] = {None: {}}
        self.faded: WeakValueDictionary[Any, Call] | None = None  # see fading.py
        self.doc = inspect.getdoc(body) if body is not None else None
        self.saves = self._saved_names()
        # What is kept only if certain inputs need a gradient: {"x": ("y",)} for a product.
        self.used_by = used_by or {}
        self.required: frozenset[str] = frozenset()  # inputs that may not be None
        # Patterns of inputs that deserve a fast path, a letter each: t(ensor), f(loat), i(nt) or
        # - for None. Tensors alone always have one.
        self.usual = usual
        self.carries = carries  # how many results carry a gradient, counted from the first
        self.also = also or {}  # second names of inputs, by which they may be given too
        # It moves elements, looks at the type itself, or runs graphs of ops: NumPy does it in half
        # precision as it is given, where everything else is computed in float32 and rounded.
        self.exact = exact
        self._grad_op: Op | None = None
        if register:
            if name in OPS:
                raise ValueError(f"op {name!r} is defined twice")
            OPS[name] = self
        else:
            fading.enrol(self)

    def _saved_names(self) -> tuple[str, ...]:
        """What the gradient rule wants kept: names of inputs, or 'out'."""
        if not self.differentiable:
            return ()
        if self.vjp is None:
            return tuple(n.lstrip("*") for n in self.inputs)
        params = list(inspect.signature(self.vjp).parameters)[2:]  # after xp, grad
        names = {n.lstrip("*") for n in self.inputs}
        unknown = set(params) - names - set(self.attr_names)
        unknown -= _RESERVED
        if unknown:
            raise TypeError(f"vjp of {self.name} asks for unknown names: {sorted(unknown)}")
        return tuple(p for p in params if p in names or p == "out")

    @property
    def grad_op(self) -> Op:
        """The op that computes this op's input gradients; an ordinary op with its own gradient."""
        if self._grad_op is None:
            from bireme.core.grad_op import GradOp

            self._grad_op = GradOp(self)
        return self._grad_op

    @property
    def shown(self) -> str:
        """The name in messages: `_sum` is the op behind the function `sum`."""
        return self.name.lstrip("_")

    def runs_on_numpy(self) -> bool:
        return self.numpy is not False

    def lower(self, xp: Any, call: Call, arrays: list[Any]) -> Any:
        body = self.body
        if xp is np and callable(self.numpy):
            body = self.numpy
        assert body is not None  # noqa: S101 (every op without a body overrides lower)
        return body(xp, *call.group(arrays), **call.attrs)

    def infer_types(self, call: Call) -> tuple[bool, tuple[Aval, ...]]:
        """(has a single result, result types)."""
        try:
            if self.takes is not None:
                check_kinds(self.takes, call.input_names(), _tensors_cast(call))
            if self.check is not None:
                self.check(*call.group(_tensors_cast(call)), **call.attrs)
            if self.infer == "elementwise":
                return True, (_infer_elementwise(call),)
            if self.infer == "bool":
                return True, (aval(_infer_elementwise(call).shape, dt.bool_),)
            if self.infer is not None:
                out = self.infer(*call.group(_cast_types(call)), **call.attrs)  # type: ignore[operator]
            else:
                out = jax_door.abstract_eval(call)
        except BiremeError as e:
            raise type(e)(f"[{self.shown}] {e}. Received: {call.describe_inputs()}") from None
        except (TypeError, ValueError, IndexError, ZeroDivisionError, NotImplementedError) as e:
            reason = _reason(str(e))
            kind = TypeMismatch if isinstance(e, TypeError) else ShapeMismatch
            raise kind(f"[{self.shown}] {reason}. Received: {call.describe_inputs()}") from None
        if isinstance(out, tuple | list):
            return False, tuple(o if isinstance(o, Aval) else aval_of(o) for o in out)
        return True, (out if isinstance(out, Aval) else aval_of(out),)

    def resolve(self, inputs: Sequence[Any], attrs: dict[str, Any], amp: Any) -> Call:
        """The Call for these inputs, made and remembered on first sight."""
        types, layout = input_types(inputs)
        key = table_key(inputs, tuple(attrs.values()))
        call = self.known(amp, key)
        if call is None:
            casts = promotion(self, types, amp)
            call = self.tables[amp].setdefault(key, Call(self, types, layout, attrs, casts))
        return call

    def known(self, setting: Any, key: Any) -> Call | None:
        """The Call in the table for `setting`, if it is there or was and is still alive."""
        table = self.tables.setdefault(setting, {})
        call = table.get(key)
        if call is None:
            call = None if self.faded is None else self.faded.get((setting, key))
            if call is not None:
                table[key] = call
        return call

    def fade(self, held: list[Any]) -> None:
        """Begin new tables, and put the old ones into `held`; `known` finds again what is still
        alive. Whoever is about to add to an old one is heard: the table itself is held."""
        if self.faded is None:
            self.faded = WeakValueDictionary()
        for setting, table in list(self.tables.items()):
            held.append(table)
            self.tables[setting] = {}
            self.faded.update({(setting, key): call for key, call in list(table.items())})

    def __repr__(self) -> str:
        return f"<op {self.name}({', '.join((*self.inputs, *self.attr_names))})>"


_REFUSED_DTYPE = re.compile(r"does not accept dtype (\w+)")  # how JAX says it


def _reason(message: str) -> str:
    """Why a lowering could not be evaluated, in our words where we know them."""
    refused = _REFUSED_DTYPE.search(message)
    if refused is not None:
        return f"{refused[1]} is not taken here; cast with .astype('float32') or .astype('int64')"
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    return (lines[0] if lines else "invalid input").rstrip(".")


def _tensors_cast(call: Call) -> list[Any]:
    """The types as the lowering sees them after promotion and autocast; numbers as given."""
    return [
        aval(t.shape, c) if c is not None and isinstance(t, Aval) else t
        for t, c in zip(call.types, call.casts, strict=True)
    ]


def _cast_types(call: Call) -> list[Any]:
    return [
        t if c is None or t is None else aval(t.shape, c)
        for t, c in zip(call.types, call.casts, strict=True)
    ]


def broadcast_shapes(*shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The common shape, by NumPy's rules; symbolic dimensions allowed."""
    rank = max(map(len, shapes), default=0)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for i, d in enumerate(shape, rank - len(shape)):
            have = result[i]
            if have is d or have == d:
                continue
            if type(have) is int and have == 1:
                result[i] = d
            elif not (type(d) is int and d == 1):
                shown = " and ".join(str(list(s)) for s in shapes)
                raise ShapeMismatch(
                    f"shapes {shown} do not broadcast: dimension {i - rank} is {have} and {d}; "
                    "each pair of dimensions, from the last, must be equal or contain a 1"
                )
    return tuple(result)


def _infer_elementwise(call: Call) -> Aval:
    types = [t for t in _cast_types(call) if t is not None]
    if len(types) == 1:
        return types[0] if isinstance(types[0], Aval) else aval((), types[0].dtype)
    dtype = next((t.dtype for t in types if isinstance(t, Aval)), types[0].dtype)
    return aval(broadcast_shapes(*[t.shape for t in types]), dtype)


def promotion(op: Op, types: tuple[InputType, ...], amp: Any) -> tuple[DType | None, ...]:
    """The type that each input is cast to before the lowering; None for "as it is"."""
    tensors = [t.dtype for t in types if isinstance(t, Aval)]
    if amp is not None:
        tensors = [amp.cast(op, d) for d in tensors]
    target: DType | None = None
    if op.promote in ("binary", "float_binary", "compare"):
        target = _common_type(op, tensors, types)
    elif tensors:
        target = tensors[0]
    elif "dtype" not in op.attr_names:  # nothing but numbers, as tensors
        target = _common_type(op, tensors, types)
    if op.promote in ("float", "float_binary") and target is not None and not target.differentiable:
        target = dt.default_float()
    casts: list[DType | None] = []
    at = 0
    for t in types:
        if t is None:
            casts.append(None)
        elif isinstance(t, NumberType):
            casts.append(_number_cast(op, t, target))
        else:
            want = target if op.promote else tensors[at]
            casts.append(None if want is t.dtype else want)
            at += 1
    return tuple(casts)


def _number_cast(op: Op, number: NumberType, target: DType | None) -> DType:
    """Numbers follow the tensors' type; without promotion, integers stay int64 (seeds, sizes)."""
    follows = op.promote is not None or (number is FLOAT and target and target.differentiable)
    if target is None or not follows:
        return number.dtype
    return target


def _common_type(op: Op, tensors: list[DType], types: tuple[InputType, ...]) -> DType | None:
    if not tensors:
        kinds = [t.kind for t in types if isinstance(t, NumberType)]
        return dt.default_float() if float in kinds else dt.int64
    tensors = _without_scalars(tensors, [t for t in types if isinstance(t, Aval)])
    target = tensors[0]
    for other in tensors[1:]:
        both = dt.promote(target, other)
        if both is None and (op.promote == "compare" or _zero_dim(types)):
            both = dt.promote_any(target, other)
        if both is None:
            if op.promote == "float_binary" and not (target.differentiable or other.differentiable):
                both = dt.default_float()
            else:
                shown = ", ".join(str(t) for t in types)
                raise TypeMismatch(
                    f"[{op.shown}] cannot mix {target.name} and {other.name}: only floating and "
                    f"complex types promote. Cast one first, for example x.astype("
                    f"'{(target if target.is_floating else other).name}'). Received: {shown}"
                )
        target = both
    for t in types:
        if isinstance(t, NumberType):
            target = dt.with_number(target, t.kind)
    return target


def _without_scalars(dtypes: list[DType], avals: list[Aval]) -> list[DType]:
    """0-d tensors, like numbers, do not widen a tensor of their own kind."""
    kinds = {dt.kind(d) for d, a in zip(dtypes, avals, strict=True) if a.ndim > 0}
    pairs = zip(dtypes, avals, strict=True)
    return [d for d, a in pairs if a.ndim > 0 or dt.kind(d) not in kinds]


def _zero_dim(types: tuple[InputType, ...]) -> bool:
    return any(isinstance(t, Aval) and t.ndim == 0 for t in types)


def input_types(inputs: Sequence[Any]) -> tuple[tuple[InputType, ...], tuple[int, ...]]:
    """(flat types, layout) of an op's inputs."""
    types: list[InputType] = []
    layout: list[int] = []
    for x in inputs:
        if x.__class__ is tuple:
            types += [_input_type(i) for i in x]
            layout.append(len(x))
        else:
            types.append(_input_type(x))
            layout.append(-1)
    return tuple(types), tuple(layout)


def _input_type(x: Any) -> InputType:
    if x is None:
        return None
    if x.__class__ is float:
        return FLOAT
    if x.__class__ is int:
        return INT
    return x._value.aval


def table_key(inputs: Sequence[Any], attrs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key of a Call: what the generated fast path builds inline."""
    types = [tuple(map(_input_type, x)) if x.__class__ is tuple else _input_type(x) for x in inputs]
    return (*types, *attrs)


def invoke(op: Op, inputs: tuple[Any, ...], attrs: tuple[Any, ...]) -> Any:
    """The general path of an eager call: numbers, lists, optional inputs, new types."""
    from bireme.core.autograd import attach

    inputs = tuple([x if x.__class__ in TENSOR_TYPES else _lift(op, i, x, inputs)
                    for i, x in enumerate(inputs)])  # fmt: skip
    trace = state.trace
    try:
        call = op.tables[trace.amp].get(table_key(inputs, attrs))
    except (KeyError, TypeError):
        call = None
    if call is None:
        normal = {k: freeze(v) for k, v in zip(op.attr_names, attrs, strict=True)}
        trace = state.trace  # a tensor among the attributes was read: what was recorded has run
        call = op.resolve(inputs, normal, trace.amp)
    flat: list[Any] = []
    for x in inputs:
        flat.extend(x) if x.__class__ is tuple else flat.append(x)
    return attach(call, trace, flat)


def _lift(op: Op, index: int, x: Any, inputs: Sequence[Any]) -> Any:
    """A non-tensor argument as something that can be recorded, or a clear error."""
    if x.__class__ is float:
        return x
    if x.__class__ is int:
        if not -(2**63) <= x < 2**63:
            raise TypeMismatch(f"[{op.shown}] the integer {x} does not fit into int64")
        return x
    if x is None and op.inputs[index] not in op.required:
        return x
    if isinstance(x, tuple | list) and op.inputs[index].startswith("*"):
        return tuple([i if i.__class__ in TENSOR_TYPES else _lift(op, index, i, x) for i in x])
    from bireme.core.tensor import Tensor, constant

    if dims.is_dim_expression(x):
        from bireme.core.capture_trace import dimension

        return dimension(x)
    if isinstance(x, Tensor):  # a user's subclass
        TENSOR_TYPES.add(type(x))
        return x
    if x.__class__ is complex:
        return constant(np.asarray(x, np.complex128 if _any_wide(inputs) else np.complex64))
    if isinstance(x, bool | np.bool_ | np.generic):
        return constant(np.asarray(x))
    if isinstance(x, numbers.Real) and hasattr(x, "__float__"):
        return float(x)
    if isinstance(x, np.ndarray) and op.promote is not None:
        return constant(np.array(x))
    raise not_a_tensor(op.shown, op.inputs[index].lstrip("*"), x)


def _any_wide(inputs: Sequence[Any]) -> bool:
    """Whether a Python complex beside these inputs keeps all its digits."""
    tensors = [x for x in inputs if x.__class__ in TENSOR_TYPES]
    return any(x._value.aval.dtype in (dt.float64, dt.complex128) for x in tensors)


def freeze(value: Any) -> Any:
    """An attribute in hashable, plain form."""
    if isinstance(value, list | tuple):
        return tuple(_entry(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return freeze(value.tolist())
    if value.__class__ in TENSOR_TYPES:
        return freeze(value.numpy().tolist())
    if isinstance(value, dict):
        return tuple(sorted((k, freeze(v)) for k, v in value.items()))
    return value


def _entry(value: Any) -> Any:
    """An element of a list: a tensor of one number is that number, whatever its shape."""
    if value.__class__ in TENSOR_TYPES and value.size == 1:
        return value.item()
    return freeze(value)


def op(
    body: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    inputs: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Define an op from its lowering; returns the eager function. See the module's docstring."""

    def define(body: Callable[..., Any]) -> Callable[..., Any]:
        params = list(inspect.signature(body).parameters.values())[1:]
        if inputs is None:
            tensor_names = [p.name for p in params if p.default is p.empty]
        else:
            tensor_names = [n.lstrip("*") for n in inputs]
        marks = {n.lstrip("*"): n for n in inputs or ()}
        attrs = {p.name: p.default for p in params if p.name not in tensor_names}
        op_name = name or body.__name__
        if not _RESERVED.isdisjoint(tensor_names):
            raise TypeError(
                f"op {op_name!r}: an input must not be called {' or '.join(sorted(_RESERVED))}, "
                "the names by which gradient rules ask for other things; call it x or y. "
                f"Received: inputs {tensor_names}"
            )
        the_op = Op(op_name, tuple(marks.get(n, n) for n in tensor_names), attrs, body, **options)
        defaults = {p.name: p.default for p in params if p.default is not p.empty}
        needed = tensor_names if inputs is None else tensor_names[:1]
        the_op.required = frozenset(n for n in needed if n not in defaults)
        function = generate(the_op, [p.name for p in params], defaults, invoke, TENSOR_TYPES)
        function.__doc__ = the_op.doc
        function.__module__ = body.__module__
        function.op = the_op  # type: ignore[attr-defined]
        return function

    return define if body is None else define(body)


__all__ = [
    "CALLS",
    "OPS",
    "Call",
    "Op",
    "broadcast_shapes",
    "invoke",
    "op",
]
