"""What the primitives of JAX that take and write parts do with padded arrays (see padded.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.capture.padded import Sizes, Unsupported, bind, rule, shapes_of
from bireme.core.dims import is_symbolic
from bireme.host import jax_door
from bireme.host.arrays import Array


def _with_room(x: Array, room: Sequence[int]) -> Array:
    """`x` with so many entries more behind each axis, so that a part never has to move back."""
    if not any(room):
        return x
    jnp = jax_door.jnp()
    return jax_door.jax().lax.pad(x, jnp.zeros((), x.dtype), [(0, r, 0) for r in room])


@rule("slice")
def _slice(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    lax = jax_door.jax().lax
    x, wanted = arrays[0], sizes.extents(eqn.outvars[0].aval.shape)
    starts = eqn.params["start_indices"]
    strides = eqn.params["strides"] or (1,) * len(starts)
    if any(is_symbolic(step) for step in strides):
        raise Unsupported("an open stride")
    spans = [(n - 1) * step + 1 if n else 0 for n, step in zip(wanted, strides, strict=True)]
    room = [
        max(sizes.extent(start) + span - have, 0)
        for start, span, have in zip(starts, spans, x.shape, strict=True)
    ]
    x = _with_room(x, room)
    x = lax.dynamic_slice(x, [np.int32(0) + sizes.actual(s) for s in starts], spans)
    return [lax.slice(x, (0,) * x.ndim, x.shape, strides)]


@rule("dynamic_slice")
def _dynamic_slice(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    lax = jax_door.jax().lax
    x, starts = arrays[0], arrays[1 : 1 + arrays[0].ndim]
    shape, taken = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
    wanted = sizes.extents(taken)
    x = _with_room(x, [w if is_symbolic(d) else 0 for d, w in zip(taken, wanted, strict=True)])
    return [lax.dynamic_slice(x, _moved(sizes, starts, shape, taken), wanted)]


def _moved(sizes: Sizes, starts: Any, shape: Any, taken: Any) -> list[Any]:
    """Where parts begin, moved so that they end in the array."""
    jnp = jax_door.jnp()
    return [
        jnp.clip(s, 0, jnp.asarray(sizes.actual(d) - sizes.actual(n)).astype(s.dtype))
        for s, d, n in zip(map(jnp.asarray, starts), shape, taken, strict=True)
    ]


@rule("dynamic_update_slice")
def _dynamic_update_slice(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    lax, jnp = jax_door.jax().lax, jax_door.jnp()
    x, part, *starts = arrays
    shape, taken = shapes_of(eqn)[:2]
    starts = _moved(sizes, starts[: x.ndim], shape, taken)
    room = [n if is_symbolic(d) else 0 for d, n in zip(taken, part.shape, strict=True)]
    valid = sizes.is_valid(part, taken, range(part.ndim))
    wide = _with_room(x, room)
    if valid is not None:
        part = jnp.where(valid, part, lax.dynamic_slice(wide, starts, part.shape))
    return [sizes.fitted(lax.dynamic_update_slice(wide, part, starts), shape)]


@rule("gather")
def _gather(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    lax = jax_door.jax().lax
    x, indices = arrays[:2]
    shape, dims = eqn.invars[0].aval.shape, eqn.params["dimension_numbers"]
    taken, mode = eqn.params["slice_sizes"], eqn.params["mode"]
    modes = lax.GatherScatterMode
    indices = _guarded(sizes, indices, shape, taken, dims.start_index_map, mode)
    wanted = sizes.extents(taken)
    room = [
        w if is_symbolic(d) and d != whole else 0
        for d, w, whole in zip(taken, wanted, shape, strict=True)
    ]
    mode = modes.CLIP if mode == modes.PROMISE_IN_BOUNDS else mode
    # Padding among the indices repeats places.
    return [
        bind(
            eqn,
            [_with_room(x, room), indices],
            slice_sizes=wanted,
            mode=mode,
            unique_indices=False,
            indices_are_sorted=False,
        )
    ]


def _guarded(
    sizes: Sizes,
    indices: Array,
    shape: Any,
    taken: Any,
    axes: Sequence[int],
    mode: Any,
    always: bool = False,
) -> Array:
    """Indices of parts of the sizes `taken`: those that leave the exact array are moved into it, or
    out of the padded one, as the mode wants. The primitive does so itself where all is closed,
    unless it will have another mode (`always`)."""
    jnp, modes = jax_door.jnp(), jax_door.jax().lax.GatherScatterMode
    closed = not any(is_symbolic(shape[a]) or is_symbolic(taken[a]) for a in axes)
    if (closed and not always) or mode == modes.PROMISE_IN_BOUNDS:
        return indices
    outside = jnp.iinfo(indices.dtype).max
    columns = []
    for column, axis in enumerate(axes):
        chosen = indices[..., column]
        last = jnp.asarray(sizes.actual(shape[axis]) - sizes.actual(taken[axis]))
        last = last.astype(indices.dtype)
        if mode == modes.CLIP:
            columns.append(jnp.clip(chosen, 0, last))
        else:
            columns.append(jnp.where((chosen >= 0) & (chosen <= last), chosen, outside))
    return jnp.stack(columns, axis=-1)


@rule("scatter-add", "scatter_add", "scatter")
def _scatter(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    lax, jnp = jax_door.jax().lax, jax_door.jnp()
    x, indices, updates = arrays[:3]
    (shape, index_shape, update_shape) = shapes_of(eqn)[:3]
    dims, mode = eqn.params["dimension_numbers"], eqn.params["mode"]
    modes = lax.GatherScatterMode
    window = dims.update_window_dims
    batch = [i for i in range(len(update_shape)) if i not in window]
    open_window = any(is_symbolic(update_shape[i]) for i in window)
    adds = eqn.primitive.name != "scatter"
    inserted = (*dims.inserted_window_dims, *dims.operand_batching_dims)
    of_window = [d for d in range(x.ndim) if d not in inserted]
    taken: list[Any] = [1] * x.ndim
    room = [0] * x.ndim
    for d, i in zip(of_window, window, strict=True):
        taken[d] = update_shape[i]
        room[d] = updates.shape[i] if is_symbolic(update_shape[i]) else 0
    drops = not adds and not open_window  # what the padding among the indices would write
    axes = dims.scatter_dims_to_operand_dims
    indices = _guarded(sizes, indices, shape, taken, axes, mode, always=drops)
    changed = {"unique_indices": False, "indices_are_sorted": False}
    if mode == modes.PROMISE_IN_BOUNDS:
        changed["mode"] = modes.CLIP
    wide = _with_room(x, room)
    if adds:
        updates = sizes.filled(updates, update_shape, range(updates.ndim), 0)
        return [sizes.fitted(bind(eqn, [wide, indices, updates], **changed), shape)]
    if open_window:
        if batch and any(update_shape[i] != 1 for i in batch):
            raise Unsupported("several parts of open size are overwritten")
        valid = sizes.is_valid(updates, update_shape, range(updates.ndim))
        nothing = jnp.zeros(wide.shape, np.bool_)
        written = bind(eqn, [nothing, indices, valid], **changed)
        made = bind(eqn, [wide, indices, updates], **changed)
        return [sizes.fitted(jnp.where(written, made, wide), shape)]
    # Places in the padding lie outside and are dropped.
    valid = sizes.is_valid(indices, index_shape, range(indices.ndim))
    if valid is not None:
        indices = jnp.where(valid, indices, jnp.iinfo(indices.dtype).max)
        changed["mode"] = modes.FILL_OR_DROP
    return [sizes.fitted(bind(eqn, [wide, indices, updates], **changed), shape)]
