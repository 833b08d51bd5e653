"""Linear layers with quantised weights on the CPU: packed blocks by activations of 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.kernels import native
from bireme.kernels.native.calling import Result, ffi_call, in_dtype, namespace
from bireme.ops.block_formats import BLOCK_FORMATS


def _accepts(call: Call) -> bool:
    x, blocks = call.types[:2]
    return (
        isinstance(x, Aval)
        and isinstance(blocks, Aval)
        and x.is_static
        and blocks.is_static
        and min(x.size, blocks.size) > 0
        and call.casts[0] is None
    )


@kernel(
    "quantised_linear",
    name="quantised_linear",
    platform="cpu",
    accepts=_accepts,
    ready=native.available,
    direct=native.arrived,
)
def _quantised_linear(call: Call, x: Any, blocks: Any, bias: Any) -> Any:
    xp = namespace(x)
    rows = in_dtype(x, np.float32).reshape((-1, x.shape[-1]))
    added = xp.zeros((0,), np.float32) if bias is None else in_dtype(bias, np.float32)
    run = ffi_call("bireme_quantised_linear", Result((rows.shape[0], blocks.shape[0])))
    out = run(rows, blocks, added, code=np.int64(BLOCK_FORMATS[call.attrs["form"]].code))
    return in_dtype(out, x.dtype).reshape((*x.shape[:-1], blocks.shape[0]))
