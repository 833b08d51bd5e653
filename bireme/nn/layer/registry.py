"""Where a Layer keeps its parameters, buffers and sublayers."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

from bireme.nn.layer import layer_changes

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor


_MISSING = object()
_hook_ids = itertools.count()


class Registry(dict):
    """A dict whose entries also show as plain attributes of the layer that owns it.

    `layer.weight` is then an ordinary attribute look-up, which in a training step is several
    times faster than going through `__getattr__`, while code that edits `layer._parameters`
    directly keeps working. The owner is held weakly, so a dropped model is freed at once.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: object, items: dict[str, Any] | None = None):
        super().__init__()
        self._owner = weakref.ref(owner)
        if items:
            self.update(items)

    def __setitem__(self, name: str, value: Any) -> None:
        layer_changes.count += 1
        super().__setitem__(name, value)
        owner = self._owner()
        if owner is not None:
            owner.__dict__[name] = value

    def __delitem__(self, name: str) -> None:
        layer_changes.count += 1
        super().__delitem__(name)
        owner = self._owner()
        if owner is not None:
            owner.__dict__.pop(name, None)

    def pop(self, name: str, default: Any = _MISSING) -> Any:
        if name in self:
            value = self[name]
            del self[name]
            return value
        if default is _MISSING:
            raise KeyError(name)
        return default

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Tensor | None = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Registry:
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        return (dict, (dict(self),))


class HookRemover:
    """Returned when a hook is registered; `remove()` takes it off."""

    def __init__(self, hooks: dict[int, Any], hook: object, *, first: bool):
        layer_changes.count += 1
        self._hooks = hooks
        self._id = next(_hook_ids)
        if first:
            later = dict(hooks)
            hooks.clear()
            hooks[self._id] = hook
            hooks.update(later)
        else:
            hooks[self._id] = hook

    def remove(self) -> None:
        layer_changes.count += 1
        self._hooks.pop(self._id, None)
