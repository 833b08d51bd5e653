"""`paddle.sparse`: tensors that store only some of their values."""

from bireme.api.keywords import second_names as _second_names
from bireme.ops import sparse_math as _math
from bireme.ops.sparse_creation import sparse_coo_tensor, sparse_csr_tensor
from bireme.ops.sparse_linalg import addmm, masked_matmul, matmul, mv, pca_lowrank
from bireme.ops.sparse_math import (
    abs,
    add,
    asin,
    asinh,
    atan,
    atanh,
    cast,
    coalesce,
    deg2rad,
    divide,
    expm1,
    is_same_shape,
    isnan,
    log1p,
    mask_as,
    multiply,
    neg,
    pow,
    rad2deg,
    sin,
    sinh,
    slice,
    sqrt,
    square,
    subtract,
    sum,
    tan,
    tanh,
    transpose,
)
from bireme.sparse import nn

reshape = _second_names(input="x")(_math.reshape)

__all__ = [
    "abs", "add", "addmm", "asin", "asinh", "atan", "atanh", "cast", "coalesce", "deg2rad",
    "divide", "expm1", "is_same_shape", "isnan", "log1p", "mask_as", "masked_matmul", "matmul",
    "multiply", "mv", "neg", "nn", "pca_lowrank", "pow", "rad2deg", "reshape", "sin", "sinh",
    "slice", "sparse_coo_tensor", "sparse_csr_tensor", "sqrt", "square", "subtract", "sum", "tan",
    "tanh", "transpose",
]  # fmt: skip
