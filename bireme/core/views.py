"""Views and in-place writes on top of immutable Values.

In Paddle, basic indexing, reshape, transpose … return tensors that share memory. Here every Value
is immutable. A view remembers its root and the chain of steps from it, and a write to one member of
such a family recomputes the contents of the others. As in Paddle the family shares contents, not
history: only the written tensor gets the write's gradient, and a backward pass that needs contents
which a member has overwritten raises.

Nearly all views are never written to, so making one costs a small object, two weak references and a
list; the first write does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from bireme.core.autograd import LeafNode
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.trace import Value, state
from bireme.core.value import overwrite

if TYPE_CHECKING:
    from bireme.core.aval import Aval
    from bireme.core.tensor import Tensor


class Step:
    """A kind of view op, shared by all its calls; `args` are what one call was given.

    `make(base, *args)` gives the view, `write(base, view, *args)` the base with the view's
    contents put in. `layout(array, *args)` makes the view of a NumPy array without a copy.
    `in_order` says that the elements stay where they are in memory (reshape, squeeze …).
    """

    __slots__ = ("in_order", "layout", "make", "write")

    def __init__(
        self,
        make: Callable[..., Any],
        write: Callable[..., Any],
        layout: Callable[..., np.ndarray] | None = None,
        in_order: bool = False,
    ):
        self.make = make
        self.write = write
        self.layout = layout
        self.in_order = in_order or layout is None


Chain = tuple[tuple[Step, tuple[Any, ...]], ...]


# How a tensor is derived from its root: (weak reference to the root, chain, skip, origin). The
# chain starts at a tensor of type `origin` whose elements lie in order; its first `skip` steps
# lead to the root and matter for the memory layout only. A tuple, because views are made often.
Link = tuple["ref[Tensor]", Chain, int, "Aval"]

_FEW = 8  # views of one root: up to here, dead ones are looked for at every new view
_LONG = 32  # steps of a chain whose root is gone: beyond, the memory layout is forgotten


def as_view(view: Tensor, source: Tensor, step: Step, args: tuple[Any, ...] = ()) -> Tensor:
    """Mark `view` as sharing memory with `source`."""
    if source._version:
        view._version = source._version
    link = source._view
    if link is None:
        root = source
        view._view = (ref(source), ((step, args),), 0, source._value.aval)
    else:
        root = link[0]()
        chain = (*link[1], (step, args))
        if root is not None:
            view._view = (link[0], chain, link[2], link[3])
        else:
            root = source
            if len(chain) > _LONG:
                view._view = (ref(root), ((step, args),), 0, root._value.aval)
            else:
                view._view = (ref(root), chain, len(chain) - 1, link[3])
    siblings = root._views
    if siblings is None:
        root._views = [ref(view)]
    elif len(siblings) == 1 and siblings[0]() is None:
        siblings[0] = ref(view)
    else:
        _add_sibling(root, siblings, view)
    return view


def _add_sibling(root: Tensor, siblings: list[ref[Tensor]], view: Tensor) -> None:
    """With two views of one root alive, a write to one must reach the other even if the root is
    dropped, so both keep it. A lone view does not: that would keep a dead tensor's contents
    from being optimised away."""
    count = len(siblings)
    if count <= _FEW or not count & (count - 1):
        siblings[:] = [r for r in siblings if r() is not None]
        for r in siblings:
            other = r()
            if other is not None:
                other._keeps = view._keeps = root
    else:
        view._keeps = root
    siblings.append(ref(view))


def reshapes_in_place(source: Tensor, shape: tuple[Any, ...]) -> bool:
    """Whether a reshape of `source` is a view: not if its elements lie out of order."""
    _, chain, _, origin = source._view
    for step, _ in chain:
        if not step.in_order:
            try:
                return _reshapes(origin, chain, shape)
            except TypeError:  # an index tensor among the steps has no hash
                return _reshapes.__wrapped__(origin, chain, shape)
    return True


def is_contiguous(tensor: Tensor) -> bool:
    """Whether the elements lie in order and without gaps in Paddle's memory."""
    _, chain, _, origin = tensor._view
    in_order = all(step.in_order for step, _ in chain)
    return in_order or bool(_laid_out(origin, chain).flags.c_contiguous)


def strides(tensor: Tensor) -> tuple[int, ...]:
    """How far apart, in elements, neighbours of each dimension lie in Paddle's memory."""
    link = tensor._view
    aval = tensor._value.aval
    array = _unfilled(aval) if link is None else _laid_out(link[3], link[1])
    return tuple([s // aval.dtype.itemsize for s in array.strides])


def offset(tensor: Tensor) -> int:
    """How many bytes before the first element lie in the memory that a view shares."""
    link = tensor._view
    if link is None:
        return 0
    at, array = 0, _unfilled(link[3])
    for step, args in link[1]:
        if step.layout is not None:
            part = step.layout(array, *args)
            if np.may_share_memory(part, array):  # not where the bytes are read as another type
                at += part.__array_interface__["data"][0] - array.__array_interface__["data"][0]
            array = part
    return at


def share_memory(a: Tensor, b: Tensor) -> bool:
    """Whether one is a view of the other, or both of a third."""
    return _root(a) is _root(b)


def _root(tensor: Tensor) -> Tensor:
    root = None if tensor._view is None else tensor._view[0]()
    return tensor if root is None else root


@lru_cache(maxsize=4096)
def _reshapes(origin: Aval, chain: Chain, shape: tuple[Any, ...]) -> bool:
    if not origin.is_static or not all(type(d) is int for d in shape):
        return True
    try:
        np.reshape(_laid_out(origin, chain), shape, copy=False)
    except ValueError:
        return False
    return True


def _laid_out(origin: Aval, chain: Chain) -> np.ndarray:
    array = _unfilled(origin)
    for step, args in chain:
        if step.layout is not None:
            array = step.layout(array, *args)
    return array


def _unfilled(origin: Aval) -> np.ndarray:
    return np.empty(origin.shape, origin.dtype.numpy)  # never touched, so never backed by memory


def has_family(tensor: Tensor) -> bool:
    """Whether some other tensor that is still there shares its memory."""
    link = tensor._view
    root = tensor if link is None else link[0]()
    if root is None:
        return False
    others = [r() for r in root._views or ()]
    return root is not tensor or any(t is not None and t is not tensor for t in others)


def check_inplace(tensor: Tensor, name: str) -> None:
    """Raise where Paddle does: a leaf that needs a gradient cannot change under autograd."""
    changes = state.trace.tape and state.trace.changes_tensors  # a program makes new variables
    if changes and tensor._node.__class__ is LeafNode:
        raise InvalidArgument(
            f"[{name}] a leaf tensor with stop_gradient=False cannot be changed in place while "
            "gradients are recorded. Wrap the update in paddle.no_grad(), or use the "
            "out-of-place form and rebind the result"
        )


def assign(tensor: Tensor, result: Tensor, name: str) -> Tensor:
    """Give `tensor` the contents and history of `result`, and its family the contents."""
    check_inplace(tensor, name)
    new, old = result._value.aval, tensor._value.aval
    if new is not old:
        if new.shape != old.shape:
            raise ShapeMismatch(
                f"[{name}] an in-place operation must keep the shape. Received: a tensor of "
                f"shape {list(old.shape)} and a result of shape {list(new.shape)}"
            )
        return replace(tensor, result, None)  # another dtype: in Paddle, memory of its own
    _rebind(tensor, result)
    if tensor._view is not None or tensor._views is not None:
        _share(tensor)
    if not state.trace.in_layer:
        state.trace.begin_step()  # a write of the user's own stands, whatever fails later
    return tensor


def replace(
    tensor: Tensor, result: Tensor, step: Step | None, args: tuple[Any, ...] = ()
) -> Tensor:
    """In-place forms that change the shape or dtype: `reshape_`, `squeeze_`, `cast_` ….

    With a step, `tensor` goes on sharing memory with the family that it had before.
    """
    link = tensor._view
    alive = [t for t in [r() for r in tensor._views or ()] if t is not None]
    if alive:
        former = type(result)(tensor._value, None)  # takes over as the root of the others
        former._view, former._views = link, tensor._views
        for other in alive:
            other._view = (ref(former), *other._view[1:])
            other._keeps = former
        tensor._view = tensor._views = None
        if step is not None:
            as_view(tensor, former, step, args)
            tensor._keeps = former
    elif link is not None and link[0]() is not None and step is not None:
        tensor._view = (link[0], (*link[1], (step, args)), *link[2:])
    else:
        tensor._view = None
    _rebind(tensor, result)
    return tensor


def _rebind(tensor: Tensor, result: Tensor) -> None:
    node = result._node
    old = tensor._value
    _overwrite(tensor, result._value)
    if state.trace.tape:
        inner = getattr(node, "node", node)
        if getattr(inner, "own", old) is None:
            inner.own = old  # the write's own gradient may use what it replaced
        tensor._node = node


def _overwrite(tensor: Tensor, value: Value) -> None:
    state.trace.wrote(tensor)
    before = tensor._version
    tensor._version = before + 1
    old = tensor._value
    if old is not value:
        overwrite(old, partial(_versions, ref(tensor), before))
    tensor._value = value


def _versions(written: ref[Tensor], before: int) -> str:
    """How Paddle says that a saved tensor has changed; programs look for these words."""
    tensor = written()
    if tensor is None:
        return ""
    return f" (received tensor_version:{tensor._version} != wrapper_version_snapshot:{before})"


def _share(written: Tensor) -> None:
    """Give the other members of the family their new contents, outside autograd."""
    tape = state.trace.tape
    try:
        state.trace.tape = False
        root = written
        link = written._view
        if link is not None and (base := link[0]()) is not None:
            root = base
            _write_back(root, link[1][link[2] :], written)
        for r in root._views or ():
            other = r()
            if other is None or other is written:
                continue
            link = other._view
            if link is None or link[0]() is not root:
                continue  # it has left the family, see `replace`
            made = root
            for step, args in link[1][link[2] :]:
                made = step.make(made, *args)
            _overwrite(other, made._value)
    finally:
        state.trace.tape = tape


def _write_back(root: Tensor, chain: Chain, view: Tensor) -> None:
    """Put a view's contents back into its root, through every step between them."""
    stages = [root]
    for step, args in chain[:-1]:
        stages.append(step.make(stages[-1], *args))
    content = view
    for stage, (step, args) in zip(reversed(stages), reversed(chain), strict=True):
        content = step.write(stage, content, *args)
    _overwrite(root, content._value)
