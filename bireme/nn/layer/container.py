"""Layers that hold layers: Sequential, LayerList, LayerDict, ParameterList, ParameterDict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bireme.api.keywords import second_names
from bireme.core.errors import IndexOutOfRange, InvalidArgument, TypeMismatch
from bireme.core.tensor import Parameter
from bireme.nn.layer.layer import Layer


def _position(index: Any, size: int, what: str) -> int:
    index = int(index)
    if not -size <= index < size:
        raise IndexOutOfRange(f"{what} has {size} entries. Received: index {index}")
    return index % size if size else 0


def _pairs(items: Any, what: str) -> Iterable[tuple[str, Any]]:
    if isinstance(items, Mapping | LayerDict | ParameterDict):
        return list(items.items())
    if not isinstance(items, Iterable):
        raise TypeMismatch(
            f"{what} takes a dict or (name, value) pairs. Received: {type(items).__name__}"
        )
    pairs = list(items)
    for i, pair in enumerate(pairs):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise InvalidArgument(f"{what} takes (name, value) pairs. Received: {pair!r} at {i}")
    return pairs


class Sequential(Layer):
    """Layers run one after another. Takes layers, or (name, layer) pairs."""

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            layers = tuple(layers[0].items())
        elif layers and isinstance(layers[0], list) and len(layers) == 1:
            layers = tuple(layers[0])
        for i, layer in enumerate(layers):
            if isinstance(layer, list | tuple):
                self.add_sublayer(str(layer[0]), layer[1])
            else:
                self.add_sublayer(str(i), layer)

    def forward(self, input: Any) -> Any:
        for layer in self._sub_layers.values():
            input = layer(input)
        return input

    def _name_at(self, index: Any) -> str:
        if isinstance(index, str):
            if index not in self._sub_layers:
                raise IndexOutOfRange(f"Sequential has no layer named {index!r}")
            return index
        return list(self._sub_layers)[_position(index, len(self), "Sequential")]

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, slice):
            return type(self)(*list(self._sub_layers.values())[name])
        return self._sub_layers[self._name_at(name)]

    def __setitem__(self, name: Any, layer: Layer) -> None:
        if isinstance(name, str):
            self.add_sublayer(name, layer)
        else:
            self.add_sublayer(self._name_at(name), layer)

    def __delitem__(self, name: Any) -> None:
        if isinstance(name, slice):
            for key in list(self._sub_layers)[name]:
                del self._sub_layers[key]
        else:
            del self._sub_layers[self._name_at(name)]

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._sub_layers.values())

    def append(self, module: Layer) -> Sequential:
        """Add a layer at the end."""
        self.add_sublayer(str(len(self)), module)
        return self

    def insert(self, index: int, module: Layer) -> Sequential:
        """Add a layer before position `index`; later ones are renumbered."""
        if not isinstance(module, Layer):
            raise TypeMismatch(f"[insert] takes a Layer. Received: {type(module).__name__}")
        if not -len(self) <= index <= len(self):
            raise IndexOutOfRange(f"Sequential has {len(self)} layers. Received: index {index}")
        layers = list(self._sub_layers.values())
        layers.insert(index, module)
        _renumber(self, layers)
        return self

    def extend(self, sequential: Iterable[Layer]) -> Sequential:
        """Add several layers at the end."""
        for layer in sequential:
            self.append(layer)
        return self


def _renumber(owner: Layer, layers: list[Layer]) -> None:
    owner._sub_layers.clear()
    for i, layer in enumerate(layers):
        owner.add_sublayer(str(i), layer)


class LayerList(Layer):
    """A list of layers that are registered."""

    @second_names(modules="sublayers")
    def __init__(self, sublayers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        self.extend(sublayers or ())

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self._sub_layers.values())[idx])
        return self._sub_layers[str(_position(idx, len(self), "LayerList"))]

    def __setitem__(self, idx: int, sublayer: Layer) -> None:
        self.add_sublayer(str(_position(idx, len(self), "LayerList")), sublayer)

    def __delitem__(self, idx: Any) -> None:
        layers = list(self._sub_layers.values())
        if isinstance(idx, slice):
            del layers[idx]
        else:
            del layers[_position(idx, len(self), "LayerList")]
        _renumber(self, layers)

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._sub_layers.values())

    def __iadd__(self, modules: Iterable[Layer]) -> LayerList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Layer]) -> LayerList:
        return type(self)([*self, *other])

    def append(self, sublayer: Layer) -> LayerList:
        """Add a layer at the end."""
        self.add_sublayer(str(len(self)), sublayer)
        return self

    def insert(self, index: int, sublayer: Layer) -> None:
        """Add a layer before position `index`."""
        if not -len(self) <= index <= len(self):
            raise IndexOutOfRange(f"LayerList has {len(self)} layers. Received: index {index}")
        layers = list(self._sub_layers.values())
        layers.insert(index, sublayer)
        _renumber(self, layers)

    def extend(self, sublayers: Iterable[Layer]) -> LayerList:
        """Add several layers at the end."""
        for layer in sublayers:
            self.append(layer)
        return self

    def pop(self, key: int = -1) -> Layer:
        """Remove and return a layer."""
        found = self[key]
        del self[key]
        return found


class LayerDict(Layer):
    """A dict of layers that are registered."""

    @second_names(modules="sublayers")
    def __init__(
        self, sublayers: Mapping[str, Layer] | Iterable[tuple[str, Layer]] | None = None
    ) -> None:
        super().__init__()
        if sublayers is not None:
            self.update(sublayers)

    def __getitem__(self, key: str) -> Layer:
        return self._sub_layers[key]

    def __setitem__(self, key: str, sublayer: Layer) -> None:
        self.add_sublayer(key, sublayer)

    def __delitem__(self, key: str) -> None:
        del self._sub_layers[key]

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sub_layers)

    def __contains__(self, key: object) -> bool:
        return key in self._sub_layers

    def clear(self) -> None:
        self._sub_layers.clear()

    def pop(self, key: str) -> Layer:
        """Remove and return a layer."""
        return self._sub_layers.pop(key)

    def keys(self) -> Iterable[str]:
        return self._sub_layers.keys()

    def values(self) -> Iterable[Layer]:
        return self._sub_layers.values()

    def items(self) -> Iterable[tuple[str, Layer]]:
        return self._sub_layers.items()

    def update(self, sublayers: Mapping[str, Layer] | Iterable[tuple[str, Layer]]) -> None:
        """Add or replace layers from a dict or (name, layer) pairs."""
        for name, layer in _pairs(sublayers, "LayerDict"):
            self.add_sublayer(name, layer)


class ParameterList(Layer):
    """A list of parameters that are registered."""

    def __init__(self, parameters: Iterable[Parameter] | None = None) -> None:
        super().__init__()
        for p in parameters or ():
            self.append(p)

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self._parameters.values())[idx])
        return self._parameters[str(_position(idx, len(self), "ParameterList"))]

    def __setitem__(self, idx: int, param: Parameter) -> None:
        setattr(self, str(_position(idx, len(self), "ParameterList")), param)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def append(self, parameter: Parameter) -> ParameterList:
        """Add a parameter at the end."""
        self.add_parameter(str(len(self)), parameter)
        return self


class ParameterDict(Layer):
    """A dict of parameters that are registered."""

    def __init__(
        self, parameters: Mapping[str, Parameter] | Iterable[tuple[str, Parameter]] | None = None
    ) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Parameter:
        return self._parameters[key]

    def __setitem__(self, key: str, param: Parameter) -> None:
        self.add_parameter(key, param)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, key: object) -> bool:
        return key in self._parameters

    def keys(self) -> Iterable[str]:
        return self._parameters.keys()

    def values(self) -> Iterable[Parameter]:
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Parameter]]:
        return self._parameters.items()

    def update(self, parameters: Mapping[str, Parameter] | Iterable[tuple[str, Parameter]]) -> None:
        """Add or replace parameters from a dict or (name, parameter) pairs."""
        for name, param in _pairs(parameters, "ParameterDict"):
            self.add_parameter(name, param)


__all__ = ["LayerDict", "LayerList", "ParameterDict", "ParameterList", "Sequential"]
