"""`paddle.incubate.nn.functional`: whole blocks of networks as single functions.

They are compositions: the compiler fuses what Paddle wrote by hand.
"""

from __future__ import annotations

from bireme.api.keywords import explained as _explained
from bireme.incubate.nn.functional.decoding import (
    blha_get_max_len,
    int_bincount,
    masked_multihead_attention,
    variable_length_memory_efficient_attention,
)
from bireme.incubate.nn.functional.experts import (
    build_src_rank_and_local_expert_id,
    cal_aux_loss,
    expand_modality_expert_id,
    moe_combine,
    moe_gate_dispatch,
    moe_gate_dispatch_partial_nosoftmaxtopk,
    moe_gate_dispatch_permute,
)
from bireme.incubate.nn.functional.float8 import (
    fp8_gemm_blockwise,
    fp8_quant_blockwise,
    fused_stack_transpose_quant,
    fused_transpose_split_quant,
    fused_transpose_wlch_split_quant,
    fused_weighted_swiglu_act_quant,
    moe_gate_dispatch_and_quant,
)
from bireme.incubate.nn.functional.gradients import (
    cross_entropy_with_softmax_bwd_w_downcast,
    embedding_grad_add_to_,
    fused_act_dequant,
    fused_swiglu_weighted_bwd,
)
from bireme.incubate.nn.functional.linear import (
    fused_bias_act,
    fused_bias_dropout_residual_layer_norm,
    fused_dropout_add,
    fused_linear,
    fused_linear_activation,
    fused_matmul_bias,
)
from bireme.incubate.nn.functional.norm import (
    fast_ln,
    fast_rms_norm,
    fused_layer_norm,
    fused_rms_norm,
    fused_rms_norm_ext,
)
from bireme.incubate.nn.functional.paged import block_multihead_attention
from bireme.incubate.nn.functional.rotary import fused_rotary_position_embedding
from bireme.incubate.nn.functional.stacked import fused_multi_transformer
from bireme.incubate.nn.functional.transformer import (
    fused_feedforward,
    fused_multi_head_attention,
)
from bireme.nn.functional import swiglu

__all__ = [
    "blha_get_max_len",
    "block_multihead_attention",
    "build_src_rank_and_local_expert_id",
    "cal_aux_loss",
    "cross_entropy_with_softmax_bwd_w_downcast",
    "embedding_grad_add_to_",
    "expand_modality_expert_id",
    "fast_ln",
    "fast_rms_norm",
    "fp8_gemm_blockwise",
    "fp8_quant_blockwise",
    "fused_act_dequant",
    "fused_bias_act",
    "fused_bias_dropout_residual_layer_norm",
    "fused_dropout_add",
    "fused_feedforward",
    "fused_layer_norm",
    "fused_linear",
    "fused_linear_activation",
    "fused_matmul_bias",
    "fused_multi_head_attention",
    "fused_multi_transformer",
    "fused_rms_norm",
    "fused_rms_norm_ext",
    "fused_rotary_position_embedding",
    "fused_stack_transpose_quant",
    "fused_swiglu_weighted_bwd",
    "fused_transpose_split_quant",
    "fused_transpose_wlch_split_quant",
    "fused_weighted_swiglu_act_quant",
    "int_bincount",
    "masked_multihead_attention",
    "moe_combine",
    "moe_gate_dispatch",
    "moe_gate_dispatch_and_quant",
    "moe_gate_dispatch_partial_nosoftmaxtopk",
    "moe_gate_dispatch_permute",
    "swiglu",
    "variable_length_memory_efficient_attention",
]

globals().update(_explained({name: globals()[name] for name in __all__}))
