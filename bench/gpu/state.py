"""What a peer's process tells about its device."""

from __future__ import annotations

from typing import Any


def wait_for(tensor: Any) -> None:
    """Until the device has computed one of our tensors; nothing is copied back."""
    array = tensor._array()
    if hasattr(array, "block_until_ready"):  # the cold tier's arrays are NumPy's, and there
        array.block_until_ready()


def peak_gib(peer: str) -> float | None:
    """The most memory in use on the GPU at once so far; None where there is no GPU."""
    if peer == "bireme":
        import jax

        stats = jax.devices()[0].memory_stats()
        return stats["peak_bytes_in_use"] / 2**30 if stats else None
    import torch

    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None


def device_name(peer: str) -> str:
    if peer == "bireme":
        import jax

        return jax.devices()[0].device_kind
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
