"""A layer with an observer in front of it (or behind)."""

from __future__ import annotations

from typing import Any

from bireme import nn


class ObserveWrapper(nn.Layer):
    """Calls the observer on the input (or the output) of the observed layer."""

    def __init__(self, observer: nn.Layer, observed: nn.Layer, observe_input: bool = True) -> None:
        super().__init__()
        self._observer = observer
        self._observed = observed
        self._observe_input = observe_input

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self._observe_input:
            first, *rest = inputs
            return self._observed(self._observer(first), *rest, **kwargs)
        return self._observer(self._observed(*inputs, **kwargs))
