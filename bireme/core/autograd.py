"""Reverse-mode differentiation over the recorded ops.

A tensor that needs a gradient points at the node that made it. A node points at the nodes of its
inputs (`edges`) and at the Values that its rule needs (`saved`). Nodes never point at tensors and
Values never at nodes, so there is no reference cycle, and unreferenced objects are freed at once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bireme.core import rollback
from bireme.core.errors import AutogradError, ShapeMismatch, TypeMismatch, warn_user
from bireme.core.trace import Overwritten, Trace, Value, record, state

if TYPE_CHECKING:
    from bireme.core.op import Call
    from bireme.core.tensor import Tensor


class _Passes(threading.local):
    """How many backward passes of this thread are under way: a rule may start another one."""

    depth = 0


_passes = _Passes()
# Called when a pass has given the leaves their gradients; DataParallel averages them then.
after_backward: list[Callable[[], None]] = []


def finished() -> None:
    """A backward pass is over; only the outermost one has all gradients."""
    if after_backward and _passes.depth == 0:
        for function in after_backward:
            function()


class GradNode:
    """One recorded op on the way from leaves to a loss."""

    __slots__ = ("call", "edges", "hooks", "own", "saved")

    def __init__(self, call: Call, edges: tuple[Any, ...], saved: tuple[Any, ...]):
        self.call = call
        self.edges = edges
        self.saved: tuple[Any, ...] | None = saved
        self.hooks: dict[int, list[Any]] | None = None
        self.own: Value | None = None  # the Value that this node, if in-place, has overwritten

    @property
    def name(self) -> str:
        return self.call.op.name

    @property
    def result_count(self) -> int:
        return len(self.call.outs)

    def apply(self, grads: list[Tensor | None], create_graph: bool) -> Sequence[Tensor | None]:
        """The gradients of this node's inputs, aligned with `edges`."""
        saved = self.saved
        if saved is None:
            raise AutogradError(_twice(self.name))
        call = self.call
        self.check_saved(saved)
        edges = self.edges
        # (`None in grads` would compare tensors.)
        if None in edges or (len(grads) > 1 and any(g is None for g in grads)):
            needs = tuple([i for i, e in enumerate(edges) if e is not None])
            grad_call = call.gradient(needs, tuple([g is not None for g in grads]))
        else:  # the usual case: every input wants a gradient and every result has one
            needs = None
            grad_call = call.full_grad
            if grad_call is None:
                grad_call = call.gradient(tuple(range(len(edges))), (True,) * len(grads))
                call.full_grad = grad_call
        trace = state.trace
        if needs is None and len(grads) == 1:
            inputs = (grads[0]._value, *saved)  # type: ignore[union-attr]
        else:
            inputs = (*[None if g is None else g._value for g in grads], *saved)
        outs = record(grad_call, trace, inputs, (grads, self))
        if create_graph and trace.tape:
            producers = self._second_order_edges(grads)
            made = _attach_outputs(grad_call, trace, outs, producers, inputs)
        else:
            made = [_Tensor(v, None) for v in outs]
        if needs is None:
            return made
        result: list[Tensor | None] = [None] * len(edges)
        for i, t in zip(needs, made, strict=True):
            result[i] = t
        return result

    def check_saved(self, saved: tuple[Any, ...]) -> None:
        """Raise if a tensor that the rule needs has other contents by now."""
        for s in saved:
            if s.__class__ is Overwritten and s is not self.own:
                writer = getattr(s, "writer", str)
                raise AutogradError(
                    f"[{self.name}] a tensor that this op needs for its gradient was changed by an "
                    f"in-place operation after the op was recorded at {self.call.source}{writer()}."
                    " Use the out-of-place form of that operation, or clone() the tensor first"
                )

    def _second_order_edges(self, grads: list[Tensor | None]) -> tuple[Any, ...]:
        """Producers of the grad op's inputs: incoming gradients, saved inputs, saved results."""
        edges = [None if g is None else g._node for g in grads]
        single = self.call.single
        for i, kept in zip(self.call.saved_at, self.saved or (), strict=True):
            if kept is None:
                edges.append(None)
            elif i >= 0:
                edges.append(self.edges[i])
            elif -1 - i not in self.call.grad_outs:
                edges.append(None)
            else:
                edges.append(self if single else Output(self, -1 - i))
        return tuple(edges)

    def release(self) -> None:
        """Drop the saved values; a second backward through here raises."""
        self.saved = None
        self.edges = ()

    @property
    def released(self) -> bool:
        return self.saved is None


class Output:
    """One result of a node that has several."""

    __slots__ = ("index", "node")

    def __init__(self, node: object, index: int):
        self.node: Any = node
        self.index = index

    @property
    def released(self) -> bool:
        return self.node.released


class LeafNode:
    """Where the gradient of a leaf tensor is collected."""

    __slots__ = ("__weakref__", "after", "edges", "hooks", "tensor")
    released = False

    def __init__(self, tensor: Tensor):
        self.tensor = weakref.ref(tensor)
        self.edges: tuple[Any, ...] = ()
        self.hooks: dict[int, list[Any]] | None = None
        self.after: list[Callable[..., Any]] | None = None


def _twice(name: str) -> str:
    return (
        f"backward went through [{name}] a second time, but its saved values were freed by the "
        "first backward. Pass retain_graph=True to the first backward()"
    )


def prune(node: GradNode) -> None:
    """Keep `total = total + loss` from growing a chain of nodes step after step.

    Called for scalar results only. An edge all of whose own edges were already consumed by a
    backward cannot be differentiated any more, so it is cut.
    """
    for e in node.edges:
        if e.__class__ is GradNode and e.saved is not None:
            inner = [i for i in e.edges if i is not None]
            if inner and all(i.released for i in inner):
                e.release()
    live = [e for e in node.edges if e is not None]
    if all(e.released for e in live):
        node.release()


def attach(call: Call, trace: Trace, flat: Sequence[Any]) -> Any:
    """Record `call` on tensors, numbers and None; returns tensors wired for gradients."""
    inputs = tuple([x._value if x.__class__ in _tensor_types else x for x in flat])
    edges = tuple([x._node if x.__class__ in _tensor_types else None for x in flat])
    return attach_values(call, trace, inputs, edges, flat)


def attach_values(
    call: Call, trace: Trace, inputs: tuple[Any, ...], edges: tuple[Any, ...], holders: Any
) -> Any:
    """Record `call` on Values (which `holders` hold), numbers and None that `edges` made."""
    outs = record(call, trace, inputs, holders)
    if trace.tape and call.differentiable:
        made = _attach_outputs(call, trace, outs, edges, inputs)
    else:
        made = [_Tensor(v, None) for v in outs]
    return made[0] if call.single else made


def _attach_outputs(
    call: Call, trace: Trace, outs: list[Value], edges: tuple[Any, ...], inputs: tuple[Any, ...]
) -> list[Tensor]:
    if edges.count(None) == len(edges):
        return [_Tensor(v, None) for v in outs]
    saved = [inputs[i] if i >= 0 else outs[-1 - i] for i in call.saved_at]
    for place, users in call.saved_if:
        for u in users:
            if edges[u] is not None:
                break
        else:
            saved[place] = None
    node = GradNode(call, edges, tuple(saved))
    trace.nodes += (node,)
    if call.single:
        if call.scalar_out:
            prune(node)
        return [_Tensor(outs[0], node)]
    return wired(call, node, outs)


def wired(call: Call, node: GradNode, outs: list[Value]) -> list[Tensor]:
    """The tensors of a node's several results; those that carry a gradient lead back to it."""
    made = [_Tensor(v, None) for v in outs]
    for i in call.grad_outs:
        made[i]._node = Output(node, i)
    return made


def _locate(edge: Any) -> tuple[Any, int]:
    return (edge.node, edge.index) if edge.__class__ is Output else (edge, 0)


_NO_GRADIENT = (
    "this tensor does not need a gradient: its stop_gradient is True, or it was made under "
    "no_grad(). Set stop_gradient=False on an input before computing it"
)


def run_backward(
    roots: Sequence[Tensor],
    root_grads: Sequence[Tensor | None],
    retain_graph: bool,
    create_graph: bool,
    targets: Sequence[Any] | None = None,
    stops: Iterable[Any] = (),
    applied: list[Any] | None = None,
) -> list[Tensor | None]:
    """Push gradients from `roots` to the leaves, or to `targets` (edges) if they are given.

    `applied` is filled with the nodes that recorded a gradient, in order.
    """
    pending: dict[Any, list[Any]] = {}
    for root, grad in zip(roots, root_grads, strict=True):
        if root._node is None and targets is None:
            warn_user(f"[backward] nothing is done: {_NO_GRADIENT}")  # as in Paddle
            continue
        if root._node is None:
            raise AutogradError(_NO_GRADIENT)
        node, index = _locate(root._node)
        if node.released:
            raise AutogradError(_twice(node.name))
        _add(pending, node, index, _initial_grad(root, grad))
    order, deps = _dependencies(pending)
    wanted: dict[Any, list[int]] = {}
    useful: set[Any] | None = None
    found: list[Tensor | None] = []
    if targets is not None:
        found = [None] * len(targets)
        for i, t in enumerate(targets):
            wanted.setdefault(_locate(t), []).append(i)
        useful = _leading_to({n for n, _ in wanted}, order)
    blocked = {_locate(s) for s in stops}
    consumed = []
    ready = [n for n in pending if deps[n] == 0]
    keep, depth = state.trace.tape, _passes.depth
    try:
        # Ctrl-C can come between any two calls, so modes are set inside the block that puts the
        # former ones back.
        _passes.depth = depth + 1
        state.trace.tape = create_graph
        while ready:
            node = ready.pop()
            grads = pending.pop(node, None)
            if grads is not None and (node.hooks is not None or wanted):
                _run_hooks(node, grads)
                for index, grad in enumerate(grads):
                    for place in wanted.get((node, index), ()):
                        found[place] = grad
            if node.__class__ is LeafNode:
                if targets is None and grads is not None:
                    _accumulate(node, grads[0])
                continue
            passing = grads is not None and (useful is None or node in useful)
            results = node.apply(grads, create_graph) if passing else None
            if passing and applied is not None:
                applied.append(node)
            if passing or targets is None:  # what does not lead to a target is left as it is
                consumed.append(node)
            for i, target in enumerate(node.edges):
                if target is None:
                    continue
                index = 0
                if target.__class__ is Output:
                    target, index = target.node, target.index
                if results is not None:
                    grad = results[i]
                    if grad is not None and (not blocked or (target, index) not in blocked):
                        kind = target.__class__
                        if target not in pending and (
                            kind is LeafNode or (kind is GradNode and target.call.single)
                        ):
                            pending[target] = [grad]
                        else:
                            _add(pending, target, index, grad)
                left = deps[target] = deps[target] - 1
                if left == 0:
                    ready.append(target)
    finally:
        state.trace.tape = keep
        _passes.depth = depth
    if not retain_graph:
        for node in consumed:
            node.release()
    if targets is None and applied is None:
        finished()
    return found


def _dependencies(roots: Iterable[Any]) -> tuple[list[Any], dict[Any, int]]:
    """Every reachable node, and how many reachable consumers each one has."""
    deps = dict.fromkeys(roots, 0)
    stack = list(deps)
    order = []
    while stack:
        node = stack.pop()
        order.append(node)
        for e in node.edges:
            if e is None:
                continue
            if e.__class__ is Output:
                e = e.node
            if e in deps:
                deps[e] += 1
            else:
                deps[e] = 1
                stack.append(e)
    return order, deps


def _leading_to(targets: set[Any], nodes: list[Any]) -> set[Any]:
    """Those nodes from which a target can be reached: only they need to run."""
    consumers: dict[Any, list[Any]] = {}
    for node in nodes:
        for e in node.edges:
            if e is not None:
                consumers.setdefault(_locate(e)[0], []).append(node)
    useful: set[Any] = set()
    stack = list(targets)
    while stack:
        for consumer in consumers.get(stack.pop(), ()):
            if consumer not in useful:
                useful.add(consumer)
                stack.append(consumer)
    return useful


def _initial_grad(root: Tensor, grad: Tensor | None) -> Tensor:
    aval = root._value.aval
    if grad is None:
        return _ones_like(root)
    if grad.__class__ not in _tensor_types:
        raise TypeMismatch(f"[backward] grad_tensor must be a Tensor. Received: {grad!r:.100}")
    if grad._value.aval.shape != aval.shape:
        raise ShapeMismatch(
            f"[backward] the given gradient has shape {list(grad._value.aval.shape)} but the "
            f"tensor has {list(aval.shape)}; they must be equal"
        )
    return grad


def _add(pending: dict[Any, list[Any]], node: Any, index: int, grad: Tensor) -> None:
    slots = pending.get(node)
    if slots is None:
        count = 1 if node.__class__ is LeafNode else node.result_count
        slots = pending[node] = [None] * count
    have = slots[index]
    slots[index] = grad if have is None else _sum(have, grad)


def _run_hooks(node: Any, grads: list[Any]) -> None:
    if node.hooks is None:
        return
    for index, hooks in node.hooks.items():
        for hook in list(hooks):
            if grads[index] is not None:
                changed = hook(grads[index])
                if changed is not None:
                    grads[index] = _checked_hook_result(grads[index], changed)


def _checked_hook_result(before: Tensor, after: Any) -> Tensor:
    if after.__class__ not in _tensor_types:
        raise TypeMismatch(
            f"a gradient hook must return a Tensor or None. Received: {type(after).__name__}"
        )
    if after._value.aval.shape != before._value.aval.shape:
        raise ShapeMismatch(
            f"a gradient hook must keep the gradient's shape {before.shape}. Received: "
            f"{after.shape}"
        )
    return after


def _accumulate(leaf: LeafNode, grad: Tensor) -> None:
    tensor = leaf.tensor()
    if tensor is None:
        return
    have = tensor._grad
    if have is None:
        state.trace.undo.append(rollback.Gradients((leaf.tensor,)))
        tensor._grad = grad
    else:
        total = _sum(have, grad)
        state.trace.undo.append(rollback.Gradient(state.trace, leaf.tensor, tensor))
        tensor._grad = total
    for hook in leaf.after or ():
        hook(tensor)


# Filled by tensor.py and the op modules, which stand above this file.
_tensor_types: set[type] = set()
_Tensor: Callable[[Value, Any], Any]
_ones_like: Callable[[Any], Any]
_sum: Callable[[Any, Any], Any]


def bind(tensor_class: type[Tensor], tensor_types: set[type]) -> None:
    global _Tensor, _tensor_types
    _Tensor, _tensor_types = tensor_class, tensor_types


def bind_ops(ones_like: Callable[[Any], Any], sum_of_two: Callable[[Any, Any], Any]) -> None:
    global _ones_like, _sum
    _ones_like, _sum = ones_like, sum_of_two
