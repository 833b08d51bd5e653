"""Weight normalisation: a weight as direction times length."""

from __future__ import annotations

from bireme.core.errors import InvalidArgument
from bireme.core.op import op
from bireme.core.tensor import Parameter, Tensor
from bireme.nn import naming
from bireme.nn.layer.layer import Layer


@op
def weight_norm_compose(xp, v, g, dim=0):
    """g * v / |v|, the norm taken over every dimension but `dim` (over all of them for None)."""
    axes = tuple(i for i in range(v.ndim) if i != dim)
    norm = xp.sqrt(xp.sum(xp.square(v), axis=axes, keepdims=True))
    shape = [1] * v.ndim
    if dim is not None:
        shape[dim] = -1
    return v * (xp.reshape(g, shape) / norm)


@op(differentiable=False)
def weight_norm_length(xp, v, dim=0):
    """The lengths that `weight_norm_compose` takes as `g`."""
    axes = tuple(i for i in range(v.ndim) if i != dim)
    total = xp.sum(xp.square(v), axis=axes)
    return xp.sqrt(total)


class WeightNorm:
    """The hook that makes the weight from its two parts before each forward."""

    def __init__(self, name: str, dim: int | None):
        self.name = name
        self.dim = dim

    def compose(self, layer: Layer) -> Tensor:
        v, g = getattr(layer, self.name + "_v"), getattr(layer, self.name + "_g")
        return weight_norm_compose(v, g, self.dim)

    def __call__(self, layer: Layer, inputs: object) -> None:
        setattr(layer, self.name, self.compose(layer))


def _hook_of(layer: Layer, name: str) -> tuple[int, WeightNorm] | None:
    for key, (hook, _, _) in layer._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            return key, hook
    return None


def weight_norm(layer: Layer, name: str = "weight", dim: int | None = 0) -> Layer:
    """Train direction `name`_v and length `name`_g in place of parameter `name`."""
    if _hook_of(layer, name) is not None:
        raise InvalidArgument(f"[weight_norm] {name!r} of this layer is normalised already")
    weight = layer._parameters.get(name)
    if weight is None:
        raise InvalidArgument(
            f"[weight_norm] {type(layer).__name__} has no parameter {name!r}. Received: "
            f"{sorted(layer._parameters)}"
        )
    if dim == -1:
        dim = None
    if dim is not None and not -weight.ndim <= dim < weight.ndim:
        raise InvalidArgument(
            f"[weight_norm] dim must be in [-{weight.ndim}, {weight.ndim}). Received: {dim}"
        )
    if dim is not None:
        dim %= weight.ndim
    hook = WeightNorm(name, dim)
    del layer._parameters[name]
    length = weight_norm_length(weight, dim)
    names = [naming.generate(f"{layer.full_name()}.w") for _ in range(2)]
    layer.add_parameter(name + "_v", Parameter(weight._value, True, names[0]))
    layer.add_parameter(name + "_g", Parameter(length._value, True, names[1]))
    object.__setattr__(layer, name, hook.compose(layer))
    layer._buffers[name] = getattr(layer, name)
    layer._non_persistable_buffer_names_set.add(name)
    layer.register_forward_pre_hook(hook)
    return layer


def remove_weight_norm(layer: Layer, name: str = "weight") -> Layer:
    """Undo `weight_norm`: the weight is one parameter again."""
    found = _hook_of(layer, name)
    if found is None:
        raise InvalidArgument(f"[remove_weight_norm] {name!r} of this layer is not normalised")
    key, hook = found
    value = hook.compose(layer)
    del layer._forward_pre_hooks[key]
    label = getattr(layer, name + "_v").name
    for part in (name, name + "_v", name + "_g"):
        delattr(layer, part)
    layer.add_parameter(name, Parameter(value._value, True, label))
    return layer


__all__ = ["remove_weight_norm", "weight_norm"]
