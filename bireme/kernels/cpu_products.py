"""Large matrix products of the cold tier, shared among the kernels' threads.

NumPy's matrix library computes each share on one thread (blas.py says why). Compiled
programs have XLA's products.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import thresholds
from bireme.kernels import blas, native
from bireme.kernels.native.calling import threads


def _ready() -> Any:
    """The function of NumPy's matrix library, if it and the kernels are there."""
    return None if native.arrived() is None else blas.function("cblas_sgemm")


def _are_large(call: Call, x: Any, y: Any) -> bool:
    """Whether these are float32 rows and one plain matrix, with many multiplications."""
    return (
        isinstance(x, Aval)
        and isinstance(y, Aval)
        and x.dtype is dt.float32
        and y.dtype is dt.float32
        and all(c is None for c in call.casts)
        and x.is_static
        and y.is_static
        and x.ndim >= 2
        and y.ndim == 2
        and x.size * min(y.shape) >= thresholds.CPU_PRODUCT_WORK
    )


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1])


def _memory(matrix: np.ndarray) -> tuple[np.ndarray, bool]:
    """(a matrix that is one run of memory, whether it is the transpose of what was given)."""
    if matrix.flags.c_contiguous:
        return matrix, False
    if matrix.flags.f_contiguous:
        return matrix.T, True
    return np.ascontiguousarray(matrix), False


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x @ y of float32 matrices."""
    library = native.arrived()
    assert library is not None  # noqa: S101 (see `_ready`)
    (a, turn_a), (b, turn_b) = _memory(x), _memory(y)
    out = np.empty((x.shape[0], y.shape[1]), np.float32)
    size, flag = ctypes.c_int64, ctypes.c_bool
    at = [ctypes.c_void_p(m.__array_interface__["data"][0]) for m in (a, b, out)]
    library.bireme_shared_product(
        ctypes.cast(blas.function("cblas_sgemm"), ctypes.c_void_p), size(threads()), flag(turn_a),
        flag(turn_b), size(x.shape[0]), size(y.shape[1]), size(x.shape[1]), at[0],
        size(a.shape[1]), at[1], size(b.shape[1]), at[2],
    )  # fmt: skip
    return out


@kernel(
    "linear",
    name="shared_product",
    platform="numpy",
    accepts=lambda call: _are_large(call, *call.types[:2]),
    direct=_ready,
)
def _linear(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    out = product(_rows(x), weight)
    if bias is not None:
        out += bias
    return out.reshape(call.outs[0].shape)


def _accepts_matmul(call: Call) -> bool:
    x, y = call.types
    return _are_large(call, x, y) and not call.attrs["transpose_x"]


@kernel("matmul", name="shared_product", platform="numpy", accepts=_accepts_matmul, direct=_ready)
def _matmul(call: Call, x: Any, y: Any) -> Any:
    out = product(_rows(x), y.T if call.attrs["transpose_y"] else y)
    return out.reshape(call.outs[0].shape)


@kernel(
    "matmul_grad",
    name="shared_product",
    platform="numpy",
    accepts=lambda call: call.types[0] is not None and _accepts_matmul(call.attrs["forward"]),
    direct=_ready,
)
def _matmul_grad(call: Call, grad: Any, *saved: Any) -> Any:
    forward: Call = call.attrs["forward"]
    kept = dict(zip(forward.saved_at, saved, strict=True))
    # A factor that only the other one's gradient needs may not have been kept.
    x: Any = kept.get(0)
    y: Any = kept.get(1)
    turned = forward.attrs["transpose_y"]
    found, grad = [], _rows(grad)
    for i in call.attrs["needs"]:
        if i == 0:
            by_x = product(grad, y if turned else y.T)
            found.append(by_x.reshape((*call.outs[0].shape[:-1], by_x.shape[1])))
        else:
            by_y = product(_rows(x).T, grad)
            found.append(by_y.T if turned else by_y)
    return tuple(found)
