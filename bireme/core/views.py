"""Views and in-place writes on top of immutable Values.

Paddle's basic indexing, reshape, transpose … return tensors that share memory. Here every
Value is immutable, so a view remembers how it was made from its base (`steps`). Writing to any
member of such a family computes the base's new contents and then remakes the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from bireme.core.autograd import LeafNode, Overwritten
from bireme.core.errors import ShapeMismatch, TypeMismatch
from bireme.core.trace import Value, state

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor


class Step(NamedTuple):
    """One view op: `make(base)` gives the view, `write(base, view)` the base with it put back."""

    make: Callable[[Any], Any]
    write: Callable[[Any, Any], Any]
    tracked: bool = True  # False for detach(): contents are shared, gradients are not


class View:
    """How a tensor is derived from its base."""

    __slots__ = ("root", "steps", "strong")

    def __init__(self, root: Tensor, steps: tuple[Step, ...]):
        self.root = weakref.ref(root)
        self.steps = steps
        self.strong: Tensor | None = None  # set once a sibling exists, see `as_view`

    def base(self) -> Tensor | None:
        return self.root()


def as_view(view: Tensor, source: Tensor, step: Step) -> Tensor:
    """Mark `view` as sharing memory with `source`."""
    root, steps = source, (step,)
    if source._view is not None:
        base = source._view.base()
        if base is not None:
            root, steps = base, (*source._view.steps, step)
    link = view._view = View(root, steps)
    siblings = root._views
    if siblings is None:
        root._views = [weakref.ref(view)]
        return view
    live = [r for r in siblings if r() is not None]
    if live:
        # With two views of one base alive, a write to one must reach the other even if the
        # base is dropped, so both keep it. A lone view does not: that would keep a dead
        # tensor's contents from being optimised away.
        link.strong = root
        for other in live:
            tensor = other()
            if tensor is not None and tensor._view is not None:
                tensor._view.strong = root
    live.append(weakref.ref(view))
    root._views = live
    return view


def check_inplace(tensor: Tensor, name: str) -> None:
    """Raise where Paddle does: a leaf that needs a gradient cannot change under autograd."""
    if state.trace.tape and tensor._node.__class__ is LeafNode:
        raise _leaf_error(name)


def _leaf_error(name: str) -> Exception:
    from bireme.core.errors import InvalidArgument

    return InvalidArgument(
        f"[{name}] a leaf tensor with stop_gradient=False cannot be changed in place while "
        "gradients are recorded. Wrap the update in paddle.no_grad(), or use the out-of-place "
        "form and rebind the result"
    )


def assign(tensor: Tensor, result: Tensor, name: str) -> Tensor:
    """Give `tensor` the contents (and history) of `result`, and its whole family with it."""
    check_inplace(tensor, name)
    new, old = result._value.aval, tensor._value.aval
    if new is not old:
        if new.shape != old.shape:
            raise ShapeMismatch(
                f"[{name}] an in-place operation must keep the shape. Received: a tensor of "
                f"shape {list(old.shape)} and a result of shape {list(new.shape)}"
            )
        raise TypeMismatch(
            f"[{name}] an in-place operation must keep the dtype. Received: a tensor of dtype "
            f"{old.dtype.name} and a result of dtype {new.dtype.name}; use {name.rstrip('_')}() "
            "or cast the other operand first"
        )
    _rebind(tensor, result._value, result._node)
    link = tensor._view
    root = tensor
    if link is not None:
        base = link.base()
        if base is not None:
            root = base
            if all(s.tracked for s in link.steps):
                check_inplace(base, name)
            _write_back(base, link.steps, tensor)
    if root._views:
        _refresh(root, tensor)
    return tensor


def _rebind(tensor: Tensor, value: Value, node: Any) -> None:
    old = tensor._value
    if old.__class__ is Value and old is not value:
        old.__class__ = Overwritten
    if node is not None:
        inner = node.node if hasattr(node, "node") else node
        if getattr(inner, "own", False) is None:
            inner.own = old
    tensor._value = value
    if node is not None or tensor._node.__class__ is not LeafNode:
        tensor._node = node if state.trace.tape else tensor._node


def _write_back(base: Tensor, steps: tuple[Step, ...], view: Tensor) -> None:
    """Put a view's contents back into its base, through every step between them."""
    stages = [base]
    for step in steps[:-1]:
        stages.append(step.make(stages[-1]))
    content = view
    for stage, step in zip(reversed(stages), reversed(steps), strict=True):
        content = step.write(stage, content)
    tracked = all(s.tracked for s in steps)
    _rebind(base, content._value, content._node if tracked else base._node)


def _refresh(root: Tensor, written: Tensor) -> None:
    for ref in root._views or ():
        other = ref()
        if other is None or other._view is None:
            continue
        if other is written and root._node is None:
            continue  # already current, and there is no history to route through the base
        made = root
        for step in other._view.steps:
            made = step.make(made)
        _rebind(other, made._value, made._node)
