"""A model run op by op under observation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.backends import reference
from bireme.core.op import Call
from bireme.core.tensor import Tensor, constant
from bireme.inference.net import Prepared

Hook = Callable[[str, str, Tensor], None]


def run_watched(
    prepared: Prepared,
    arrays: Sequence[np.ndarray],
    before: Sequence[Hook],
    after: Sequence[Hook],
) -> list[np.ndarray]:
    """The results; hooks see `(op, name, tensor)`, names being `matmul_0.in_1`, `matmul_0.out_0`:
    the first matmul's second input and its result."""
    backend, seen = reference(), Counter[str]()

    def show(hooks: Sequence[Hook], op: str, title: str, values: Sequence[Any]) -> None:
        for i, value in enumerate(values):
            if value is not None:
                for hook in hooks:
                    hook(op, f"{title}_{i}", constant(np.asarray(value)))

    def run(call: Call, given: list[Any]) -> Any:
        op = call.op.shown
        title = f"{op}_{seen[op]}"
        seen[op] += 1
        show(before, op, f"{title}.in", given)
        out = backend.run_call(call, given)
        show(after, op, f"{title}.out", [out] if call.single else out)
        return out

    graph = prepared.graph
    leaves = [*arrays, *prepared.weights]
    with np.errstate(all="ignore"):
        results = graph.evaluate(leaves, [], [], run)
    return [np.asarray(r) for r in results]
