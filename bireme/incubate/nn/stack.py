"""A stack of fused transformer layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core.dtype import get_default_dtype
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.incubate.nn import functional as F
from bireme.incubate.nn.layer import _alone, _positive
from bireme.nn import Layer
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Constant


class FusedMultiTransformer(Layer):
    """A stack of transformer layers; see `functional.fused_multi_transformer`.

    As in Paddle, a bias exists only where its attribute is given, and parameters are kept by
    their own names.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dim_feedforward: int,
        dropout_rate: float = 0.0,
        activation: str = "gelu",
        normalize_before: bool = True,
        ln_scale_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        ln_bias_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        qkv_weight_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        qkv_bias_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        linear_weight_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        linear_bias_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        ffn_ln_scale_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        ffn_ln_bias_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        ffn1_weight_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        ffn1_bias_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        ffn2_weight_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        ffn2_bias_attrs: ParamAttrLike | Sequence[ParamAttrLike] | None = None,
        epsilon: float = 1e-5,
        residual_alpha: float = 1.0,
        num_layers: int = -1,
        nranks: int = 1,
        trans_qkvw: bool = True,
        ring_id: int = -1,
        norm_type: str = "layernorm",
        use_neox_rotary_style: bool = False,
        gqa_group_size: int = -1,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        layer = "FusedMultiTransformer"
        _positive(layer, embed_dim=embed_dim, num_heads=num_heads, dim_feedforward=dim_feedforward)
        _alone(layer, nranks, ring_id)
        if isinstance(qkv_weight_attrs, list | tuple):
            num_layers = len(qkv_weight_attrs)
        _positive(layer, num_layers=num_layers)
        if embed_dim % num_heads:
            raise InvalidArgument(
                f"[{layer}] embed_dim must be a multiple of num_heads. Received: {embed_dim} and "
                f"{num_heads}"
            )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.normalize_before, self.dropout_rate = normalize_before, dropout_rate
        self.activation, self.name = activation, name
        self._epsilon, self._residual_alpha, self._norm_type = epsilon, residual_alpha, norm_type
        self._trans_qkvw, self._use_neox_rotary_style = trans_qkvw, use_neox_rotary_style
        self._gqa_group_size, self._dim_feedforward = gqa_group_size, dim_feedforward
        grouped = gqa_group_size > 0
        heads = [num_heads + 2 * gqa_group_size] if grouped else [3, num_heads]
        heads = [*heads, self.head_dim]
        inner = dim_feedforward * (2 if activation.endswith("glu") else 1)
        qkv = [*heads, embed_dim] if trans_qkvw else [embed_dim, *heads]
        wide = "float32" if norm_type == "layernorm" else get_default_dtype()
        ones: dict[str, Any] = {"dtype": wide, "default_initializer": Constant(1.0)}
        zeros = {"dtype": wide, "is_bias": True}
        plan: dict[str, tuple[Any, list[int], dict[str, Any]]] = {
            "ln_scales": (ln_scale_attrs, [embed_dim], ones),
            "ln_biases": (ln_bias_attrs, [embed_dim], zeros),
            "qkv_weights": (qkv_weight_attrs, qkv, {}),
            "qkv_biases": (qkv_bias_attrs, heads, {"is_bias": True}),
            "linear_weights": (linear_weight_attrs, [embed_dim, embed_dim], {}),
            "linear_biases": (linear_bias_attrs, [embed_dim], {"is_bias": True}),
            "ffn_ln_scales": (ffn_ln_scale_attrs, [embed_dim], ones),
            "ffn_ln_biases": (ffn_ln_bias_attrs, [embed_dim], zeros),
            "ffn1_weights": (ffn1_weight_attrs, [embed_dim, inner], {}),
            "ffn1_biases": (ffn1_bias_attrs, [inner], {"is_bias": True}),
            "ffn2_weights": (ffn2_weight_attrs, [dim_feedforward, embed_dim], {}),
            "ffn2_biases": (ffn2_bias_attrs, [embed_dim], {"is_bias": True}),
        }
        self._kinds = tuple(plan)
        for kind in plan:
            setattr(self, kind, [])
        for i in range(num_layers):
            for kind, (attrs, shape, options) in plan.items():
                attr = attrs[i] if isinstance(attrs, list | tuple) else attrs
                made = None
                if attr or not kind.endswith("biases"):
                    made = self.create_parameter(shape, attr, **options)
                    self._parameters[made.name] = made
                getattr(self, kind).append(made)

    def forward(
        self,
        src: Tensor,
        attn_mask: Tensor | None = None,
        caches: Sequence[Tensor] | None = None,
        pre_caches: Sequence[Tensor] | None = None,
        rotary_embs: Tensor | None = None,
        rotary_emb_dims: int = 0,
        beam_offset: Tensor | None = None,
        seq_lens: Tensor | None = None,
        time_step: Tensor | None = None,
    ) -> Tensor | tuple[Any, ...]:
        if caches is not None and len(caches) != len(self.qkv_weights):
            raise InvalidArgument(
                f"[FusedMultiTransformer] there is one cache per layer. Received: {len(caches)} "
                f"for {len(self.qkv_weights)} layers"
            )
        weights: list[Any] = [getattr(self, kind) for kind in self._kinds]
        return F.fused_multi_transformer(
            src,
            *weights,
            pre_layer_norm=self.normalize_before,
            epsilon=self._epsilon,
            residual_alpha=self._residual_alpha,
            cache_kvs=caches,
            beam_offset=beam_offset,
            pre_caches=pre_caches,
            seq_lens=seq_lens,
            rotary_embs=rotary_embs,
            time_step=time_step,
            attn_mask=attn_mask,
            dropout_rate=self.dropout_rate,
            rotary_emb_dims=rotary_emb_dims,
            activation=self.activation,
            training=self.training,
            trans_qkvw=self._trans_qkvw,
            norm_type=self._norm_type,
            use_neox_rotary_style=self._use_neox_rotary_style,
            gqa_group_size=self._gqa_group_size,
        )
