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

from bireme.core.autograd import Node
from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.core.trace import Value, state


class _Active(threading.local):
    """The hooks of this thread, innermost last."""

    def __init__(self) -> None:
        self.hooks: list[saved_tensors_hooks] = []


_active = _Active()
_lock = threading.Lock()
_threads = 0  # contexts that are open, in all threads
_plain_init = Node.__init__


class Packed:
    """What a pack hook made of a saved tensor."""

    __slots__ = ("aval", "content", "unpack")

    def __init__(self, value: Value, stop_gradient: bool, hooks: saved_tensors_hooks):
        self.aval = value.aval
        self.unpack = hooks.unpack_hook
        shown = Tensor(value, None)
        shown.stop_gradient = stop_gradient
        self.content = _off_the_tape(hooks.pack_hook, shown)

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
    tape, state.trace.tape = state.trace.tape, False
    before, _active.hooks = _active.hooks, []
    try:
        return function(argument)
    finally:
        _active.hooks = before
        state.trace.tape = tape


class _PackedNode(Node):
    """A node whose saved values are packed."""

    __slots__ = ()

    def apply(self, grads: list[Any], create_graph: bool) -> Any:
        packed = self.saved
        if packed is None:
            return super().apply(grads, create_graph)
        self.saved = tuple([s.open()._value if s.__class__ is Packed else s for s in packed])
        try:
            return super().apply(grads, create_graph)
        finally:
            self.saved = packed


def _packing_init(self: Node, call: Any, edges: tuple[Any, ...], saved: tuple[Any, ...]) -> None:
    hooks = _active.hooks
    if hooks and any(s.__class__ is Value for s in saved):
        saved = tuple(
            [
                # An input (at >= 0) wants a gradient if something leads to it; a result does.
                Packed(s, at >= 0 and edges[at] is None, hooks[-1]) if s.__class__ is Value else s
                for s, at in zip(saved, call.saved_at, strict=True)
            ]
        )
        self.__class__ = _PackedNode
    _plain_init(self, call, edges, saved)


class saved_tensors_hooks:  # noqa: N801 (Paddle's name)
    """While open, `pack_hook(tensor)` is called for each tensor that an op keeps for its
    gradient, and what it returns is kept instead; `unpack_hook` makes it a tensor again."""

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        global _threads
        with _lock:
            # Nodes are made in the fastest path there is, so it does not ask for hooks; making
            # one is what changes while a context is open.
            _threads += 1
            Node.__init__ = _packing_init  # type: ignore[method-assign]
        _active.hooks.append(self)

    def __exit__(self, *exc: object) -> None:
        global _threads
        _active.hooks.pop()
        with _lock:
            _threads -= 1
            if not _threads:
                Node.__init__ = _plain_init  # type: ignore[method-assign]


def pack(tensor: Tensor) -> Any:
    """A tensor that a PyLayer keeps, packed if hooks are open."""
    if not _active.hooks:
        return tensor
    return Packed(tensor._value, tensor.stop_gradient, _active.hooks[-1])
