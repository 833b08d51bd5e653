"""paddle.tensor: the functions of `paddle` under their older address, and a function itself."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import bireme

__all__ = sorted(vars(bireme)["_functions"])  # pyright: ignore[reportUnsupportedDunderAll]
globals().update({name: getattr(bireme, name) for name in __all__})


class _TensorModule(ModuleType):
    def __call__(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """A new tensor made of data, a tensor's too: `paddle.tensor([1.0, 2.0])`."""
        if isinstance(data, bireme.Tensor):
            data = bireme.to_tensor(data)
        return bireme.as_tensor(data, *args, **kwargs)


sys.modules[__name__].__class__ = _TensorModule
