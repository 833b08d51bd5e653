"""Layer: what every network is made of. A tree of parameters, buffers and sublayers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from bireme.api.keywords import second_name
from bireme.api.types import DTypeLike, PlaceLike
from bireme.core import dtype as dt
from bireme.core.errors import BiremeError, InvalidArgument, TypeMismatch, cut_internal_frames
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.core.trace import state
from bireme.nn import naming
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.layer import layer_changes
from bireme.nn.layer.calls import call_outermost, call_with_hooks
from bireme.nn.layer.conversion import Conversion
from bireme.nn.layer.registry import HookRemover, Registry
from bireme.nn.layer.state import StateDict
from bireme.nn.parameters import make_parameter

if TYPE_CHECKING:
    from bireme.nn.initializer.base import Initializer


class InvalidName(InvalidArgument, KeyError):
    """A name that a layer cannot give to a parameter, buffer or sublayer."""

    __str__ = Exception.__str__


class ExtraStateUndefined(InvalidArgument):
    """A layer was asked for a state that it does not define."""


class Layer(StateDict, Conversion):
    """Base of all networks and their parts.

    Assigning a Parameter, Tensor or Layer to an attribute registers it as a parameter, a buffer
    or a sublayer; `forward` says what the layer computes.
    """

    training: bool

    def __init__(self, name_scope: str | None = None, dtype: DTypeLike | None = "float32") -> None:
        own = self.__dict__
        own["training"] = True
        own["_full_name"] = naming.generate(name_scope or naming.snake_case(type(self).__name__))
        own["_dtype"] = dtype
        own["_parameters"] = Registry(self)
        own["_buffers"] = Registry(self)
        own["_sub_layers"] = Registry(self)
        own["_non_persistable_buffer_names_set"] = set()
        own["_forward_pre_hooks"] = {}
        own["_forward_post_hooks"] = {}
        own["_state_dict_hooks"] = {}

    # --- calling --------------------------------------------------------------------------

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        if not state.trace.in_layer:
            try:
                return call_outermost(self, inputs, kwargs)
            except BiremeError as e:
                cut_internal_frames(e)
                raise
        if self._forward_pre_hooks or self._forward_post_hooks:
            return call_with_hooks(self, inputs, kwargs)
        return self.forward(*inputs, **kwargs)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the layer computes; subclasses define it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no forward(); define it to say what the layer computes"
        )

    def backward(self, *inputs: Any) -> NoReturn:
        """A layer has no backward of its own: gradients come from what forward recorded."""
        raise InvalidArgument(
            f"[{type(self).__name__}] a Layer has no backward(); call loss.backward(), or write a "
            "PyLayer for a gradient of your own"
        )

    def get_extra_state(self) -> Any:
        """What a subclass wants to keep besides its parameters; it has to define this itself."""
        raise ExtraStateUndefined(
            f"[{type(self).__name__}] get_extra_state() was called but is not defined"
        )

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookRemover:
        """Call `hook(layer, inputs)` before forward; what it returns replaces the inputs."""
        return HookRemover(self._forward_pre_hooks, (hook, with_kwargs, False), first=prepend)

    def register_forward_post_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookRemover:
        """Call `hook(layer, inputs, outputs)` after forward; its result replaces the outputs."""
        entry = (hook, with_kwargs, always_call)
        return HookRemover(self._forward_post_hooks, entry, first=prepend)

    register_forward_hook = register_forward_post_hook

    # --- modes ----------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Layer:
        """Switch this layer and all below it to training (dropout on, batch statistics)."""
        if not isinstance(mode, bool):
            raise InvalidArgument(f"[train] mode must be a bool. Received: {mode!r}")
        return self._set_training(mode)

    def eval(self) -> Layer:
        """Switch this layer and all below it to inference.

        As in Paddle this does not go through `train`, which a subclass may have overridden.
        """
        return self._set_training(False)

    def _set_training(self, mode: bool) -> Layer:
        for layer in self.sublayers(include_self=True):
            layer.training = mode
        return self

    def apply(self, fn: Callable[[Layer], Any]) -> Layer:
        """Call `fn` on every sublayer, the deepest first, and on this layer last."""
        for layer in self.children():
            layer.apply(fn)
        fn(self)
        return self

    def full_name(self) -> str:
        return self._full_name

    # --- registering ----------------------------------------------------------------------

    def create_parameter(
        self,
        shape: Iterable[int],
        attr: ParamAttrLike | None = None,
        dtype: DTypeLike | None = None,
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
        device: PlaceLike | None = None,
    ) -> Any:
        """A new parameter named after this layer; None if `attr` is False."""
        return make_parameter(
            shape, dtype, attr, is_bias, default_initializer, owner=self._full_name, place=device
        )

    def create_tensor(
        self,
        name: str | None = None,
        persistable: bool | None = None,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """An empty tensor that belongs to this layer."""
        import numpy as np

        made = constant(np.zeros((0,), dt.as_dtype(dtype or self._dtype or "float32").numpy))
        made.name = name or naming.generate(f"{self._full_name}._generated_var")
        made.persistable = bool(persistable)
        return made

    create_variable = create_tensor

    def add_parameter(self, name: str, parameter: Parameter | None) -> Parameter | None:
        """Register `parameter` under `name`."""
        self._check_name("parameter", name, self._parameters)
        if parameter is not None and not isinstance(parameter, Parameter):
            raise TypeMismatch(
                f"[add_parameter] {name!r} must be a Parameter or None. Received: "
                f"{type(parameter).__name__}; make one with create_parameter()"
            )
        self._parameters[name] = parameter
        return parameter

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        self.add_parameter(name, param)

    def register_buffer(
        self,
        name: str,
        tensor: Tensor | None,
        persistable: bool = True,
        *,
        persistent: bool | None = None,
    ) -> None:
        """Register a tensor that is state but not trained; saved if `persistable`."""
        if persistent is not None:
            persistable = persistent
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeMismatch(
                f"[register_buffer] {name!r} must be a Tensor or None. Received: "
                f"{type(tensor).__name__}; convert it with paddle.to_tensor(...)"
            )
        self._buffers[name] = tensor
        if persistable:
            self._non_persistable_buffer_names_set.discard(name)
        else:
            self._non_persistable_buffer_names_set.add(name)

    def add_sublayer(self, name: str, sublayer: Layer | None) -> Layer | None:
        """Register `sublayer` under `name`."""
        if sublayer is not None and not isinstance(sublayer, Layer):
            raise TypeMismatch(
                f"[add_sublayer] {name!r} must be a Layer. Received: {type(sublayer).__name__}"
            )
        self._sub_layers[str(name)] = sublayer
        return sublayer

    def add_module(self, name: str, module: Layer | None) -> None:
        self.add_sublayer(name, module)

    register_module = add_module

    def _check_name(self, what: str, name: Any, registry: Registry) -> None:
        if not isinstance(name, str):
            raise TypeMismatch(f"a {what}'s name must be a str. Received: {type(name).__name__}")
        if not name:
            raise InvalidName(f"a {what}'s name must not be empty")
        if "." in name:
            raise InvalidName(
                f"a {what}'s name must not contain '.', which separates layers in state_dict "
                f"keys. Received: {name!r}"
            )
        if name not in registry and hasattr(self, name):
            raise InvalidName(f"{type(self).__name__} already has an attribute {name!r}")

    # --- attributes -----------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(getattr(type(self), name, None), property):
            layer_changes.count += 1
            object.__setattr__(self, name, value)
            if not isinstance(value, Tensor | Layer):
                return
        if isinstance(value, Parameter):
            self._register("_parameters", name, value)
        elif isinstance(value, Layer):
            if name in own.get("_parameters", ()):
                raise _wrong_kind("parameter", name, value)
            self._register("_sub_layers", name, value)
        elif isinstance(value, Tensor):
            for kind, what in (("_parameters", "parameter"), ("_sub_layers", "sublayer")):
                if name in own.get(kind, ()):
                    raise _wrong_kind(what, name, value)
            # A plain assignment makes a buffer that is not saved; register_buffer can.
            new = name not in own.get("_buffers", ())
            self._register("_buffers", name, value)
            if new:
                self._non_persistable_buffer_names_set.add(name)
        else:
            self._set_plain(name, value)

    def _set_plain(self, name: str, value: Any) -> None:
        own = self.__dict__
        for kind, what in _KINDS:
            registry = own.get(kind)
            if registry is not None and name in registry:
                if value is not None:
                    raise _wrong_kind(what, name, value)
                registry[name] = None
                return
        layer_changes.count += 1
        object.__setattr__(self, name, value)

    def _register(self, kind: str, name: str, value: Any) -> None:
        own = self.__dict__
        target = own.get(kind)
        if target is None:
            raise InvalidArgument(
                f"{type(self).__name__}.__init__ must call super().__init__() before it assigns "
                f"{name!r}"
            )
        for other, _ in _KINDS:
            if other != kind:
                own[other].pop(name, None)
        target[name] = value

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for kind, _ in _KINDS:
            registry = own.get(kind)
            if registry is not None and name in registry:
                return registry[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        own = self.__dict__
        for kind, _ in _KINDS:
            registry = own.get(kind)
            if registry is not None and name in registry:
                del registry[name]
                if kind == "_buffers":
                    self._non_persistable_buffer_names_set.discard(name)
                return
        layer_changes.count += 1
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *self.__dict__})

    # --- walking --------------------------------------------------------------------------

    def children(self) -> Iterator[Layer]:
        """The layers directly below this one."""
        for _, layer in self.named_children():
            yield layer

    def named_children(self) -> Iterator[tuple[str, Layer]]:
        seen: set[int] = set()
        for name, layer in self._sub_layers.items():
            if layer is not None and id(layer) not in seen:
                seen.add(id(layer))
                yield name, layer

    def sublayers(self, include_self: bool = False) -> list[Layer]:
        """All layers below this one, in depth-first order."""
        return [layer for _, layer in self.named_sublayers(include_self=include_self)]

    def named_sublayers(
        self,
        prefix: str = "",
        include_self: bool = False,
        layers_set: set[Any] | None = None,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Layer]]:
        """(dotted name, layer) of all layers below this one."""
        seen = set() if layers_set is None else layers_set
        if include_self and not (remove_duplicate and self in seen):
            if remove_duplicate:
                seen.add(self)
            yield prefix, self
        for name, layer in self._sub_layers.items():
            if layer is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from layer.named_sublayers(inner, True, seen, remove_duplicate)

    def modules(self) -> Iterator[Layer]:
        for _, layer in self.named_sublayers(include_self=True):
            yield layer

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Layer]]:
        return self.named_sublayers(prefix, True, memo, remove_duplicate)

    def parameters(
        self, include_sublayers: bool = True, *, recurse: bool | None = None
    ) -> list[Parameter]:
        """All parameters, each once."""
        deep = include_sublayers if recurse is None else recurse
        return [p for _, p in self.named_parameters(include_sublayers=deep)]

    def named_parameters(
        self,
        prefix: str = "",
        include_sublayers: bool = True,
        remove_duplicate: bool = True,
        *,
        recurse: bool | None = None,
    ) -> Iterator[tuple[str, Parameter]]:
        deep = include_sublayers if recurse is None else recurse
        return self._named_tensors("_parameters", prefix, deep, remove_duplicate)

    def buffers(
        self, include_sublayers: bool = True, *, recurse: bool | None = None
    ) -> list[Tensor]:
        """All buffers, each once."""
        deep = include_sublayers if recurse is None else recurse
        return [b for _, b in self.named_buffers(include_sublayers=deep)]

    def named_buffers(
        self,
        prefix: str = "",
        include_sublayers: bool = True,
        remove_duplicate: bool = True,
        *,
        recurse: bool | None = None,
    ) -> Iterator[tuple[str, Tensor]]:
        deep = include_sublayers if recurse is None else recurse
        return self._named_tensors("_buffers", prefix, deep, remove_duplicate)

    def _named_tensors(
        self, kind: str, prefix: str, include_sublayers: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        layers: Iterable[tuple[str, Layer]] = [(prefix, self)]
        if include_sublayers:
            layers = self.named_sublayers(prefix, True, None, remove_duplicate)
        seen: set[int] = set()
        for path, layer in layers:
            for name, tensor in layer.__dict__[kind].items():
                if tensor is None or (remove_duplicate and id(tensor) in seen):
                    continue
                seen.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor

    def get_sublayer(self, target: str) -> Layer:
        """The layer at a dotted path."""
        layer: Layer = self
        for part in target.split(".") if target else ():
            below = getattr(layer, part, None)
            if not isinstance(below, Layer):
                raise MissingMember(f"{type(layer).__name__} has no sublayer {part!r}")
            layer = below
        return layer

    get_submodule = get_sublayer

    def set_sublayer(
        self,
        target: str,
        layer: Layer | None = None,
        strict: bool = False,
        *,
        module: Layer | None = None,
    ) -> None:
        """Put `layer` at a dotted path; with `strict` only in place of another."""
        if module is not None:
            layer = second_name("set_sublayer", "layer", layer, "module", module)
        if not isinstance(layer, Layer):
            raise TypeMismatch(
                f"[set_sublayer] layer must be a Layer. Received: {type(layer).__name__}"
            )
        path, _, name = target.rpartition(".")
        if not name:
            raise InvalidArgument("[set_sublayer] target must not be empty")
        parent = self.get_sublayer(path)
        if strict and not isinstance(getattr(parent, name, None), Layer):
            raise MissingMember(f"{type(parent).__name__} has no sublayer {name!r} to replace")
        setattr(parent, name, layer)

    set_submodule = set_sublayer

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        path, _, name = target.rpartition(".")
        found = self.get_sublayer(path)._parameters.get(name)
        if found is None:
            raise MissingMember(f"there is no parameter {target!r}")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        path, _, name = target.rpartition(".")
        found = self.get_sublayer(path)._buffers.get(name)
        if found is None:
            raise MissingMember(f"there is no buffer {target!r}")
        return found

    # --- gradients ------------------------------------------------------------------------

    def clear_gradients(self, set_to_zero: bool = True) -> None:
        """Clear the gradient of every trainable parameter."""
        for p in self.parameters():
            if p.trainable:
                p.clear_gradient(set_to_zero)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.clear_gradients(set_to_zero=not set_to_none)

    def requires_grad_(self, requires_grad: bool = True) -> Layer:
        """Freeze or unfreeze all parameters."""
        for p in self.parameters():
            p.stop_gradient = not requires_grad
        return self

    # --- copying and showing --------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for kind, _ in _KINDS:
            registry = state.get(kind)
            if registry is not None:
                for name in registry:
                    state.pop(name, None)
        for kind, _ in _KINDS:
            state[kind] = dict(self.__dict__.get(kind, ()))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = self.__dict__
        own.update(state)
        for kind, _ in _KINDS:
            own[kind] = Registry(self, state[kind])

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        for name, old in self._parameters.items():
            new = made._parameters[name]
            if new is not None and new._name is None:
                new._name = old.name + naming.generate("_deepcopy")
        return made

    def extra_repr(self) -> str:
        """What `repr` shows between the brackets, before the sublayers."""
        return ""

    def __repr__(self) -> str:
        lines = self.extra_repr().split("\n")
        text = lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines) + "\n"
        below = [f"({name}): {_indented(repr(layer))}" for name, layer in self._sub_layers.items()]
        if below:
            text += "\n  " + "\n  ".join(below) + "\n"
        return f"{type(self).__name__}({text})"


class MissingMember(BiremeError, AttributeError):
    """A dotted path that leads nowhere."""


_KINDS = (("_parameters", "parameter"), ("_sub_layers", "sublayer"), ("_buffers", "buffer"))
_EXPECTED = {"parameter": "a Parameter", "sublayer": "a Layer", "buffer": "a Tensor"}


def _wrong_kind(what: str, name: str, value: Any) -> TypeMismatch:
    return TypeMismatch(
        f"{name!r} is a {what}: assign {_EXPECTED[what]} or None to it. Received: "
        f"{type(value).__name__}; use `del layer.{name}` first to reuse the name"
    )


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


__all__ = ["Layer"]
