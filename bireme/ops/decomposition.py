"""Decompositions, inverses and what is computed from them.

Both tiers call LAPACK-like routines of `xp.linalg`. Where NumPy would raise (a singular matrix)
its results are NaN, as the compiled tier's are. What Paddle refuses is a requirement of the op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.api.public import another_name, namespace
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import broadcast_shapes, op
from bireme.core.requirements import Holds, InRange
from bireme.core.tensor import Tensor, constant
from bireme.host import jax_door
from bireme.ops.linalg import matmul
from bireme.ops.math_unary import _real_dtype, conj_of, exp
from bireme.ops.open_sizes import least, surely

public = namespace("paddle.linalg")


def _check_matrices(x: Any, *_: Any, **__: Any) -> None:
    if x.ndim < 2:
        raise ShapeMismatch("takes a matrix, or a batch of them")
    if not x.dtype.differentiable or x.dtype.bits < 32:
        raise TypeMismatch(
            "takes float32, float64 or complex numbers: decompositions need their digits; cast "
            "with .astype('float32')"
        )


def _check_square(x: Any, *_: Any, **__: Any) -> None:
    _check_matrices(x)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeMismatch("takes square matrices: the last two dimensions must be equal")


def _guarded(function: Callable[..., Any], x: np.ndarray, *rest: Any) -> Any:
    """One matrix at a time where the batch as a whole fails; NaN for those that fail."""
    try:
        return function(x, *rest)
    except np.linalg.LinAlgError:
        pass
    if x.ndim == 2:
        eye = np.eye(*x.shape, dtype=x.dtype)
        return _map(lambda a: np.full_like(a, np.nan), function(eye, *rest))
    results = [_guarded(function, x[i], *[r[i] for r in rest]) for i in range(x.shape[0])]
    if isinstance(results[0], tuple):
        return tuple(np.stack(parts) for parts in zip(*results, strict=True))
    return np.stack(results)


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    return tuple(map(function, value)) if isinstance(value, tuple) else function(value)


def _run(xp: Any, function: Callable[..., Any], x: Any, *rest: Any) -> Any:
    return _guarded(function, x, *rest) if xp is np else function(x, *rest)


def _transposed(xp: Any, x: Any) -> Any:
    return conj_of(xp, xp.swapaxes(x, -1, -2))


# --- inverses and solutions -------------------------------------------------------------------


def _inv_vjp(xp: Any, grad: Any, out: Any) -> tuple[Any]:
    back = _transposed(xp, out)
    return (-xp.matmul(xp.matmul(back, grad), back),)


def _all_finite(xp: Any, x: Any) -> Any:
    return xp.all(xp.isfinite(x))


_INVERTIBLE = Holds(
    "a matrix is singular: it has no inverse; add a small multiple of the identity, or use pinv",
    # What holds NaN has an inverse of NaN.
    lambda xp, inputs, out: _all_finite(xp, out) | ~_all_finite(xp, inputs[0]),
)
_SOLVABLE = Holds(
    "a matrix is singular: the equations have no single solution; use lstsq or pinv",
    # A right-hand side that is not finite has such a solution.
    lambda xp, inputs, out: _all_finite(xp, out) | ~_all_finite(xp, inputs[1]),
)
_FINITE = Holds(
    "a matrix holds NaN or infinity",
    lambda xp, inputs, out: _all_finite(xp, inputs[0]),
    before=True,
)
_NO_NAN = Holds(
    "a matrix holds NaN: it has no singular values",
    lambda xp, inputs, out: ~xp.any(xp.isnan(inputs[0])),
    before=True,
)
_POSITIVE = Holds(
    "a matrix is not positive definite; add a small multiple of the identity, or check that it is "
    "symmetric",
    lambda xp, inputs, out: _all_finite(xp, out) | ~_all_finite(xp, inputs[0]),
)


@public(spaces=("paddle",))
@op(vjp=_inv_vjp, check=_check_square, infer=lambda x: x, requires=lambda x: [_INVERTIBLE])
def inverse(xp, x):
    """The inverse matrix."""
    return _run(xp, xp.linalg.inv, x)


inv = another_name("inv", inverse, spaces=("paddle.linalg",), method=False)


def _solve_vjp(xp: Any, grad: Any, x: Any, out: Any) -> tuple[Any, Any]:
    by_y = _run(xp, xp.linalg.solve, _transposed(xp, x), grad)
    return -xp.matmul(by_y, _transposed(xp, out)), by_y


def _check_solve(x: Any, y: Any, **_: Any) -> None:
    _check_square(x)
    if y.ndim < 2 or x.shape[-1] != y.shape[-2]:
        raise ShapeMismatch("y must have as many rows as x")


def _solve_body(xp: Any, x: Any, y: Any) -> Any:
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x = xp.broadcast_to(x, (*batch, *x.shape[-2:]))
    return _run(xp, xp.linalg.solve, x, xp.broadcast_to(y, (*batch, *y.shape[-2:])))


@op(
    name="solve",
    vjp=_solve_vjp,
    promote="float_binary",
    check=_check_solve,
    requires=lambda x, y: [_SOLVABLE],
)
def _solve(xp, x, y):
    """The z with x @ z = y."""
    return _solve_body(xp, x, y)


@public(also={"A": "x", "B": "y"}, out=True, method=True, takes="fc")
def solve(x: Tensor, y: Tensor, left: bool = True, name: str | None = None) -> Tensor:
    """The z with x @ z = y (z @ x = y if not `left`); y may be a vector."""
    from bireme.ops.manipulation import matrix_transpose, squeeze, unsqueeze

    if not left:
        return matrix_transpose(solve(matrix_transpose(x), matrix_transpose(y)))
    if y.ndim == 1:
        return squeeze(_solve(x, unsqueeze(y, -1)), -1)
    return _solve(x, y)


@op(name="triangular_solve", promote="float_binary", check=_check_solve)
def _triangular_solve(xp, x, y, upper=True, transpose=False, unitriangular=False):
    """The z with x @ z = y for a triangular x."""
    x = xp.triu(x) if upper else xp.tril(x)
    if unitriangular:
        eye = xp.eye(x.shape[-1], dtype=x.dtype)
        x = x * (1 - eye) + eye
    if transpose:
        x, upper = xp.swapaxes(x, -1, -2), not upper
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x = xp.broadcast_to(x, (*batch, *x.shape[-2:]))
    y = xp.broadcast_to(y, (*batch, *y.shape[-2:]))
    if xp is np:
        return _substituted(x, y, upper)
    return jax_door.jax().lax.linalg.triangular_solve(x, y, left_side=True, lower=not upper)


def _substituted(x: np.ndarray, y: np.ndarray, upper: bool) -> np.ndarray:
    """The z with x @ z = y; a zero on the diagonal gives infinity or NaN, as in compiled code."""
    diagonal = np.diagonal(x, axis1=-2, axis2=-1)[..., None]
    if diagonal.all():
        return np.linalg.solve(x, y)
    z = np.zeros_like(y)
    rows = range(x.shape[-1])
    for i in reversed(rows) if upper else rows:
        done = slice(i + 1, None) if upper else slice(i)
        rest = y[..., i, :] - (x[..., i, None, done] @ z[..., done, :])[..., 0, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            z[..., i, :] = rest / diagonal[..., i, :]
    return z


@public(takes="fc")
def triangular_solve(
    x: Tensor,
    y: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    name: str | None = None,
) -> Tensor:
    """The z with x @ z = y, reading one triangle of x (its transpose with `transpose`)."""
    return _triangular_solve(x, y, upper, transpose, unitriangular)


@op(
    check=_check_square,
    name="cholesky",
    infer=lambda x, upper: x,
    requires=lambda x, upper: [_POSITIVE],
)
def _cholesky(xp, x, upper=False):
    """The triangular root of a positive definite matrix."""
    lower = _run(xp, xp.linalg.cholesky, _transposed(xp, x) if upper else x)
    return _transposed(xp, lower) if upper else lower


@public(spaces=("paddle", "paddle.linalg"))
def cholesky(x: Tensor, upper: bool = False, name: str | None = None) -> Tensor:
    """The triangular root of positive definite matrices: L @ L.T, or U.T @ U with `upper`."""
    return _cholesky(x, upper)


@public(method=True)
def cholesky_solve(x: Tensor, y: Tensor, upper: bool = False, name: str | None = None) -> Tensor:
    """The z with A @ z = x, where y is the Cholesky root of A."""
    from bireme.ops.manipulation import matrix_transpose

    lower = matrix_transpose(y) if upper else y
    half = _triangular_solve(lower, x, False, False, False)
    return _triangular_solve(lower, half, False, True, False)


@public(method=True)
def cholesky_inverse(x: Tensor, upper: bool = False, name: str | None = None) -> Tensor:
    """The inverse of the matrix whose Cholesky root is x."""
    from bireme.ops.manipulation import matrix_transpose
    from bireme.ops.matrices import tril

    if x.ndim != 2:
        raise ShapeMismatch(f"[cholesky_inverse] x must be a matrix. Received: shape {x.shape}")
    lower = tril(matrix_transpose(x) if upper else x)
    # The first of the two solutions is an inverse, which a singular root does not have.
    return _triangular_solve(lower, inverse(lower), False, True, False)


def _det_vjp(xp: Any, grad: Any, x: Any, out: Any) -> tuple[Any]:
    inverse = _transposed(xp, _run(xp, xp.linalg.inv, x))
    return ((grad * conj_of(xp, out))[..., None, None] * inverse,)


@public
@op(vjp=_det_vjp, check=_check_square, infer=lambda x: aval(x.shape[:-2], x.dtype))
def det(xp, x):
    """The determinant."""
    return xp.linalg.det(x)


def _slogdet_vjp(xp: Any, grad: Any, x: Any) -> tuple[Any]:
    return (grad[1][..., None, None] * _transposed(xp, _run(xp, xp.linalg.inv, x)),)


@public(method=True)
@op(
    name="slogdet",
    vjp=_slogdet_vjp,
    check=_check_square,
    infer=lambda x: aval((2, *x.shape[:-2]), x.dtype),
)
def slogdet(xp, x):
    """The sign and the logarithm of the size of the determinant, stacked."""
    sign, log = xp.linalg.slogdet(x)
    return xp.stack([sign, log.astype(sign.dtype)])


# --- eigenvalues and singular values ----------------------------------------------------------


@op(name="svd", check=_check_matrices, requires=lambda *_, **__: [_NO_NAN])
def _svd(xp, x, full_matrices=False):
    """(U, S, V transposed)."""
    u, s, vh = _run(xp, lambda a: tuple(xp.linalg.svd(a, full_matrices=full_matrices)), x)
    return u, s, vh


@public(out=True)
def svd(
    x: Tensor, full_matrices: bool = False, name: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, VH) with x = U @ diag(S) @ VH."""
    return tuple(_svd(x, full_matrices))  # type: ignore[return-value]


@public
@op(check=_check_matrices, requires=lambda *_: [_NO_NAN])
def svdvals(xp, x):
    """The singular values, largest first."""
    return _run(xp, lambda a: xp.linalg.svd(a, compute_uv=False), x)


@op(name="qr", check=_check_matrices)
def _qr(xp, x, mode="reduced"):
    """(orthogonal, triangular)."""
    q, r = xp.linalg.qr(x, mode=mode)
    return q, r


@op(name="qr_r", check=_check_matrices)
def _qr_r(xp, x):
    """The triangular factor alone."""
    return xp.linalg.qr(x, mode="r")


@public(method=True)
def qr(x: Tensor, mode: str = "reduced", name: str | None = None) -> Any:
    """(Q, R) with x = Q @ R; mode "complete" for a square Q, "r" for R alone."""
    if mode not in ("reduced", "complete", "r"):
        raise InvalidArgument(f"[qr] mode must be 'reduced', 'complete' or 'r'. Received: {mode!r}")
    return _qr_r(x) if mode == "r" else tuple(_qr(x, mode))


def _hermitian(xp: Any, x: Any, uplo: str) -> Any:
    """The matrix that one triangle of x stands for."""
    half = xp.tril(x) if uplo == "L" else xp.triu(x)
    strict = xp.tril(x, -1) if uplo == "L" else xp.triu(x, 1)
    return half + _transposed(xp, strict)


def _check_uplo(uplo: str, name: str) -> None:
    if uplo not in ("L", "U"):
        raise InvalidArgument(f"[{name}] UPLO must be 'L' or 'U'. Received: {uplo!r}")


def _eigh_vjp(xp: Any, grad: Any, out: Any, uplo: str) -> tuple[Any]:
    """Symmetric, as in Paddle, though one triangle alone is read."""
    values, vectors = out
    turned = _transposed(xp, vectors)
    own = xp.eye(values.shape[-1], dtype=bool)
    gaps = xp.where(own, 1, values[..., None, :] - values[..., :, None])
    inner = xp.where(own, 0, xp.matmul(turned, grad[1]) / gaps)
    whole = xp.where(own, grad[0][..., None, :].astype(inner.dtype), inner)
    made = xp.matmul(xp.matmul(vectors, whole), turned)
    return ((made + _transposed(xp, made)) / 2,)


@op(
    name="eigh",
    vjp=_eigh_vjp,
    check=_check_square,
    infer=lambda x, uplo: (aval(x.shape[:-1], _real_dtype(x.dtype)), x),
)
def _eigh(xp, x, uplo="L"):
    """(eigenvalues, eigenvectors) of symmetric matrices."""
    full = _hermitian(xp, x, uplo)
    values, vectors = _run(xp, lambda a: tuple(xp.linalg.eigh(a)), full)
    return values, vectors


@public
def eigh(x: Tensor, UPLO: str = "L", name: str | None = None) -> tuple[Tensor, Tensor]:
    """(eigenvalues, eigenvectors) of symmetric matrices, of which one triangle is read."""
    _check_uplo(UPLO, "eigh")
    return tuple(_eigh(x, UPLO))  # type: ignore[return-value]


@public(spaces=("paddle", "paddle.linalg"))
def eigvalsh(x: Tensor, UPLO: str = "L", name: str | None = None) -> Tensor:
    """The eigenvalues of symmetric matrices, smallest first."""
    _check_uplo(UPLO, "eigvalsh")
    return _eigh(x, UPLO)[0]


def _complex_of(d: dt.DType) -> dt.DType:
    return dt.complex128 if d in (dt.float64, dt.complex128) else dt.complex64


def _eig_vjp(xp: Any, grad: Any, out: Any) -> tuple[Any]:
    """Eigenvectors have length 1; their phase is free, and no loss may depend on it."""
    values, vectors = out
    turned = _transposed(xp, vectors)
    inner = xp.matmul(turned, grad[1])
    eye = xp.eye(values.shape[-1], dtype=values.dtype)
    lengthwise = xp.real(xp.sum(inner * eye, axis=-2)).astype(values.dtype)
    inner = inner - xp.matmul(turned, vectors) * lengthwise[..., None, :]
    gap = conj_of(xp, values)[..., None, :] - conj_of(xp, values)[..., :, None] + eye
    inner = inner / gap * (1 - eye) + eye * grad[0][..., None, :]
    return (_run(xp, xp.linalg.solve, turned, xp.matmul(inner, turned)),)


@op(
    name="eig",
    check=_check_square,
    vjp=_eig_vjp,
    requires=lambda x: [_FINITE],
    infer=lambda x: (aval(x.shape[:-1], _complex_of(x.dtype)), aval(x.shape, _complex_of(x.dtype))),
)
def _eig(xp, x):
    """(eigenvalues, eigenvectors) of any square matrices."""
    values, vectors = _run(xp, xp.linalg.eig, x)
    to = _complex_of(dt.as_dtype(x.dtype)).numpy
    return values.astype(to), vectors.astype(to)


@public(method=True)
def eig(x: Tensor, name: str | None = None) -> tuple[Tensor, Tensor]:
    """(eigenvalues, eigenvectors) of any square matrices, as complex numbers."""
    return tuple(_eig(x))  # type: ignore[return-value]


@public(method=True)
def eigvals(x: Tensor, name: str | None = None) -> Tensor:
    """The eigenvalues of any square matrices, as complex numbers."""
    return _eig(x)[0]


# --- built on the above -----------------------------------------------------------------------


@op(
    name="pinv",
    inputs=("x", "rcond"),
    check=_check_matrices,
    requires=lambda x, rcond, hermitian: [_FINITE],
)
def _pinv(xp, x, rcond=1e-15, hermitian=False):
    """The pseudo-inverse."""
    limit = xp.asarray(rcond)
    if hermitian:
        values, vectors = _run(xp, xp.linalg.eigh, _hermitian(xp, x, "L"))
        size = xp.abs(values)
        keep = size > limit * xp.max(size, axis=-1, keepdims=True, initial=0)
        turned = xp.where(keep, 1 / xp.where(keep, values, 1), 0).astype(x.dtype)
        return xp.matmul(vectors * turned[..., None, :], _transposed(xp, vectors))
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    keep = s > limit * xp.max(s, axis=-1, keepdims=True, initial=0)
    turned = xp.where(keep, 1 / xp.where(keep, s, 1), 0).astype(x.dtype)
    return xp.matmul(_transposed(xp, vh) * turned[..., None, :], _transposed(xp, u))


@public(method=True)
def pinv(
    x: Tensor, rcond: float = 1e-15, hermitian: bool = False, name: str | None = None
) -> Tensor:
    """The pseudo-inverse; singular values below rcond times the largest count as zero."""
    return _pinv(x, rcond, hermitian)


@public(method=True, takes="fc")
def matrix_power(x: Tensor, n: int, name: str | None = None) -> Tensor:
    """The matrix multiplied n times by itself; a negative n takes the inverse first."""
    if not isinstance(n, int):
        raise TypeMismatch(f"[matrix_power] n must be an integer. Received: {n!r}")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeMismatch(f"[matrix_power] takes square matrices. Received: {x.shape}")
    if n == 0:
        from bireme.ops.creation import zeros_like
        from bireme.ops.math import plus
        from bireme.ops.matrices import eye

        return plus(zeros_like(x), eye(x.shape[-1], dtype=x.dtype))
    base = inverse(x) if n < 0 else x
    n = abs(n)
    result = None
    while n:
        if n & 1:
            result = base if result is None else matmul(result, base)
        n >>= 1
        if n:
            base = matmul(base, base)
    assert result is not None  # noqa: S101 (n is not zero here)
    return result


def _ranks(x: Aval, tol: Any, rtol: Any, hermitian: bool) -> Aval:
    """One rank per matrix and limit: limits that are tensors broadcast with the matrices."""
    limits = [t.shape for t in (tol, rtol) if isinstance(t, Aval)]
    return aval(broadcast_shapes(x.shape[:-2], *limits), dt.int64)


@op(name="matrix_rank", inputs=("x", "tol", "rtol"), check=_check_matrices, differentiable=False,
    requires=lambda *_, **__: [_NO_NAN],
    infer=_ranks)  # fmt: skip
def _matrix_rank(xp, x, tol=None, rtol=None, hermitian=False):
    """How many singular values are above the larger of tol and rtol times the largest."""
    if hermitian:
        size = xp.abs(xp.linalg.eigvalsh(_hermitian(xp, x, "L")))
    else:
        size = xp.linalg.svd(x, compute_uv=False)
    top = xp.max(size, axis=-1, initial=0)
    if tol is None and rtol is None:
        limit = float(np.finfo(x.dtype).eps) * max(x.shape[-2:]) * top
    else:
        limit = xp.zeros_like(top)
        if tol is not None:
            limit = xp.maximum(limit, xp.asarray(tol).astype(size.dtype))
        if rtol is not None:
            limit = xp.maximum(limit, xp.asarray(rtol).astype(size.dtype) * top)
    return xp.sum(size > limit[..., None], axis=-1).astype(np.int64)


@public
def matrix_rank(
    x: Tensor,
    tol: float | Tensor | None = None,
    hermitian: bool = False,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """How many singular values count as not zero, by absolute and relative limits."""
    if tol is not None and (atol is not None or rtol is not None):
        raise InvalidArgument(
            "[matrix_rank] give tol, or atol and rtol. Received: tol and another of them"
        )
    return _matrix_rank(x, atol if tol is None else tol, rtol, hermitian)


def _lu_types(x: Aval, pivot: bool) -> tuple[Aval, Aval]:
    return x, aval((*x.shape[:-2], least(*x.shape[-2:])), dt.int32)


def _lu_numpy(xp: Any, x: np.ndarray, pivot: bool = True) -> tuple[Any, Any]:
    from scipy.linalg import lu_factor

    flat = x.reshape((-1, *x.shape[-2:]))
    found = [lu_factor(m, check_finite=False) for m in flat]
    packed = np.stack([f[0] for f in found]).reshape(x.shape)
    pivots = np.stack([f[1] for f in found]) + 1
    return packed, pivots.reshape((*x.shape[:-2], -1)).astype(np.int32)


@op(name="lu", check=_check_matrices, infer=_lu_types, numpy=_lu_numpy)
def _lu(xp, x, pivot=True):
    """(L and U packed into one matrix, row exchanges counted from 1)."""
    packed, pivots, _ = jax_door.jax().lax.linalg.lu(x)
    return packed, pivots.astype(np.int32) + 1


@public(method=True)
def lu(
    x: Tensor, pivot: bool = True, get_infos: bool = False, name: str | None = None
) -> tuple[Tensor, ...]:
    """(L and U packed into one matrix, row exchanges counted from 1[, zeros as infos])."""
    if not pivot:
        raise InvalidArgument(
            "[lu] only the factorisation with row exchanges is stable and offered. Received: "
            "pivot=False"
        )
    packed, pivots = _lu(x, True)
    if not get_infos:
        return packed, pivots
    return packed, pivots, constant(np.zeros(x.shape[:-2], np.int32))


@op(
    name="lu_unpack",
    check=lambda x, y: _check_matrices(x),
    requires=lambda x, y: [InRange("y", 1, x.shape[-2])],
)
def _lu_unpack(xp, x, y):
    """(P, L, U) with P @ L @ U the factored matrix."""
    rows, columns = x.shape[-2:]
    k = least(rows, columns)
    lower = xp.tril(x[..., :, :k], -1) + xp.eye(rows, k, dtype=x.dtype)
    upper = xp.triu(x[..., :k, :])
    order = xp.broadcast_to(xp.arange(rows), (*x.shape[:-2], rows))
    places = xp.arange(rows)
    for i in range(y.shape[-1]):
        other = y[..., i : i + 1].astype(np.int64) - 1
        at_i = order[..., i : i + 1]
        at_other = xp.take_along_axis(order, other, axis=-1)
        order = xp.where(places == i, at_other, xp.where(places == other, at_i, order))
    permutation = (order[..., None, :] == places[:, None]).astype(x.dtype)
    return permutation, lower, upper


@public(method=True)
def lu_unpack(
    x: Tensor,
    y: Tensor,
    unpack_ludata: bool = True,
    unpack_pivots: bool = True,
    name: str | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """(P, L, U) from what `lu` returned; None for what is not asked for."""
    permutation, lower, upper = _lu_unpack(x, y)
    return (
        permutation if unpack_pivots else None,
        lower if unpack_ludata else None,
        upper if unpack_ludata else None,
    )


@public
def lu_solve(
    b: Tensor, lu: Tensor, pivots: Tensor, trans: str = "N", name: str | None = None
) -> Tensor:
    """The z with A @ z = b (A.T @ z = b for trans="T") from the factors of A."""
    if trans not in ("N", "T", "C"):
        raise InvalidArgument(f"[lu_solve] trans must be 'N', 'T' or 'C'. Received: {trans!r}")
    permutation, lower, upper = _lu_unpack(lu, pivots)
    if trans == "N":
        moved = matmul(permutation, b, transpose_x=True)
        half = _triangular_solve(lower, moved, False, False, True)
        return _triangular_solve(upper, half, True, False, False)
    if trans == "C":
        from bireme.ops.math_unary import conj

        lower, upper = conj(lower), conj(upper)
    half = _triangular_solve(upper, b, True, True, False)
    return matmul(permutation, _triangular_solve(lower, half, False, True, True))


_MAX_SQUARINGS = 66  # enough for every float32 matrix whose exponential is finite


def _square_repeatedly(xp: Any, matrix: Any, times: Any) -> Any:
    if xp is np:
        for i in range(int(times.max(initial=0))):
            matrix = np.where(times > i, np.matmul(matrix, matrix), matrix)
        return matrix

    def square(i: Any, value: Any) -> Any:
        return xp.where(times > i, xp.matmul(value, value), value)

    # A fixed count keeps the loop differentiable.
    return jax_door.jax().lax.fori_loop(0, _MAX_SQUARINGS, square, matrix)


@public
def matrix_exp(x: Tensor, name: str | None = None) -> Tensor:
    """The exponential of square matrices; of a number its exponential."""
    return exp(x) if x.ndim == 0 else _matrix_exp(x)


@op(name="matrix_exp", check=_check_square, infer=lambda x: x)
def _matrix_exp(xp, x):
    """The exponential of a matrix, by scaling, a Taylor series and squaring, which loses digits:
    float32 is computed in float64."""
    kind = x.dtype
    x = x.astype("complex128" if kind.kind == "c" else "float64")
    size = xp.max(xp.sum(xp.abs(x), axis=-1), axis=-1, initial=0)[..., None, None]
    halvings = xp.ceil(xp.log2(xp.where(size > 0, size, 1))) + 2
    halvings = xp.minimum(xp.maximum(halvings, 0), _MAX_SQUARINGS)
    scaled = x / (2.0**halvings).astype(x.dtype)
    term = total = xp.broadcast_to(xp.eye(x.shape[-1], dtype=x.dtype), x.shape)
    for k in range(1, 19):
        term = xp.matmul(term, scaled) / k
        total = total + term
    return _square_repeatedly(xp, total, halvings).astype(kind)


def _check_householder(x: Any, tau: Any) -> None:
    _check_matrices(x)
    if surely(lambda: x.shape[-2] < x.shape[-1]):
        raise ShapeMismatch("x must have at least as many rows as columns")
    if tau.shape and surely(lambda: tau.shape[-1] > x.shape[-1]):
        raise ShapeMismatch("tau has at most one number per column of x")


@public(method=True)
@op(check=_check_householder)
def householder_product(xp, x, tau):
    """The first columns of the product of Householder reflections, as in LAPACK's orgqr."""
    rows, columns = x.shape[-2:]
    q = xp.broadcast_to(xp.eye(rows, columns, dtype=x.dtype), x.shape)
    places = xp.arange(rows)
    for i in reversed(range(tau.shape[-1])):
        column = xp.where(places > i, x[..., :, i], 0).astype(x.dtype)
        v = xp.where(places == i, 1, column).astype(x.dtype)[..., :, None]
        reflected = xp.matmul(v, xp.matmul(_transposed(xp, v), q))
        q = q - tau[..., i, None, None] * reflected
    return q
