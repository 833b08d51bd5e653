"""Identity, triangular and diagonal matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.api.public import public
from bireme.api.types import DeviceLike, DTypeLike, IntOrTensor, Scalar
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor, constant
from bireme.ops.axes import axis_in, ints
from bireme.ops.creation import _SMALL, _one_of, _shape, placed, to_tensor, zeros
from bireme.ops.open_sizes import diagonal_length, surely


@public(also={"m": "num_columns", "n": "num_rows"}, out=True)
def eye(
    num_rows: IntOrTensor,
    num_columns: IntOrTensor | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Ones on the main diagonal, zeros elsewhere."""
    rows = ints(num_rows, "num_rows")[0]
    columns = rows if num_columns is None else ints(num_columns, "num_columns")[0]
    _shape((rows, columns), "eye")
    want = _one_of(dtype, "eye", "is_integer is_floating is_complex")
    if surely(lambda: rows * columns * want.itemsize <= _SMALL):
        made = constant(np.eye(rows, columns, dtype=want.numpy))
    else:
        made = _eye(rows=rows, columns=columns, dtype=want.name)
    return placed(made, device, requires_grad, pin_memory)


@op(
    name="eye",
    inputs=(),
    differentiable=False,
    infer=lambda rows, columns, dtype: aval((rows, columns), dt.as_dtype(dtype)),
)
def _eye(xp, rows=1, columns=1, dtype="float32"):
    """Ones on the main diagonal."""
    return xp.eye(rows, columns, dtype=dt.as_dtype(dtype).numpy)


def _check_matrix(x: Any, **_: Any) -> None:
    if x.ndim < 2:
        raise ShapeMismatch("takes a tensor of at least two dimensions")


@public(also={"input": "x"}, out=True, inplace=True)
@op(
    vjp=lambda xp, grad, diagonal: (xp.tril(grad, diagonal),),
    check=_check_matrix,
    infer=lambda x, diagonal: x,
    exact=True,
)
def tril(xp, x, diagonal=0):
    """x with zeros above the given diagonal."""
    return xp.tril(x, diagonal)


@public(also={"input": "x"}, out=True, inplace=True)
@op(
    vjp=lambda xp, grad, diagonal: (xp.triu(grad, diagonal),),
    check=_check_matrix,
    infer=lambda x, diagonal: x,
    exact=True,
)
def triu(xp, x, diagonal=0):
    """x with zeros below the given diagonal."""
    return xp.triu(x, diagonal)


def _diag_type(x: Aval, padding: Any, offset: int) -> Aval:
    if x.ndim > 2:
        raise ShapeMismatch("takes a vector or a matrix")
    if x.ndim < 2:
        n = (x.shape[0] if x.ndim else 1) + abs(offset)
        return aval((n, n), x.dtype)
    rows, columns = x.shape
    return aval((diagonal_length(rows, columns, offset),), x.dtype)


def _diag_vjp(xp: Any, grad: Any, types: Any, offset: int) -> tuple[Any, None]:
    shape = types[0].shape
    if len(shape) < 2:
        return xp.diagonal(grad, offset).reshape(shape), None
    full = xp.zeros(shape, grad.dtype)
    n = grad.shape[0]
    i = xp.arange(n) + max(0, -offset)
    j = xp.arange(n) + max(0, offset)
    if xp is np:
        full[i, j] = grad
        return full, None
    return full.at[i, j].set(grad), None


@op(name="diag", inputs=("x", "padding"), vjp=_diag_vjp, infer=_diag_type)
def _diag(xp, x, padding=0, offset=0):
    """The diagonal of a matrix, or the matrix with a given diagonal."""
    if x.ndim == 2:
        return xp.diagonal(x, offset)
    made = xp.diag(xp.atleast_1d(x), offset)
    n = made.shape[0]
    on = xp.eye(n, n, offset, dtype=bool)
    return xp.where(on, made, xp.asarray(padding).astype(x.dtype))


@public
def diag(x: Tensor, offset: int = 0, padding_value: Scalar = 0, name: str | None = None) -> Tensor:
    """The diagonal of a matrix, or the matrix with diagonal x and `padding_value` elsewhere."""
    return _diag(x, padding_value, offset)


@public
def diagflat(x: Tensor, offset: int = 0, name: str | None = None) -> Tensor:
    """The matrix whose diagonal is the flattened x."""
    if x.ndim != 1:
        from bireme.ops.scan import _flatten_all

        x = _flatten_all(x)
    return _diag(x, 0, offset)


def _embed_vjp(xp: Any, grad: Any, offset: int, dim1: int, dim2: int) -> tuple[Any]:
    return (xp.diagonal(grad, offset, dim1, dim2),)


@op(name="diag_embed", vjp=_embed_vjp)
def _diag_embed(xp, x, offset=0, dim1=-2, dim2=-1):
    """The last dimension as the diagonal of matrices in dim1 and dim2."""
    n = x.shape[-1] + abs(offset)
    on = xp.eye(n, n, offset, dtype=bool)
    pad = [(0, 0)] * (x.ndim - 1) + [(max(0, -offset), max(0, offset))]
    rows = xp.pad(x, pad)[..., :, None]
    return xp.moveaxis(xp.where(on, rows, xp.zeros_like(rows)), (-2, -1), (dim1, dim2))


@public
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices in dim1 and dim2 whose diagonals are the last dimension of `input`."""
    input = input if isinstance(input, Tensor) else to_tensor(input)
    first = axis_in(dim1, input.ndim + 1, "diag_embed", "dim1")
    second = axis_in(dim2, input.ndim + 1, "diag_embed", "dim2")
    if first == second:
        raise InvalidArgument(
            f"[diag_embed] dim1 and dim2 must differ. Received: {dim1} and {dim2}"
        )
    return _diag_embed(input, offset, first, second)


@public
def tril_indices(row: int, col: int, offset: int = 0, dtype: DTypeLike = "int64") -> Tensor:
    """Rows and columns of the lower triangle of a row x col matrix."""
    return _triangle(np.tril_indices, "tril_indices", row, col, offset, dtype)


@public
def triu_indices(
    row: int, col: int | None = None, offset: int = 0, dtype: DTypeLike = "int64"
) -> Tensor:
    """Rows and columns of the upper triangle of a row x col matrix."""
    return _triangle(np.triu_indices, "triu_indices", row, col, offset, dtype)


def _triangle(indices: Any, where: str, row: Any, col: Any, offset: Any, dtype: Any) -> Tensor:
    columns = row if col is None else col
    for name, value, least in (("row", row, 0), ("col", columns, 0), ("offset", offset, None)):
        if not isinstance(value, int | np.integer) or (least is not None and value < least):
            raise TypeMismatch(
                f"[{where}] {name} must be an integer{' from 0' if least == 0 else ''}. Received: "
                f"{value!r}"
            )
    found = np.stack(indices(row, offset, columns))
    return constant(found.astype(_one_of(dtype, where, "is_integer").numpy))


@op(name="vander")
def _vander(xp, x, n=1, increasing=False):
    """Powers of x as columns."""
    columns = [xp.ones_like(x)]
    for _ in range(n - 1):
        columns.append(columns[-1] * x)
    columns = columns[:n] if increasing else columns[:n][::-1]
    return xp.stack(columns, axis=-1)


@public
def vander(
    x: Tensor, n: int | None = None, increasing: bool = False, name: str | None = None
) -> Tensor:
    """The matrix whose columns are powers of the vector x, falling unless `increasing`."""
    if x.ndim != 1:
        raise ShapeMismatch(f"[vander] takes a vector. Received: {x.shape}")
    count = x.shape[0] if n is None else n
    if surely(lambda: count < 0):
        raise InvalidArgument(f"[vander] n must be 0 or more. Received: {n}")
    if x.dtype.name == "bool" and not surely(lambda: count <= 1):
        raise TypeMismatch("[vander] x is bool, which has no powers; write x.astype('int64')")
    return zeros([x.shape[0], 0], x.dtype) if count == 0 else _vander(x, count, increasing)
