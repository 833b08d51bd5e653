"""Least squares."""

from __future__ import annotations

import numpy as np

from bireme.api.public import namespace
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.ops.contents import Result, reads_contents
from bireme.ops.decomposition import _matrix_rank, _pinv, svdvals
from bireme.ops.linalg import matmul
from bireme.ops.math import minus
from bireme.ops.math_unary import cast, square
from bireme.ops.reduction import _sum

public = namespace("paddle.linalg")


@public(method=True)
def lstsq(
    x: Tensor,
    y: Tensor,
    rcond: float | None = None,
    driver: str | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(solution, residuals, rank, singular values) of the least squares problem x @ z = y."""
    drivers = (None, "gels", "gelsy", "gelsd", "gelss")
    if driver not in drivers:
        raise InvalidArgument(f"[lstsq] driver must be one of {drivers}. Received: {driver!r}")
    if x.dtype not in (dt.float32, dt.float64) or y.dtype is not x.dtype:
        raise TypeMismatch(
            "[lstsq] x and y must both be float32 or float64. Received: "
            f"{x.dtype.name} and {y.dtype.name}"
        )
    if x.ndim < 2 or x.ndim != y.ndim or x.shape[-2] != y.shape[-2]:
        raise ShapeMismatch(
            "[lstsq] x and y are matrices, or batches of them, with as many rows. Received: "
            f"{x.shape} and {y.shape}"
        )
    nothing = constant(np.zeros((0,), x.dtype.numpy))
    machine = float(np.finfo(x.dtype.numpy).eps) * max(x.shape[-2:])
    limit = machine if rcond is None else float(rcond)
    solution = matmul(_pinv(x, limit, False), y)
    rank = cast(_matrix_rank(x, None, limit, False), "int32")
    residuals = nothing
    if x.shape[-2] > x.shape[-1] and driver not in (None, "gelsy"):
        left = minus(matmul(x, solution), y)
        squares = _sum(square(left), -2, False)
        residuals = squares if driver == "gels" else _if_of_full_rank(squares, rank, x.shape[-1])
    values = svdvals(x) if driver in ("gelsd", "gelss") else nothing
    if driver == "gels":  # which assumes the full rank, and does not look
        return solution, residuals, constant(np.zeros((0,), np.int64)), values
    return solution, residuals, rank, values


def _residual_type(residuals: Tensor, rank: Tensor, full: int) -> Result:
    return Result([None] * residuals.ndim, residuals.dtype)


@reads_contents(_residual_type)
def _if_of_full_rank(residuals: Tensor, rank: Tensor, full: int) -> Tensor:
    """The residuals, or nothing where a matrix has not the full rank."""
    if bool((rank == full).all()):
        return residuals
    return constant(np.zeros((0,), residuals.dtype.numpy))
