"""Asking for fusions by name. XLA fuses whatever follows a product in any program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bireme.core.tensor import Tensor
from bireme.ops.linalg import matmul as _matmul


@contextmanager
def by_register() -> Iterator[None]:
    """Fuse what is done inside the block, as XLA does everywhere."""
    yield


def matmul(x: Tensor, w: Tensor, epilogue: Callable[[Tensor], Any], **kwargs: Any) -> Any:
    """`epilogue(x @ w)`; further arguments are `paddle.matmul`'s."""
    product = _matmul(x, w, **kwargs)
    with by_register():
        return epilogue(product)


__all__ = ["by_register", "matmul"]
