"""Attention to a key-value cache on the CPU by a native kernel.

A step of decoding reads the columns that its queries see, and writes the cache in place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import thresholds
from bireme.kernels import native
from bireme.kernels.native.calling import Result, ffi_call, namespace


def _accepts(call: Call) -> bool:
    tensors = call.types[:5]
    return (
        all(isinstance(t, Aval) and t.is_static and t.dtype is dt.float32 for t in tensors)
        and all(c is None for c in call.casts)
        and min(t.size for t in tensors if isinstance(t, Aval)) > 0
        and call.outs[0].shape[1] <= thresholds.CPU_DECODE_QUERIES
        and call.outs[0].shape[1] <= call.outs[1].shape[1]
    )


@kernel(
    "cache_attend",
    name="native_cache_attend",
    platform="cpu",
    accepts=_accepts,
    ready=native.available,
    direct=native.arrived,
)
def _cache_attend(
    call: Call, query: Any, key: Any, value: Any, keys: Any, values: Any, place: Any
) -> Any:
    attrs = call.attrs
    slopes = namespace(query).asarray(np.asarray(attrs["slopes"], np.float32))
    shapes = ((*query.shape[:3], values.shape[3]), keys.shape, values.shape)
    run = ffi_call("bireme_cache_attend", tuple([Result(s) for s in shapes]), aliases={3: 1, 4: 2})
    return run(
        query, key, value, keys, values, place, slopes,
        scale=np.float32(attrs["scale"] or 1 / math.sqrt(query.shape[3])),
        cap=np.float32(attrs["cap"]),
        window=np.int64(attrs["window"]),
    )  # fmt: skip
