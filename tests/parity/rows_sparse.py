"""paddle.sparse against the wheel, where its CPU has a kernel; tests/sparse has the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.parity.table import T, V, case_fn, raises_fn

WHERE = [[0, 0, 1, 2], [0, 2, 1, 0]]  # four places of a 3 x 3 matrix, in order
OTHER = [[0, 1, 2], [2, 0, 0]]
WRONG = {"_paddle_grad": False}  # Paddle has none, or another number of them
SMALL = {"low": 0.1, "high": 0.9}


def coo(p: Any, values: Any, where: Any = None, shape: Any = (3, 3)) -> Any:
    return p.sparse.sparse_coo_tensor(
        p.to_tensor(WHERE if where is None else where), values, list(shape), stop_gradient=False
    )


def csr(p: Any, values: Any, where: Any = None) -> Any:
    return coo(p, values, where).to_sparse_csr()


def parts(x: Any) -> list[Any]:
    if x.is_sparse_csr():
        return [x.crows(), x.cols(), x.values()]
    return [x.indices(), x.values()]


def _both(name: str, f: Callable[..., Any], *args: Any, **options: Any) -> None:
    """A row for each layout: `f(p, make, *tensors)`. Paddle has no gradients for CSR values."""
    for layout in (coo, csr):
        if layout is csr:
            options = {**options, "_paddle_grad": False}
        case_fn(f"sparse.{name}-{layout.__name__}",
                lambda p, *xs, m=layout: f(p, m, *xs), *args, **options)  # fmt: skip


for _name in ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "sqrt", "square",
              "log1p", "abs", "neg", "expm1", "rad2deg", "deg2rad", "isnan"):  # fmt: skip
    _both(_name, lambda p, m, v, n=_name: parts(getattr(p.sparse, n)(m(p, v))), T(4, **SMALL))
_both("pow", lambda p, m, v: parts(p.sparse.pow(m(p, v), 3)), T(4, **SMALL))
_both("cast", lambda p, m, v: parts(p.sparse.cast(m(p, v), "int32", "float64")), T(4))
_both("to_dense", lambda p, m, v: m(p, v).to_dense(), T(4))
_both("add", lambda p, m, v, w: parts(p.sparse.add(m(p, v), m(p, w, OTHER))), T(4), T(3))
_both("subtract", lambda p, m, v, w: parts(p.sparse.subtract(m(p, v), m(p, w, OTHER))), T(4), T(3),
      **WRONG)  # fmt: skip
_both("multiply", lambda p, m, v, w: parts(p.sparse.multiply(m(p, v), m(p, w, OTHER))), T(4), T(3))
_both("add-same", lambda p, m, v, w: parts(p.sparse.add(m(p, v), m(p, w))), T(4), T(4))
_both("divide", lambda p, m, v, w: parts(p.sparse.divide(m(p, v), m(p, w, OTHER))), T(4),
      T(3, low=1, high=2), _check_grad=False)  # fmt: skip
_both("multiply-number", lambda p, m, v: parts(p.sparse.multiply(m(p, v), 2)), T(4))
_both("divide-number", lambda p, m, v: parts(p.sparse.divide(m(p, v), 2.0)), T(4))
_both("reshape", lambda p, m, v: parts(p.sparse.reshape(m(p, v), [9, 1])), T(4))
_both(
    "slice", lambda p, m, v: parts(p.sparse.slice(m(p, v), [0, 1], [0, 1], [2, 3])), T(4), **WRONG
)
_both("transpose", lambda p, m, v: p.sparse.transpose(m(p, v), [1, 0]).to_dense(), T(4))
_both("softmax", lambda p, m, v: parts(p.sparse.nn.functional.softmax(m(p, v))), T(4))
_both("relu", lambda p, m, v: parts(p.sparse.nn.functional.relu(m(p, v))), T(4))
_both("relu6", lambda p, m, v: parts(p.sparse.nn.functional.relu6(m(p, v))), T(4, high=9))
_both("leaky_relu", lambda p, m, v: parts(p.sparse.nn.functional.leaky_relu(m(p, v), 0.2)), T(4))
_both("mask_as", lambda p, m, x, v: parts(p.sparse.mask_as(x, m(p, v))), T(3, 3), T(4, grad=False))
_both("sum-last", lambda p, m, v: parts(p.sparse.sum(m(p, v), -1)), T(4), **WRONG)
_both("is_same_shape", lambda p, m, v: p.sparse.is_same_shape(m(p, v), m(p, v)), T(4))
for _axis in (0, 1, -1):
    for _keep in (False, True):
        case_fn(f"sparse.sum-{_axis}-{_keep}",
                lambda p, v, a=_axis, k=_keep: p.sparse.sum(coo(p, v), a, keepdim=k).to_dense(),
                T(4), **WRONG)  # fmt: skip
case_fn("sparse.sum-keepdim", lambda p, v: parts(p.sparse.sum(coo(p, v), keepdim=True)), T(4),
        **WRONG)  # fmt: skip
case_fn("sparse.reshape-3", lambda p, v: parts(p.sparse.reshape(coo(p, v), [1, -1, 3])), T(4))
case_fn("sparse.slice-negative", lambda p, v: parts(p.sparse.slice(coo(p, v), [0], [-1], [9])),
        T(4), **WRONG)  # fmt: skip
case_fn("sparse.coalesce", lambda p, v: parts(p.sparse.coalesce(
    coo(p, v, [[0, 0, 2], [0, 0, 1]]))), T(3), **WRONG)  # fmt: skip
case_fn("sparse.add-bias", lambda p, v, b: parts(p.sparse.add(
    coo(p, v, [[0, 1], [1, 0]], [2, 2, 3]), b)), T(2, 3), T(3), _paddle_grad=False)  # fmt: skip
case_fn("sparse.shape-from-indices", lambda p, v: list(p.sparse.sparse_coo_tensor(
    [[0, 3], [1, 2]], v).shape), T(2))  # fmt: skip
case_fn("sparse.csr-shape", lambda p, v: list(p.sparse.sparse_csr_tensor(
    [0, 1, 2], [0, 1], v).shape), T(2))  # fmt: skip
case_fn("sparse.csr-to_dense", lambda p, v: p.sparse.sparse_csr_tensor(
    [0, 1, 2, 0, 0, 1], [0, 1, 1], v, [2, 2, 2]).to_dense(), T(3, grad=False))  # fmt: skip
case_fn("sparse.properties", lambda p, v: [
    (x := coo(p, v)).nnz(), x.ndim, x.is_sparse(), x.is_sparse_coo(), x.is_sparse_csr(),
    x.is_dense(), list(x.shape), x.dtype, x.is_coalesced()], T(4))  # fmt: skip

STEPS = {"_finite_difference": False}  # a small step fills the holes
HOLES = V([[0, 1.5, 0], [2, 0, -1]], grad=True)
CUBE = V([[[0, 1.0], [2, 0]], [[0, 0], [3, 4]]], grad=True)
case_fn("to_sparse_coo", lambda p, x: parts(x.to_sparse_coo(2)), HOLES, **STEPS)
case_fn("to_sparse_csr", lambda p, x: parts(x.to_sparse_csr()), HOLES, **WRONG, **STEPS)
case_fn("to_sparse_coo-hybrid", lambda p, x: parts(x.to_sparse_coo(2)), CUBE, **WRONG, **STEPS)
case_fn("to_sparse_csr-batch", lambda p, x: parts(x.to_sparse_csr()), CUBE, **WRONG, **STEPS)
case_fn(
    "csr-to-coo", lambda p, x: parts(x.to_sparse_csr().to_sparse_coo(2)), HOLES, **WRONG, **STEPS
)
case_fn("softmax-batch", lambda p, x: parts(p.sparse.nn.functional.softmax(
    x.to_sparse_csr())), CUBE, **WRONG, **STEPS)  # fmt: skip
case_fn("softmax-axis", lambda p, x: parts(p.sparse.nn.functional.softmax(
    x.to_sparse_coo(3), 1)), CUBE, **WRONG, **STEPS)  # fmt: skip

# --- convolutions -----------------------------------------------------------------------------

POINTS = np.array([[0, 0, 0, 0, 1], [0, 1, 1, 2, 1], [0, 1, 2, 3, 0], [0, 0, 2, 1, 1]])


def cloud(p: Any, values: Any, dims: int = 3) -> Any:
    shape = [2, 3, 4, 3][: dims + 1]
    where = p.to_tensor(POINTS[: dims + 1])
    return p.sparse.sparse_coo_tensor(where, values, [*shape, 2], stop_gradient=False)


for _options in ({}, {"stride": 2, "padding": 1}, {"padding": 1, "dilation": 2},
                 {"padding": [1, 0, 1]}):  # fmt: skip
    case_fn(f"sparse.conv3d-{_options}",
            lambda p, v, w, b, o=_options: parts(p.sparse.nn.functional.conv3d(
                cloud(p, v), w, b, **o)), T(5, 2), T(2, 2, 2, 2, 3), T(3), _rtol=1e-4,
            _atol=1e-4)  # fmt: skip
for _options in ({"padding": 1}, {}, {"key": "a", "padding": 1}):
    case_fn(f"sparse.subm_conv3d-{_options}",
            lambda p, v, w, b, o=_options: parts(p.sparse.nn.functional.subm_conv3d(
                cloud(p, v), w, b, **o)), T(5, 2), T(3, 3, 3, 2, 3), T(3), _rtol=1e-4,
            _atol=1e-4)  # fmt: skip
case_fn("sparse.conv2d", lambda p, v, w: parts(p.sparse.nn.functional.conv2d(
    cloud(p, v, 2), w, padding=1)), T(5, 2), T(3, 3, 2, 3), _rtol=1e-4, _atol=1e-4)  # fmt: skip
case_fn("sparse.subm_conv2d", lambda p, v, w: parts(p.sparse.nn.functional.subm_conv2d(
    cloud(p, v, 2), w, padding=1)), T(5, 2), T(3, 3, 2, 3), _rtol=1e-4, _atol=1e-4)  # fmt: skip
for _options in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 1, "padding": 1},
                 {"kernel_size": [1, 2, 2], "stride": [1, 2, 1]}):  # fmt: skip
    case_fn(f"sparse.max_pool3d-{_options}",
            lambda p, v, o=_options: parts(p.sparse.nn.functional.max_pool3d(cloud(p, v), **o)),
            T(5, 2))  # fmt: skip

raises_fn("sparse-indices-1d", lambda p: p.sparse.sparse_coo_tensor([0, 3], [1.0, 2.0]))
raises_fn("sparse-float-indices", lambda p: p.sparse.sparse_coo_tensor([[0.0, 1.0]], [1.0, 2.0]))
raises_fn("sparse-small-shape", lambda p: p.sparse.sparse_coo_tensor([[0, 3]], [1.0, 2.0], [2]))
raises_fn("sparse-counts", lambda p: p.sparse.sparse_coo_tensor([[0, 3]], [1.0], [4]))
raises_fn("sparse-csr-rows", lambda p: p.sparse.sparse_csr_tensor([0, 1], [0], [1.0], [2, 2]))
raises_fn("sparse-csr-rank", lambda p: p.sparse.sparse_csr_tensor([0, 1], [0], [1.0], [2]))
raises_fn("sparse-sin-dense", lambda p, x: p.sparse.sin(x), T(3))
raises_fn("sparse-add-layouts", lambda p, v: p.sparse.add(coo(p, v), csr(p, v)), T(4))
raises_fn("sparse-add-shapes", lambda p, v: p.sparse.add(
    coo(p, v), coo(p, v, shape=(4, 4))), T(4))  # fmt: skip
raises_fn("sparse-conv-format", lambda p, v, w: p.sparse.nn.functional.conv3d(
    cloud(p, v), w, data_format="NCDHW"), T(5, 2), T(2, 2, 2, 2, 3))  # fmt: skip
raises_fn("dense-crows", lambda p, x: x.crows(), T(3))
raises_fn("sparse-csr-softmax-axis", lambda p, v: p.sparse.nn.functional.softmax(
    csr(p, v), 0), T(4))  # fmt: skip
