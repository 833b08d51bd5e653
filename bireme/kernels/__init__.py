"""Kernels that replace plain lowerings where they are faster. See `bireme.core.kernels`."""

from __future__ import annotations

from importlib import import_module

from bireme.kernels import cpu_heap

MODULES = (
    "cpu_attention", "cpu_bfloat16", "cpu_conv", "cpu_conv_plain", "cpu_kept", "cpu_layer_norm",
    "cpu_linear", "cpu_norm", "cpu_packed", "cpu_pooling", "cpu_rnn", "cpu_sums_plain",
    "cpu_winograd_plain", "gpu_attention", "gpu_batch_norm", "gpu_decode", "gpu_decoder",
    "gpu_gate", "gpu_linear", "gpu_loss", "gpu_matmul", "gpu_norm", "gpu_pooling", "gpu_slices",
    "gpu_sums",
)  # fmt: skip


def install() -> None:
    """Register every kernel of this package; called once, before the first compilation."""
    cpu_heap.apply()
    for name in MODULES:
        import_module(f"bireme.kernels.{name}")
