"""Factorisations of low rank by random projection, and products with what is never formed."""

from __future__ import annotations

from typing import Any

from bireme.api.public import namespace
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.activation import gelu, relu
from bireme.ops.decomposition import householder_product, qr, svd
from bireme.ops.linalg import matmul
from bireme.ops.manipulation import matrix_transpose
from bireme.ops.math import minus, multiply, plus
from bireme.ops.math_unary import cast, conj
from bireme.ops.open_sizes import least, surely
from bireme.ops.random import standard_normal
from bireme.ops.reduction import mean

public = namespace("paddle.linalg")


@public(method=True)
def ormqr(
    x: Tensor,
    tau: Tensor,
    y: Tensor,
    left: bool = True,
    transpose: bool = False,
    name: str | None = None,
) -> Tensor:
    """Q @ y, or y @ Q if not `left`, for the Q of Householder reflections (its transpose with
    `transpose`); x and tau are those of `householder_product`."""
    if x.dtype is not tau.dtype or x.dtype is not y.dtype:
        raise TypeMismatch(
            f"[ormqr] x, tau and y must have one dtype. Received: {x.dtype.name}, "
            f"{tau.dtype.name} and {y.dtype.name}"
        )
    if x.ndim < 2 or x.ndim != y.ndim or x.ndim != tau.ndim + 1 or x.shape[-1] != tau.shape[-1]:
        raise ShapeMismatch(
            "[ormqr] x and y are matrices (or batches), tau has one number per column of x. "
            f"Received: {x.shape}, {tau.shape} and {y.shape}"
        )
    inner = x.shape[-1 if left is not transpose else -2]
    if y.shape[-2 if left else -1] != inner:
        raise ShapeMismatch(
            f"[ormqr] y needs {inner} {'rows' if left else 'columns'} for this x. Received: "
            f"{x.shape} and {y.shape}"
        )
    q = householder_product(x, tau)
    if transpose:
        q = matrix_transpose(q)
    return matmul(q, y) if left else matmul(y, q)


def _adjoint(x: Tensor) -> Tensor:
    turned = matrix_transpose(x)
    return conj(turned) if x.dtype.is_complex else turned


def _range_of(x: Tensor, q: int, niter: int) -> Tensor:
    """Orthonormal columns that nearly span the columns of x."""
    basis = qr(matmul(x, cast(standard_normal((x.shape[-1], q)), x.dtype)))[0]
    back = _adjoint(x)
    for _ in range(niter):
        basis = qr(matmul(x, qr(matmul(back, basis))[0]))[0]
    return basis


def _check_lowrank(name: str, x: Tensor, q: int | None, niter: int) -> int:
    if x.ndim < 2:
        raise ShapeMismatch(f"[{name}] takes a matrix, or a batch of them. Received: {x.shape}")
    largest = least(*x.shape[-2:])
    rank = least(6, largest) if q is None else q
    if surely(lambda: rank < 0) or surely(lambda: rank > largest):
        raise InvalidArgument(f"[{name}] q must be between 0 and {largest}. Received: {q}")
    if niter < 0:
        raise InvalidArgument(f"[{name}] niter must be 0 or more. Received: {niter}")
    return rank


@public(method=True)
def svd_lowrank(
    x: Tensor,
    q: int | None = None,
    niter: int = 2,
    M: Tensor | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) with x - M close to U @ diag(S) @ V^H: the q largest singular values, found by
    `niter` rounds of subspace iteration from a random start."""
    q = _check_lowrank("svd_lowrank", x, q, niter)
    rows, columns = x.shape[-2:]
    if M is not None:
        x = minus(x, M)
    if rows < columns or columns > q:
        basis = _range_of(_adjoint(x), q, niter)
        u, s, vh = svd(matmul(x, basis))
        return u, s, matmul(basis, _adjoint(vh))
    basis = _range_of(x, q, niter)
    u, s, vh = svd(matmul(_adjoint(basis), x))
    return matmul(basis, u), s, _adjoint(vh)


@public(method=True)
def pca_lowrank(
    x: Tensor, q: int | None = None, center: bool = True, niter: int = 2, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The principal components of the rows of x: `svd_lowrank` of x less its mean row."""
    q = _check_lowrank("pca_lowrank", x, q, niter)
    return svd_lowrank(minus(x, mean(x, -2, True)) if center else x, q, niter)


_FP8 = (dt.float8_e4m3fn, dt.float8_e5m2)
_ACTIVATIONS: dict[str, Any] = {"identity": None, "": None, "relu": relu, "gelu": gelu}


@public
def fp8_fp8_half_gemm_fused(
    x: Tensor,
    y: Tensor,
    transpose_x: bool = False,
    transpose_y: bool = False,
    bias: Tensor | None = None,
    scale: float = 1.0,
    output_dtype: str = "float16",
    act: str = "identity",
    name: str | None = None,
) -> Tensor:
    """act(scale * x @ y + bias) of 8-bit floats, summed in float32 and given in half precision."""
    if x.dtype not in _FP8 or y.dtype not in _FP8:
        raise TypeMismatch(
            "[fp8_fp8_half_gemm_fused] x and y must be float8_e4m3fn or float8_e5m2. Received: "
            f"{x.dtype.name} and {y.dtype.name}"
        )
    if output_dtype not in ("float16", "bfloat16"):
        raise InvalidArgument(
            "[fp8_fp8_half_gemm_fused] output_dtype must be 'float16' or 'bfloat16'. Received: "
            f"{output_dtype!r}"
        )
    if act not in _ACTIVATIONS:
        raise InvalidArgument(
            f"[fp8_fp8_half_gemm_fused] act must be 'identity', 'relu' or 'gelu'. Received: {act!r}"
        )
    out = matmul(cast(x, dt.float32), cast(y, dt.float32), transpose_x, transpose_y)
    out = multiply(out, float(scale))
    if bias is not None:
        out = plus(out, cast(bias, dt.float32))
    function = _ACTIVATIONS[act]
    return cast(out if function is None else function(out), output_dtype)
