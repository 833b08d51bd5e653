"""Parts that several families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.generation import KVCache, causal_attention
from bireme.nn.initializer import Constant

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "relu_squared": lambda x: F.relu(x).square(),
    "gelu": F.gelu,
    "gelu_python": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate=True),
    "gelu_fast": lambda x: F.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate=True),
    "quick_gelu": lambda x: x * F.sigmoid(1.702 * x),
    "tanh": paddle.tanh,
    "sigmoid": F.sigmoid,
    "linear": lambda x: x,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function that a config's `hidden_act` names."""
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise InvalidArgument(
            f"[zoo] the activation {name!r} is not known. Known: {', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]


def linear(wide: int, out: int, bias: bool = True) -> nn.Linear:
    """A Linear with or without a bias."""
    return nn.Linear(wide, out, bias_attr=None if bias else False)


class OffsetRMSNorm(nn.Layer):
    """An RMS norm whose weight is the scale less one, as Gemma has it."""

    def __init__(self, size: int, epsilon: float):
        super().__init__()
        self.weight = self.create_parameter([size], default_initializer=Constant(0.0))
        self._size, self._epsilon = size, epsilon

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight.astype("float32") + 1.0
        return F.rms_norm(x.astype("float32"), self._size, scale, self._epsilon).astype(x.dtype)


def norm(kind: str, size: int, epsilon: float, bias: bool = True) -> nn.Layer:
    """A norm over `size` elements: "rms", "offset" (RMS whose weight lacks one) or "layer"."""
    if kind == "rms":
        return nn.RMSNorm(size, epsilon)
    if kind == "offset":
        return OffsetRMSNorm(size, epsilon)
    return nn.LayerNorm(size, epsilon, bias_attr=None if bias else False)


class GatedMLP(nn.Layer):
    """down(act(gate(x)) * up(x))."""

    def __init__(self, width: int, inner: int, act: str, bias: bool = False):
        super().__init__()
        self.gate_proj = linear(width, inner, bias)
        self.up_proj = linear(width, inner, bias)
        self.down_proj = linear(inner, width, bias)
        self._act = activation(act)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self._act(self.gate_proj(x)) * self.up_proj(x))


def attend(
    layer: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    cache: KVCache | None,
    **settings: Any,
) -> Tensor:
    """Causal attention, with the cache if there is one; [batch, tokens, heads * size]."""
    if cache is None:
        y = causal_attention(q, k, v, mask=mask, **settings)
    else:
        y = cache.attend(layer, q, k, v, **settings)
    return y.reshape([y.shape[0], y.shape[1], y.shape[2] * y.shape[3]])


def places(
    ids: Tensor, mask: Tensor | None, position_ids: Tensor | None, cache: KVCache | None
) -> tuple[Tensor, Tensor | None]:
    """(the positions [batch, tokens], how many tokens each sample has or None).

    With a mask the first token that is no padding has position 0, wherever the padding is.
    """
    if cache is not None:
        if mask is not None or position_ids is not None:
            raise InvalidArgument(
                "[zoo] with a cache, padding stands on the right and is described by "
                "cache.counts: leave attention_mask and position_ids out"
            )
        found = cache.places(ids.shape[0], ids.shape[1])
        if cache.counts is not None:
            start = 0 if cache.place is None else cache.place
            return found, cache.counts + start
        return found, found[:, -1] + 1
    if position_ids is not None:
        return position_ids, None
    if mask is None:
        columns = paddle.arange(ids.shape[1], dtype="int64")
        return columns.unsqueeze(0).expand([ids.shape[0], ids.shape[1]]), None
    counted = paddle.cumsum(mask.astype("int64"), 1)
    return paddle.clip(counted - 1, min=0), counted[:, -1]


def last_tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    """Of x [batch, tokens, ...] the last token that is no padding: [batch, ...]."""
    if mask is None:
        return x[:, -1]
    at = (paddle.arange(x.shape[1]) * mask.astype("int64")).argmax(1)
    at = at.reshape([-1] + [1] * (x.ndim - 1)).expand([x.shape[0], 1, *x.shape[2:]])
    return paddle.take_along_axis(x, at, 1).squeeze(1)
