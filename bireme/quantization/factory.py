"""A quanter's class with its arguments: each layer gets an instance of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from bireme.nn import Layer


class QuanterFactory:
    """Arguments, and the class that `_get_class` names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args
        self._kwargs = kwargs

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    def _get_class(self) -> Callable[..., Any]:
        raise TypeError(f"{type(self).__name__} must define _get_class()")

    def _instance(self, layer: Layer) -> Any:
        """A new quanter for a layer."""
        return self._get_class()(layer, *self._args, **self._kwargs)

    def __repr__(self) -> str:
        shown = [str(a) for a in self._args] + [f"{k}={v}" for k, v in self._kwargs.items()]
        return f"{type(self).__name__}({','.join(shown)})"


ObserverFactory = QuanterFactory


def quanter(class_name: str) -> Callable[[type], type]:
    """Declare a factory called `class_name` in the module of the decorated quanter.

    @quanter("MyQuanter")
    class MyQuanterLayer(BaseQuanter):
        def __init__(self, layer, bits=8): ...

    config = QuantConfig(activation=MyQuanter(bits=4), weight=None)
    """

    def declare(target: type) -> type:
        module = sys.modules[target.__module__]
        made = type(
            class_name,
            (QuanterFactory,),
            {"_get_class": lambda self: target, "__module__": target.__module__},
        )
        made.__doc__ = f"Makes a {target.__name__} for each layer."
        setattr(module, class_name, made)
        listed = getattr(module, "__all__", None)
        if isinstance(listed, list):
            listed.append(class_name)
        return target

    return declare
