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
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from bireme.core import dims, eviction, requirements
from bireme.core import dtype as dt
from bireme.core.aval import FLOAT, INT, Aval, NumberType, aval, aval_of
from bireme.core.dtype import DType
from bireme.core.dtype_kinds import Takes, check_kinds, expect_a_tensor
from bireme.core.errors import (
    BiremeError,
    ShapeMismatch,
    TypeMismatch,
    not_a_tensor,
    user_line,
)
from bireme.core.lowering import lowering
from bireme.core.op_codegen import generate
from bireme.core.trace import Autocast, state
from bireme.host import jax_door
from bireme.host.arrays import Namespace

CALLS = eviction.CALLS  # every Call by its id, as long as it is referenced
OPS: dict[str, Op] = {}  # every op by its name; a serialised graph refers to ops by it
TENSOR_TYPES: set[type] = set()  # Tensor and its subclasses, filled by tensor.py

InputType = Aval | NumberType | None


_next_id = itertools.count()
_RESERVED = {"out", "types", "needs"}  # parameters of gradient rules that are not inputs


class Call:
    """An op applied to attributes and input types: everything but the values."""

    __slots__ = (
        "__weakref__", "attrs", "casts", "checks", "cold", "differentiable", "direct", "fallible",
        "floats_at", "full_grad", "grad_calls", "grad_outs", "id", "ints_at", "layout", "op", "out",
        "outs", "requires", "saved_at", "saved_for", "saved_if", "scalar_out", "single",
        "source", "tensors_at", "types",
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
        self.direct: Any = None  # its kernel in the cold tier (see kernels.py)
        self.cold: Any = None  # what runs it there (see numpy_backend.py)
        self.grad_calls: dict[Any, Call] = {}
        self.full_grad: Call | None = None  # grad_calls' entry for "everything is wanted"
        self.requires: tuple[requirements.Requirement, ...] = ()
        self.checks = 0  # requirements, its own and those of the graphs that it runs
        self.single, self.outs = op.infer_types(self)
        self.requires = op.requirements_of(self)
        inner = requirements.inner_graphs(attrs)
        self.checks = len(self.requires) + sum([requirements.count(g.nodes) for g in inner])
        self.fallible = op.fallible or any(n.call.fallible for g in inner for n in g.nodes)
        self.out: Any = self.outs[0] if self.single else None
        floats = any(o.dtype.differentiable for o in self.outs)
        whole = op.vjp is not None and all(o.dtype.is_integer for o in self.outs)  # as in Paddle
        self.differentiable = op.differentiable and (floats or whole)
        self.scalar_out = self.single and self.outs[0].ndim == 0
        self.saved_at, self.saved_for = self._saved_positions()
        # The recorder's plan, so that it asks no input what it is:
        self.saved_if = tuple([(i, u) for i, u in enumerate(self.saved_for) if u is not None])
        carrying = enumerate(self.outs[: op.carries])
        self.grad_outs = tuple([i for i, o in carrying if o.dtype.differentiable or not floats])
        self.tensors_at = tuple([i for i, t in enumerate(types) if isinstance(t, Aval)])
        self.floats_at = tuple([i for i, t in enumerate(types) if t is FLOAT])
        self.ints_at = tuple([i for i, t in enumerate(types) if t is INT])
        self.id = next(_next_id)
        CALLS[self.id] = self
        if self.id % eviction.EVERY == eviction.EVERY - 1:
            eviction.evict()

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

    def cast(self, xp: Namespace, arrays: Sequence[Any]) -> list[Any]:
        """The inputs in the types that the op computes in."""
        return [
            a if c is None or a is None else xp.asarray(a).astype(c.numpy)
            for a, c in zip(arrays, self.casts, strict=True)
        ]

    def run(self, xp: Namespace, arrays: Sequence[Any]) -> Any:
        """Evaluate on NumPy arrays or JAX tracers; numbers arrive as 0-d arrays."""
        if not self.checks or xp is np:
            return self._lower(xp, arrays)
        first = requirements.enter(self)
        out = self._lower(xp, arrays)
        requirements.leave(self, first, xp, arrays, out)
        return out

    def _lower(self, xp: Any, arrays: Sequence[Any]) -> Any:
        if lowering.choose is None or xp is np:
            return self.op.lower(xp, self, self.cast(xp, arrays))
        with lowering.precision(self):
            kernel, flat = lowering.choose(self), self.cast(xp, arrays)
            return self.op.lower(xp, self, flat) if kernel is None else kernel(self, *flat)

    def gradient(self, needs: tuple[int, ...], present: tuple[bool, ...]) -> Call:
        """The Call that differentiates this one by its flat inputs `needs`, given the gradients of
        those results that are `present`. It lives as long as this one."""
        return intern(
            self.grad_calls,
            (needs, present),
            lambda: self.op.grad_op.gradient_call(self, needs, present),
        )

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


def intern(table: dict[Any, Call], key: Hashable, make: Callable[[], Call]) -> Call:
    """The Call under `key`, made on first sight: the one way to a Call.

    The first thread decides for all, because a Call's id stands for it in traces and keys. (Calls
    of a static program, each with a graph of its own, are in a bounded cache that does the same.)
    """
    call = table.get(key)
    return table.setdefault(key, make()) if call is None else call


class Op:
    """A named operation; see the module's docstring."""

    size = 1  # how many operations this is worth when the executor weighs a compilation
    fused = False  # it stands for several others in a program for one platform (kernels/fusing.py)
    at_once: Callable[[Call], bool] | None = None  # calls that are never interpreted by choice

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
        exact: bool = False,
        requires: Callable[..., Sequence[requirements.Requirement]] | None = None,
        fallible: bool = False,
        of_numbers: bool = False,
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
        self.tables: dict[Any, dict[Any, Call]] = {None: {}}  # by autocast setting; None: off
        self.weak_calls: WeakValueDictionary[Any, Call] | None = None  # see eviction.py
        self.doc = inspect.getdoc(body) if body is not None else None
        self.saves = self._saved_names()
        self.used_by = used_by or {}  # residuals that only certain inputs need: {"x": ("y",)}
        self.required: frozenset[str] = frozenset()  # inputs that may not be None
        # Patterns of inputs that deserve a fast path, a letter each: t(ensor), f(loat), i(nt) or
        # - for None. Tensors alone always have one.
        self.usual = usual
        self.carries = carries  # how many results carry a gradient, counted from the first
        # It moves elements, looks at the type itself, or runs graphs of ops: NumPy does it in half
        # precision as it is given, where everything else is computed in float32 and rounded.
        self.exact = exact
        self.requires = requires
        self.fallible = fallible  # it may raise while it runs, also inside a compiled program
        self.of_numbers = of_numbers or "seed" in inputs  # Python numbers alone will do
        self.function: Callable[..., Any] | None = None  # what a program calls
        self._grad_op: Op | None = None
        if register:
            if name in OPS:
                raise ValueError(f"op {name!r} is defined twice")
            OPS[name] = self
        else:
            eviction.enrol(self)

    def _saved_names(self) -> tuple[str, ...]:
        """The residuals that the gradient rule needs: names of inputs, or 'out'."""
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

    def requirements_of(self, call: Call) -> tuple[requirements.Requirement, ...]:
        """The requirements of a call on inputs of these types."""
        if self.requires is None or not all(_is_static(t) for t in call.types):
            return ()
        return tuple(self.requires(*call.group(call.types), **call.attrs))

    def passed_on(self, call: Call, args: Sequence[Any], inputs: int) -> Iterable[tuple[int, Any]]:
        """Which inputs of a graph that the call runs, by number, are arguments of it unchanged;
        `inputs` is how many the graph has."""
        # A branch or loop: the last inputs of its graphs are the operands. The others change.
        operands = dict(zip(self.inputs, call.group(args), strict=True)).get("*operands", ())
        return zip(range(inputs - len(operands), inputs), operands, strict=True)

    def runs_on_numpy(self) -> bool:
        return self.numpy is not False

    def lower(self, xp: Any, call: Call, arrays: list[Any]) -> Any:
        body = self.numpy if xp is np and callable(self.numpy) else self.body
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
                out = jax_door.abstract_eval(call.run, call.types)
        except BiremeError as e:
            raise type(e)(f"[{self.shown}] {e}. Received: {call.describe_inputs()}") from None
        except (TypeError, ValueError, IndexError, ZeroDivisionError, NotImplementedError) as e:
            reason = _reason(str(e))
            kind = TypeMismatch if isinstance(e, TypeError) else ShapeMismatch
            raise kind(f"[{self.shown}] {reason}. Received: {call.describe_inputs()}") from None
        if isinstance(out, tuple | list):
            return False, tuple(o if isinstance(o, Aval) else aval_of(o) for o in out)
        return True, (out if isinstance(out, Aval) else aval_of(out),)

    def resolve(self, inputs: Sequence[Any], attrs: dict[str, Any], amp: Autocast | None) -> Call:
        """The Call for these inputs, made and remembered on first sight."""
        types, layout = input_types(inputs)
        key = table_key(inputs, tuple(attrs.values()))
        return self.interned(
            amp, key, lambda: Call(self, types, layout, attrs, promotion(self, types, amp))
        )

    def interned(self, setting: Hashable, key: Hashable, make: Callable[[], Call]) -> Call:
        """`intern` in the table for `setting`. A Call that has left it is found again while it is
        alive (see eviction.py)."""
        table = self.tables.setdefault(setting, {})
        if key not in table and self.weak_calls is not None:
            call = self.weak_calls.get((setting, key))
            if call is not None:
                return intern(table, key, lambda: call)
        return intern(table, key, make)

    def call_with(
        self,
        types: tuple[InputType, ...],
        layout: tuple[int, ...],
        attrs: dict[str, Any],
        casts: tuple[DType | None, ...],
    ) -> Call:
        """The Call with exactly these types and casts."""
        return self.interned(
            ("casts", casts),
            (types, layout, tuple(attrs.values())),
            lambda: Call(self, types, layout, attrs, casts),
        )

    def gradient_call(
        self, forward: Call, needs: tuple[int, ...], present: tuple[bool, ...]
    ) -> Call:
        """A new Call of this op, the gradient of another, for `Call.gradient`."""
        raise NotImplementedError(f"{self.name} is not the gradient of an op")

    def evict(self, held: list[Any]) -> None:
        """Begin new tables, and put the old ones into `held`; `interned` finds again what is still
        alive. Whoever is about to add to an old one is heard: the table itself is held."""
        if self.weak_calls is None:
            self.weak_calls = WeakValueDictionary()
        for setting, table in list(self.tables.items()):
            held.append(table)
            self.tables[setting] = {}
            self.weak_calls.update({(setting, key): call for key, call in list(table.items())})

    def __repr__(self) -> str:
        return f"<op {self.name}({', '.join((*self.inputs, *self.attr_names))})>"


def _is_static(t: InputType) -> bool:
    return not isinstance(t, Aval) or t.is_static


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
            elif type(d) is int and d == 1:
                continue
            elif (type(d) is int) != (type(have) is int):
                # The open size is this one, or 1. What is wrong with another one is found when the
                # size is known.
                result[i] = d if type(d) is int else have
            else:
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


def promotion(
    op: Op, types: tuple[InputType, ...], amp: Autocast | None
) -> tuple[DType | None, ...]:
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
    """The key of a Call; the generated fast path builds it inline."""
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
        if any(x.__class__ in (int, float) for x in inputs):
            expect_a_tensor(op, 0, inputs[0], inputs, TENSOR_TYPES)
        normal = {k: freeze(v) for k, v in zip(op.attr_names, attrs, strict=True)}
        trace = state.trace  # a tensor among the attributes was read, so the recorded ops have run
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
        from bireme.core.dimension import dimension

        return dimension(x)
    if isinstance(x, Tensor):  # a user's subclass
        TENSOR_TYPES.add(type(x))
        return x
    if isinstance(x, complex | bool | np.generic | np.ndarray):
        expect_a_tensor(op, index, x, inputs, TENSOR_TYPES)
    if x.__class__ is complex:
        return constant(np.asarray(x, np.complex128 if _any_wide(inputs) else np.complex64))
    if isinstance(x, bool | np.bool_ | np.generic):
        return constant(np.asarray(x))
    if isinstance(x, numbers.Integral):  # a subclass of int, such as an IntEnum's member
        return _lift(op, index, int(x), inputs)
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
        if value.dtype.is_integer:
            from bireme.core import recorder_hooks, trace

            return recorder_hooks.read_sizes(trace.state.trace, value)[0]
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
        the_op.function = function
        return function

    return define if body is None else define(body)


__all__ = [
    "CALLS",
    "OPS",
    "Call",
    "Op",
    "broadcast_shapes",
    "intern",
    "invoke",
    "op",
]
