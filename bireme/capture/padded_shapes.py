"""What the primitives of JAX that change shapes do with padded arrays (see padded.py)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.capture.padded import Sizes, Unsupported, bind, places, rule, shapes_of
from bireme.core.dims import is_symbolic
from bireme.host import jax_door
from bireme.host.arrays import Array


@rule("reshape")
def _reshape(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    x = arrays[0]
    if eqn.params.get("dimensions") is not None:
        raise Unsupported("a reshape in another order")
    # Axes are regrouped from the left; each group is brought into its new form by itself.
    axis = 0
    for old, new in _groups(before, after):
        x = _regrouped(sizes, x, axis, old, new)
        axis += len(new)
    return [x]


def _groups(
    before: Sequence[Any], after: Sequence[Any]
) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """The axes that a reshape takes together: pieces of both shapes of equal size."""
    groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        first, second = i, j
        left = before[i] if i < len(before) else 1
        right = after[j] if j < len(after) else 1
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while left != right:
            if j < len(after) and (i >= len(before) or _divides(right, left)):
                right, j = right * after[j], j + 1
            elif i < len(before):
                left, i = left * before[i], i + 1
            else:
                raise Unsupported(f"a reshape from {before} to {after}")
        groups.append((tuple(before[first:i]), tuple(after[second:j])))
    return groups


def _divides(part: Any, whole: Any) -> bool:
    """Whether `whole` is `part` times something, so that `part` has to grow; if it is not known,
    the smaller one by its number of factors is taken."""
    if not is_symbolic(part) and not is_symbolic(whole):
        return part < whole
    if is_symbolic(whole) and not is_symbolic(part):
        return True
    if is_symbolic(part) and not is_symbolic(whole):
        return False
    try:
        return not is_symbolic(whole % part) and whole % part == 0
    except Exception:
        return len(str(part)) < len(str(whole))


def _regrouped(
    sizes: Sizes, x: Array, axis: int, old: tuple[Any, ...], new: tuple[Any, ...]
) -> Array:
    """`x` with the axes from `axis` on, of the sizes `old`, as axes of the sizes `new`."""
    if old == new:
        return x
    jnp = jax_door.jnp()
    after = x.shape[axis + len(old) :]
    shape = (*x.shape[:axis], *sizes.extents(new), *after)
    # Entries lie in the same order in both if all axes but the first are closed.
    plain = not any(is_symbolic(d) for d in (*_tail(old), *_tail(new)))
    if plain and math.prod(sizes.extents(old)) == math.prod(sizes.extents(new)):
        return x.reshape(shape)
    total = math.prod(sizes.extents(old))
    flat = x.reshape((*x.shape[:axis], total, *after))
    # The number of each new place in the exact shape, and from that the place before.
    number = _numbers(sizes, new)
    place: Any = 0
    for d, extent in zip(reversed(old), _strides(sizes.extents(old)), strict=True):
        size = jnp.asarray(sizes.actual(d), number.dtype)
        place = place + (number % size) * extent
        number = number // size
    place = jnp.minimum(place, total - 1)
    return jnp.take(flat, place.reshape(-1), axis=axis, mode="clip").reshape(shape)


def _tail(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sizes behind the first that is not 1."""
    first = next((i for i, d in enumerate(shape) if is_symbolic(d) or d != 1), len(shape))
    return shape[first + 1 :]


def _strides(extents: Sequence[int]) -> list[int]:
    """Distances of neighbours along each axis, the last axis first."""
    return list(itertools.accumulate(reversed(extents[1:]), lambda a, b: a * b, initial=1))


def _numbers(sizes: Sizes, shape: tuple[Any, ...]) -> Any:
    """The number of each place of a padded array in the exact array."""
    lax, jnp = jax_door.jax().lax, jax_door.jnp()
    extents = sizes.extents(shape)
    kind = places(math.prod(extents))
    number: Any = np.zeros((), kind)
    for axis, d in enumerate(shape):
        place = lax.broadcasted_iota(kind, extents, axis)
        number = number * jnp.asarray(sizes.actual(d), kind) + place
    return number


@rule("rev")
def _rev(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    jnp = jax_door.jnp()
    x, shape = arrays[0], eqn.invars[0].aval.shape
    closed = [d for d in eqn.params["dimensions"] if not is_symbolic(shape[d])]
    if closed:
        x = jax_door.jax().lax.rev(x, closed)
    for axis in set(eqn.params["dimensions"]) - set(closed):
        place = sizes.actual(shape[axis]) - 1 - jnp.arange(x.shape[axis])
        x = jnp.take(x, jnp.maximum(place, 0), axis=axis, mode="clip")
    return [x]


@rule("concatenate")
def _concatenate(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    lax, jnp = jax_door.jax().lax, jax_door.jnp()
    axis, out = eqn.params["dimension"], eqn.outvars[0].aval.shape
    along = [shape[axis] for shape in shapes_of(eqn)]
    if not any(is_symbolic(d) for d in along[:-1]):
        return [sizes.fitted(lax.concatenate(arrays, axis), out)]
    shape = list(arrays[0].shape)
    shape[axis] = sum(a.shape[axis] for a in arrays)
    joined = jnp.zeros(shape, arrays[0].dtype)
    at: Any = 0
    for array, d in zip(arrays, along, strict=True):  # each overwrites the padding before it
        joined = lax.dynamic_update_slice_in_dim(joined, array, at, axis)
        at = at + sizes.actual(d)
    return [sizes.fitted(joined, out)]


@rule("split", "unstack")
def _split(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    if is_symbolic(eqn.invars[0].aval.shape[eqn.params["axis"]]):
        raise Unsupported("a split of an open axis")
    return bind(eqn, arrays)


@rule("tile")
def _tile(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    shape, times = eqn.invars[0].aval.shape, eqn.params["reps"]
    if any(
        is_symbolic(t) or (is_symbolic(d) and t != 1)
        for d, t in zip(shape, times[len(times) - len(shape) :], strict=True)
    ):
        raise Unsupported("copies of an open axis")
    return [bind(eqn, arrays)]


@rule("pad")
def _pad(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    lax = jax_door.jax().lax
    x, value = arrays[:2]
    shape, config = eqn.invars[0].aval.shape, eqn.params["padding_config"]
    if any(is_symbolic(inner) for _, _, inner in config):
        raise Unsupported("open gaps between entries")
    x = sizes.filled(x, shape, range(len(shape)), value)
    # What is padded behind has the same value as the padding there is.
    closed = [(0 if is_symbolic(low) else low, 0, inner) for low, _, inner in config]
    x = sizes.fitted(
        _moved_back(sizes, lax.pad(x, value, closed), config, value),
        eqn.outvars[0].aval.shape,
        value,
    )
    return [x]


def _moved_back(sizes: Sizes, x: Array, config: Any, value: Array) -> Array:
    """`x` behind the padding of open size before it."""
    lax, jnp = jax_door.jax().lax, jax_door.jnp()
    before = [low if is_symbolic(low) else 0 for low, _, _ in config]
    if not any(map(is_symbolic, before)):
        return x
    if any(sizes.least(low) < 0 for low in before):
        raise Unsupported("a part of open size is cut off")
    room = [n + sizes.extent(low) for n, low in zip(x.shape, before, strict=True)]
    wide = jnp.full(room, value, x.dtype)
    return lax.dynamic_update_slice(wide, x, [np.int32(0) + sizes.actual(low) for low in before])
