"""What a captured graph may depend on, and the types that an InputSpec stands for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from operator import is_not
from typing import Any

from bireme.core import dims
from bireme.core.aval import Aval, aval
from bireme.core.tensor import Tensor
from bireme.static.input_spec import InputSpec


def spec_types(specs: Sequence[InputSpec], shared: bool) -> list[Aval]:
    """The (symbolic) types of these specs.

    An unknown first dimension is `batch` for all inputs. The other unknown dimensions are all
    different, or with `shared` the same for all inputs that have them on the same axis.
    """
    types = []
    for i, spec in enumerate(specs):
        shape = []
        for axis, d in enumerate(spec.shape):
            if isinstance(d, str):
                shape.append(dims.parse(d) if "*" in d else dims.symbol(d))
            elif d == -1:
                shape.append(dims.symbol(_dimension_name(i, axis, shared)))
            else:
                shape.append(d)
        types.append(aval(tuple(shape), spec.dtype))
    return types


def _dimension_name(index: int, axis: int, shared: bool) -> str:
    if axis == 0:
        return "batch"
    return f"dim{axis}" if shared else f"x{index}_dim{axis}"


def fits(spec: InputSpec, t: Aval) -> bool:
    """Whether a tensor of type `t` is what the spec describes."""
    if spec.dtype is not t.dtype or len(spec.shape) != t.ndim:
        return False
    return all(
        isinstance(d, str) or d == -1 or d == have
        for d, have in zip(spec.shape, t.shape, strict=True)
    )


def argument_names(function: Callable[..., Any], count: int) -> list[str]:
    """Names for the tensor arguments of a function, where its signature gives them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in plain]
    return names[:count]


def layers_of(function: Callable[..., Any]) -> list[Any]:
    """The layers that a function can reach by name: its own object, closure and globals."""
    from bireme.nn.layer.layer import Layer

    found: dict[int, Any] = {}
    owner = getattr(function, "__self__", None)
    code = getattr(function, "__code__", None)
    candidates = [owner]
    candidates += [_cell(c) for c in getattr(function, "__closure__", None) or ()]
    if code is not None:
        scope = getattr(function, "__globals__", {})
        candidates += [scope[n] for n in code.co_names if n in scope]
    if owner is not None and not isinstance(owner, Layer):
        candidates += list(getattr(owner, "__dict__", {}).values())
    for candidate in candidates:
        if isinstance(candidate, Layer):
            for layer in candidate.sublayers(include_self=True):
                found.setdefault(id(layer), layer)
    return list(found.values())


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


class LayerState:
    """The parameters and buffers of some layers, and a quick check that they are the same ones."""

    def __init__(self, layers: Sequence[Any]):
        self.layers = list(layers)
        self.places: list[tuple[Any, str, Tensor]] = []
        for layer in self.layers:
            for registry in (layer._parameters, layer._buffers):
                self.places += [(registry, k, t) for k, t in registry.items() if t is not None]
        self.registries = [registry for registry, _, _ in self.places]
        self.keys = [key for _, key, _ in self.places]
        self.tensors = [tensor for _, _, tensor in self.places]

    def names(self, root: Any | None) -> dict[str, Tensor]:
        """Every tensor by its name in `root`'s state dict, or by a made-up one."""
        named: dict[str, Tensor] = {}
        if root is not None:
            named.update(root.named_parameters())
            named.update(root.named_buffers())
        seen = {id(t) for t in named.values()}
        for _, key, tensor in self.places:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                named[_unused(key, named)] = tensor
        return named

    def unchanged(self) -> bool:
        return not any(map(is_not, map(dict.get, self.registries, self.keys), self.tensors))

    def training(self) -> tuple[bool, ...]:
        return tuple([layer.training for layer in self.layers])


def _unused(name: str, taken: dict[str, Any]) -> str:
    candidate, i = name, 0
    while candidate in taken:
        i += 1
        candidate = f"{name}_{i}"
    return candidate
