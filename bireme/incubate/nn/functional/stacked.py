"""A whole stack of transformer layers as one function, for training and for generation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.core.views import assign
from bireme.incubate.nn.functional.common import attend, check_alone, check_mode
from bireme.incubate.nn.functional.decoding import hidden
from bireme.incubate.nn.functional.rotary import turn
from bireme.nn import functional as F

_NAME = "fused_multi_transformer"


def _gated(act: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def apply(x: Tensor) -> Tensor:
        gate, value = paddle.chunk(x, 2, -1)
        return act(gate) * value

    return apply


_ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "geglu": _gated(F.gelu), "swiglu": _gated(F.silu)}


@dataclass(frozen=True)
class _Setting:
    """What all layers of the stack have in common."""

    first: bool  # norms come first
    epsilon: float
    alpha: float
    norm: str
    rate: float
    training: bool
    mode: str
    rows_last: bool
    groups: int
    neox: bool

    def normed(self, x: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor:
        if self.norm == "layernorm":
            return F.layer_norm(x, x.shape[-1:], scale, bias, self.epsilon)
        out = F.rms_norm(x, x.shape[-1:], scale, self.epsilon)
        return out if bias is None else out + bias

    def dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, training=self.training, mode=self.mode)

    def added(self, x: Tensor, out: Tensor) -> Tensor:
        return (x if self.alpha == 1 else x * self.alpha) + self.dropped(out)


def _heads(
    x: Tensor, weight: Tensor, bias: Tensor | None, s: _Setting
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as [batch, heads, time, size]."""
    width = x.shape[-1]
    shape = list(weight.shape[:-1] if s.rows_last else weight.shape[1:])
    if weight.ndim != (3 if s.groups > 0 else 4) or width not in (
        weight.shape[-1 if s.rows_last else 0],
    ):
        raise ShapeMismatch(
            f"[{_NAME}] a qkv weight is [3, heads, size, width], [heads + 2 * groups, size, width] "
            "with gqa_group_size, and has the width first without trans_qkvw. Received: "
            f"{weight.shape} for x {x.shape}"
        )
    flat = weight.reshape([-1, width]).transpose([1, 0]) if s.rows_last else weight
    packed = F.linear(x, flat.reshape([width, -1]), None if bias is None else bias.reshape([-1]))
    size = shape[-1]
    packed = packed.reshape([x.shape[0], x.shape[1], -1, size]).transpose([0, 2, 1, 3])
    kv = s.groups if s.groups > 0 else packed.shape[1] // 3
    q, k, v = paddle.split(packed, [packed.shape[1] - 2 * kv, kv, kv], 1)
    return q, k, v


def _step(cache: Tensor, k: Tensor, v: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The cache with this step's key and value in it, and what each sample may see of it."""
    columns = paddle.arange(cache.shape[3]).reshape([1, 1, 1, -1])
    here = (columns == place).reshape([1, -1, 1, cache.shape[3], 1])
    whole = paddle.where(here, paddle.stack([k, v]).astype(cache.dtype), cache)
    assign(cache, whole, _NAME)
    return whole[0].astype(k.dtype), whole[1].astype(k.dtype), hidden(columns <= place)


def _filled(cache: Tensor, k: Tensor, v: Tensor) -> None:
    """The beginning of a cache is what has been computed so far."""
    length = k.shape[2]
    if length > cache.shape[3]:
        raise ShapeMismatch(
            f"[{_NAME}] the cache has room for {cache.shape[3]} places. Received: {length}"
        )
    rest = cache[:, :, :, length:]
    fresh = paddle.stack([k, v]).astype(cache.dtype)
    assign(cache, paddle.concat([fresh, rest], 3), _NAME)


def _widened(mask: Tensor, length: int) -> Tensor:
    missing = length - mask.shape[-1]
    if missing < 0:
        return mask[..., :length]
    return F.pad(mask, [0, 0, 0, 0, 0, 0, 0, missing]) if missing else mask


def fused_multi_transformer(
    x: Tensor,
    ln_scales: Sequence[Tensor],
    ln_biases: Sequence[Any] | None,
    qkv_weights: Sequence[Tensor],
    qkv_biases: Sequence[Any] | None,
    linear_weights: Sequence[Tensor],
    linear_biases: Sequence[Any] | None,
    ffn_ln_scales: Sequence[Tensor],
    ffn_ln_biases: Sequence[Any] | None,
    ffn1_weights: Sequence[Tensor],
    ffn1_biases: Sequence[Any] | None,
    ffn2_weights: Sequence[Tensor],
    ffn2_biases: Sequence[Any] | None,
    pre_layer_norm: bool = True,
    epsilon: float = 1e-5,
    residual_alpha: float = 1.0,
    cache_kvs: Sequence[Tensor] | None = None,
    beam_offset: Tensor | None = None,
    pre_caches: Sequence[Tensor] | None = None,
    seq_lens: Tensor | None = None,
    rotary_embs: Tensor | None = None,
    time_step: Tensor | None = None,
    attn_mask: Tensor | None = None,
    dropout_rate: float = 0.0,
    rotary_emb_dims: int = 0,
    activation: str = "gelu",
    training: bool = False,
    mode: str = "upscale_in_train",
    trans_qkvw: bool = True,
    ring_id: int = -1,
    norm_type: str = "layernorm",
    use_neox_rotary_style: bool = False,
    gqa_group_size: int = -1,
    name: str | None = None,
) -> Tensor | tuple[Any, ...]:
    """x [batch, time, width] through as many layers as there are weights.

    With cache_kvs, one [2, batch, key heads, longest, size] per layer, the result is (out,
    cache_kvs), and the caches change in place: without time_step the whole input goes to their
    beginning, after pre_caches; with time_step the input is one step, at that place or where
    seq_lens says. rotary_embs [2, batch, 1, time, size] holds cosines and sines.
    """
    _check(
        x, activation, norm_type, mode, ring_id, beam_offset, rotary_emb_dims, cache_kvs, time_step
    )
    s = _Setting(
        pre_layer_norm,
        epsilon,
        residual_alpha,
        norm_type,
        dropout_rate,
        training,
        mode,
        trans_qkvw,
        gqa_group_size,
        use_neox_rotary_style,
    )
    place = None
    if time_step is not None:
        given = time_step if seq_lens is None else seq_lens
        place = given.astype("int64").reshape([-1, 1, 1, 1]).expand([x.shape[0], 1, 1, 1])
    turned = None
    if rotary_embs is not None and rotary_emb_dims > 0:
        turned = _tables(rotary_embs, x.shape, place)
    act = _ACTIVATIONS[activation]

    def at(values: Sequence[Any] | None, i: int) -> Any:
        return None if not values else values[i]

    for i, weight in enumerate(qkv_weights):
        inner = s.normed(x, ln_scales[i], at(ln_biases, i)) if s.first else x
        q, k, v = _heads(inner, weight, at(qkv_biases, i), s)
        if turned is not None:
            q, k = (turn(t, turned[1], turned[0], not s.neox) for t in (q, k))
        if pre_caches is not None and place is None:
            k = paddle.concat([pre_caches[i][0].astype(k.dtype), k], 2)
            v = paddle.concat([pre_caches[i][1].astype(v.dtype), v], 2)
        added = None if attn_mask is None else attn_mask.astype("float32")
        if cache_kvs is not None:
            if place is None:
                _filled(cache_kvs[i], k, v)
            else:
                k, v, unseen = _step(cache_kvs[i], k, v, place)
                added = unseen if added is None else unseen + _widened(added, k.shape[2])
        out = attend(q, k, v, 1 / math.sqrt(q.shape[-1]), added, s.dropped)
        out = out.transpose([0, 2, 1, 3]).reshape([x.shape[0], x.shape[1], -1])
        out = s.added(x, F.linear(out, linear_weights[i], at(linear_biases, i)))
        if not s.first:
            out = s.normed(out, ln_scales[i], at(ln_biases, i))
        inner = s.normed(out, ffn_ln_scales[i], at(ffn_ln_biases, i)) if s.first else out
        inner = s.dropped(act(F.linear(inner, ffn1_weights[i], at(ffn1_biases, i))))
        x = s.added(out, F.linear(inner, ffn2_weights[i], at(ffn2_biases, i)))
        if not s.first:
            x = s.normed(x, ffn_ln_scales[i], at(ffn_ln_biases, i))
    return x if cache_kvs is None else (x, cache_kvs)


def _check(
    x: Tensor,
    activation: str,
    norm: str,
    mode: str,
    ring_id: int,
    beams: Any,
    dims: int,
    caches: Any,
    time_step: Any,
) -> None:
    check_mode(_NAME, mode)
    check_alone(_NAME, ring_id)
    if x.ndim != 3 or (time_step is not None and x.shape[1] != 1):
        raise ShapeMismatch(
            f"[{_NAME}] takes [batch, time, width], one step with time_step. Received: {x.shape}"
        )
    if activation not in _ACTIVATIONS or norm not in ("layernorm", "rmsnorm"):
        raise InvalidArgument(
            f"[{_NAME}] activation is one of {', '.join(_ACTIVATIONS)}, and norm_type layernorm or "
            f"rmsnorm. Received: {activation!r} and {norm!r}"
        )
    if beams is not None or dims > 1:
        raise InvalidArgument(
            f"[{_NAME}] works without beams and with one position per token. Received: "
            f"beam_offset={beams is not None}, rotary_emb_dims={dims}"
        )
    if time_step is not None and caches is None:
        raise InvalidArgument(f"[{_NAME}] time_step needs cache_kvs. Received: None")


def _tables(rotary: Tensor, shape: Sequence[int], place: Tensor | None) -> Tensor:
    """Cosines and sines of this call's places, [2, batch, 1, time, size]."""
    tables = rotary.reshape([2, shape[0], -1, rotary.shape[-1]])
    if place is not None and tables.shape[2] > 1:
        at = place.reshape([1, -1, 1, 1]).expand([2, shape[0], 1, rotary.shape[-1]])
        tables = paddle.take_along_axis(tables, at, 2)
    return tables[:, :, : shape[1]].unsqueeze(2)
