"""Collectives as small compiled programs, one per kind and group (and, by jit, per type).

An array of each process is a shard of one array over the group's devices, so that a shard_map
over them sees it as it is. Programs run at once: ranks may compute different things in between,
only the order of their exchanges has to agree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bireme.distributed import job, wire
from bireme.distributed.communication import shared
from bireme.distributed.communication.background import line
from bireme.distributed.communication.group import Group
from bireme.distributed.communication.reduce_op import ReduceOp
from bireme.distributed.job import DistributedError, PartnerLost
from bireme.host import jax_door

_AXIS = "ranks"


def exchange(what: str, group: Group, arrays: Sequence[Any], *options: Any) -> list[Any]:
    """Run the program `what` on this process's arrays; its results for this process.

    `options` are numbers, equal on all ranks.
    """
    return line.now(lambda: _exchanged(what, group, arrays, options))


def _exchanged(
    what: str, group: Group, arrays: Sequence[Any], options: tuple[Any, ...]
) -> list[Any]:
    jax = jax_door.jax()
    ranks = tuple(group.ranks)
    if os.environ.get("BIREME_CHECK_COLLECTIVES") == "1":
        _compare(what, group, arrays, options)
    # Everything moved over is a row at least: a shard of a 0-d array does not exist.
    rows = [a if np.ndim(a) else np.reshape(a, 1) for a in arrays]
    try:
        passed = shared.exchange(what, group, rows, options)
    except PartnerLost as e:
        raise _lost(what, group, rows, e) from e
    if passed is not None:
        return passed
    mine = job.device(ranks[group.rank])
    spread = jax.sharding.NamedSharding(_mesh(ranks), jax.sharding.PartitionSpec(_AXIS))
    given = [jax.device_put(a, mine) for a in rows]
    whole = [
        jax.make_array_from_single_device_arrays(
            (len(ranks) * a.shape[0], *a.shape[1:]), spread, [a]
        )
        for a in given
    ]
    try:
        _meet_first(ranks, group.timeout)
        outs = _program(what, ranks, options)(*whole)
        results = [o.addressable_data(0) for o in outs]
        if mine.platform == "cpu":
            # A partner that is gone is reported here, at the caller's line, and exchanges
            # cannot overtake each other.
            jax.block_until_ready(results)
    except (RuntimeError, ValueError) as e:
        raise _lost(what, group, given, e) from e
    return results


def _lost(what: str, group: Group, given: Sequence[Any], error: Exception) -> PartnerLost:
    shown = ", ".join(f"{a.dtype}{list(a.shape)}" for a in given)
    return PartnerLost(
        f"[{what}] the exchange between processes {group.ranks} failed on process "
        f"{group.ranks[group.rank]}, with {shown}. Has one of them ended, or did they not all give "
        f"the same shape and dtype? {str(error)[:500]}"
    )


_met: set[tuple[int, ...]] = set()
_PATIENCE = 1800.0  # seconds; Paddle's limit for a group


def _meet_first(ranks: tuple[int, ...], timeout: float | None) -> None:
    """Before a group's first exchange: Gloo gives processes 30 s to connect, and ends those whose
    partners are later. Here they wait as long as the group's limit says."""
    if len(ranks) > 1 and ranks not in _met:
        name = "bireme group " + ",".join(map(str, ranks))
        jax_door.meet(name, list(ranks), timeout or _PATIENCE)
        _met.add(ranks)


def _compare(what: str, group: Group, given: Sequence[Any], options: tuple[Any, ...]) -> None:
    """Ask all ranks what they are about to do: if it is not the same, Gloo and NCCL abort or hang.
    Costs a message from each rank to each, so it is for debugging."""
    shown = ", ".join(f"{a.dtype}{list(a.shape)}" for a in given)
    mine = f"{what}({shown}{', ' if options else ''}{', '.join(map(str, options))})"
    post, box = wire.post(what), b"check %d" % group.id
    for rank in group.ranks:
        post.send(rank, box, mine.encode())
    said = {r: post.receive(r, box, group.timeout).decode() for r in group.ranks}
    if len(set(said.values())) > 1:
        lines = "".join([f"\n  process {r}: {text}" for r, text in said.items()])
        raise DistributedError(
            f"[{what}] all processes of a group must call the same collectives in the same order, "
            f"with the same types. They called:{lines}"
        )


@lru_cache(maxsize=256)
def _mesh(ranks: tuple[int, ...]) -> Any:
    return jax_door.jax().sharding.Mesh(np.array([job.device(r) for r in ranks]), (_AXIS,))


@lru_cache(maxsize=1024)
def _program(what: str, ranks: tuple[int, ...], options: tuple[Any, ...]) -> Any:
    jax = jax_door.jax()
    spec = jax.sharding.PartitionSpec(_AXIS)
    body = _BODIES[what]

    def run(*shards: Any) -> Any:
        if what not in _ELEMENTWISE or len(shards) == 1:
            return tuple([body(jax, x, len(ranks), *options) for x in shards])
        return _fused(jax, shards, lambda x: body(jax, x, len(ranks), *options))

    run.__name__ = what
    mapped = jax.shard_map(run, mesh=_mesh(ranks), in_specs=spec, out_specs=spec, check_vma=False)
    return jax.jit(mapped)


def _fused(jax: Any, shards: tuple[Any, ...], body: Callable[[Any], Any]) -> tuple[Any, ...]:
    """`body` of all arrays of a type at once: an exchange of many small ones costs as many times
    its latency."""
    jnp = jax.numpy
    results: list[Any] = [None] * len(shards)
    by_type: dict[Any, list[int]] = {}
    for i, x in enumerate(shards):
        by_type.setdefault(x.dtype, []).append(i)
    for places in by_type.values():
        joined = body(jnp.concatenate([shards[i].reshape(-1) for i in places]))
        ends = np.cumsum([shards[i].size for i in places])
        for i, part in zip(places, jnp.split(joined, ends[:-1]), strict=True):
            results[i] = part.reshape(shards[i].shape)
    return tuple(results)


def _all_reduce(jax: Any, x: Any, n: int, op: int) -> Any:
    lax, jnp = jax.lax, jax.numpy
    if x.dtype == jnp.bool_:
        truths = lax.psum(x.astype(jnp.int32), _AXIS)
        return truths == n if op in (ReduceOp.MIN, ReduceOp.PROD) else truths > 0
    if op == ReduceOp.MAX:
        return lax.pmax(x, _AXIS)
    if op == ReduceOp.MIN:
        return lax.pmin(x, _AXIS)
    if op == ReduceOp.PROD:
        return jnp.prod(lax.all_gather(x, _AXIS), 0, dtype=x.dtype)
    if op == ReduceOp.AVG and x.dtype == jnp.float16:
        return lax.psum(x / n, _AXIS)  # the sum might be too large for its type
    return _averaged(jax, lax.psum(x, _AXIS), n, op)


def _averaged(jax: Any, total: Any, n: int, op: int) -> Any:
    if op != ReduceOp.AVG:
        return total
    if jax.numpy.issubdtype(total.dtype, jax.numpy.integer):
        return total // n
    return total / n


def _all_gather(jax: Any, x: Any, n: int) -> Any:
    """The ranks' arrays one below the other."""
    return jax.lax.all_gather(x, _AXIS, tiled=True)


def _rows(jax: Any, x: Any, n: int) -> Any:
    return jax.numpy.reshape(x, (n, x.shape[0] // n, *x.shape[1:]))


def _alltoall(jax: Any, x: Any, n: int) -> Any:
    """Block i of this rank's array goes to rank i."""
    return jax.lax.all_to_all(x, _AXIS, 0, 0, tiled=True)


def _reduce_scatter(jax: Any, x: Any, n: int, op: int) -> Any:
    """Block i of all ranks' arrays, reduced, goes to rank i."""
    jnp = jax.numpy
    if op in (ReduceOp.SUM, ReduceOp.AVG) and x.dtype != jnp.bool_:
        return _averaged(jax, jax.lax.psum_scatter(x, _AXIS, tiled=True), n, op)
    mine = _rows(jax, _alltoall(jax, x, n), n)
    reduce = {ReduceOp.MAX: jnp.max, ReduceOp.MIN: jnp.min, ReduceOp.PROD: jnp.prod}
    if x.dtype == jnp.bool_:
        return (jnp.all if op in (ReduceOp.MIN, ReduceOp.PROD) else jnp.any)(mine, 0)
    return reduce[op](mine, 0).astype(x.dtype)


def _broadcast(jax: Any, x: Any, n: int, source: int) -> Any:
    """The source's array, bit for bit: adding zeros would lose the sign of -0.0."""
    lax, jnp = jax.lax, jax.numpy
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        parts = [_broadcast(jax, p, n, source) for p in (x.real, x.imag)]
        return lax.complex(*parts)
    if x.dtype == jnp.bool_:
        return _broadcast(jax, x.astype(jnp.uint8), n, source).astype(jnp.bool_)
    bits = lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")
    bits = jnp.where(lax.axis_index(_AXIS) == source, bits, jnp.zeros_like(bits))
    return lax.bitcast_convert_type(lax.psum(bits, _AXIS), x.dtype)


def _scatter(jax: Any, x: Any, n: int, source: int) -> Any:
    """Block i of the source's array goes to rank i."""
    return _rows(jax, _alltoall(jax, x, n), n)[source]


# Of these, the result of arrays side by side is the results side by side.
_ELEMENTWISE = frozenset(("all_reduce", "broadcast"))

_BODIES: dict[str, Callable[..., Any]] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "alltoall": _alltoall,
    "broadcast": _broadcast,
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
}
