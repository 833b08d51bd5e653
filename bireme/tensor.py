"""paddle.tensor: the functions of `paddle` under their older address, and a function itself."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import bireme
from bireme.api.types import DTypeLike, PlaceLike, Shape
from bireme.ops.tensor_array import array_length, array_read, array_write, create_array

_arrays = (array_length, array_read, array_write, create_array)
_own = [*(f.__name__ for f in _arrays), "fill_constant"]
__all__ = sorted([*vars(bireme)["_functions"], *_own])  # pyright: ignore[reportUnsupportedDunderAll]
globals().update({name: getattr(bireme, name) for name in vars(bireme)["_functions"]})


def fill_constant(
    shape: Shape,
    dtype: DTypeLike,
    value: float | complex | bireme.Tensor,
    force_cpu: bool = False,
    out: bireme.Tensor | None = None,
    place: PlaceLike | None = None,
    name: str | None = None,
) -> bireme.Tensor:
    """`full`, with the older order of arguments; XLA places constants, also with `force_cpu`."""
    made = bireme.full(shape, value, dtype)
    return made if out is None else bireme.assign(made, out)


class _TensorModule(ModuleType):
    def __call__(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """A new tensor made of data, a tensor's too: `paddle.tensor([1.0, 2.0])`."""
        if isinstance(data, bireme.Tensor):
            data = bireme.to_tensor(data)
        return bireme.as_tensor(data, *args, **kwargs)


sys.modules[__name__].__class__ = _TensorModule
