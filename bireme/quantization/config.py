"""Which layers are quantised, and by what."""

from __future__ import annotations

from typing import Any

from bireme import nn
from bireme.core.errors import TypeMismatch
from bireme.nn.quant.qat import QuantedConv2D, QuantedLinear
from bireme.nn.quant.stub import QuanterStub, Stub
from bireme.quantization.wrapper import ObserveWrapper

DEFAULT_MAPPING: dict[type[nn.Layer], Any] = {
    Stub: QuanterStub,
    nn.Linear: QuantedLinear,
    nn.Conv2D: QuantedConv2D,
}
DEFAULT_LEAVES = (nn.ReLU, nn.AvgPool2D)


class SingleLayerConfig:
    """The factories for a layer's input and weight; None leaves it as it is."""

    def __init__(self, activation: Any, weight: Any) -> None:
        self._activation = activation
        self._weight = weight

    @property
    def activation(self) -> Any:
        return self._activation

    @property
    def weight(self) -> Any:
        return self._weight

    def __str__(self) -> str:
        return f"activation: {self._activation}\nweight: {self._weight}"


class QuantConfig:
    """Factories for every layer, and for some layers, names or types of their own.

    A layer's own configuration comes before its type's, that before its parent's, and that
    before the one given here.

        config = QuantConfig(activation=None, weight=None)
        config.add_type_config(nn.Linear, weight=FakeQuanterWithAbsMaxObserver())
    """

    def __init__(self, activation: Any, weight: Any) -> None:
        none = activation is None and weight is None
        self._global_config = None if none else SingleLayerConfig(activation, weight)
        self._by_layer: dict[nn.Layer, SingleLayerConfig] = {}
        self._by_name: dict[str, SingleLayerConfig] = {}
        self._by_type: dict[type, SingleLayerConfig] = {}
        self._mapping = dict(DEFAULT_MAPPING)
        self._leaves: list[type[nn.Layer]] = []
        self._model: nn.Layer | None = None

    def add_layer_config(self, layer: Any, activation: Any = None, weight: Any = None) -> None:
        """For one layer, or a list of them."""
        for one in layer if isinstance(layer, list) else [layer]:
            self.add_name_config(one.full_name(), activation, weight)

    def add_name_config(self, layer_name: Any, activation: Any = None, weight: Any = None) -> None:
        """For the layers of these full names."""
        for name in layer_name if isinstance(layer_name, list) else [layer_name]:
            self._by_name[name] = SingleLayerConfig(activation, weight)

    def add_type_config(self, layer_type: Any, activation: Any = None, weight: Any = None) -> None:
        """For all layers of these types."""
        for kind in layer_type if isinstance(layer_type, list) else [layer_type]:
            _need_layer_type("add_type_config", "layer_type", kind)
            self._by_type[kind] = SingleLayerConfig(activation, weight)

    def add_qat_layer_mapping(self, source: type[nn.Layer], target: type[nn.Layer]) -> None:
        """Replace layers of type `source` by `target(layer, config)`."""
        _need_layer_type("add_qat_layer_mapping", "source", source)
        _need_layer_type("add_qat_layer_mapping", "target", target)
        self._mapping[source] = target

    def add_customized_leaf(self, layer_type: type[nn.Layer]) -> None:
        """Watch layers of this type as a whole, whatever is inside them."""
        self._leaves.append(layer_type)

    @property
    def customized_leaves(self) -> list[type[nn.Layer]]:
        return self._leaves

    @property
    def qat_layer_mappings(self) -> dict[type[nn.Layer], Any]:
        return self._mapping

    @property
    def default_qat_layer_mapping(self) -> dict[type[nn.Layer], Any]:
        return DEFAULT_MAPPING

    @property
    def global_config(self) -> SingleLayerConfig | None:
        return self._global_config

    # --- what QAT and PTQ ask -------------------------------------------------------------------

    def specify(self, model: nn.Layer) -> None:
        """Settle the configuration of every layer of a model."""
        self._model = model
        self._settle(model)

    def _settle(self, parent: nn.Layer) -> None:
        inherited = self._by_layer.get(parent, self._global_config)
        for child in parent.children():
            own = self._by_type.get(type(child), inherited)
            own = self._by_name.get(child.full_name(), own)
            if own is not None:
                self._by_layer[child] = own
            self._settle(child)

    def replacement(self, layer: nn.Layer) -> nn.Layer | None:
        """The layer that trains quantised in place of this one, where there is one."""
        target = self._mapping.get(type(layer))
        if layer not in self._by_layer or target is None:
            return None
        return target(layer, self._by_layer[layer])

    def watched(self, layer: nn.Layer) -> nn.Layer | None:
        """A leaf with an observer in front of it, where its input is to be quantised."""
        config = self._by_layer.get(layer)
        leaf = type(layer) in (*DEFAULT_LEAVES, *self._leaves) or not layer._sub_layers
        if config is None or config.activation is None or not leaf:
            return None
        return ObserveWrapper(config.activation._instance(layer), layer)

    def is_replaced(self, layer: nn.Layer) -> bool:
        return type(layer) in self._mapping.values()

    def details(self) -> str:
        """The configuration of each layer, once a model was quantised with it."""
        return str(self) if self._model is None else self._details_of(self._model)

    def _details_of(self, layer: nn.Layer) -> str:
        lines = [
            f"({name}): {_indented(self._details_of(child))}, {self._by_layer[child]}"
            for name, child in layer.named_children()
            if child in self._by_layer
        ]
        inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{type(layer).__name__}({inside})"

    def __str__(self) -> str:
        text = f"Global config:\n{self._global_config}\n"
        if self._by_type:
            text += f"Layer type config:\n{self._by_type}\n"
        if self._by_name:
            text += f"Layer prefix config: \n{self._by_name}\n"
        return text


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _need_layer_type(method: str, argument: str, kind: Any) -> None:
    if not (isinstance(kind, type) and issubclass(kind, nn.Layer)):
        raise TypeMismatch(
            f"[QuantConfig.{method}] {argument} must be a subclass of nn.Layer. Received: {kind!r}"
        )
