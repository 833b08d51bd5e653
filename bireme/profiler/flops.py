"""How many floating-point operations an op is, by XLA's own count."""

from __future__ import annotations

import functools
from typing import Any

from bireme.core import dtype as dt
from bireme.core.op import Call
from bireme.host import jax_door


@functools.lru_cache(maxsize=4096)
def flops_of(call: Call) -> int:
    """The count for one call; 0 where a size is open or XLA has none."""
    jax = jax_door.jax()
    types: list[Any] = list(call.types)
    if any(t is not None and not _is_known(t) for t in types):
        return 0
    present = [i for i, t in enumerate(types) if t is not None]

    def run(*given: Any) -> Any:
        arrays: list[Any] = [None] * len(types)
        for i, a in zip(present, given, strict=True):
            arrays[i] = a
        return call.run(jax.numpy, arrays)

    shapes = [_struct(jax, types[i]) for i in present]
    cost = jax.jit(run).lower(*shapes).cost_analysis() or {}
    return int(cost.get("flops", 0))


def _is_known(t: Any) -> bool:
    return not hasattr(t, "shape") or all(type(d) is int for d in t.shape)


def _struct(jax: Any, t: Any) -> Any:
    """A number that was given for an input is a scalar of its kind."""
    if hasattr(t, "shape"):
        return jax.ShapeDtypeStruct(t.shape, t.dtype.numpy)
    return jax.ShapeDtypeStruct((), (dt.float32 if t == "float" else dt.int64).numpy)
