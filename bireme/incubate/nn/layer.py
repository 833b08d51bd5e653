"""The fused functions as layers."""

from __future__ import annotations

from typing import Any

from bireme.core.dtype import get_default_dtype
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.incubate.nn import functional as F
from bireme.nn import Layer
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Constant
from bireme.nn.layer.transformer import _additive_mask, _attr_list


def _positive(layer: str, **sizes: int) -> None:
    for name, value in sizes.items():
        if value <= 0:
            raise InvalidArgument(f"[{layer}] {name} must be positive. Received: {value}")


def _alone(layer: str, nranks: int, ring_id: int) -> None:
    if nranks != 1 or ring_id != -1:
        raise InvalidArgument(
            f"[{layer}] there are no communicator rings; shard the layer with "
            "paddle.distributed.shard_layer instead. Received: "
            f"nranks={nranks}, ring_id={ring_id}"
        )


class FusedLinear(Layer):
    """x @ weight + bias; the weight is [out, in] with transpose_weight."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        transpose_weight: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        shape = [out_features, in_features] if transpose_weight else [in_features, out_features]
        self.weight = self.create_parameter(shape, weight_attr)
        self.bias = self.create_parameter([out_features], bias_attr, is_bias=True)
        self.transpose_weight = transpose_weight
        self.name = name

    def forward(self, input: Tensor) -> Tensor:
        return F.fused_linear(input, self.weight, self.bias, self.transpose_weight)


class FusedDropoutAdd(Layer):
    """dropout(x) + y."""

    def __init__(
        self, p: float = 0.5, mode: str = "upscale_in_train", name: str | None = None
    ) -> None:
        super().__init__()
        self.p, self.mode, self.name = p, mode, name

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.fused_dropout_add(x, y, self.p, self.training, self.mode)

    def extra_repr(self) -> str:
        name = f", name={self.name}" if self.name else ""
        return f"p={self.p}, mode={self.mode}{name}"


class FusedBiasDropoutResidualLayerNorm(Layer):
    """layer_norm(residual + dropout(x + bias))."""

    def __init__(
        self,
        embed_dim: int,
        dropout_rate: float = 0.5,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        epsilon: float = 1e-5,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        _positive("FusedBiasDropoutResidualLayerNorm", embed_dim=embed_dim)
        self.embed_dim, self.dropout_rate, self._epsilon = embed_dim, dropout_rate, epsilon
        self.linear_bias = self.create_parameter([embed_dim], bias_attr, is_bias=True)
        self.ln_scale = self.create_parameter(
            [embed_dim], weight_attr, default_initializer=Constant(1.0)
        )
        self.ln_bias = self.create_parameter([embed_dim], bias_attr, is_bias=True)
        self.name = name

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return F.fused_bias_dropout_residual_layer_norm(
            x,
            residual,
            self.linear_bias,
            self.ln_scale,
            self.ln_bias,
            self.dropout_rate,
            self._epsilon,
            self.training,
        )

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, dropout_rate={self.dropout_rate}"


class FusedMultiHeadAttention(Layer):
    """Self-attention with its residual and norm."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout_rate: float = 0.5,
        attn_dropout_rate: float = 0.5,
        kdim: int | None = None,
        vdim: int | None = None,
        normalize_before: bool = False,
        need_weights: bool = False,
        qkv_weight_attr: ParamAttrLike | None = None,
        qkv_bias_attr: ParamAttrLike | None = None,
        linear_weight_attr: ParamAttrLike | None = None,
        linear_bias_attr: ParamAttrLike | None = None,
        pre_ln_scale_attr: ParamAttrLike | None = None,
        pre_ln_bias_attr: ParamAttrLike | None = None,
        ln_scale_attr: ParamAttrLike | None = None,
        ln_bias_attr: ParamAttrLike | None = None,
        epsilon: float = 1e-5,
        nranks: int = 1,
        ring_id: int = -1,
        transpose_qkv_wb: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        _positive("FusedMultiHeadAttention", embed_dim=embed_dim, num_heads=num_heads)
        _alone("FusedMultiHeadAttention", nranks, ring_id)
        if embed_dim % num_heads:
            raise InvalidArgument(
                "[FusedMultiHeadAttention] embed_dim must be a multiple of num_heads. Received: "
                f"{embed_dim} and {num_heads}"
            )
        if need_weights:
            raise InvalidArgument(
                "[FusedMultiHeadAttention] Paddle's fused attention returns no weights either. "
                "Received: need_weights=True; use nn.MultiHeadAttention"
            )
        if kdim not in (None, embed_dim) or vdim not in (None, embed_dim):
            raise InvalidArgument(
                "[FusedMultiHeadAttention] it is self-attention: keys and values have embed_dim. "
                f"Received: kdim={kdim}, vdim={vdim}"
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim, self.need_weights = kdim, vdim, need_weights
        self.normalize_before, self.transpose_qkv_wb = normalize_before, transpose_qkv_wb
        self.dropout_rate, self.attn_dropout_rate = dropout_rate, attn_dropout_rate
        self._epsilon, self.name = epsilon, name
        shape = [3, num_heads, self.head_dim]
        if transpose_qkv_wb:
            self.qkv_weight = self.create_parameter([embed_dim, 3 * embed_dim], qkv_weight_attr)
            self.qkv_bias = self.create_parameter([3 * embed_dim], qkv_bias_attr, is_bias=True)
        else:
            self.qkv_weight = self.create_parameter([*shape, embed_dim], qkv_weight_attr)
            self.qkv_bias = self.create_parameter(shape, qkv_bias_attr, is_bias=True)
        self.linear_weight = self.create_parameter([embed_dim, embed_dim], linear_weight_attr)
        self.linear_bias = self.create_parameter([embed_dim], linear_bias_attr, is_bias=True)
        self.pre_ln_scale = self.pre_ln_bias = self.ln_scale = self.ln_bias = None
        one = Constant(1.0)
        if normalize_before:
            self.pre_ln_scale = self.create_parameter(
                [embed_dim], pre_ln_scale_attr, default_initializer=one
            )
            self.pre_ln_bias = self.create_parameter([embed_dim], pre_ln_bias_attr, is_bias=True)
        else:
            self.ln_scale = self.create_parameter(
                [embed_dim], ln_scale_attr, default_initializer=one
            )
            self.ln_bias = self.create_parameter([embed_dim], ln_bias_attr, is_bias=True)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        attn_mask: Tensor | None = None,
        cache: Tensor | None = None,
    ) -> Tensor | tuple[Any, ...]:
        """Attend to `query` itself, as Paddle's fused layer does whatever key and value are."""
        for name, given in (("key", key), ("value", value)):
            if given is not None and given is not query:
                raise InvalidArgument(
                    f"[FusedMultiHeadAttention] it is self-attention. Received: another {name}; "
                    "use nn.MultiHeadAttention"
                )
        return F.fused_multi_head_attention(
            query,
            self.qkv_weight,
            self.linear_weight,
            self.normalize_before,
            self.pre_ln_scale,
            self.pre_ln_bias,
            self.ln_scale,
            self.ln_bias,
            self._epsilon,
            self.qkv_bias,
            self.linear_bias,
            cache,
            _additive_mask(attn_mask, query.dtype),
            self.dropout_rate,
            self.attn_dropout_rate,
            self._epsilon,
            self.training,
            num_heads=self.num_heads,
            transpose_qkv_wb=self.transpose_qkv_wb,
        )

    def extra_repr(self) -> str:
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, "
            f"dropout_rate={self.dropout_rate}, attn_dropout_rate={self.attn_dropout_rate}, "
            f"normalize_before={self.normalize_before}"
        )


class FusedFeedForward(Layer):
    """The feed-forward block of a transformer with its residual and norm."""

    def __init__(
        self,
        d_model: int,
        dim_feedforward: int,
        dropout_rate: float = 0.1,
        epsilon: float = 1e-5,
        activation: str = "relu",
        act_dropout_rate: float | None = None,
        normalize_before: bool = False,
        linear1_weight_attr: ParamAttrLike | None = None,
        linear1_bias_attr: ParamAttrLike | None = None,
        linear2_weight_attr: ParamAttrLike | None = None,
        linear2_bias_attr: ParamAttrLike | None = None,
        ln1_scale_attr: ParamAttrLike | None = None,
        ln1_bias_attr: ParamAttrLike | None = None,
        ln2_scale_attr: ParamAttrLike | None = None,
        ln2_bias_attr: ParamAttrLike | None = None,
        nranks: int = 1,
        ring_id: int = -1,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        _positive("FusedFeedForward", d_model=d_model, dim_feedforward=dim_feedforward)
        _alone("FusedFeedForward", nranks, ring_id)
        self._d_model, self._dim_feedforward = d_model, dim_feedforward
        self._dropout_rate = dropout_rate
        self._act_dropout_rate = dropout_rate if act_dropout_rate is None else act_dropout_rate
        self._act_method, self._normalize_before = activation, normalize_before
        self._epsilon, self.name = epsilon, name
        self._linear1_weight = self.create_parameter(
            [d_model, dim_feedforward], linear1_weight_attr
        )
        self._linear1_bias = self.create_parameter(
            [dim_feedforward], linear1_bias_attr, is_bias=True
        )
        self._linear2_weight = self.create_parameter(
            [dim_feedforward, d_model], linear2_weight_attr
        )
        self._linear2_bias = self.create_parameter([d_model], linear2_bias_attr, is_bias=True)
        self._ln1_scale = self._ln1_bias = self._ln2_scale = self._ln2_bias = None
        one = Constant(1.0)
        if normalize_before:
            self._ln1_scale = self.create_parameter(
                [d_model], ln1_scale_attr, default_initializer=one
            )
            self._ln1_bias = self.create_parameter([d_model], ln1_bias_attr, is_bias=True)
        else:
            self._ln2_scale = self.create_parameter(
                [d_model], ln2_scale_attr, default_initializer=one
            )
            self._ln2_bias = self.create_parameter([d_model], ln2_bias_attr, is_bias=True)

    def forward(self, src: Tensor, cache: Tensor | None = None) -> Tensor:
        return F.fused_feedforward(
            src,
            self._linear1_weight,
            self._linear2_weight,
            self._linear1_bias,
            self._linear2_bias,
            self._ln1_scale,
            self._ln1_bias,
            self._ln2_scale,
            self._ln2_bias,
            self._act_dropout_rate,
            self._dropout_rate,
            self._act_method,
            self._epsilon,
            self._epsilon,
            self._normalize_before,
            self.training,
        )

    def extra_repr(self) -> str:
        return (
            f"d_model={self._d_model}, dim_feedforward={self._dim_feedforward}, "
            f"dropout_rate={self._dropout_rate}, activation={self._act_method}, "
            f"normalize_before={self._normalize_before}"
        )


class FusedTransformerEncoderLayer(Layer):
    """Fused attention followed by a fused feed-forward block."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout_rate: float = 0.1,
        activation: str = "relu",
        attn_dropout_rate: float | None = None,
        act_dropout_rate: float | None = None,
        normalize_before: bool = False,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
    ) -> None:
        super().__init__()
        self.normalize_before = normalize_before
        weights, biases = _attr_list(weight_attr, 2), _attr_list(bias_attr, 2)
        first = {"weight": weights[0], "bias": biases[0]}
        self.fused_attn = FusedMultiHeadAttention(
            d_model,
            nhead,
            dropout_rate,
            dropout_rate if attn_dropout_rate is None else attn_dropout_rate,
            normalize_before=normalize_before,
            qkv_weight_attr=first["weight"],
            qkv_bias_attr=first["bias"],
            linear_weight_attr=first["weight"],
            linear_bias_attr=first["bias"],
            pre_ln_scale_attr=first["weight"],
            pre_ln_bias_attr=first["bias"],
            ln_scale_attr=first["weight"],
            ln_bias_attr=first["bias"],
        )
        self.ffn = FusedFeedForward(
            d_model,
            dim_feedforward,
            dropout_rate,
            activation=activation,
            act_dropout_rate=act_dropout_rate,
            normalize_before=normalize_before,
            linear1_weight_attr=weights[1],
            linear1_bias_attr=biases[1],
            linear2_weight_attr=weights[1],
            linear2_bias_attr=biases[1],
        )

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, cache: Any = None
    ) -> Tensor | tuple[Any, ...]:
        if cache is None:
            return self.ffn(self.fused_attn(src, attn_mask=src_mask))
        attended, longer = self.fused_attn(src, attn_mask=src_mask, cache=cache)
        return self.ffn(attended), longer
