"""Max pooling on the CPU by the native kernels, on channels-last memory like the convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import keep_residual, residual_of
from bireme.core.op import Call
from bireme.kernels import native
from bireme.kernels.native.calling import Result, ffi_call
from bireme.ops.pooling_windows import is_even

_CHANNELS_LAST = (0, 2, 3, 1)


def _accepts(call: Call) -> bool:
    """Windows of one size over the two last axes of float32 images."""
    x = call.types[0]
    return (
        isinstance(x, Aval)
        and x.dtype is dt.float32
        and x.is_static
        and x.size > 0
        and x.ndim == 4
        and tuple(call.attrs["axes"]) in ((2, 3), (1, 2))
        and all(is_even(plan) and plan[2] > 0 for plan in call.attrs["plans"])
        and all(c is None for c in call.casts)
    )


def _first(x: Any, call: Call) -> Any:
    """Logical NCHW; on channels-last memory this moves nothing."""
    return x.transpose(0, 3, 1, 2) if tuple(call.attrs["axes"]) == (1, 2) else x


def _back(x: Any, call: Call) -> Any:
    return x.transpose(0, 2, 3, 1) if tuple(call.attrs["axes"]) == (1, 2) else x


def _run(name: str, call: Call, shape: tuple[int, ...], *images: Any) -> Any:
    plans, pads = call.attrs["plans"], call.attrs["pads"]
    numbers = {
        "size_h": plans[0][0],
        "size_w": plans[1][0],
        "step_h": plans[0][1],
        "step_w": plans[1][1],
        "top": pads[0][0],
        "left": pads[1][0],
    }
    run = ffi_call(
        name,
        Result(shape),
        input_layouts=(_CHANNELS_LAST,) * len(images),
        output_layouts=_CHANNELS_LAST,
    )
    return run(*images, **{k: np.int64(v) for k, v in numbers.items()})


def _largest(call: Call, x: Any) -> Any:
    """Every window's maximum, logical NCHW; made once per program."""
    found = residual_of(call, (x,))
    if found is None:
        images = _first(x, call)
        shape = (*images.shape[:2], *(plan[2] for plan in call.attrs["plans"]))
        found = _run("bireme_max_pool_forward", call, shape, images)
        keep_residual(call, (x,), found)
    return found


@kernel(
    "max_pool",
    name="native_max_pool",
    platform="cpu",
    accepts=_accepts,
    ready=native.available,
    direct=native.arrived,
)
def _max_pool(call: Call, x: Any) -> Any:
    return _back(_largest(call, x), call)


@kernel(
    "max_pool_grad",
    name="native_max_pool",
    platform="cpu",
    accepts=lambda call: _accepts(call.attrs["forward"]),
    ready=native.available,
    direct=native.arrived,
)
def _max_pool_grad(call: Call, grad: Any, x: Any) -> Any:
    forward: Call = call.attrs["forward"]
    images = _first(x, forward)
    found = _run(
        "bireme_max_pool_grad",
        forward,
        images.shape,
        _first(grad, forward),
        images,
        _largest(forward, x),
    )
    return (_back(found, forward),)
