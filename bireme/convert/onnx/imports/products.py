"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import is_integer, number
from bireme.core.tensor import Tensor

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView


@onnx_op("MatMul")
def matmul(n: NodeView, x: Tensor, y: Tensor) -> Tensor:
    return product(x, y)


def product(x: Tensor, y: Tensor) -> Tensor:
    """A matrix product; of integers too, exactly."""
    if is_integer(x) and str(x.dtype).split(".")[-1] not in ("int32", "int64"):
        return paddle.matmul(x.astype("int64"), y.astype("int64")).astype(x.dtype)
    return paddle.matmul(x, y)


@onnx_op("Gemm")
def gemm(n: NodeView, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    a = a.transpose([1, 0]) if n.attr("transA", 0) else a
    b = b.transpose([1, 0]) if n.attr("transB", 0) else b
    out = product(a, b)
    if alpha != 1:
        out = out * number(alpha, out)
    if c is None:
        return out
    return out + (c if beta == 1 else c * number(beta, c))


@onnx_op("Einsum")
def einsum(n: NodeView, *xs: Tensor) -> Tensor:
    return paddle.einsum(n.attr("equation").replace(" ", ""), *xs)


@onnx_op("Det")
def det(n: NodeView, x: Tensor) -> Tensor:
    return paddle.linalg.det(x)
