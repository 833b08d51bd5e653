"""paddle.nn.functional.flash_attention: attention by the names of its fused kernels."""

from __future__ import annotations

from bireme.nn.functional import (
    flash_attn_qkvpacked,
    flash_attn_varlen_qkvpacked,
    flashmask_attention,
    scaled_dot_product_attention,
)
from bireme.ops.attention import flash_attention, flash_attn_unpadded

__all__ = [
    "flash_attention",
    "flash_attn_qkvpacked",
    "flash_attn_unpadded",
    "flash_attn_varlen_qkvpacked",
    "flashmask_attention",
    "scaled_dot_product_attention",
]
