"""Sharing tensors with other libraries without a copy."""

from bireme.ops.conversion import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
