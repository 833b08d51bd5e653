"""Sums, extremes, norms and positions along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of, is_integer
from bireme.convert.onnx.imports.shapes import in_tensors, shape_of
from bireme.core.tensor import Tensor

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView


def reduced_axes(n: NodeView, rank: int, axes: np.ndarray | None) -> list[int] | None:
    """The axes of a reduction; None where it does nothing."""
    if axes is None:
        axes = n.attr("axes")
    given = [] if axes is None else [int(a) for a in np.ravel(axes)]
    if not given:
        return None if n.attr("noop_with_empty_axes", 0) else list(range(rank))
    return [a % rank if rank else 0 for a in given]


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return paddle.sum(x, axes, keepdim=keep)


def _square_sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(x * x, axes, keep)


def _log_sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return paddle.log(_sum(x, axes, keep))


def _norm1(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _sum(paddle.abs(x), axes, keep)


def _norm2(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return paddle.sqrt(_square_sum(x, axes, keep))


def _extreme(pick: Callable[..., Tensor], lowest: bool) -> Callable[..., Tensor]:
    def reduce(x: Tensor, axes: list[int], keep: bool) -> Tensor:
        kind = dtype_of(x)
        if kind == np.bool_:
            return pick(x.astype("int32"), axes, keepdim=keep).astype("bool")
        if 0 in x.shape:
            edge = np.iinfo(kind) if is_integer(x) else None
            bound = (edge.min if lowest else edge.max) if edge else (-np.inf if lowest else np.inf)
            kept = [1 if i in axes else d for i, d in enumerate(x.shape)]
            made = paddle.full(kept, bound, kind.name)
            return made if keep else made.reshape([d for i, d in enumerate(kept) if i not in axes])
        return pick(x, axes, keepdim=keep)

    return reduce


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "ReduceSum": _sum,
    "ReduceMean": lambda x, axes, keep: paddle.mean(x, axes, keepdim=keep),
    "ReduceProd": lambda x, axes, keep: paddle.prod(x, axes, keepdim=keep),
    "ReduceMax": _extreme(paddle.max, True),
    "ReduceMin": _extreme(paddle.min, False),
    "ReduceSumSquare": _square_sum,
    "ReduceL1": _norm1,
    "ReduceL2": _norm2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": lambda x, axes, keep: paddle.logsumexp(x, axes, keepdim=keep),
}
# What is done to each element even where no axis is reduced.
_ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceSumSquare": lambda x: x * x,
    "ReduceL1": paddle.abs,
    "ReduceL2": paddle.abs,
    "ReduceLogSum": paddle.log,
}


def _rule(name: str, reduce: Callable[..., Tensor]) -> Callable[..., Any]:
    def rule(n: NodeView, x: Tensor, axes: Any = None) -> Tensor:
        over = reduced_axes(n, x.ndim, axes)
        if over is None or (x.ndim == 0 and not over):
            return _ALONE.get(name, lambda x: x)(x)
        made = reduce(x, over if x.ndim else [], bool(n.attr("keepdims", 1)))
        return made.astype(x.dtype) if made.dtype != x.dtype else made

    return rule


for _name, _reduce in _REDUCTIONS.items():
    onnx_op(_name, static=(1,))(_rule(_name, _reduce))


@onnx_op("ArgMax", "ArgMin")
def position(n: NodeView, x: Tensor) -> Tensor:
    axis, keep = n.attr("axis", 0) % max(x.ndim, 1), bool(n.attr("keepdims", 1))
    find = paddle.argmax if n.kind == "ArgMax" else paddle.argmin
    if n.attr("select_last_index", 0):
        back = find(paddle.flip(x, [axis]), axis=axis, keepdim=keep)
        return in_tensors(shape_of(x)[axis] - 1) - back
    return find(x, axis=axis, keepdim=keep)


@onnx_op("CumSum", "CumProd", static=(1,))
def cumulate(n: NodeView, x: Tensor, axis: np.ndarray) -> Tensor:
    along = int(np.ravel(axis)[0]) % x.ndim
    add = n.kind == "CumSum"
    if n.attr("reverse", 0):
        x = paddle.flip(x, [along])
    out = paddle.cumsum(x, along) if add else paddle.cumprod(x, along)
    out = out.astype(x.dtype)
    if n.attr("exclusive", 0):
        size = x.shape[along]
        first = paddle.full(
            [1 if i == along else d for i, d in enumerate(x.shape)],
            0 if add else 1,
            dtype_of(x).name,
        )
        out = paddle.concat([first, paddle.slice(out, [along], [0], [size - 1])], along)
    return paddle.flip(out, [along]) if n.attr("reverse", 0) else out
