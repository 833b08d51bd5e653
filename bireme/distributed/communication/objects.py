"""Collectives of Python objects. They are pickled, and only opened by processes of the job."""

from __future__ import annotations

import pickle
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.distributed import wire
from bireme.distributed.communication.group import Group, members, place_in


def all_gather_object(object_list: list[Any], obj: object, group: Group | None = None) -> None:
    """Fill `object_list` with the objects of all ranks."""
    chosen = members(group, "all_gather_object")
    if chosen is None:
        return
    if not isinstance(object_list, list):
        raise InvalidArgument("[all_gather_object] object_list must be a list, to be filled")
    for rank in chosen.ranks:
        _send(chosen, rank, obj)
    object_list.clear()
    object_list.extend(_receive(chosen, rank) for rank in chosen.ranks)


def broadcast_object_list(object_list: list[Any], src: int, group: Group | None = None) -> None:
    """Replace the objects in the list by those of rank `src`."""
    chosen = members(group, "broadcast_object_list")
    if chosen is None:
        return
    if place_in(chosen, src, "broadcast_object_list") == chosen.rank:
        for rank in chosen.ranks:
            if rank != src:
                _send(chosen, rank, object_list)
    else:
        object_list[:] = _receive(chosen, src)


def scatter_object_list(
    out_object_list: list[Any],
    in_object_list: list[Any] | None = None,
    src: int = 0,
    group: Group | None = None,
) -> None:
    """Object i of rank `src` becomes the only one in the list of rank i."""
    chosen = members(group, "scatter_object_list")
    if chosen is None:
        return
    if place_in(chosen, src, "scatter_object_list") == chosen.rank:
        if in_object_list is None or len(in_object_list) != chosen.nranks:
            raise InvalidArgument(
                f"[scatter_object_list] rank {src} must give {chosen.nranks} objects, one per "
                f"rank. Received: {in_object_list!r:.100}"
            )
        for rank, obj in zip(chosen.ranks, in_object_list, strict=True):
            _send(chosen, rank, obj)
    out_object_list[:] = [_receive(chosen, src)]


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Group | None = None,
    dst_in_group: int | None = None,
) -> None:
    """Send objects to one rank, given in the job (`dst`) or in the group (`dst_in_group`)."""
    chosen = members(group, "send_object_list")
    if chosen is not None:
        to = _partner(chosen, dst, dst_in_group, "send_object_list", "dst")
        _send(chosen, to, list(object_list)).result()


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group | None = None,
    src_in_group: int | None = None,
) -> None:
    """Replace the objects in the list by those that one rank sends."""
    chosen = members(group, "recv_object_list")
    if chosen is not None:
        source = _partner(chosen, src, src_in_group, "recv_object_list", "src")
        got = _receive(chosen, source)
        if len(got) != len(object_list):
            raise InvalidArgument(
                f"[recv_object_list] rank {source} sent {len(got)} objects for a list of "
                f"{len(object_list)}"
            )
        object_list[:] = got


def _partner(group: Group, rank: int | None, place: int | None, what: str, name: str) -> int:
    if (rank is None) == (place is None):
        raise InvalidArgument(f"[{what}] give either {name} or {name}_in_group")
    if place is not None:
        return group.get_global_rank(place)
    place_in(group, rank, what)  # pyright: ignore[reportArgumentType]
    return rank  # pyright: ignore[reportReturnType]


def _box(group: Group) -> bytes:
    return b"object %d" % group.id


def _send(group: Group, to: int, obj: Any) -> Any:
    return wire.post("objects").send(to, _box(group), wire.pickled(obj))


def _receive(group: Group, source: int) -> Any:
    # The sender has shown that it knows the job's secret (door.py).
    return pickle.loads(wire.post("objects").receive(source, _box(group), group.timeout))


__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]
