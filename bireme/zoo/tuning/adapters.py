"""LoRA: a product of two small matrices beside each chosen linear layer, which is all that trains.

    adapters.attach(model, Lora(rank=8, targets=("q_proj", "v_proj")))
    ...                            # train
    adapters.merge(model)          # weights that need no adapter

An adapter is a sublayer `lora` of its layer, whose results a hook adds to the layer's own. Names
and types of all other parameters stay, so everything that works with the model still does.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.initializer import Constant, Uniform
from bireme.nn.layer.layer import Layer
from bireme.zoo.kept import KeptLinear

ALL_LINEAR = "all-linear"


@dataclasses.dataclass(frozen=True)
class Lora:
    """How adapters are made.

    `targets` are the ends of layers' names ("q_proj"), or "all-linear" for every linear layer
    but the output layer. An adapter's product counts `alpha / rank`, or `alpha / sqrt(rank)` if
    `root_scale`. `dropout` is the share of an adapter's inputs that training leaves out.
    """

    rank: int = 8
    alpha: float = 16.0
    targets: str | Sequence[str] = ("q_proj", "v_proj")
    dropout: float = 0.0
    root_scale: bool = False

    def __post_init__(self) -> None:
        if type(self.rank) is not int or not 0 < self.rank < 2**16 or not 0 <= self.dropout < 1:
            raise InvalidArgument(
                "[Lora] rank must be a positive number and dropout in [0, 1). Received: "
                f"rank={self.rank!r}, dropout={self.dropout!r}"
            )
        if not math.isfinite(self.alpha):
            raise InvalidArgument(f"[Lora] alpha must be a number. Received: {self.alpha!r}")

    def scale_of(self, rank: int, alpha: float) -> float:
        """The factor of an adapter's product."""
        return alpha / (math.sqrt(rank) if self.root_scale else rank)


class Adapter(Layer):
    """x A B times a scale, in float32 whatever the model's type is."""

    def __init__(self, wide: int, out: int, rank: int, scale: float, dropout: float):
        super().__init__(dtype="float32")
        bound = 1 / math.sqrt(wide)
        self.A = self.create_parameter([wide, rank], default_initializer=Uniform(-bound, bound))
        self.B = self.create_parameter([rank, out], default_initializer=Constant(0.0))
        self.scale, self.dropout = scale, dropout
        self.original: Any = None  # the layer's weight before this adapter was merged into it

    def forward(self, x: Tensor) -> Tensor:
        x = x.astype(self.A.dtype)
        if self.dropout and self.training:
            x = nn.functional.dropout(x, self.dropout)
        return paddle.matmul(paddle.matmul(x, self.A), self.B) * self.scale

    def product(self) -> Tensor:
        """What the adapter adds to the layer's weight [in, out]."""
        return paddle.matmul(self.A, self.B) * self.scale


def _add(layer: Any, inputs: Any, output: Tensor) -> Tensor:
    adapter = layer.lora
    if adapter.original is not None:
        return output
    delta = adapter(inputs[0])
    return (output.astype(delta.dtype) + delta).astype(output.dtype)


def attach(model: Layer, lora: Lora) -> Layer:
    """Give the target layers of a model adapters that change nothing yet; only they are trained.

    Returns the model.
    """
    if adapters(model):
        raise InvalidArgument("[lora] the model has adapters already: merge or remove them first")
    found = [(path, layer) for path, layer in linears(model) if _is_target(path, lora.targets)]
    if not found:
        last = sorted({path.rpartition(".")[2] for path, _ in linears(model)})
        raise InvalidArgument(
            f"[lora] no linear layer of the model is called {lora.targets!r}. Its layers are "
            f"called: {', '.join(last)}"
        )
    lacking = (
        []
        if isinstance(lora.targets, str)
        else [t for t in lora.targets if not any(_is_target(path, (t,)) for path, _ in found)]
    )
    if lacking:
        raise InvalidArgument(f"[lora] no linear layer of the model is called {lacking}")
    for _, layer in found:
        put(layer, lora.rank, lora.scale_of(lora.rank, lora.alpha), lora.dropout)
    freeze(model)
    return model


def put(layer: Layer, rank: int, scale: float, dropout: float) -> Adapter:
    """Give one linear layer an adapter."""
    wide, out = shape_of(layer)
    layer.lora = Adapter(wide, out, rank, scale, dropout)
    layer.lora_hook = layer.register_forward_post_hook(_add)
    return layer.lora


def freeze(model: Layer) -> None:
    """Train the adapters only."""
    for name, param in model.named_parameters():
        param.stop_gradient = not _is_own(name)


def shape_of(layer: Layer) -> tuple[int, int]:
    """(inputs, outputs) of a linear layer."""
    if isinstance(layer, KeptLinear):
        return layer.in_features, layer.out_features
    wide, out = layer.weight.shape
    return int(wide), int(out)


def linears(model: Layer) -> list[tuple[str, Any]]:
    """(path, layer) of the linear layers that can have an adapter."""
    return [(p, s) for p, s in model.named_sublayers() if isinstance(s, nn.Linear | KeptLinear)]


def adapters(model: Layer) -> dict[str, Adapter]:
    """The model's adapters by the path of their layer."""
    found = model.named_sublayers()
    return {p.removesuffix(".lora"): s for p, s in found if isinstance(s, Adapter)}


def owner_of(model: Layer, path: str) -> Layer:
    """The layer at a path."""
    for part in path.split("."):
        model = getattr(model, part)
    return model


def _is_own(name: str) -> bool:
    """Whether a parameter belongs to an adapter."""
    return name.endswith((".lora.A", ".lora.B"))


def _is_target(path: str, targets: str | Sequence[str]) -> bool:
    if targets == ALL_LINEAR:
        return path.rpartition(".")[2] not in ("lm_head", "score", "classifier", "qa_outputs")
    if isinstance(targets, str):
        return re.fullmatch(targets, path) is not None
    return any(path == t or path.endswith("." + t) for t in targets)


def merge(model: Layer) -> Layer:
    """Add the adapters' products to the weights. The results stay the same up to rounding and
    take no more time than without adapters; `unmerge` restores the weights exactly.

    Returns the model.
    """
    for path, adapter in _some(model, "merge").items():
        if adapter.original is not None:
            continue
        layer = owner_of(model, path)
        if isinstance(layer, KeptLinear):
            raise InvalidArgument(
                f"[merge] the weights of {path!r} are quantised blocks, which cannot hold the sum. "
                "Leave the adapters beside them, or merge into the unpacked model: "
                "zoo.merge(zoo.load_adapter(zoo.load(path)[0], folder))"
            )
        with paddle.no_grad():
            weight = layer.weight.astype("float32") + adapter.product()
            adapter.original = layer.weight.detach().clone()
            layer.weight.set_value(weight.astype(layer.weight.dtype))
    return model


def unmerge(model: Layer) -> Layer:
    """Put the weights of before `merge` back, beside the adapters. Returns the model."""
    for path, adapter in _some(model, "unmerge").items():
        if adapter.original is not None:
            owner_of(model, path).weight.set_value(adapter.original)
            adapter.original = None
    return model


def remove(model: Layer) -> Layer:
    """Take the adapters away; what was merged stays in the weights. Every parameter can be
    trained again. Returns the model."""
    for path in _some(model, "remove"):
        layer = owner_of(model, path)
        layer.lora_hook.remove()
        del layer.lora_hook
        del layer.lora
    for param in model.parameters():
        param.stop_gradient = False
    return model


def _some(model: Layer, what: str) -> dict[str, Adapter]:
    found = adapters(model)
    if not found:
        raise InvalidArgument(f"[{what}] the model has no adapters")
    return found
