"""The ops behind `x[...]` and `x[...] = v`; `slicing.py` reads the index and calls them.

The basic part of an index (ints, slices, None) is a `spec`, one entry per dimension. Positions
that may change from step to step are run-time inputs (`starts`), so that `x[i]` and
`x[i : i + n]` in a loop do not compile again and again.
"""

from __future__ import annotations

from builtins import slice as span  # as in slicing.py, where `slice` is a public function
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.capture.graph_io import register_attribute
from bireme.core.aval import Aval, aval
from bireme.core.dims import is_dim_expression
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.lowering import computes_at_once, with_part
from bireme.core.op import broadcast_shapes, op
from bireme.core.requirements import InRange, positions
from bireme.host import jax_door
from bireme.ops.nn_support import scatter_add

# A spec's entries: an int (static position), (start, stop, step) (static slice), AT (position
# given at run time), a Run (slice whose start is given at run time), None (new dimension).
AT = "at"
FULL = (None, None, None)

Spec = tuple[Any, ...]


class Run(int):
    """A slice of this length whose start is a run-time input."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"run:{int(self)}"

    def __hash__(self) -> int:
        return hash(("run", int(self)))

    def __eq__(self, other: object) -> bool:
        return other.__class__ is Run and int(self) == int(other)  # type: ignore[call-overload]


register_attribute("run", Run, int)


def _slice_length(entry: tuple[Any, Any, Any], size: Any) -> Any:
    if entry == FULL:
        return size
    start, stop, step = entry
    if type(size) is int:
        return len(range(*span(start, stop, step).indices(size)))
    if step in (None, 1):  # a symbolic size: the forms whose length needs no comparison
        start = 0 if start is None else start
        if stop is None:
            return size - start if start >= 0 else -start
        if start >= 0 and stop < 0:
            return size + stop - start
        if (start < 0) == (stop < 0):
            return max(stop - start, 0)
    raise InvalidArgument(
        f"a dimension of unknown size {size} cannot be sliced with {start}:{stop}:{step}"
    )


def _taken_shape(shape: tuple[Any, ...], spec: Spec) -> tuple[Any, ...]:
    out: list[Any] = []
    at = 0
    for entry in spec:
        if entry is None:
            out.append(1)
            continue
        kind = entry.__class__
        if kind is tuple:
            out.append(_slice_length(entry, shape[at]))
        elif kind is Run:
            out.append(int(entry))
        at += 1
    return (*out, *shape[at:])


def _split_spec(spec: Spec, starts: Sequence[Any], shape: tuple[Any, ...]) -> Any:
    """(index for the static part, start per dimension, length per dimension or None)."""
    given = iter(starts)
    static: list[Any] = []
    first: list[Any] = []
    length: list[Any] = []
    at = 0
    for entry in spec:
        if entry is None:
            static.append(None)
            continue
        kind = entry.__class__
        if kind is tuple:
            static.append(span(*entry))
        elif kind is int:
            static.append(entry)
        else:
            static.append(span(None) if kind is Run else 0)
        if is_dim_expression(entry):  # counted from the front, where the size is open
            first.append(entry)
            length.append(1)
        elif kind is Run or entry is AT:
            first.append(_from_front(next(given), shape[at]))
            length.append(1 if entry is AT else int(entry))
        else:
            first.append(0)
            length.append(None)
        at += 1
    return tuple(static), first, length


def _from_front(start: Any, size: Any) -> Any:
    """A position given at run time, by a number (checked when recorded) or by a 0-d tensor."""
    start = start.reshape(())
    return start + (start < 0) * size


def numpy_index(spec: Spec, starts: Sequence[Any], shape: tuple[int, ...]) -> tuple[Any, ...]:
    static, first, length = _split_spec(spec, starts, shape)
    index, at = [], 0
    for entry in static:
        if entry is None:
            index.append(None)
            continue
        if length[at] is not None:
            start = int(first[at])
            entry = start if entry.__class__ is int else span(start, start + length[at])
        index.append(entry)
        at += 1
    return tuple(index)


def _take(xp: Any, x: Any, spec: Spec, starts: Sequence[Any]) -> Any:
    if computes_at_once(xp):
        return x[numpy_index(spec, starts, x.shape)]
    static, first, length = _split_spec(spec, starts, x.shape)
    lax = jax_door.jax().lax
    for axis, size in enumerate(length):
        if size is not None:
            x = lax.dynamic_slice_in_dim(x, first[axis], size, axis)
    return x[static]


def _put(xp: Any, x: Any, value: Any, spec: Spec, starts: Sequence[Any]) -> Any:
    value = _fitted(xp, value, _taken_shape(tuple(x.shape), spec), x.dtype)
    if computes_at_once(xp):
        return with_part(xp, x, numpy_index(spec, starts, x.shape), value)
    static, first, length = _split_spec(spec, starts, x.shape)
    window, in_place = _window(static, first, length, x.shape)
    if in_place:
        block = xp.reshape(
            value, [s if n is None else n for (_, n), s in zip(window, x.shape, strict=True)]
        )
        starts = [s for s, _ in window]
        starts = [xp.asarray(s, np.int64) for s in starts]
        return jax_door.jax().lax.dynamic_update_slice(x, block, starts)
    if not any(n is not None for n in length):
        return x.at[static].set(value)
    inner = x
    lax = jax_door.jax().lax
    for axis, size in enumerate(length):
        if size is not None:
            inner = lax.dynamic_slice_in_dim(inner, first[axis], size, axis)
    inner = inner.at[static].set(value)
    return lax.dynamic_update_slice(x, inner, _begin(xp, first, x.ndim))


def _begin(xp: Any, first: list[Any], ndim: int) -> list[Any]:
    return [xp.asarray(first[i] if i < len(first) else 0, np.int64) for i in range(ndim)]


def _window(static: Any, first: list[Any], length: list[Any], shape: Any) -> Any:
    """(start, length) per dimension if the index names one unbroken block, for an update in
    place; a length of None is the whole dimension."""
    window: list[Any] = []
    at = 0
    for entry in static:
        if entry is None:
            continue
        size = shape[at]
        if length[at] is not None:
            window.append((first[at], length[at]))
        elif entry == span(None):
            window.append((0, None))
        elif type(size) is not int:
            return None, False
        elif entry.__class__ is int:
            window.append((entry % size, 1))
        else:
            start, stop, step = entry.indices(size)
            if step != 1:
                return None, False
            window.append((start, max(stop - start, 0)))
        at += 1
    window += [(0, None)] * (len(shape) - at)
    return window, True


def _fitted(xp: Any, value: Any, shape: tuple[Any, ...], dtype: Any) -> Any:
    """`value` broadcast to the shape that is assigned to; leading 1s are dropped."""
    value = xp.asarray(value)
    if value.dtype != dtype:
        value = value.astype(dtype)
    extra = value.ndim - len(shape)
    if extra > 0:
        value = xp.reshape(value, value.shape[extra:])
    return xp.broadcast_to(value, shape)


# --- the ops ----------------------------------------------------------------------------------


def _getitem_infer(x: Aval, *rest: Any, spec: Spec) -> Aval:
    return aval(_taken_shape(x.shape, spec), x.dtype)


def _spread(xp: Any, grad: Any, x: Aval, spec: Spec, starts: Sequence[Any]) -> Any:
    """The gradient of taking a part: zeros with `grad` put into that part."""
    if xp is np:
        out = np.zeros(x.shape, grad.dtype)
        out[numpy_index(spec, starts, x.shape)] = grad
        return out
    if computes_at_once(xp):
        empty = np.zeros(x.shape, grad.dtype)
        return with_part(xp, empty, numpy_index(spec, starts, x.shape), grad)
    static, first, length = _split_spec(spec, starts, x.shape)
    lax = jax_door.jax().lax
    full: list[Any] = []  # grad's shape with positions as dimensions of 1, new dimensions gone
    pads: list[Any] = []
    flips: list[int] = []
    at = 0
    for entry in static:
        if entry is None:
            continue
        size = x.shape[at]
        if length[at] is not None:
            full.append(length[at])
            pads.append((0, 0, 0))
        elif entry.__class__ is int:
            full.append(1)
            start = entry if entry >= 0 else entry + size
            pads.append((start, size - start - 1, 0))
        else:
            count = _slice_length((entry.start, entry.stop, entry.step), size)
            full.append(count)
            step = 1 if entry.step is None else entry.step
            if entry == span(None) or (type(count) is int and count == 0):
                pads.append((0, size - count, 0))
            else:
                start = entry.indices(size)[0] if type(size) is int else _edge(entry, size)
                if step < 0:
                    flips.append(at)
                    start = start + (count - 1) * step
                step = abs(step)
                pads.append((start, size - start - (count - 1) * step - 1, step - 1))
        at += 1
    rest = len(x.shape) - at
    grad = xp.reshape(grad, (*full, *x.shape[at:]))
    if flips:
        grad = xp.flip(grad, flips)
    pads += [(0, 0, 0)] * rest
    if any(p != (0, 0, 0) for p in pads):
        grad = lax.pad(grad, xp.zeros((), grad.dtype), pads)
    if any(n is not None for n in length):
        begin = [
            xp.asarray(first[i] if i < len(first) else 0, np.int64) for i in range(len(x.shape))
        ]
        grad = lax.dynamic_update_slice(xp.zeros(x.shape, grad.dtype), grad, begin)
    return grad


def _edge(entry: span, size: Any) -> Any:
    start = entry.start or 0
    return start if start >= 0 else size + start


def _getitem_vjp(xp: Any, grad: Any, types: Any, spec: Spec) -> tuple[Any]:
    return (_spread(xp, grad, types[0], spec, ()),)


@op(name="getitem", infer=_getitem_infer, vjp=_getitem_vjp, exact=True)
def take_part(xp, x, spec=()):
    """A basic slice whose positions are fixed."""
    return _take(xp, x, spec, ())


def _getitem_at_vjp(xp: Any, grad: Any, starts: Any, types: Any, spec: Spec) -> tuple[Any, None]:
    return _spread(xp, grad, types[0], spec, starts), None


@op(
    name="getitem_at",
    inputs=("x", "*starts"),
    infer=_getitem_infer,
    vjp=_getitem_at_vjp,
    exact=True,
)
def take_at(xp, x, starts, spec=()):
    """A basic slice, some positions of which are given at run time."""
    return _take(xp, x, spec, starts)


def _setitem_infer(x: Aval, value: Any, *rest: Any, spec: Spec) -> Aval:
    _check_fits(value, _taken_shape(x.shape, spec))
    return x


def _check_fits(value: Any, target: tuple[Any, ...]) -> None:
    shape = value.shape
    extra = len(shape) - len(target)
    if extra > 0 and all(type(d) is int and d == 1 for d in shape[:extra]):
        shape = shape[extra:]
    try:
        fits = broadcast_shapes(shape, target) == target
    except ShapeMismatch:
        fits = False
    if not fits:
        raise ShapeMismatch(
            f"a value of shape {list(value.shape)} does not broadcast to the shape "
            f"{list(target)} that is assigned to"
        )


def _setitem_vjp(
    xp: Any, grad: Any, types: Any, needs: Any, spec: Spec, starts: Sequence[Any] = ()
) -> tuple[Any, Any]:
    zero = np.zeros((), types[0].dtype.numpy)
    into = _put(xp, grad, zero, spec, starts) if needs[0] else None
    value = _summed(xp, _take(xp, grad, spec, starts), types[1]) if needs[1] else None
    return into, value


def _summed(xp: Any, grad: Any, to: Any) -> Any:
    """`grad` for a value that may have had leading 1s dropped."""
    extra = len(to.shape) - grad.ndim
    return xp.reshape(grad, (1,) * extra + tuple(grad.shape)) if extra > 0 else grad


def _static_setitem_vjp(xp: Any, grad: Any, types: Any, needs: Any, spec: Spec) -> Any:
    return _setitem_vjp(xp, grad, types, needs, spec)


@op(name="setitem", infer=_setitem_infer, vjp=_static_setitem_vjp, exact=True)
def put_part(xp, x, value, spec=()):
    """A copy of x with a basic slice replaced."""
    return _put(xp, x, value, spec, ())


def _setitem_at_vjp(
    xp: Any, grad: Any, types: Any, needs: Any, starts: Any, spec: Spec
) -> tuple[Any, Any, None]:
    return (*_setitem_vjp(xp, grad, types, needs, spec, starts), None)


@op(
    name="setitem_at",
    inputs=("x", "value", "*starts"),
    infer=_setitem_infer,
    vjp=_setitem_at_vjp,
    exact=True,
)
def put_at(xp, x, value, starts, spec=()):
    """A copy of x with a basic slice replaced whose position is given at run time."""
    return _put(xp, x, value, spec, starts)


def _spot(axes: tuple[int, ...], indices: Sequence[Any]) -> tuple[Any, ...]:
    index: list[Any] = [span(None)] * (axes[-1] + 1)
    for axis, i in zip(axes, indices, strict=True):
        index[axis] = i
    return tuple(index)


def _index_check(x: Aval, indices: list[Any], axes: tuple[int, ...]) -> None:
    for t in indices:
        if not t.dtype.is_integer:
            raise InvalidArgument(
                f"an index tensor must hold integers or booleans, not {t.dtype.name}; cast it "
                "with .astype('int64')"
            )
    broadcast_shapes(*[t.shape for t in indices])


def _indexed_shape(x: Aval, indices: list[Any], axes: tuple[int, ...]) -> tuple[Any, ...]:
    common = broadcast_shapes(*[t.shape for t in indices])
    rest = [d for i, d in enumerate(x.shape) if i not in axes]
    together = axes[-1] - axes[0] == len(axes) - 1
    at = axes[0] if together else 0
    return (*rest[:at], *common, *rest[at:])


def _index_infer(x: Aval, indices: list[Any], axes: tuple[int, ...]) -> Aval:
    _index_check(x, indices, axes)
    return aval(_indexed_shape(x, indices, axes), x.dtype)


def _index_vjp(xp: Any, grad: Any, indices: Any, types: Any, axes: tuple[int, ...]) -> Any:
    shape, spot = types[0].shape, _spot(axes, indices)
    return scatter_add(xp, xp.zeros(shape, grad.dtype), spot, grad), None


def _index_positions(x: Aval, *rest: Any, axes: tuple[int, ...]) -> list[InRange]:
    sizes = [x.shape[a] for a in axes]
    integers = [t.dtype.is_integer for t in rest[-1]]
    return [positions("indices", n, i) for i, n in enumerate(sizes) if integers[i]]


@op(
    name="index",
    inputs=("x", "*indices"),
    infer=_index_infer,
    vjp=_index_vjp,
    exact=True,
    requires=_index_positions,
)
def pick(xp, x, indices, axes=()):
    """Elements picked by integer tensors along `axes`."""
    spot = _spot(axes, indices)
    return x[spot] if xp is np else x.at[spot].get(mode="clip")


def _index_set_infer(x: Aval, value: Any, indices: list[Any], axes: tuple[int, ...]) -> Aval:
    _index_check(x, indices, axes)
    _check_fits(value, _indexed_shape(x, indices, axes))
    return x


def _index_set_vjp(
    xp: Any, grad: Any, indices: Any, types: Any, needs: Any, axes: tuple[int, ...]
) -> Any:
    spot = _spot(axes, indices)
    into = _with(xp, grad, spot, np.zeros((), grad.dtype)) if needs[0] else None
    value = _summed(xp, grad[spot], types[1]) if needs[1] else None
    return into, value, None


def _with(xp: Any, x: Any, spot: Any, value: Any) -> Any:
    if xp is np:
        out = x.copy()
        out[spot] = value
        return out
    return x.at[spot].set(value)


@op(
    name="index_set",
    inputs=("x", "value", "*indices"),
    infer=_index_set_infer,
    vjp=_index_set_vjp,
    exact=True,
    requires=_index_positions,
)
def pick_set(xp, x, value, indices, axes=()):
    """A copy of x with the elements at the indices replaced."""
    types = [aval(tuple(i.shape), None) for i in indices]  # type: ignore[arg-type]
    shape = _indexed_shape(aval(tuple(x.shape), None), types, axes)  # type: ignore[arg-type]
    return _with(xp, x, _spot(axes, indices), _fitted(xp, value, shape, x.dtype))


def _mask_set_vjp(xp: Any, grad: Any, mask: Any, types: Any, needs: Any) -> Any:
    mask = _aligned(xp, mask, grad.ndim)
    zero = xp.zeros((), grad.dtype)
    into = xp.where(mask, zero, grad) if needs[0] else None
    value = xp.where(mask, grad, zero) if needs[2] else None
    return into, None, value


def _aligned(xp: Any, mask: Any, ndim: int) -> Any:
    return xp.reshape(mask, tuple(mask.shape) + (1,) * (ndim - mask.ndim))


def _mask_set_infer(x: Aval, mask: Aval, value: Any) -> Aval:
    return x


@op(name="mask_set", infer=_mask_set_infer, vjp=_mask_set_vjp, exact=True)
def mask_set(xp, x, mask, value):
    """A copy of x with `value` where the mask, over the leading dimensions, is true."""
    return xp.where(_aligned(xp, mask, x.ndim), xp.asarray(value).astype(x.dtype), x)
