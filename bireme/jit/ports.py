"""The inputs and results of a captured function, by name and type."""

from __future__ import annotations

from collections.abc import Sequence

from bireme.capture.capture import Captured
from bireme.core.aval import Aval
from bireme.core.tensor import Size
from bireme.static.input_spec import InputSpec


class Port(InputSpec):
    """An input or a result: its `position` among them, and an InputSpec of its type."""

    def __init__(self, t: Aval, name: str, position: int):
        sizes = Size(t.shape)._plain()
        super().__init__(sizes, t.dtype, name)
        # Equals lists and tuples, as the shape of a variable does.
        self.shape = Size(sizes)  # pyright: ignore[reportAttributeAccessIssue]
        self.position = position


def inputs_of(names: Sequence[str], types: Sequence[Aval]) -> list[Port]:
    """Ports of named inputs."""
    pairs = zip(names, types, strict=False)
    return [Port(t, name, i) for i, (name, t) in enumerate(pairs)]


def outputs_of(captured: Captured) -> list[Port]:
    """Ports of the results of a captured function, without what it writes."""
    graph = captured.graph
    types = graph.value_types()
    results = graph.outputs[: len(captured.tracked)]
    found = [types[o] if o >= 0 else graph.inputs[-1 - o] for o in results]
    return inputs_of([f"output_{i}" for i in range(len(found))], found)
