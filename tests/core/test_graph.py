"""The Graph: built from a trace, printed, checked, evaluated."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.core.graph import Graph, MalformedGraph, Node, Number
from bireme.core.trace import fresh_trace, state


def record(function, *tensors):
    fresh_trace()
    outs = function(*tensors)
    trace = state.trace
    graph = Graph.from_code(
        trace.code, [v.aval for v in trace.leaves], [o._value.slot for o in outs]
    )
    buffers = [v.buf for v in trace.leaves]
    return graph, buffers, list(trace.floats), list(trace.ints), outs


def small_graph():
    x, y = paddle.to_tensor([[1.0, 2.0]]), paddle.to_tensor([[3.0], [4.0]])
    return record(lambda a, b: [paddle.matmul(a, b) * 2.5, a + b], x, y)


def test_printing_shows_types_and_numbers():
    text = str(small_graph()[0])
    assert "matmul(%in0, %in1" in text
    assert "float[0]" in text
    assert "float32[1, 1]" in text


def test_evaluation_equals_eager():
    graph, buffers, floats, ints, outs = small_graph()
    values = graph.evaluate(buffers, floats, ints, lambda c, a: c.run(np, a))
    for value, out in zip(values, outs, strict=True):
        np.testing.assert_allclose(value, out.numpy(), rtol=1e-6)


def test_needed_leaves_out_dead_nodes():
    graph, *_ = small_graph()
    graph.outputs = graph.outputs[:1]
    assert [n.call.op.name for n in graph.needed()] == ["matmul", "multiply"]


def test_check_accepts_what_was_recorded():
    small_graph()[0].check()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda g: g.nodes.reverse(), "order"),
        (lambda g: g.outputs.append(99), "does not exist"),
        (lambda g: g.inputs.reverse(), "expected"),
        (lambda g: g.nodes.__setitem__(0, Node(g.nodes[0].call, (5, -2), 0)), "before it is made"),
        (lambda g: g.nodes.__setitem__(0, Node(g.nodes[0].call, (-1,), 0)), "number of arguments"),
        (lambda g: g.nodes.__setitem__(0, Node(g.nodes[0].call, (None, -2), 0)), "missing"),
        (
            lambda g: g.nodes.__setitem__(0, Node(g.nodes[0].call, (Number("float", 0), -2), 0)),
            "fit",
        ),
    ],
)
def test_check_finds_each_defect(spoil, message):
    graph, *_ = small_graph()
    spoil(graph)
    with pytest.raises(MalformedGraph, match=message):
        graph.check()
