"""TFLite's ops that move, make or choose elements, and branches."""

from __future__ import annotations

from typing import Any

import numpy as np

import bireme as paddle
from bireme.convert import folding, nhwc
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View, check_size, to_value
from bireme.convert.nhwc import sizes_of
from bireme.convert.tflite.rules import op, rule
from bireme.convert.tflite.schema import type_name
from bireme.core.tensor import Tensor
from bireme.static.nn import cond, while_loop


@op("RESHAPE", static=(1,))
def reshape(n: View, x: Tensor, sizes: np.ndarray | None = None) -> Tensor:
    return nhwc.reshape(x, n.attr("new_shape") if sizes is None else sizes_of(sizes))


@rule.folds("RESHAPE")
def reshape_known(n: View, x: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray | None:
    wanted = n.attr("new_shape") if sizes is None else sizes_of(sizes)
    return x.reshape(wanted) if all(type(s) is int for s in wanted) else None


@op("SQUEEZE")
def squeeze(n: View, x: Tensor) -> Tensor:
    axes = n.attr("squeeze_dims") or [i for i, d in enumerate(x.shape) if type(d) is int and d == 1]
    return paddle.squeeze(x, axes) if axes else x


@rule.folds("SQUEEZE")
def squeeze_known(n: View, x: np.ndarray) -> np.ndarray:
    axes = n.attr("squeeze_dims")
    return np.squeeze(x, tuple(axes) if axes else None)


op("EXPAND_DIMS", static=(1,))(lambda n, x, axis: paddle.unsqueeze(x, sizes_of(axis)[0]))
rule.folds("EXPAND_DIMS")(lambda n, x, axis: np.expand_dims(x, sizes_of(axis)[0]))
op("TRANSPOSE", static=(1,))(lambda n, x, order: paddle.transpose(x, sizes_of(order)))
op("PAD", static=(1,))(lambda n, x, pairs: nhwc.pad(x, pairs))
op("MIRROR_PAD", static=(1,))(lambda n, x, pairs: nhwc.pad(x, pairs, 0.0, n.attr("mode")))
op("PADV2", static=(1, 2))(lambda n, x, pairs, v: nhwc.pad(x, pairs, np.asarray(v).item()))
op("REVERSE_V2", static=(1,))(lambda n, x, axes: paddle.flip(x, sizes_of(axes)))


@op("CONCATENATION")
def concat(n: View, *xs: Tensor) -> Tensor:
    return paddle.concat(list(xs), n.attr("axis"))


@op("PACK")
def pack(n: View, *xs: Tensor) -> Tensor:
    return paddle.stack(list(xs), n.attr("axis"))


rule.folds("CONCATENATION")(lambda n, *xs: folding.joined(list(xs), n.attr("axis"), False))
rule.folds("PACK")(lambda n, *xs: folding.joined(list(xs), n.attr("axis"), True))


@op("UNPACK")
def unpack(n: View, x: Tensor) -> list[Tensor]:
    return list(paddle.unbind(x, n.attr("axis")))


@op("SPLIT", static=(0,))
def split(n: View, axis: np.ndarray, x: Tensor) -> list[Tensor]:
    count = n.attr("num_splits")
    return list(paddle.split(x, count, sizes_of(axis)[0])) if count > 1 else [x]


@op("SPLIT_V", static=(1, 2))
def split_v(n: View, x: Tensor, sizes: np.ndarray, axis: np.ndarray) -> list[Tensor]:
    return list(paddle.split(x, sizes_of(sizes), sizes_of(axis)[0]))


def _masks(n: View) -> dict[str, int]:
    if n.attr("offset"):
        raise UnsupportedModel("a slice whose ends are offsets has no rule")
    return {k: v for k, v in n.node.attrs.items() if k.endswith("_mask")}


@op("STRIDED_SLICE", static=(1, 2, 3))
def strided_slice(
    n: View, x: Tensor, begin: np.ndarray, end: np.ndarray, strides: np.ndarray
) -> Tensor:
    return x[nhwc.slices(sizes_of(begin), sizes_of(end), sizes_of(strides), _masks(n), x.ndim)]


@rule.folds("STRIDED_SLICE")
def strided_known(
    n: View, x: np.ndarray, begin: np.ndarray, end: np.ndarray, strides: np.ndarray
) -> np.ndarray:
    at = nhwc.slices(sizes_of(begin), sizes_of(end), sizes_of(strides), _masks(n), x.ndim)
    made = np.empty((), x.dtype)
    cut = x[at]  # pyright: ignore[reportArgumentType, reportCallIssue]
    if isinstance(cut, np.ndarray):
        return cut
    made[()] = cut
    return made


@op("SLICE", static=(1, 2))
def slice_(n: View, x: Tensor, begin: np.ndarray, sizes: np.ndarray) -> Tensor:
    cut = [
        slice(b, None if s == -1 else b + s)
        for b, s in zip(sizes_of(begin), sizes_of(sizes), strict=True)
    ]
    return x[tuple(cut)]


@op("GATHER")
def gather(n: View, x: Tensor, index: Tensor) -> Tensor:
    return nhwc.gather(x, index, n.attr("axis"), n.attr("batch_dims"))


@rule.folds("GATHER")
def gather_known(n: View, x: np.ndarray, index: np.ndarray) -> np.ndarray | None:
    return None if n.attr("batch_dims") else np.asarray(np.take(x, index, n.attr("axis")))


op("GATHER_ND")(lambda n, x, index: paddle.gather_nd(x, index))
op("EMBEDDING_LOOKUP")(lambda n, index, table: paddle.gather(table, index))


@rule("SHAPE")
def shape(n: View, x: Tensor) -> np.ndarray:
    return nhwc.shape_of(x, type_name(n.attr("out_type")) or "int32")


rule.folds("SHAPE")(lambda n, x: np.array(x.shape, type_name(n.attr("out_type")) or "int32"))
rule("RANK")(lambda n, x: np.array(x.ndim, np.int32))


@op("TILE", static=(1,))
def tile(n: View, x: Tensor, repeats: np.ndarray) -> Tensor:
    counts = sizes_of(repeats)
    check_size([d * c for d, c in zip(x.shape, counts, strict=True)])
    return paddle.tile(x, counts)


@op("BROADCAST_TO", static=(1,))
def broadcast_to(n: View, x: Tensor, sizes: np.ndarray) -> Tensor:
    wanted = sizes_of(sizes)
    check_size(wanted)
    return paddle.broadcast_to(x, wanted)


@op("FILL", static=(0,))
def fill(n: View, sizes: np.ndarray, value: Tensor) -> Tensor:
    wanted = sizes_of(sizes)
    check_size(wanted)
    return paddle.expand(value, wanted) if wanted else value


@op("RANGE", static=(0, 1, 2))
def range_(n: View, start: np.ndarray, end: np.ndarray, step: np.ndarray) -> np.ndarray:
    first, last, delta = (np.asarray(v).item() for v in (start, end, step))
    if delta == 0 or abs((last - first) / delta) > 1 << 24:
        raise ModelFileError(f"a range from {first} to {last} in steps of {delta} is too long")
    return np.arange(first, last, delta).astype(np.asarray(start).dtype)


@op("ONE_HOT", static=(1,))
def one_hot(n: View, index: Tensor, depth: np.ndarray, on: Tensor, off: Tensor) -> Tensor:
    count = sizes_of(depth)[0]
    check_size([*index.shape, count])
    axis = n.attr("axis")
    places = paddle.arange(count, dtype=index.dtype.name)
    hot = paddle.equal(index.unsqueeze(-1), places)
    made = paddle.where(hot, on, off)
    return made if axis in (-1, index.ndim) else paddle.moveaxis(made, -1, axis)


# --- branches -------------------------------------------------------------------------------


def _tensors(values: list[Any]) -> list[Any]:
    return [to_value(v) for v in values]


@rule("IF")
def if_(n: View, condition: Tensor, *values: Any) -> list[Any]:
    then, other = (f"graph{n.attr(k)}" for k in ("then_graph", "else_graph"))
    made = cond(
        condition.reshape([]),
        lambda: _tensors(n.call(then, *values)),
        lambda: _tensors(n.call(other, *values)),
    )
    return list(made) if isinstance(made, list | tuple) else [made]


@rule("WHILE")
def while_(n: View, *values: Any) -> list[Any]:
    test, body = (f"graph{n.attr(k)}" for k in ("cond_graph", "body_graph"))
    return list(
        while_loop(
            lambda *now: to_value(n.call(test, *now)[0]).reshape([]),
            lambda *now: _tensors(n.call(body, *now)),
            _tensors(list(values)),
        )
    )
