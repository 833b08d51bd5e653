"""An optimizer around another one: reads and writes go to the inner optimizer."""

from __future__ import annotations

from typing import Any


class WrappedOptimizer:
    """The base of optimizers that change how another one's step is done. It keeps the inner
    optimizer as `_inner_opt`, and attributes of its own in `__dict__`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner_opt"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_inner_opt"], name, value)

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """An optimizer for `isinstance`, of the inner one's kind."""
        return type(self.__dict__["_inner_opt"])
