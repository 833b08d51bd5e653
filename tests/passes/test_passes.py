"""Every pass keeps what a graph computes: checked on random graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme import passes
from bireme.backends import reference
from bireme.capture.capture import capture
from bireme.core.aval import aval
from bireme.core.dtype import float32
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph

UNARY = [paddle.tanh, paddle.abs, paddle.exp, lambda x: x.transpose([1, 0]), lambda x: x * 1.0]
BINARY = [paddle.add, paddle.multiply, paddle.subtract, paddle.maximum]


@st.composite
def programs(draw) -> list[tuple[int, int, int]]:
    """Steps (which function, first operand, second operand); operands count back from the end."""
    step = st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 30))
    return draw(st.lists(step, min_size=1, max_size=25))


def build(steps: list[tuple[int, int, int]]) -> Graph:
    def function(arguments):
        values = [*arguments, paddle.to_tensor(np.eye(3, dtype="float32"))]
        for which, a, b in steps:
            x, y = values[-1 - a % len(values)], values[-1 - b % len(values)]
            choice = which % (len(UNARY) + len(BINARY) + 1)
            if choice < len(UNARY):
                values.append(UNARY[choice](x))
            elif choice < len(UNARY) + len(BINARY):
                values.append(BINARY[choice - len(UNARY)](x, y))
            else:
                values.append(x * float(b))
        return values[-1], values[-1 - len(values) // 2]

    return capture(function, [aval((3, 3), float32)] * 2, label="test", tape=False).graph


def compute(graph: Graph, given: list[np.ndarray]) -> list[np.ndarray]:
    graph.check()
    leaves = list(given) + [None] * (len(graph.inputs) - len(given))
    for i, array in graph.constants.items():
        leaves[i] = array
    floats = [graph.numbers[n] for n in sorted(graph.numbers) if n.kind == "float"]
    ints = [graph.numbers[n] for n in sorted(graph.numbers) if n.kind == "int"]
    with np.errstate(all="ignore"):
        return graph.evaluate(leaves, floats, ints, reference().run_call)


EXACT = ("fold_constants", "share_common", "dead_code", "layout")
KEEPING_TYPES = passes.enabled()


@pytest.mark.parametrize("chosen", [[n] for n in KEEPING_TYPES] + [KEEPING_TYPES])
@settings(max_examples=40, deadline=None)
@given(steps=programs())
def test_same_results(chosen, steps) -> None:
    graph = build(steps)
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(3, 3)).astype("float32") for _ in range(2)]
    before = compute(graph, inputs)
    after = passes.run(graph, chosen)
    for a, b in zip(before, compute(after, inputs), strict=True):
        if chosen[0] in EXACT:
            np.testing.assert_array_equal(a, b)
        else:  # overflow is allowed to come earlier or later by a bit
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
    assert len(after.nodes) <= len(graph.nodes)


def names_of(graph: Graph) -> list[str]:
    return [n.call.op.name for n in graph.nodes]


def captured(function) -> Graph:
    return capture(lambda xs: function(*xs), [aval((3, 3), float32)], label="test").graph


def test_constants_are_folded() -> None:
    graph = captured(lambda x: x + paddle.exp(paddle.to_tensor(np.ones((3, 3), "float32"))) * 2.0)
    assert names_of(passes.run(graph, ["fold_constants"])) == ["add"]


def test_equal_calls_are_shared() -> None:
    graph = captured(lambda x: paddle.exp(x) * 2.0 + paddle.exp(x) * 2.0 + paddle.exp(x) * 3.0)
    shared = names_of(passes.run(graph, ["share_common"]))
    assert shared.count("exp") == 1
    assert len(shared) == 5


def test_random_calls_are_not_shared() -> None:
    from bireme.nn import functional as F

    graph = captured(lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5))
    assert names_of(passes.run(graph)).count("dropout") == 2


def test_dead_code_goes() -> None:
    def function(x):
        paddle.exp(x)
        return x * 2.0

    graph = captured(function)
    graph.nodes = [*graph.nodes]
    assert len(passes.run(graph, ["dead_code"]).nodes) == 1


def test_switching() -> None:
    graph = captured(lambda x: x + paddle.exp(paddle.to_tensor(np.ones((3, 3), "float32"))))
    with passes.disabled("fold_constants"):
        assert not passes.is_enabled("fold_constants")
        assert "exp" in names_of(passes.run(graph))
    assert names_of(passes.run(graph)) == ["add"]
    with pytest.raises(InvalidArgument, match=r"no pass named 'fuse'\. There are: fold_constants"):
        passes.run(graph, ["fuse"])


def test_the_list_can_be_read() -> None:
    lines = passes.describe().splitlines()
    assert len(lines) == len(passes.names())
    assert lines[0].startswith("on   fold_constants ")
    off = {name for name in passes.names() if not passes.is_enabled(name)}
    assert {line.split()[1] for line in lines if line.startswith("off")} == off
    assert "merge_products" in off
    assert passes.enabled() == [n for n in passes.names() if passes.is_enabled(n)]
