"""load_state_dict: fill tensors from a checkpoint, whatever mesh it was saved from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import sharding
from bireme.core.aval import aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.core.value import value_of
from bireme.distributed import dtensor
from bireme.distributed.auto_parallel.layouts import lay_out
from bireme.distributed.checkpoint.files import Checkpoint, flatten
from bireme.distributed.checkpoint.saving import wait_async_save
from bireme.distributed.checkpoint.weights import ShardedWeight
from bireme.host import jax_door
from bireme.optimizer.optimizer import owner_of

if TYPE_CHECKING:
    from bireme.distributed.communication.group import Group


def _open(path: str, unique_id: int | None, aoa_config: Any, who: str) -> Checkpoint:
    if aoa_config is not None:
        raise InvalidArgument(
            f"[{who}] aoa_config, which renames and cuts tensors by rule, is not understood; load "
            "with load_merged_state_dict and change the tensors in Python"
        )
    wait_async_save()
    return Checkpoint(os.fspath(path), unique_id)


def load_state_dict(
    state_dict: dict[str, Any],
    path: str,
    process_group: Group | None = None,
    coordinator_rank: int = 0,
    unique_id: int | None = None,
    offload: bool = False,
    mw_name_compatibility: bool = True,
    aoa_config: dict[str, list[str]] | None = None,
    safetensors: bool = False,
    worker_groups: object = None,
    comm_method: str = "broadcast",
) -> None:
    """Fill the tensors of `state_dict` in place; each keeps its layout, and each device reads
    only what it needs. Plain values are replaced.

    Nothing is sent between processes, so `comm_method` and the groups have nothing to choose.
    `offload` leaves the contents on the host until they are used.

    >>> load_state_dict(model.state_dict(), "checkpoint")  # doctest: +SKIP
    """
    if not isinstance(state_dict, dict):
        raise TypeMismatch(f"[load_state_dict] takes a dict. Received: {type(state_dict).__name__}")
    saved = _open(path, unique_id, aoa_config, "load_state_dict")
    _create_missing(state_dict, saved)
    places = flatten(state_dict)
    missing = [n for n in places if n not in saved.tensors and n not in saved.values]
    if missing:
        raise InvalidArgument(
            f"[load_state_dict] checkpoint {saved.number} in {path!r} has no {missing[0]!r} "
            f"({len(missing)} missing); it has {', '.join(list(saved.tensors)[:5])} …"
        )
    for name, (holder, key) in places.items():
        value = holder[key]
        if name in saved.values:
            holder[key] = saved.values[name]
        elif isinstance(value, Tensor):
            _fill(value, saved, name, offload)
        elif isinstance(value, ShardedWeight):
            _fill_block(value, saved, name)
        else:
            raise TypeMismatch(
                f"[load_state_dict] {name!r} is a tensor in the checkpoint. Received: "
                f"{type(value).__name__}"
            )


def _create_missing(state: dict[str, Any], saved: Checkpoint, prefix: str = "") -> None:
    """An optimizer that has made no step has no state to fill: where the checkpoint has some, it
    is made first. Otherwise the moments of the checkpoint would be left out silently."""
    for key, value in state.items():
        if isinstance(value, dict):
            _create_missing(value, saved, f"{prefix}{key}.")
    known = [n for n in (*saved.tensors, *saved.values) if n.startswith(prefix)]
    owner = owner_of(state)
    if owner is not None:
        if any(_is_missing(n.removeprefix(prefix), state) for n in known):
            owner.create_state()
            state.update({k: v for k, v in owner.state_dict().items() if k not in state})
    elif prefix and not state and known:
        raise InvalidArgument(
            f"[load_state_dict] {prefix[:-1]!r} is empty, and the checkpoint has {known[0]!r} and "
            f"{len(known) - 1} more there. Give the dict that state_dict() returned, or leave the "
            "key out"
        )


def _is_missing(name: str, state: dict[str, Any]) -> bool:
    """Whether a dotted name leads to no entry of nested dicts."""
    if name in state:
        return False
    first, _, rest = name.partition(".")
    inner = state.get(first)
    while rest and not isinstance(inner, dict):
        more, _, rest = rest.partition(".")
        first = f"{first}.{more}"
        inner = state.get(first)
    return not isinstance(inner, dict) or _is_missing(rest, inner)


def _check(name: str, want: tuple[int, ...], saved: Checkpoint) -> None:
    if saved.shape(name) != want:
        raise ShapeMismatch(
            f"[load_state_dict] {name!r} has shape {list(want)}, and {list(saved.shape(name))} in "
            "the checkpoint"
        )


def _fill(tensor: Tensor, saved: Checkpoint, name: str, offload: bool) -> None:
    shape = tuple(tensor.shape)
    _check(name, shape, saved)
    dtype = tensor.dtype.numpy
    buf = tensor._array()
    layout = dtensor.layout_of(tensor)
    if sharding.is_spread(buf):
        buf = jax_door.jax().make_array_from_callback(
            shape, buf.sharding, lambda index: saved.read(name, index).astype(dtype)
        )
    else:
        whole = saved.read(name, tuple([slice(None)] * len(shape))).astype(dtype)
        buf = whole if offload or isinstance(buf, np.ndarray) else jax_door.jax().device_put(whole)
    tensor._put(value_of(tensor._value.aval, buf))
    if layout is not None:
        dtensor._noted(tensor, layout[0], tuple(layout[1]))
    clock = tensor.__dict__.get("_clock")
    if clock is not None:  # an optimizer's count of steps, of which the state dict has a copy
        time = np.ravel(saved.read(name, tuple([slice(None)] * len(shape))))[:1]
        laid_out = dtensor.layout_of(clock)
        clock.set_value(time.astype(clock.dtype.numpy).reshape(tuple(clock.shape)))
        if laid_out is not None:
            lay_out(clock, *laid_out)


def _fill_block(weight: ShardedWeight, saved: Checkpoint, name: str) -> None:
    _check(name, weight.global_shape, saved)
    index = tuple(
        [slice(o, o + n) for o, n in zip(weight.global_offset, weight.local_shape, strict=True)]
    )
    block = saved.read(name, index)
    if weight.is_flattened and weight.flattened_range is not None:
        block = block.reshape(-1)[weight.flattened_range]
    weight.local_tensor.set_value(block.reshape(tuple(weight.local_tensor.shape)))


def load_merged_state_dict(
    path: str,
    prefix: str | None = None,
    unique_id: int | None = None,
    offload: bool = False,
    aoa_config: dict[str, list[str]] | None = None,
    safetensors: bool = False,
) -> dict[str, Tensor]:
    """The whole tensors of a checkpoint, or those whose names begin with `prefix`; on the host
    until they are used.

    >>> state = load_merged_state_dict("checkpoint", "model.")  # doctest: +SKIP
    """
    saved = _open(path, unique_id, aoa_config, "load_merged_state_dict")
    merged: dict[str, Tensor] = {}
    for name in saved.tensors:
        if prefix is None or name.startswith(prefix):
            array = saved.read(name, tuple([slice(None)] * len(saved.shape(name))))
            merged[name] = Tensor(value_of(aval(array.shape, saved.dtype(name)), array), None)
    return merged
