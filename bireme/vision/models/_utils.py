"""Results from inside a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor


class IntermediateLayerGetter(nn.LayerDict):
    """A network's direct children in their order, up to the last that is asked for.

    `return_layers` maps names of children to names in the result, a dict of what they gave.

    >>> IntermediateLayerGetter(resnet18(), {"layer1": "low", "layer4": "high"})
    """

    def __init__(self, model: nn.Layer, return_layers: Mapping[str, str]) -> None:
        children = dict(model.named_children())
        unknown = [name for name in return_layers if name not in children]
        if unknown:
            raise InvalidArgument(
                f"[IntermediateLayerGetter] the model has no child {unknown[0]!r}; it has "
                f"{', '.join(children)}"
            )
        names = list(children)
        last = max((names.index(str(name)) for name in return_layers), default=-1)
        super().__init__({name: children[name] for name in names[: last + 1]})
        self.return_layers = dict(return_layers)

    def forward(self, x: Tensor) -> dict[str, Any]:
        found = {}
        for name, layer in self.items():
            head = isinstance(layer, nn.Linear) or isinstance(
                next(iter(layer.children()), None), nn.Linear
            )
            x = layer(x.flatten(1) if head and x.ndim == 4 else x)
            if name in self.return_layers:
                found[self.return_layers[name]] = x
        return found


__all__ = ["IntermediateLayerGetter"]
