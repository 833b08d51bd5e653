"""Products of vectors, matrices and tensors, and norms."""

from __future__ import annotations

import functools
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import another_name, public
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.dims import may_be_equal
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch, not_a_tensor
from bireme.core.op import broadcast_shapes, op
from bireme.core.tensor import Tensor
from bireme.ops.axes import axis_in, dimension_in, ints
from bireme.ops.math import multiply, plus
from bireme.ops.math_unary import cast, conj_of
from bireme.ops.open_sizes import diagonal_length

# --- matmul -----------------------------------------------------------------------------------


def _turned(xp: Any, x: Any, transpose: bool) -> Any:
    return xp.swapaxes(x, -1, -2) if transpose and x.ndim > 1 else x


def _product(xp: Any, a: Any, b: Any) -> Any:
    """a @ b, as one matrix product where b is a plain matrix."""
    if xp is np and a.dtype.itemsize == 2 and a.dtype.kind not in "iu":
        # NumPy has no fast product of half precision.
        return _product(np, a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    if b.ndim == 2 and a.ndim > 2 and 0 not in a.shape:
        flat = xp.matmul(a.reshape((-1, a.shape[-1])), b)
        return flat.reshape((*a.shape[:-1], b.shape[-1]))
    return xp.matmul(a, b)


def _ends(x: Any, transpose: bool) -> tuple[Any, Any]:
    """(rows, columns) of the matrices in x."""
    rows, columns = x.shape[-2:]
    return (columns, rows) if transpose else (rows, columns)


def _check_matmul(x: Any, y: Any, transpose_x: bool, transpose_y: bool) -> None:
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeMismatch("takes vectors and matrices, not 0-d tensors; multiply with x * y")
    inner_x = x.shape[0] if x.ndim == 1 else _ends(x, transpose_x)[1]
    inner_y = y.shape[0] if y.ndim == 1 else _ends(y, transpose_y)[0]
    if inner_x != inner_y:
        hint = ""
        if x.ndim > 1 and y.ndim > 1 and _ends(y, not transpose_y)[0] == inner_x:
            hint = f"; transpose_y={not transpose_y} would fit"
        raise ShapeMismatch(
            f"the columns of x must be as many as the rows of y, but x has {inner_x} and y has "
            f"{inner_y}{hint}"
        )


def _matmul_type(x: Aval, y: Aval, transpose_x: bool, transpose_y: bool) -> Aval:
    rows = () if x.ndim == 1 else (_ends(x, transpose_x)[0],)
    columns = () if y.ndim == 1 else (_ends(y, transpose_y)[1],)
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return aval((*batch, *rows, *columns), x.dtype)


def _matmul_vjp(
    xp: Any, grad: Any, x: Any, y: Any, transpose_x: bool, transpose_y: bool, types: Any, needs: Any
) -> tuple[Any, Any]:
    # A factor that only the other one's gradient needs may not have been kept.
    x = None if x is None else conj_of(xp, x)
    y = None if y is None else conj_of(xp, y)
    x_ndim, y_ndim = types[0].ndim, types[1].ndim
    by_x = by_y = None
    if x_ndim == 1 or y_ndim == 1:
        if needs[0]:
            by_x = _vector_by_x(xp, grad, y, x_ndim, transpose_x, transpose_y)
        if needs[1]:
            by_y = _vector_by_y(xp, grad, x, y_ndim, transpose_x, transpose_y)
        return by_x, by_y
    if needs[0]:
        if transpose_x:
            by_x = _product(xp, _turned(xp, y, transpose_y), xp.swapaxes(grad, -1, -2))
        else:
            by_x = _product(xp, grad, _turned(xp, y, not transpose_y))
    if needs[1]:
        if y_ndim == 2 and x_ndim > 2 and not transpose_x and 0 not in x.shape:
            # One product over all rows of the batch, instead of one per batch and a sum.
            x = x.reshape((-1, x.shape[-1]))
            grad = grad.reshape((-1, grad.shape[-1]))
        if transpose_y:
            by_y = _product(xp, xp.swapaxes(grad, -1, -2), _turned(xp, x, transpose_x))
        else:
            by_y = _product(xp, _turned(xp, x, not transpose_x), grad)
    return by_x, by_y


def _vector_by_x(
    xp: Any, grad: Any, y: Any, x_ndim: int, transpose_x: bool, transpose_y: bool
) -> Any:
    if y.ndim == 1:
        if x_ndim == 1:
            return grad * y
        return _turned(xp, grad[..., None] * y, transpose_x)
    return xp.matmul(_turned(xp, y, transpose_y), grad[..., None])[..., 0]


def _vector_by_y(
    xp: Any, grad: Any, x: Any, y_ndim: int, transpose_x: bool, transpose_y: bool
) -> Any:
    if x.ndim == 1:
        if y_ndim == 1:
            return grad * x
        return _turned(xp, x[:, None] * grad[..., None, :], transpose_y)
    return xp.matmul(_turned(xp, x, not transpose_x), grad[..., None])[..., 0]


@public(spaces=("paddle", "paddle.linalg"), also={"input": "x", "other": "y"}, out=True)
@op(
    vjp=_matmul_vjp,
    promote="binary",
    check=_check_matmul,
    infer=_matmul_type,
    amp="white",
    used_by={"x": ("y",), "y": ("x",)},
    takes="ifc",
)
def matmul(xp, x, y, transpose_x=False, transpose_y=False):
    """The matrix product; leading dimensions are a batch and broadcast."""
    return _product(xp, _turned(xp, x, transpose_x), _turned(xp, y, transpose_y))


@public(takes="ifc")
def mm(input: Tensor, mat2: Tensor, name: str | None = None) -> Tensor:
    """The matrix product."""
    return matmul(input, mat2)


@public(also={"input": "x", "mat2": "y"}, out=True, takes="fc")
def bmm(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    """One matrix product per batch entry: [b, m, k] times [b, k, n]."""
    a, b = x._value.aval.shape, y._value.aval.shape
    if len(a) != 3 or len(b) != 3 or a[0] != b[0]:
        raise ShapeMismatch(
            f"[bmm] takes two 3-d tensors with the same first dimension. Received: {x.shape} and "
            f"{y.shape}; use paddle.matmul for broadcasting"
        )
    return matmul(x, y)


@public(takes="fc")
def mv(x: Tensor, vec: Tensor, name: str | None = None) -> Tensor:
    """A matrix times a vector."""
    if x.ndim != 2 or vec.ndim != 1:
        raise ShapeMismatch(
            f"[mv] takes a matrix and a vector. Received: {x.shape} and {vec.shape}"
        )
    return matmul(x, vec)


def _dot_vjp(xp: Any, grad: Any, x: Any, y: Any) -> tuple[Any, Any]:
    grad = grad[..., None]
    return grad * conj_of(xp, y), grad * conj_of(xp, x)


def _check_dot(x: Any, y: Any) -> None:
    if x.ndim not in (1, 2) or x.shape != y.shape:
        raise ShapeMismatch("takes two vectors, or two matrices of rows, of the same shape")


@public(also={"input": "x", "tensor": "y"}, out=True)
@op(
    vjp=_dot_vjp,
    promote="binary",
    check=_check_dot,
    amp="white",
    infer=lambda x, y: aval(x.shape[:-1], x.dtype),
    takes="ifc",
)
def dot(xp, x, y):
    """The inner product of two vectors, or of matching rows."""
    return xp.sum(x * y, axis=-1, dtype=x.dtype)


@public(inplace=True, takes="fc")
def addmm(
    input: Tensor,
    x: Tensor,
    y: Tensor,
    beta: float = 1.0,
    alpha: float = 1.0,
    name: str | None = None,
) -> Tensor:
    """beta * input + alpha * x @ y."""
    if x.ndim != 2 or y.ndim != 2:
        raise ShapeMismatch(f"[addmm] takes two matrices. Received: {x.shape} and {y.shape}")
    return _scaled_sum("addmm", input, matmul(x, y), beta, alpha)


@public(inplace=True, takes="fc")
def baddbmm(
    input: Tensor,
    x: Tensor,
    y: Tensor,
    beta: float = 1.0,
    alpha: float = 1.0,
    name: str | None = None,
) -> Tensor:
    """beta * input + alpha * bmm(x, y)."""
    return _scaled_sum("baddbmm", input, bmm(x, y), beta, alpha)


def _scaled_sum(name: str, input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    shape = product._value.aval.shape
    if broadcast_shapes(input._value.aval.shape, shape) != shape:
        raise ShapeMismatch(
            f"[{name}] input must broadcast to the product. Received: {input.shape} for a product "
            f"of shape {product.shape}"
        )
    out = product if alpha == 1 else multiply(product, alpha)
    return plus(input if beta == 1 else multiply(input, beta), out)


@public(spaces=("paddle.linalg",), method=True, takes="fc")
def multi_dot(x: Sequence[Tensor], name: str | None = None) -> Tensor:
    """The product of several matrices in the order that needs the fewest operations."""
    tensors: list[Any] = list(x) if isinstance(x, list | tuple) else [x]
    for m in tensors:
        if not isinstance(m, Tensor):
            raise not_a_tensor("multi_dot", "x", m)
    if len(tensors) < 2:
        raise InvalidArgument(f"[multi_dot] takes at least two tensors. Received: {len(tensors)}")
    for i, m in enumerate(tensors):
        if m.ndim != 2 and not (m.ndim == 1 and i in (0, len(tensors) - 1)):
            raise ShapeMismatch(
                "[multi_dot] takes matrices; the first and the last may be vectors. Received: "
                f"shape {m.shape} at place {i}"
            )
    rows = [1 if m.ndim == 1 and i == 0 else m.shape[0] for i, m in enumerate(tensors)]
    sizes = [*rows, 1 if tensors[-1].ndim == 1 else tensors[-1].shape[1]]
    count = len(tensors)
    if not all(type(size) is int for size in sizes):
        return functools.reduce(matmul, tensors)  # nobody knows which order is the best
    best: dict[tuple[int, int], tuple[Any, int]] = {(i, i): (0, i) for i in range(count)}
    for span in range(1, count):
        for i in range(count - span):
            j = i + span
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        if i == j:
            return tensors[i]
        k = best[i, j][1]
        return matmul(product(i, k), product(k + 1, j))

    return product(0, count - 1)


# --- einsum and what it expresses -------------------------------------------------------------


def _einsum_body(xp: Any, operands: Sequence[Any], equation: str) -> Any:
    if xp is np and operands[0].dtype.kind == "V":  # NumPy knows no einsum of bfloat16
        wide = [x.astype(np.float32) for x in operands]
        return _einsum_body(np, wide, equation).astype(operands[0].dtype)
    if xp is np:
        return np.einsum(equation, *operands, optimize=len(operands) > 1)
    return xp.einsum(equation, *operands)


def _einsum_sizes(operands: Sequence[Aval], names: Sequence[str]) -> dict[str, Any]:
    """The size of each letter; ... stands for a tuple of sizes."""
    sizes: dict[str, Any] = {"...": ()}
    for name, t in zip(names, operands, strict=True):
        letters = name.replace("...", "")
        spare = t.ndim - len(letters)
        if spare < 0 or (spare and "..." not in name):
            raise ShapeMismatch(
                f"{name!r} has {len(letters)} letters for a tensor of shape {list(t.shape)}"
            )
        at = name.index("...") if "..." in name else 0
        sizes["..."] = broadcast_shapes(sizes["..."], t.shape[at : at + spare])
        for letter, size in zip(letters, (*t.shape[:at], *t.shape[at + spare :]), strict=True):
            known = sizes.setdefault(letter, size)
            if known == 1 or type(known) is not int:
                sizes[letter] = size if type(size) is int and size != 1 else known
            if not may_be_equal(known, size) and 1 not in (known, size):
                raise ShapeMismatch(f"the letter {letter!r} stands for {known} and for {size}")
    return sizes


def _einsum_type(operands: list[Aval], equation: str) -> Aval:
    inputs, arrow, output = equation.partition("->")
    sizes = _einsum_sizes(operands, inputs.split(","))
    if not arrow:
        letters = inputs.replace(",", "").replace(".", "")
        output = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    before, dots, after = output.partition("...")
    unknown = [c for c in before + after if c not in sizes]
    if unknown:
        raise InvalidArgument(f"no operand has the letter {unknown[0]!r} of the result")
    middle = sizes["..."] if dots else ()
    shape = (*[sizes[c] for c in before], *middle, *[sizes[c] for c in after])
    return aval(shape, operands[0].dtype)


def _einsum_vjp(
    xp: Any, grad: Any, operands: Sequence[Any], equation: str, needs: Any
) -> tuple[list[Any]]:
    """Each operand's gradient is the einsum of the result's with the other operands."""
    inputs, output = equation.split("->")
    names = inputs.split(",")
    found: list[Any] = []
    for i, own in enumerate(names):
        if not needs[0][i]:
            found.append(None)
            continue
        terms, arrays = [output], [grad]
        for j, other in enumerate(names):
            if j != i:
                terms.append(other)
                arrays.append(conj_of(xp, operands[j]))
        known = set("".join(terms))
        for place, letter in enumerate(own):
            if letter not in known:  # it was summed away here and stands nowhere else
                terms.append(letter)
                arrays.append(xp.ones((operands[i].shape[place],), grad.dtype))
        found.append(_einsum_body(xp, arrays, f"{','.join(terms)}->{own}"))
    return (found,)


@op(name="einsum", inputs=("*operands",), vjp=_einsum_vjp, promote="binary", amp="white",
    infer=_einsum_type)  # fmt: skip
def _einsum(xp, operands, equation=""):
    """Products summed over the letters that the result leaves out."""
    return _einsum_body(xp, operands, equation)


@op(name="einsum_general", inputs=("*operands",), promote="binary", amp="white",
    infer=_einsum_type)  # fmt: skip
def _einsum_general(xp, operands, equation=""):
    """An einsum with ellipses or diagonals."""
    return _einsum_body(xp, operands, equation)


@public
def einsum(equation: str, *operands: Any) -> Tensor:
    """Einstein's summation, for example einsum('bij,bjk->bik', x, y)."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    equation = equation.replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    names = inputs.split(",")
    if len(names) != len(operands):
        raise InvalidArgument(
            f"[einsum] the equation names {len(names)} operands. Received: {len(operands)} tensors "
            f"for {equation!r}"
        )
    plain = output.replace(".", "")
    twice = next((c for c in plain if plain.count(c) > 1), None)
    if twice is not None:  # a diagonal of the result: the product with an identity matrix
        from bireme.ops.matrices import eye

        free = next(c for c in string.ascii_letters if c not in equation)
        size = _einsum_sizes([t._value.aval for t in operands], names)[twice]
        spread = output[::-1].replace(twice, free, 1)[::-1]
        one = eye(size, dtype=operands[0].dtype)
        return einsum(f"{inputs},{twice}{free}->{spread}", *operands, one)
    if "." in equation or any(len(set(n)) != len(n) for n in names):
        return _einsum_general(operands, equation)
    if not arrow:
        letters = inputs.replace(",", "")
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    for name, operand in zip(names, operands, strict=True):
        if len(name) != operand.ndim:
            raise ShapeMismatch(
                f"[einsum] {name!r} has {len(name)} letters for a tensor of shape {operand.shape}"
            )
    return _einsum(operands, f"{inputs}->{output}")


@public(takes="ifc")
def tensordot(
    x: Tensor,
    y: Tensor,
    axes: int | Tensor | Sequence[int] | Sequence[Sequence[int]] = 2,
    name: str | None = None,
) -> Tensor:
    """Contract `axes` of x with those of y: a count, one list for both, or a list for each."""
    given: Any = axes.tolist() if isinstance(axes, Tensor) else axes
    if isinstance(given, int):
        if not 0 <= given <= min(x.ndim, y.ndim):
            raise InvalidArgument(
                f"[tensordot] axes is how many dimensions to contract, at most those of x and y. "
                f"Received: {given}"
            )
        first, second = tuple(range(x.ndim - given, x.ndim)), tuple(range(given))
    elif all(isinstance(a, int) for a in given):
        first = second = tuple(given)
    else:
        lists = [ints(a, "axes") for a in given]
        first, second = lists[0], lists[1] if len(lists) > 1 else lists[0]
        longer = max(first, second, key=len)
        first, second = first + longer[len(first) :], second + longer[len(second) :]
    first = tuple([axis_in(a, x.ndim, "tensordot", "axes") for a in first])
    second = tuple([axis_in(a, y.ndim, "tensordot", "axes") for a in second])
    letters = iter(string.ascii_letters)
    of_x = [next(letters) for _ in range(x.ndim)]
    of_y = [next(letters) for _ in range(y.ndim)]
    for a, b in zip(first, second, strict=True):
        if x.shape[a] == y.shape[b]:
            of_y[b] = of_x[a]
        elif 1 not in (x.shape[a], y.shape[b]):  # a 1 broadcasts: the other is summed by itself
            raise ShapeMismatch(
                f"[tensordot] dimension {a} of x and {b} of y must be equal, or one of them 1. "
                f"Received: {x.shape} and {y.shape}"
            )
    left = [c for i, c in enumerate(of_x) if i not in first]
    right = [c for i, c in enumerate(of_y) if i not in second]
    return _einsum((x, y), f"{''.join(of_x)},{''.join(of_y)}->{''.join(left + right)}")


@public
def inner(x: Tensor, y: Tensor, name: str | None = None) -> Tensor:
    """Sums of products over the last dimensions of both; one element alone multiplies."""
    if 1 in (x.size, y.size):
        return multiply(x, y)
    if x.shape[-1] != y.shape[-1]:
        raise ShapeMismatch(
            f"[inner] the last dimensions must be equal. Received: {x.shape} and {y.shape}"
        )
    if x.dtype.name == "bool":
        raise TypeMismatch(
            "[inner] x is bool, and only one element of it can be multiplied; write "
            "x.astype('int64')"
        )
    return tensordot(x, y, [[x.ndim - 1], [y.ndim - 1]])


def _outer_vjp(xp: Any, grad: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return (
        xp.matmul(grad, conj_of(xp, y.reshape((-1,)))).reshape(x.shape),
        xp.matmul(conj_of(xp, x.reshape((-1,))), grad).reshape(y.shape),
    )


@public(also={"input": "x", "vec2": "y"}, out=True)
@op(vjp=_outer_vjp, promote="binary", infer=lambda x, y: aval((x.size, y.size), x.dtype))
def outer(xp, x, y):
    """Every element of x times every element of y."""
    return x.reshape((-1, 1)) * y.reshape((1, -1))


ger = another_name("ger", outer, method=False)


@public
@op(promote="binary")
def kron(xp, x, y):
    """The Kronecker product."""
    return xp.kron(x, y)


def _cross_vjp(xp: Any, grad: Any, x: Any, y: Any, axis: int) -> tuple[Any, Any]:
    return (
        xp.cross(conj_of(xp, y), grad, axis=_cross_axis(x.shape, axis)),
        xp.cross(grad, conj_of(xp, x), axis=_cross_axis(x.shape, axis)),
    )


def _cross_axis(shape: tuple[Any, ...], axis: int) -> int:
    """Nine stands for the first axis of size 3, which an open size may turn out to be."""
    return shape.index(3) if axis == 9 else axis


@op(name="cross", vjp=_cross_vjp, promote="binary", infer="elementwise", takes="ifc")
def _cross_elementwise(xp, x, y, axis=-1):
    """The cross product of vectors along `axis`."""
    return xp.cross(x, y, axis=_cross_axis(x.shape, axis))


@public(spaces=("paddle", "paddle.linalg"), also={"dim": "axis"})
def cross(x: Tensor, y: Tensor, axis: int = 9, name: str | None = None) -> Tensor:
    """The cross product along `axis`, by default the first dimension of size 3."""
    if axis == 9:
        if 3 not in x.shape:
            raise ShapeMismatch(f"[cross] no dimension of x has size 3. Received: {x.shape}")
        axis = x.shape.index(3)
        if any(type(n) is not int for n in x._value.aval.shape[:axis]):
            return _cross_elementwise(x, y, 9)
    axis = dimension_in(axis, x.ndim, "cross")
    if x.shape[axis] != 3 or list(x.shape) != list(y.shape):
        raise ShapeMismatch(
            f"[cross] x and y must have one shape with size 3 along axis {axis}. Received: "
            f"{x.shape} and {y.shape}"
        )
    return _cross_elementwise(x, y, axis)


@public(spaces=("paddle", "paddle.linalg"), method=False, takes="ifc")
def vecdot(x: Tensor, y: Tensor, axis: int = -1, name: str | None = None) -> Tensor:
    """Inner products along `axis`; x is conjugated."""
    from bireme.ops.math_unary import conj
    from bireme.ops.reduction import _sum

    return _sum(multiply(conj(x) if x.dtype.is_complex else x, y), axis, False)


# --- diagonals --------------------------------------------------------------------------------


def _diagonal_vjp(
    xp: Any, grad: Any, types: Any, offset: int, axis1: int, axis2: int
) -> tuple[Any]:
    """Put the diagonal back into a matrix of zeros."""
    shape = types[0].shape
    rows, columns = shape[axis1], shape[axis2]
    i = xp.arange(rows)
    if grad.shape[-1] == 0:
        return (xp.zeros(shape, grad.dtype),)
    k = xp.clip(i + min(offset, 0), 0, grad.shape[-1] - 1)
    spread = xp.take(grad, k, axis=-1)[..., :, None]
    full = xp.where(xp.arange(columns) - i[:, None] == offset, spread, xp.zeros_like(spread))
    return (xp.moveaxis(full, (-2, -1), (axis1, axis2)),)


def _check_diagonal(x: Any, offset: int, axis1: int, axis2: int) -> None:
    if x.ndim < 2:
        raise ShapeMismatch("takes a tensor of at least two dimensions")
    if axis_in(axis1, x.ndim, "axis1") == axis_in(axis2, x.ndim, "axis2"):
        raise InvalidArgument("axis1 and axis2 must be different dimensions")


def _diagonal_type(x: Aval, offset: int, axis1: int, axis2: int) -> Aval:
    a, b = axis1 % x.ndim, axis2 % x.ndim
    rest = [d for i, d in enumerate(x.shape) if i not in (a, b)]
    return aval((*rest, diagonal_length(x.shape[a], x.shape[b], offset)), x.dtype)


@op(vjp=_diagonal_vjp, check=_check_diagonal, exact=True, infer=_diagonal_type)
def diagonal(xp, x, offset=0, axis1=0, axis2=1):
    """The elements whose index along axis2 is that along axis1 plus `offset`."""
    return xp.diagonal(x, offset, axis1, axis2)


@public(also={"input": "x"})
def trace(
    x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None
) -> Tensor:
    """The sum of a diagonal, in x's own type."""
    from bireme.ops.reduction import _sum

    total = _sum(diagonal(x, offset, axis1, axis2), -1, False)
    return cast(total, x.dtype) if x.dtype is dt.int32 else total
