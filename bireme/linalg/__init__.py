"""`paddle.linalg`: products, norms and decompositions of matrices."""

from __future__ import annotations

from bireme.core.keywords import accept as _accept
from bireme.ops.decomposition import (
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    det,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    householder_product,
    inv,
    lstsq,
    lu,
    lu_solve,
    lu_unpack,
    matrix_exp,
    matrix_power,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    solve,
    svd,
    svdvals,
    triangular_solve,
)
from bireme.ops.distance import cond, matrix_norm, norm, vector_norm
from bireme.ops.linalg import cross, matmul, multi_dot, vecdot
from bireme.ops.lowrank import fp8_fp8_half_gemm_fused, ormqr, pca_lowrank, svd_lowrank
from bireme.ops.manipulation import matrix_transpose
from bireme.ops.rearrange import diagonal
from bireme.ops.statistics import corrcoef, cov

__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "cond", "corrcoef", "cov", "cross", "det",
    "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "fp8_fp8_half_gemm_fused",
    "householder_product", "inv", "lstsq", "lu", "lu_solve", "lu_unpack", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "ormqr",
    "pca_lowrank", "pinv", "qr", "slogdet", "solve", "svd", "svd_lowrank", "svdvals",
    "triangular_solve", "vecdot", "vector_norm",
]  # fmt: skip

globals().update(_accept("linalg", {name: globals()[name] for name in __all__}))
