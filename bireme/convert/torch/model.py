"""A model of PyTorch as a Layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bireme.convert.captured import CapturedCalls
from bireme.convert.torch.program import Input, Program, Ref, memory_of
from bireme.convert.torch.run import check_rules, run
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.jit.translated_layer import place
from bireme.nn.layer.layer import Layer
from bireme.ops.creation import to_tensor


class TorchModel(Layer):
    """A model that PyTorch exported, in eval mode. Parameters and buffers have PyTorch's names."""

    def __init__(self, program: Program):
        super().__init__()
        check_rules(program)
        self._program = program
        self._state: dict[str, Tensor] = {}
        shared: dict[object, Tensor] = {}
        for name, array in program.state.items():
            made = shared.get(memory_of(array)) if array.size else None
            if made is None:
                made = constant(np.ascontiguousarray(array).reshape(array.shape))
                if name in program.trained and made.dtype.is_floating:
                    made = Parameter(made._value, True, name)
                shared[memory_of(array)] = made
            self._state[name] = made
            if name not in program.hidden:
                place(self, name, made)
        self._inputs = [i for i in program.inputs if i is not None]
        self._calls = CapturedCalls(self._run, self._state, "a PyTorch model")
        self.eval()

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs, in order."""
        return [i.label for i in self._inputs]

    def input_specs(self) -> list[Any]:
        """The inputs as InputSpec, for jit.save; open sizes have the export's names."""
        from bireme.static import InputSpec

        return [InputSpec(list(i.shape or ()), i.dtype, i.label) for i in self._inputs]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self._calls(self._given(inputs, named))

    def _given(self, inputs: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        labels = self.input_names
        # What the export has as None may be given, as None.
        if len(inputs) == len(self._program.inputs):
            inputs = [v for v, i in zip(inputs, self._program.inputs, strict=True) if i is not None]
        given = dict(zip(labels, inputs, strict=False))
        given.update(named)
        if len(inputs) > len(labels) or set(given) != set(labels):
            raise InvalidArgument(
                f"this model takes {', '.join(labels) or 'no inputs'}. Received: {len(inputs)} "
                f"inputs" + (f" and the names {sorted(named)}" if named else "")
            )
        return {i.label: _checked(i, given[i.label]) for i in self._inputs}

    def _run(self, given: dict[str, Any]) -> Any:
        program = self._program
        scope: dict[str, Any] = {i.name: given[i.label] for i in self._inputs}
        scope.update({inner: self._state[name] for inner, name in program.bound.items()})
        kept = frozenset(map(id, self._state.values()))
        outputs = run(program.graph, scope, kept)
        by_ref = {o: v for o, v in zip(program.graph.outputs, outputs, strict=True) if _is_ref(o)}
        leaves = [by_ref[r] if _is_ref(r) else r for r in program.results]
        return _nested(program.structure, iter(leaves), len(leaves), leaves)


def _is_ref(value: Any) -> bool:
    return isinstance(value, Ref)


def _checked(declared: Input, value: Any) -> Any:
    if declared.shape is None:
        return value
    made = value if isinstance(value, Tensor) else to_tensor(value)
    fits = made.dtype.name == declared.dtype and made.ndim == len(declared.shape)
    fits = fits and all(
        d == have for d, have in zip(declared.shape, made.shape, strict=True) if type(d) is int
    )
    if not fits:
        shown = ", ".join(map(str, declared.shape))
        raise InvalidArgument(
            f"the input {declared.label!r} is {declared.dtype}[{shown}] in the exported model. "
            f"Received: {made.dtype.name}{list(made.shape)}; export the model with dynamic_shapes "
            "for other sizes"
        )
    return made


def _nested(structure: Any, leaves: Iterator[Any], count: int, flat: list[Any]) -> Any:
    """The results in the containers in which PyTorch's model returned them."""
    if structure is None or _leaves(structure) != count:
        return flat[0] if count == 1 else tuple(flat)
    return _filled(structure, leaves)


def _leaves(structure: Any) -> int:
    return 1 if structure is None else sum(map(_leaves, structure[2]))


def _filled(structure: Any, leaves: Iterator[Any]) -> Any:
    if structure is None:
        return next(leaves)
    kind, keys, children = structure
    values = [_filled(c, leaves) for c in children]
    if kind == "builtins.tuple":
        return tuple(values)
    if isinstance(keys, list) and len(keys) == len(values):
        return dict(zip(keys, values, strict=True))
    return values
