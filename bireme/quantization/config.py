"""Which layers are quantised, and by what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bireme import nn
from bireme.core.errors import TypeMismatch
from bireme.nn.quant.qat import QuantedConv2D, QuantedLinear
from bireme.nn.quant.stub import QuanterStub, Stub
from bireme.quantization.wrapper import ObserveWrapper

if TYPE_CHECKING:
    from bireme.quantization.factory import QuanterFactory


DEFAULT_MAPPING: dict[type[nn.Layer], Any] = {
    Stub: QuanterStub,
    nn.Linear: QuantedLinear,
    nn.Conv2D: QuantedConv2D,
}
DEFAULT_LEAVES = (nn.ReLU, nn.AvgPool2D)


class SingleLayerConfig:
    """The factories for a layer's input and weight; None leaves it as it is."""

    def __init__(self, activation: QuanterFactory | None, weight: QuanterFactory | None) -> None:
        self._activation = activation
        self._weight = weight

    @property
    def activation(self) -> QuanterFactory | None:
        return self._activation

    @property
    def weight(self) -> QuanterFactory | None:
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

    def __init__(self, activation: QuanterFactory | None, weight: QuanterFactory | None) -> None:
        none = activation is None and weight is None
        self._global_config = None if none else SingleLayerConfig(activation, weight)
        self._by_layer: dict[nn.Layer, SingleLayerConfig] = {}
        self._by_name: dict[str, SingleLayerConfig] = {}
        self._by_type: dict[type, SingleLayerConfig] = {}
        self._mapping = dict(DEFAULT_MAPPING)
        self._leaves: list[type[nn.Layer]] = []
        self._model: nn.Layer | None = None

    def add_layer_config(
        self,
        layer: nn.Layer | list[nn.Layer],
        activation: QuanterFactory | None = None,
        weight: QuanterFactory | None = None,
    ) -> None:
        """For one layer, or a list of them."""
        for one in layer if isinstance(layer, list) else [layer]:
            self.add_name_config(one.full_name(), activation, weight)

    def add_name_config(
        self,
        layer_name: str | list[str],
        activation: QuanterFactory | None = None,
        weight: QuanterFactory | None = None,
    ) -> None:
        """For the layers of these full names."""
        for name in layer_name if isinstance(layer_name, list) else [layer_name]:
            self._by_name[name] = SingleLayerConfig(activation, weight)

    def add_type_config(
        self,
        layer_type: type[nn.Layer] | list[type[nn.Layer]],
        activation: QuanterFactory | None = None,
        weight: QuanterFactory | None = None,
    ) -> None:
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

    # --- what QAT and PTQ ask; Paddle's names, because programs subclass and test with them -------

    def _specify(self, model: nn.Layer) -> None:
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

    def _get_config_by_layer(self, layer: nn.Layer) -> SingleLayerConfig | None:
        """What applies to a layer of the specified model."""
        return self._by_layer.get(layer)

    def _is_quantifiable(self, layer: nn.Layer) -> bool:
        return layer in self._by_layer

    def _get_qat_layer(self, layer: nn.Layer) -> nn.Layer | None:
        """The layer that trains quantised in place of this one, where there is one."""
        config, target = self._by_layer.get(layer), self._mapping.get(type(layer))
        return None if config is None or target is None else target(layer, config)

    def _is_qat_layer(self, layer: nn.Layer) -> bool:
        return type(layer) in self._mapping.values()

    def _get_observe_wrapper(self, layer: nn.Layer) -> nn.Layer | None:
        """A leaf with an observer in front of it, where its input is to be quantised."""
        observer = self._get_observer(layer) if self._need_observe(layer) else None
        return None if observer is None else ObserveWrapper(observer, layer)

    def _get_observer(self, layer: nn.Layer) -> nn.Layer | None:
        """A new observer for a layer's input."""
        config = self._by_layer.get(layer)
        if config is None or config.activation is None:
            return None
        return config.activation._instance(layer)

    def _has_observer_config(self, layer: nn.Layer) -> bool:
        config = self._by_layer.get(layer)
        return config is not None and config.activation is not None

    def _need_observe(self, layer: nn.Layer) -> bool:
        return self._is_leaf(layer) and self._has_observer_config(layer)

    def _is_leaf(self, layer: nn.Layer) -> bool:
        """Whether a layer is watched as a whole."""
        leaf = self._is_default_leaf(layer) or self._is_real_leaf(layer)
        return leaf or self._is_customized_leaf(layer)

    def _is_default_leaf(self, layer: nn.Layer) -> bool:
        return type(layer) in DEFAULT_LEAVES

    def _is_real_leaf(self, layer: nn.Layer) -> bool:
        return not layer._sub_layers

    def _is_customized_leaf(self, layer: nn.Layer) -> bool:
        return type(layer) in self._leaves

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
