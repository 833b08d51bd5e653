"""The native layer norm of inference against the plain lowering in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from bireme.backends import get_backend
from bireme.capture.rewrite import GraphBuilder
from bireme.core import kernels
from bireme.core.aval import aval
from bireme.core.dtype import as_dtype
from bireme.core.graph import Graph
from bireme.core.op import OPS, Call
from tests.kernels.kernel_oracle import MARKS, many

pytestmark = MARKS


def graph_of(arrays: list[Any], dims: int, epsilon: float) -> Graph:
    types = tuple([None if a is None else aval(a.shape, as_dtype("float32")) for a in arrays])
    definition = OPS["layer_norm"]
    attrs = {**definition.attr_defaults, "dims": dims, "epsilon": epsilon}
    call = Call(definition, types, (-1,) * 3, attrs, (None,) * 3)
    builder = GraphBuilder(Graph([]))
    rest = [None if a is None else builder.constant(a) for a in arrays[1:]]
    builder.graph.outputs = [builder.add(call, (builder.input(types[0]), *rest))[0]]  # type: ignore
    return builder.graph


@many(24)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3), st.lists(st.integers(1, 40), min_size=1,
    max_size=2), st.booleans(), st.booleans(), st.sampled_from([1e-5, 1e-12]), st.integers(0, 50),
)  # fmt: skip
@example([1, 128], [384], True, True, 1e-12, 0)
@example([2, 300], [33], True, True, 1e-5, 100)
def test_layer_norm(
    lead: list[int], last: list[int], scaled: bool, moved: bool, epsilon: float, far: int
) -> None:
    rng = np.random.default_rng(sum(lead) + sum(last))
    x = (rng.normal(size=(*lead, *last)) + far).astype(np.float32)
    weight = rng.normal(size=last).astype(np.float32) if scaled else None
    bias = rng.normal(size=last).astype(np.float32) if moved else None
    if np.prod(last) == 1:
        epsilon = 1e-5  # one element has no deviation, and what is off in it would be divided by 0
    graph = graph_of([x, weight, bias], len(last), epsilon)
    before = kernels.uses["native_layer_norm"]
    program = get_backend("xla").compile(graph, fixed=dict(graph.constants))
    assert kernels.uses["native_layer_norm"] == before + 1, "the kernel was not used"
    (found,) = program.call(program.put(x))
    wide = [None if a is None else a.astype(np.float64) for a in (x, weight, bias)]
    plain = OPS["layer_norm"].body(np, *wide, len(last), epsilon)  # type: ignore[misc]
    np.testing.assert_allclose(np.asarray(found), plain, rtol=1e-4, atol=2e-6 * (1 + far))


def test_only_in_inference() -> None:
    """In training XLA fuses the norm with what is around it."""
    graph = graph_of([np.ones((2, 4), np.float32), None, None], 1, 1e-5)
    call = graph.nodes[0].call
    chosen = [kernels.choose(call, "cpu", inference) for inference in (False, True)]
    assert [k.name for k in chosen if k] == ["kept_layer_norm", "native_layer_norm"]
