"""If, Loop and Scan.

Conditions and trip counts that are known decide at once: one branch is taken, a loop is unrolled.
Those that only a run can tell become graph ops while a graph is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.convert.onnx.reader import OnnxError
from bireme.core.errors import BiremeError, CaptureError
from bireme.core.tensor import Tensor
from bireme.core.trace import state
from bireme.ops.checks import check
from bireme.ops.control_loops import while_loop
from bireme.ops.control_record import Branch, branch, is_symbolic
from bireme.ops.indexing import _gather

if TYPE_CHECKING:
    from onnx import GraphProto

    from bireme.convert.onnx.interpreter import NodeView, Value, Values


def run_body(n: NodeView, graph: GraphProto, given: list[Any]) -> list[Any]:
    """The results of an inner graph."""
    names = [i.name for i in graph.input]
    if len(given) > len(names):
        raise OnnxError(f"an inner graph takes {len(names)} values, not {len(given)}")
    return n.run.graph(graph, dict(zip(names, given, strict=False)), n.scope)


@onnx_op("If", host=True)
def if_(n: NodeView, condition: Any) -> Values:
    if is_symbolic(condition) and not state.trace.fold(condition._value):
        bodies = [n.attr("then_branch"), n.attr("else_branch")]
        sides = [lambda body=body: _tensors(run_body(n, body, [])) for body in bodies]
        try:
            return tuple(branch(condition, sides[0], sides[1]))
        except BiremeError as e:
            return _only_possible(condition, sides, e)
    taken = bool(np.ravel(n.known(condition))[0])
    return tuple(run_body(n, n.attr("then_branch" if taken else "else_branch"), []))


def _only_possible(
    condition: Tensor, sides: list[Callable[[], list[Tensor]]], error: BiremeError
) -> Values:
    """The results of the one branch that these input sizes allow.

    ONNX runs a branch when it is taken, and the other may be wrong for these sizes. A call that
    takes it all the same raises; in a saved graph, which cannot raise, it gives NaN."""
    possible = [at for at, side in enumerate(sides) if _can_be_recorded(side)]
    if len(possible) != 1:
        raise error
    made = sides[possible[0]]()
    if not all(dtype_of(m).kind == "f" for m in made):
        raise error
    fits = condition.reshape([]).astype("bool")
    fits = fits if possible[0] == 0 else paddle.logical_not(fits)
    check(fits, f"an If took a branch that these input sizes do not allow: {error}", OnnxError)
    return tuple([paddle.where(fits, m, paddle.full_like(m, float("nan"))) for m in made])


def _can_be_recorded(side: Callable[[], list[Tensor]]) -> bool:
    try:
        Branch(side)
    except BiremeError:
        return False
    return True


def _tensors(values: list[Any]) -> list[Tensor]:
    from bireme.convert.onnx.interpreter import to_value

    return [to_value(v) for v in values]


def _graph_loop(n: NodeView, most: Any, condition: Any, carried: list[Any]) -> Any:
    """A loop whose end only a run can tell, as one op; what it carries keeps its type."""
    body = n.attr("body")
    if len(body.output) - 1 > len(carried):
        raise CaptureError("a loop of unknown length that stacks results runs eagerly only")
    start = [np.asarray(0, np.int64), np.asarray(True) if condition is None else condition]
    limit = None if most is None else _tensors([most])[0].reshape([])

    def goes_on(values: list[Any]) -> Tensor:
        going = values[1].reshape([])
        return going if limit is None else paddle.logical_and(going, values[0] < limit)

    def step(values: list[Any]) -> list[Any]:
        return [values[0] + 1, *_tensors(run_body(n, body, values))]

    first = _tensors([*start, *carried])
    names = ["turn", "condition", *[i.name for i in body.input[2:]]]
    return tuple(while_loop(goes_on, step, names, first)[2:])


def _stacked(items: list[Any]) -> Any:
    from bireme.convert.onnx.interpreter import to_value

    if items and all(isinstance(i, np.ndarray) and i.dtype != object for i in items):
        return np.stack(items)
    return paddle.stack([to_value(i) for i in items], 0)


@onnx_op("Loop", host=True)
def loop(
    n: NodeView, most: Value | None = None, condition: Value | None = None, *carried: Any
) -> Values:
    if is_symbolic(most) or is_symbolic(condition):
        return _graph_loop(n, most, condition, list(carried))
    body = n.attr("body")
    limit = None if most is None else int(np.ravel(n.known(most))[0])
    going = True if condition is None else bool(np.ravel(n.known(condition))[0])
    state = list(carried)
    scanned: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    turn = 0
    while going and (limit is None or turn < limit):
        given = [np.asarray(turn, np.int64), np.asarray(going), *state]
        results = run_body(n, body, given)
        state = results[1 : 1 + len(state)]
        for column, value in zip(scanned, results[1 + len(state) :], strict=True):
            column.append(value)
        turn += 1
        if turn == limit:
            break  # the last condition need not be known
        if is_symbolic(results[0]):
            if scanned:
                raise CaptureError("a loop of unknown length that stacks results runs eagerly only")
            rest = None if limit is None else np.asarray(limit - turn, np.int64)
            return _graph_loop(n, rest, results[0], state)
        going = bool(np.ravel(n.known(results[0]))[0])
    made = [
        _stacked(column) if column else _empty(body.output[1 + len(state) + i])
        for i, column in enumerate(scanned)
    ]
    return (*state, *made)


def _empty(info: Any) -> np.ndarray:
    """A scan result of no turns."""
    from bireme.convert.onnx.writer import onnx_package

    tensor = info.type.tensor_type
    dtype = onnx_package().helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return np.zeros((0, *[d.dim_value for d in tensor.shape.dim]), dtype)


@onnx_op("Scan", host=True)
def scan(n: NodeView, *inputs: Any) -> Values:
    from bireme.convert.onnx.interpreter import to_value

    body, count = n.attr("body"), n.attr("num_scan_inputs")
    if n.opset == 8:
        return _scan_8(n, *inputs)
    given: list[Any] = [None if i is None else to_value(i) for i in inputs]
    state, rows = given[: len(given) - count], given[len(given) - count :]
    n_scanned = len(body.output) - len(state)
    axes = n.attr("scan_input_axes") or [0] * count
    backwards = n.attr("scan_input_directions") or [0] * count
    out_axes = n.attr("scan_output_axes") or [0] * n_scanned
    out_back = n.attr("scan_output_directions") or [0] * n_scanned
    rows = [r.moveaxis(a, 0) for r, a in zip(rows, axes, strict=True)]
    steps = shape_of(rows[0])[0]
    columns: list[list[Any]] = [[] for _ in range(n_scanned)]
    for t in range(steps):
        parts = [r[steps - 1 - t if b else t] for r, b in zip(rows, backwards, strict=True)]
        results = run_body(n, body, [*state, *parts])
        state = results[: len(state)]
        for column, value in zip(columns, results[len(state) :], strict=True):
            column.append(value)
    made = []
    for column, axis, back in zip(columns, out_axes, out_back, strict=True):
        whole = to_value(_stacked(column[::-1] if back else column))
        made.append(whole.moveaxis(0, axis) if axis else whole)
    return (*state, *made)


def _scan_8(n: NodeView, lengths: Any, *inputs: Any) -> Any:
    """The first form of Scan: a batch of sequences, one after the other."""
    from bireme.convert.onnx.interpreter import to_value

    body, count = n.attr("body"), n.attr("num_scan_inputs")
    backwards = n.attr("directions") or [0] * count
    given: list[Tensor] = [to_value(i) for i in inputs]
    batches = []
    for b in range(shape_of(given[0])[0]):
        state: list[Any] = [g[b] for g in given[: len(given) - count]]
        rows = [g[b] for g in given[len(given) - count :]]
        columns: list[list[Any]] = [[] for _ in range(len(body.output) - len(state))]
        whole = shape_of(rows[0])[0]
        steps = whole if lengths is None else int(n.known(lengths)[b])
        for t in range(steps):
            parts = [r[steps - 1 - t if k else t] for r, k in zip(rows, backwards, strict=True)]
            results = run_body(n, body, [*state, *parts])
            state = results[: len(state)]
            for column, value in zip(columns, results[len(state) :], strict=True):
                column.append(value)
        batches.append([*state, *[_filled(to_value(_stacked(c)), whole) for c in columns]])
    return tuple([paddle.stack([to_value(v) for v in column], 0) for column in zip(*batches)])  # noqa: B905


def _filled(x: Tensor, length: int) -> Tensor:
    """x with zeros after its end."""
    size = shape_of(x)[0]
    if size == length:
        return x
    index = paddle.to_tensor(np.minimum(np.arange(length), size - 1))
    keep = paddle.to_tensor((np.arange(length) < size).reshape(-1, *[1] * (x.ndim - 1)))
    return paddle.where(keep, _gather(x, index, 0), paddle.zeros([], x.dtype))
