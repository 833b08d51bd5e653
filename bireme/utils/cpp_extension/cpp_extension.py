"""paddle.utils.cpp_extension.cpp_extension: the toolkit that ops for GPUs would be built with."""

from __future__ import annotations

CUDA_HOME: str | None = None  # ops of users are built for CPUs

__all__ = ["CUDA_HOME"]
