"""Kernels that replace plain lowerings where they are faster. See `bireme.core.kernels`."""

from __future__ import annotations

from functools import cache
from importlib import import_module

PATCH_PRODUCT = "patch_product"  # convolutions that are products (gpu_patches)

MODULES = (
    "cpu_attention", "cpu_bfloat16", "cpu_conv", "cpu_conv_plain", "cpu_decode", "cpu_kept",
    "cpu_layer_norm", "cpu_linear", "cpu_norm", "cpu_packed", "cpu_pooling", "cpu_products",
    "cpu_quantised", "cpu_rnn", "cpu_sums_plain", "cpu_winograd_plain", "gpu_attention",
    "gpu_attention_open", "gpu_batch_norm", "gpu_decode", "gpu_decoder", "gpu_gate", "gpu_linear",
    "gpu_loss", "gpu_matmul", "gpu_norm", "gpu_patches", "gpu_pooling", "gpu_slices", "gpu_sums",
)  # fmt: skip


# Those whose bodies also run in the cold tier.
DIRECT = (
    "cpu_attention", "cpu_conv", "cpu_decode", "cpu_linear", "cpu_norm", "cpu_pooling",
    "cpu_products", "cpu_quantised", "cpu_rnn",
)  # fmt: skip


@cache
def install_direct() -> None:
    """Register what the cold tier uses, once; called before its first run."""
    for name in DIRECT:
        import_module(f"bireme.kernels.{name}")


@cache
def install() -> None:
    """Register every kernel of this package, once; called before a compilation."""
    for name in MODULES:
        import_module(f"bireme.kernels.{name}")
