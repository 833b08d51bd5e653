"""Models of other frameworks as a predictor's source: captured for the sizes that are asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from bireme.capture import symbols
from bireme.capture.capture import Captured, capture
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument
from bireme.nn.layer.layer import Layer


class ConvertedModel:
    """A Layer that `bireme.convert.load` has made."""

    def __init__(self, layer: Layer):
        self._layer = layer
        self._known = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
        self._specs: list[Any] = layer.input_specs()  # type: ignore[operator]
        self.input_names = [str(s.name) for s in self._specs]
        self._declared = self._declarations()
        self.input_types = self._declared[0]
        names = getattr(layer, "output_names", None)
        if names is None:
            count = len(self.capture(self.input_types).tracked)
            names = [f"output_{i}" for i in range(count)]
        self.output_names = list(names)

    def capture(self, types: Sequence[Aval]) -> Captured:
        """The model as a graph for inputs of `types`: one for all sizes where that is possible,
        else one for these sizes."""
        for declared in self._declared:
            with contextlib.suppress(InvalidArgument):
                symbols.solve(declared, list(types), self.input_names)
                break
        else:
            declared = list(types)
            symbols.solve(self._types(_independent), declared, self.input_names)
        try:
            return self._captured(declared)
        except Exception:
            # Whatever an op has against open sizes, the same net with known ones may be fine.
            if declared == list(types):
                raise
            self._declared = [d for d in self._declared if d is not declared]
            return self.capture(types)

    def _captured(self, types: Sequence[Aval]) -> Captured:
        return capture(
            lambda arguments: self._layer(*arguments),
            types,
            label="a converted model",
            names=self.input_names,
            known=self._known,
            tape=False,
        )

    def _declarations(self) -> list[list[Aval]]:
        """Ways to write the open sizes as symbols, the likelier ones first."""
        made = [self._types(lambda i, axis: "batch" if axis == 0 else _independent(i, axis))]
        free = self._types(_independent)
        return made if free == made[0] else [*made, free]

    def _types(self, symbol: Callable[[int, int], str]) -> list[Aval]:
        return [
            aval(
                tuple([_size(d, symbol(i, axis)) for axis, d in enumerate(spec.shape)]),
                dt.as_dtype(spec.dtype),
            )
            for i, spec in enumerate(self._specs)
        ]


def _independent(i: int, axis: int) -> str:
    return f"x{i}_dim{axis}"


def _size(size: Any, symbol: str) -> Any:
    """A size of a spec: a number, the name of an open one, or None."""
    if isinstance(size, str):
        return symbols.parse(size)
    return symbols.parse(symbol) if size is None or size == -1 else int(size)
