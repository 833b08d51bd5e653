"""Hooks on what is kept for the backward pass: put it elsewhere, get it back when needed.

def to_disk(x): ...
def from_disk(path): ...
with paddle.autograd.saved_tensors_hooks(to_disk, from_disk):
    loss = model(x)
loss.backward()
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bireme.core.autograd import GradNode
from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.core.trace import Value, state


class _Hooks:
    """The hooks of one block that was entered."""

    __slots__ = ("pack", "unpack")

    def __init__(self, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]):
        self.pack = pack
        self.unpack = unpack


class _Active(threading.local):
    """The hooks of this thread, innermost last."""

    def __init__(self) -> None:
        self.hooks: list[_Hooks] = []


_active = _Active()
_plain_init, _plain_apply = GradNode.__init__, GradNode.apply


class Packed:
    """What a pack hook made of a saved tensor."""

    __slots__ = ("aval", "content", "unpack")

    def __init__(self, value: Value, stop_gradient: bool, hooks: _Hooks):
        self.aval = value.aval
        self.unpack = hooks.unpack
        shown = Tensor(value, None)
        shown.stop_gradient = stop_gradient
        self.content = _off_the_tape(hooks.pack, shown)

    def open(self) -> Tensor:
        """The tensor again."""
        found = _off_the_tape(self.unpack, self.content)
        if not isinstance(found, Tensor):
            raise TypeMismatch(
                f"[saved_tensors_hooks] unpack_hook must return a Tensor. Received: "
                f"{type(found).__name__}"
            )
        if found._value.aval is not self.aval:
            raise ShapeMismatch(
                f"[saved_tensors_hooks] unpack_hook must return what was packed: {self.aval}. "
                f"Received: {found._value.aval}"
            )
        return found


def _off_the_tape(function: Callable[[Any], Any], argument: Any) -> Any:
    tape, before = state.trace.tape, _active.hooks
    try:
        state.trace.tape, _active.hooks = False, []
        return function(argument)
    finally:
        _active.hooks = before
        state.trace.tape = tape


def _unpacking_apply(self: GradNode, grads: list[Any], create_graph: bool) -> Any:
    packed = self.saved
    if packed is None or Packed not in map(type, packed):
        return _plain_apply(self, grads, create_graph)
    self.saved = tuple([s.open()._value if s.__class__ is Packed else s for s in packed])
    try:
        return _plain_apply(self, grads, create_graph)
    finally:
        self.saved = packed


def _packing_init(
    self: GradNode, call: Any, edges: tuple[Any, ...], saved: tuple[Any, ...]
) -> None:
    hooks = _active.hooks
    if hooks and any(s.__class__ is Value for s in saved):
        saved = tuple(
            [
                # An input (at >= 0) wants a gradient if something leads to it; a result does.
                Packed(s, at >= 0 and edges[at] is None, hooks[-1]) if s.__class__ is Value else s
                for s, at in zip(saved, call.saved_at, strict=True)
            ]
        )
    _plain_init(self, call, edges, saved)


class saved_tensors_hooks:  # noqa: N801 (Paddle's name)
    """While open, `pack_hook(tensor)` is called for each tensor that an op keeps for its
    gradient, and what it returns is kept instead; `unpack_hook` makes it a tensor again."""

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        self._entered: list[_Hooks] = []

    def __enter__(self) -> None:
        # Nodes are made in the fastest path there is, which does not ask for hooks. From the first
        # use of hooks on, in whatever thread, making a node asks for those of its thread, and
        # a gradient asks whether its saved values are packed.
        GradNode.__init__ = _packing_init
        GradNode.apply = _unpacking_apply
        hooks = _Hooks(self.pack_hook, self.unpack_hook)
        self._entered.append(hooks)
        _active.hooks.append(hooks)

    def __exit__(self, *exc: object) -> None:
        if self._entered:
            _end(self._entered[-1])
            del self._entered[-1:]

    def __del__(self) -> None:
        # Python may raise KeyboardInterrupt before the first instruction of `__exit__`.
        for hooks in getattr(self, "_entered", ())[::-1]:
            _end(hooks)


def _end(entered: _Hooks) -> None:
    """End the block of these hooks, and blocks inside it that an interrupt kept from ending."""
    hooks = _active.hooks
    if entered in hooks:
        del hooks[hooks.index(entered) :]


def pack(tensor: Tensor) -> Tensor | Packed:
    """A tensor that a PyLayer keeps, packed if hooks are open."""
    if not _active.hooks:
        return tensor
    return Packed(tensor._value, tensor.stop_gradient, _active.hooks[-1])
