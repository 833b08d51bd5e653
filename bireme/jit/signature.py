"""Signatures: the state that a captured graph depends on, and the types of an InputSpec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from bireme.capture import symbols
from bireme.core.aval import Aval, aval
from bireme.core.tensor import Tensor
from bireme.jit.watch import PLAIN
from bireme.nn.layer import layer_changes
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
                shape.append(symbols.parse(d) if "*" in d else symbols.symbol(d))
            elif d == -1:
                shape.append(symbols.symbol(_dimension_name(i, axis, shared)))
            else:
                shape.append(d)
        types.append(aval(tuple(shape), spec.dtype))
    return types


def _dimension_name(index: int, axis: int, shared: bool) -> str:
    if axis == 0:
        return "batch"
    return f"dim{axis}" if shared else f"x{index}_dim{axis}"


def fits(spec: InputSpec, t: Aval) -> bool:
    """Whether a tensor of type `t` matches the spec."""
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


_REGISTRIES = ("_parameters", "_buffers", "_sub_layers")
_HOOKS = ("_forward_pre_hooks", "_forward_post_hooks")


class LayerState:
    """The implicit inputs of a graph from its layers (tensors, sublayers, numbers that the
    library's own layers read, hooks), and a quick check that they are unchanged."""

    def __init__(self, layers: Sequence[Any]):
        self.layers = list(layers)
        self.own = {id(layer.__dict__): layer for layer in self.layers}
        self.places: list[tuple[dict[str, Any], str, Any]] = []
        for layer in self.layers:
            for registry in [layer.__dict__[kind] for kind in _REGISTRIES]:
                self.places += [(registry, k, t) for k, t in registry.items() if t is not None]
            self.places += [
                (layer.__dict__, k, v)
                for k, v in layer.__dict__.items()
                if k != "training" and v.__class__ in PLAIN
            ]
        kinds = (*_REGISTRIES, *_HOOKS)
        self.sized = [layer.__dict__[kind] for layer in self.layers for kind in kinds]
        self.sizes = [len(s) for s in self.sized]
        self.seen = -1
        self._modes: tuple[bool, ...] = ()

    def names(self, root: Any | None) -> dict[str, Tensor]:
        """Every tensor by its name in `root`'s state dict, or by a made-up one."""
        named: dict[str, Tensor] = {}
        if root is not None:
            named.update(root.named_parameters())
            named.update(root.named_buffers())
        seen = {id(t) for t in named.values()}
        for _, key, tensor in self.places:
            if isinstance(tensor, Tensor) and id(tensor) not in seen:
                seen.add(id(tensor))
                named[_unused(key, named)] = tensor
        return named

    def leave_out(self, holders: set[tuple[int, Any]]) -> None:
        """Attributes (by the id of a layer's dict and the name) that a function sets itself."""
        ids = set()
        for own, name in holders:
            if own in self.own:
                layer = self.own[own]
                ids |= {(id(layer.__dict__[kind]), name) for kind in _REGISTRIES}
                ids.add((own, name))
                registries = [layer.__dict__[kind] for kind in _REGISTRIES]
                self.sized = [s for s in self.sized if not any(s is r for r in registries)]
                self.sizes = [len(s) for s in self.sized]
        self.places = [p for p in self.places if (id(p[0]), p[1]) not in ids]

    def looked_after(self) -> Callable[[dict[Any, Any], Any], bool]:
        """Tells of an attribute, by its layer's dict and name, whether `unchanged` would notice
        another value of it."""
        known = {(id(holder), key) for holder, key, _ in self.places}

        def is_known(holder: dict[Any, Any], key: Any) -> bool:
            layer = self.own.get(id(holder))
            if layer is None:
                return False
            every = [holder, *[layer.__dict__[kind] for kind in _REGISTRIES]]
            return key == "training" or any((id(h), key) in known for h in every)

        return is_known

    def unchanged(self) -> bool:
        """One look as long as no attribute of any layer is set anywhere."""
        now = layer_changes.count
        if now == self.seen:
            return True
        if [len(s) for s in self.sized] != self.sizes:
            return False
        for holder, key, value in self.places:
            found = holder.get(key)
            if found is not value and not (value.__class__ in PLAIN and found == value):
                return False
        self._modes = tuple([layer.training for layer in self.layers])
        self.seen = now
        return True

    def training(self) -> tuple[bool, ...]:
        if layer_changes.count != self.seen:
            return tuple([layer.training for layer in self.layers])
        return self._modes


def _unused(name: str, taken: dict[str, Any]) -> str:
    candidate, i = name, 0
    while candidate in taken:
        i += 1
        candidate = f"{name}_{i}"
    return candidate
