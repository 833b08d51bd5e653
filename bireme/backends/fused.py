"""Elementwise functions and sums of rows in one pass over memory, shared among threads.

NumPy runs a body function by function, on one thread, and each writes an array that the next one
reads. Here a body is noted once per Call (`pieces.py`) and becomes programs for a native
interpreter (kernels/native/fused.cc): one for each size among the results, all of whose arrays are
read and written once. The body stays the one definition of its op.

In a program every number has a place in the arrays of `rows` by `width` elements: an element, one
of a row that is the same for all rows, one for each row, or one for all.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bireme.backends.pieces import DOUBLE, FLOAT, LONG, MASK, WORD, NotFused, Piece, namespace
from bireme.core import aval, kernels
from bireme.core.aval import Aval
from bireme.core.op import Call, Op
from bireme.host import jax_door, thresholds
from bireme.kernels import native
from bireme.kernels.native.calling import threads

NAME = "fused_pieces"
_NARROWEST, _WIDEST = 8, 1 << 13  # elements of a row that is a piece
_MOST_STEPS = 4000

# The order of the names in kernels/native/fused.cc.
_OPERATIONS = (
    "copy", "negative", "absolute", "square_root", "exp", "log", "tanh", "erf", "round", "floor",
    "ceil", "sign", "expm1", "log1p", "sin", "cos",
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "power",
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal",
    "add_words", "multiply_words", "xor", "and", "or", "shift_right", "less_words", "equal_words",
    "not", "select", "mask_to_float", "word_to_float", "position", "load_mask", "store_mask",
    "low_word", "long_to_float", "double_to_float", "multiply_doubles", "key_word", "draws",
    "row_sum", "row_maximum", "row_minimum", "column_sum",
)  # fmt: skip
# NumPy has faster ones.
_SLOW = frozenset({"sin", "cos", "power"})
_SIMPLE = range(_OPERATIONS.index("add"), _OPERATIONS.index("power"))
_NUMBER = {name: i for i, name in enumerate(_OPERATIONS)}
(
    _SCRATCH, _SCALAR, _ROW_SCALAR, _INPUT, _INPUT_ROW, _INPUT_COLUMN, _OUTPUT, _OUTPUT_COLUMN,
    _COLUMNS,
) = range(9)  # fmt: skip
_BYTES = {FLOAT: 4, WORD: 4, MASK: 1, LONG: 8, DOUBLE: 8}
_SINGLE = (LONG, DOUBLE)  # only as single numbers
# How often a number differs: once for all, for each row, for each element.
_ONCE, _BY_ROW, _EACH = range(3)
_FORMS = ("reshape", "spread")


# It lowers no op of its own: it is a kernel to be switched off by name.
kernels.kernel("*", name=NAME, platform="numpy")(lambda call, *arrays: None)

Run = Callable[[Call, list[Any]], Any]


def may_run(call: Call) -> bool:
    """Whether a call is large enough and of a kind that may run in one pass."""
    if call.op.exact:  # it moves elements, or shows them in another form
        return False
    arrays = [t for t in (*call.types, *call.outs) if isinstance(t, Aval)]
    if not all(t.is_static and t.size for t in arrays):
        return False
    return max(t.size for t in arrays) >= thresholds.CPU_PIECE


def runner(call: Call, plain: Run) -> Run | None:
    """What runs a call in one pass, or None if its body is no such composition. `plain` runs it
    while this kernel is switched off."""
    if not may_run(call):
        return None
    if native.arrived() is None:
        return None
    try:
        fused = _Fused(call, plain)
        return fused.run if fused.pays() else None
    except (NotFused, TypeError, ValueError, AttributeError, IndexError):
        return None


class _Input(NamedTuple):
    """Where an input of a call goes: into memory as an array, or among the single numbers."""

    at: int
    dtype: Any


class _Fused:
    """A call's programs."""

    def __init__(self, call: Call, plain: Run):
        self.plain = plain
        flat: list[Any] = []
        for i, (t, cast) in enumerate(zip(call.types, call.casts, strict=True)):
            if t is None:
                flat.append(None)
                continue
            if isinstance(t, Aval):
                kind, shape = t.dtype.numpy.name, t.shape
            else:
                kind, shape = (DOUBLE if t is aval.FLOAT else LONG), ()
            if kind not in _BYTES:
                raise NotFused("an input of another type")
            if kind in _SINGLE and math.prod(shape) != 1:
                raise NotFused("an array of such numbers")
            piece = Piece("input", (), shape, kind, _Input(i, np.dtype(kind)))
            flat.append(piece if cast is None else piece.astype(cast.numpy))
        with jax_door.refused(NotFused("JAX")):
            op = call.op
            if callable(op.numpy) and type(op).lower is Op.lower:
                found = op.numpy(namespace, *call.group(flat), **call.attrs)
            else:
                found = op.lower(namespace, call, flat)
        found = [found] if call.single else list(found)
        self.outs = [(o.shape, o.dtype.numpy) for o in call.outs]
        for piece, o in zip(found, call.outs, strict=True):
            if piece.__class__ is not Piece or piece.shape != o.shape:
                raise NotFused("a result of another shape")
            if piece.kind != o.dtype.numpy.name or piece.kind in _SINGLE:
                raise NotFused("a result of another type")
        by_domain: dict[int, list[int]] = {}
        for i, piece in enumerate(found):
            by_domain.setdefault(_domain(piece), []).append(i)
        self.programs = [_Program(size, found, which) for size, which in by_domain.items()]
        self.size = max(by_domain)
        self.single = call.single

    def pays(self) -> bool:
        """Whether NumPy would be slower: it copies as fast, or not at all, and does one simple
        function of an array of moderate size as fast."""
        each = [s[0] for p in self.programs for s in p.steps if s[5] == _EACH]
        if all(s == _NUMBER["copy"] for s in each):
            return False
        return (
            len(each) > len(self.programs)
            or each[0] not in _SIMPLE
            or self.size >= thresholds.CPU_PIECE_SHARED
        )

    def run(self, call: Call, arrays: list[Any]) -> Any:
        if kernels.is_off(NAME):
            return self.plain(call, arrays)
        made: list[Any] = [None] * len(self.outs)
        for program in self.programs:
            program.run(arrays, made, self.outs)
        return made[0] if self.single else made


def _domain(piece: Piece) -> int:
    """The most elements of any array that a result is computed from."""
    largest, seen, open_ = 1, {id(piece)}, [piece]
    while open_:
        p = open_.pop()
        if len(seen) > _MOST_STEPS:
            raise NotFused("a long body")
        largest = max(largest, p.size)
        for a in p.args:
            if id(a) not in seen:
                seen.add(id(a))
                open_.append(a)
    return largest


class _Program:
    """One pass over arrays of `size` elements."""

    def __init__(self, size: int, found: list[Piece], which: list[int]):
        self.size, self.width = size, 0
        self.registers: list[list[int]] = []  # place, index, bytes, sum
        self.steps: list[list[int]] = []  # operation, result, a, b, c, level
        self.inputs: list[_Input] = []
        self.numbers: list[tuple[int, _Input]] = []  # single numbers that are inputs
        self.constants: list[tuple[int, Any]] = []
        self.outputs: list[int] = []
        self.columns = 0
        self.made: dict[tuple[Any, ...], tuple[int, int]] = {}
        self.count_scalars = 0
        for i in which:
            self._deliver(i, found[i])
        self._seal()

    # --- placing ----------------------------------------------------------------------------

    def _deliver(self, number: int, piece: Piece) -> None:
        """Compute a result into its array."""
        self.outputs.append(number)
        slot, kind = len(self.outputs) - 1, piece.kind
        inner = piece
        while inner.op in _FORMS and inner.size == inner.args[0].size:
            inner = inner.args[0]
        if inner.op == "column_sum":
            x = inner.args[0]
            if x.size != self.size:
                raise NotFused("a sum of columns of something smaller")
            self._have_width(inner.size)
            at, level = self._place(x, self.size)
            to = self._register(_COLUMNS, slot, 4, self.columns)
            self.columns += 1
            self._step("column_sum", to, (at,), _EACH)
            return
        if piece.size == self.size:
            to = self._register(_OUTPUT, slot, _BYTES[kind])
        elif piece.size == 1:
            at, level = self._place(piece, 1)
            if level != _ONCE:
                raise NotFused("one number of a row")
            to = self._register(_OUTPUT, slot, _BYTES[kind])
            self._step("store_mask" if kind == MASK else "copy", to, (at,), _ONCE)
            return
        else:
            rows = piece.size
            if self.size % rows:
                raise NotFused("a result of another size")
            self._have_width(self.size // rows)
            at, level = self._place(piece, rows, by_row=True)
            to = self._register(_OUTPUT_COLUMN, slot, _BYTES[kind])
            self._step("store_mask" if kind == MASK else "copy", to, (at,), _BY_ROW)
            return
        at, level = self._place(piece, self.size)
        last = self.steps[-1] if self.steps else None
        mine = last is not None and last[1] == at and level == _EACH and kind != MASK
        if mine and self.registers[at][0] == _SCRATCH:
            last[1] = to  # type: ignore[index] (computed right into the array)
            for key, (register, found_level) in self.made.items():
                if register == at:
                    self.made[key] = (to, found_level)
            return
        self._step("store_mask" if kind == MASK else "copy", to, (at,), _EACH)

    def _have_width(self, width: int) -> None:
        if self.width not in (0, width) or not _NARROWEST <= width <= _WIDEST:
            raise NotFused("rows of other widths")
        self.width = width

    def _place(self, p: Piece, size: int, by_row: bool = False) -> tuple[int, int]:
        """(the register that has a piece, how often it differs). `size` says which: all elements,
        one row, one column (`by_row`), or one number."""
        key = (id(p), size, by_row)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = self._placed(p, size, by_row)
        return found

    def _placed(self, p: Piece, size: int, by_row: bool) -> tuple[int, int]:
        if p.op == "constant":
            return self._scalar(("constant", p.kind, p.value.tobytes()), p.value, None), _ONCE
        if p.op == "input":
            return self._placed_input(p, size, by_row)
        if p.op in ("position", "draws"):
            if size != self.size or self.size == 1:
                raise NotFused("positions of something smaller")
            args = [self._place(a, 1)[0] for a in p.args]
            return self._computed(p.op, tuple(args), _EACH), _EACH
        if p.op in ("row_sum", "row_maximum", "row_minimum"):
            if not by_row or p.args[0].size != self.size:
                raise NotFused("a sum of something smaller")
            self._have_width(p.value)
            at, _ = self._vector(p.args[0])
            return self._computed(p.op, (at,), _BY_ROW), _BY_ROW
        if p.op == "column_sum":
            raise NotFused("a sum of columns that is used")
        placed = [self._operand(a, p.shape, size, by_row) for a in p.args]
        if p.op in _FORMS:
            return placed[0]
        level = max([level for _, level in placed])
        return self._computed(p.op, tuple([at for at, _ in placed]), level), level

    def _vector(self, p: Piece) -> tuple[int, int]:
        """A piece of all elements as one that is really there."""
        at, level = self._place(p, self.size)
        return (at, level) if level == _EACH else (self._computed("copy", (at,), _EACH), _EACH)

    def _operand(
        self, a: Piece, shape: tuple[int, ...], size: int, by_row: bool
    ) -> tuple[int, int]:
        """Place an operand of what has this shape and place."""
        if a.op == "constant":
            return self._place(a, 1)
        if a.size == size:
            return self._place(a, size, by_row)
        if a.size == 1:
            return self._place(a, 1)
        if size != self.size:
            raise NotFused("broadcasting of something smaller")
        own = (1,) * (len(shape) - a.ndim) + a.shape
        varies = [i for i, d in enumerate(own) if d != 1]
        first, last = varies[0], varies[-1]
        if own[first:] == shape[first:]:
            self._have_width(a.size)
            return self._place(a, a.size)
        if own[: last + 1] == shape[: last + 1]:
            self._have_width(self.size // a.size)
            return self._place(a, a.size, by_row=True)
        raise NotFused("broadcasting in the middle")

    def _placed_input(self, p: Piece, size: int, by_row: bool) -> tuple[int, int]:
        given: _Input = p.value
        if size == 1:
            at = self._scalar(("input", given.at), None, given)
            if p.kind == MASK:
                return self._computed("load_mask", (at,), _ONCE), _ONCE
            return at, _ONCE
        place = _INPUT if size == self.size else _INPUT_COLUMN if by_row else _INPUT_ROW
        at = self._register(place, len(self.inputs), _BYTES[p.kind])
        self.inputs.append(given)
        level = _BY_ROW if place == _INPUT_COLUMN else _EACH
        if p.kind == MASK:
            return self._computed("load_mask", (at,), level), level
        return at, level

    # --- emitting ---------------------------------------------------------------------------

    def _register(self, place: int, index: int, size: int = 4, which: int = 0) -> int:
        self.registers.append([place, index, size, which])
        return len(self.registers) - 1

    def _scalar(self, key: Any, value: Any, given: _Input | None) -> int:
        found = self.made.get(key)
        if found is not None:
            return found[0]
        at = self._register(_SCALAR, self.count_scalars)
        if given is None:
            self.constants.append((self.count_scalars, value))
        else:
            self.numbers.append((self.count_scalars, given))
        self.count_scalars += 1
        self.made[key] = (at, _ONCE)
        return at

    def _computed(self, op: str, args: tuple[int, ...], level: int) -> int:
        key = (op, args, level)
        found = self.made.get(key)
        if found is not None:  # the same was computed before
            return found[0]
        if level == _ONCE:
            at = self._register(_SCALAR, self.count_scalars)
            self.count_scalars += 1
        else:
            at = self._register(_ROW_SCALAR if level == _BY_ROW else _SCRATCH, 0)
        self._step(op, at, args, level)
        self.made[key] = (at, level)
        return at

    def _step(self, op: str, to: int, args: tuple[int, ...], level: int) -> None:
        if len(self.steps) > _MOST_STEPS or (level == _EACH and op in _SLOW):
            raise NotFused("a long body, or a slow function")
        padded = [*args, -1, -1, -1][:3]
        self.steps.append([_NUMBER[op], to, *padded, level])

    def _seal(self) -> None:
        """Give pieces that are not needed at the same time the same memory, and write it all down
        as the interpreter reads it."""
        last: dict[int, int] = {}
        for i, step in enumerate(self.steps):
            for r in step[1:5]:
                last[r] = i
        free: list[int] = []
        scratch = 0
        given: set[int] = set()
        for i, step in enumerate(self.steps):
            to = step[1]
            if self.registers[to][0] == _SCRATCH and to not in given:
                given.add(to)
                if not free:
                    free.append(scratch)
                    scratch += 1
                self.registers[to][1] = free.pop()
            for r in set(step[1:5]):
                if r >= 0 and self.registers[r][0] == _SCRATCH and last[r] == i:
                    free.append(self.registers[r][1])
        by_rows = self.width > 0
        width = self.width or self.size
        vector_steps = sum([s[5] == _EACH for s in self.steps])
        header = [
            self.size // width, width, by_rows, len(self.registers), len(self.steps), scratch,
            self.count_scalars, self.columns, self.size * max(1, vector_steps),
        ]  # fmt: skip
        kept = [np.array(header, np.int64), np.array(self.registers, np.int32)]
        kept.append(np.array(self.steps, np.int32).reshape(-1, 6))
        self.kept = kept
        self.blob = [ctypes.c_void_p(a.__array_interface__["data"][0]) for a in kept]
        scalars = bytearray(8 * max(1, self.count_scalars))
        for slot, value in self.constants:
            content = (
                value.astype(np.uint32).tobytes() if value.dtype == np.bool_ else value.tobytes()
            )
            if value.dtype == np.bool_ and value:
                content = b"\xff" * 4
            scalars[8 * slot : 8 * slot + len(content)] = content
        self.scalars = bytes(scalars)
        # Elements that do not know where they are may lie in any order.
        places = {_NUMBER["position"], _NUMBER["draws"]}
        self.in_any_order = not by_rows and not any(s[0] in places for s in self.steps)
        self.in_type = ctypes.c_void_p * max(1, len(self.inputs))
        self.out_type = ctypes.c_void_p * len(self.outputs)
        self.made.clear()

    # --- running ----------------------------------------------------------------------------

    def run(self, arrays: Sequence[Any], made: list[Any], outs: list[tuple[Any, Any]]) -> None:
        scalars = bytearray(self.scalars)
        for slot, given in self.numbers:
            content = np.asarray(arrays[given.at]).astype(given.dtype).tobytes()
            scalars[8 * slot : 8 * slot + len(content)] = content
        given = [arrays[i.at] for i in self.inputs]
        order = None
        if not all(a.flags.c_contiguous for a in given):
            shapes = [outs[o][0] for o in self.outputs]
            order = _common_order(given, shapes) if self.in_any_order else None
            given = [_laid_out(a, order) for a in given]
        for o in self.outputs:
            shape, dtype = outs[o]
            made[o] = np.empty(shape, dtype) if order is None else _empty(shape, dtype, order)
        inputs = self.in_type(*[a.__array_interface__["data"][0] for a in given])
        outputs = self.out_type(*[made[o].__array_interface__["data"][0] for o in self.outputs])
        run = native.arrived().bireme_run_fused  # type: ignore[union-attr]
        run.restype = None
        room = (ctypes.c_char * len(scalars)).from_buffer(scalars)
        run(*self.blob, inputs, outputs, room, ctypes.c_int64(threads()))


def _common_order(
    given: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """The dimensions of arrays of one shape, and of results of these shapes, from the slowest to
    the fastest, as most of the arrays lie in memory: images keep the layout of the convolutions.
    None: as they are numbered."""
    shape = given[0].shape
    if any(a.shape != shape for a in given) or any(s != shape for s in shapes):
        return None
    orders = []
    for a in given:
        order = tuple(sorted(range(a.ndim), key=lambda d: -a.strides[d]))
        if a.transpose(order).flags.c_contiguous:
            orders.append(order)
    order = max(orders, key=orders.count, default=())
    return None if order in ((), tuple(range(len(shape)))) else order


def _laid_out(array: np.ndarray, order: tuple[int, ...] | None) -> np.ndarray:
    """The array with its dimensions in this order in memory."""
    turned = array if order is None else array.transpose(order)
    return np.ascontiguousarray(turned)


def _empty(shape: tuple[int, ...], dtype: Any, order: tuple[int, ...]) -> np.ndarray:
    return np.empty([shape[d] for d in order], dtype).transpose(np.argsort(order))
