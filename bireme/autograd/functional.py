"""`grad` and `backward` as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core import autograd as engine
from bireme.core.errors import AutogradError, InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor


def _tensors(given: Any, name: str) -> list[Tensor]:
    items = list(given) if isinstance(given, list | tuple) else [given]
    for item in items:
        if not isinstance(item, Tensor):
            raise TypeMismatch(
                f"[grad] {name} must be a Tensor or a list of Tensors. Received: "
                f"{type(item).__name__}"
            )
    return items


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool = False,
    *,
    dump_backward_graph_path: str | None = None,
) -> None:
    """Compute the gradients of `tensors` by every leaf they depend on.

    With `dump_backward_graph_path` the graph that is walked is also drawn: a Graphviz file
    named after the time is put into that folder.
    """
    roots = _tensors(tensors, "tensors")
    given = _initial(grad_tensors, len(roots))
    if dump_backward_graph_path is not None:
        from bireme.core.drawing import write_graph

        write_graph(roots, dump_backward_graph_path)
    engine.run_backward(roots, given, retain_graph, False)


def _several(given: Any, name: str) -> list[Tensor]:
    """At least one tensor, each of them once: two of one are a mistake in what was asked."""
    items = _tensors(given, name)
    if not items:
        raise InvalidArgument(f"[grad] {name} must not be empty")
    if len({id(t) for t in items}) < len(items):
        raise InvalidArgument(f"[grad] {name} contain a duplicate tensor; name each tensor once")
    return items


def _initial(grads: Any, count: int) -> list[Tensor | None]:
    if grads is None:
        return [None] * count
    items = list(grads) if isinstance(grads, list | tuple) else [grads]
    if len(items) != count:
        raise InvalidArgument(
            f"as many gradients as tensors are needed. Received: {len(items)} for {count}"
        )
    for item in items:
        if item is not None and not isinstance(item, Tensor):
            raise TypeMismatch(
                f"a gradient to start from must be a Tensor or None. Received: {item!r:.100}"
            )
    return items


def _fitting(grad: Tensor | None, root: Tensor) -> Tensor | None:
    """One number is one number, whether its shape is [] or [1]."""
    if grad is not None and grad._value.aval.shape != root._value.aval.shape:
        shapes = {grad._value.aval.shape, root._value.aval.shape}
        if shapes == {(), (1,)}:
            return grad.reshape(root.shape)
    return grad


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
    no_grad_vars: Tensor | Sequence[Tensor] | None = None,
    *,
    dump_backward_graph_path: str | None = None,
) -> list[Tensor | None]:
    """The gradients of `outputs` by `inputs`; with `create_graph` they can be differentiated.

    `dump_backward_graph_path` is a folder for a drawing of the graph, as in `backward`.
    """
    flags = {"create_graph": create_graph, "only_inputs": only_inputs, "allow_unused": allow_unused}
    for name, flag in {**flags, "retain_graph": retain_graph or False}.items():
        if not isinstance(flag, bool):
            raise TypeMismatch(f"[grad] {name} must be True or False. Received: {flag!r:.100}")
    if not only_inputs:
        raise InvalidArgument("[grad] only_inputs=False is not supported by Paddle either")
    roots = _several(outputs, "outputs")
    wanted = _several(inputs, "inputs")
    for i, t in enumerate(wanted):
        if t._node is None and not allow_unused:
            raise AutogradError(
                f"[grad] inputs[{i}] needs no gradient (stop_gradient=True); set "
                "stop_gradient=False before it is used"
            )
    if dump_backward_graph_path is not None:
        from bireme.core.drawing import write_graph

        write_graph(roots, dump_backward_graph_path)
    stops = [] if no_grad_vars is None else _tensors(no_grad_vars, "no_grad_vars")
    keep = create_graph if retain_graph is None else retain_graph
    initial = _initial(grad_outputs, len(roots))
    needed = [t._node for t in wanted if t._node is not None]
    needing = iter(
        engine.run_backward(
            roots,
            [_fitting(g, root) for g, root in zip(initial, roots, strict=True)],
            keep,
            create_graph,
            needed,
            [t._node for t in stops if t._node is not None],
        )
    )
    found = [None if t._node is None else next(needing) for t in wanted]
    if not allow_unused and any(g is None for g in found):
        missing = next(i for i, g in enumerate(found) if g is None)
        raise InvalidArgument(
            f"[grad] outputs do not depend on inputs[{missing}]. Pass allow_unused=True to get "
            "None for it"
        )
    return [_differentiable(g) for g in found] if create_graph else found


def _differentiable(g: Tensor | None) -> Tensor | None:
    """Also where it is a constant (of a linear function): what is computed from it then needs a
    gradient, whatever function was differentiated."""
    if g is None or not g.stop_gradient:
        return g
    own = g.detach()  # it may be the caller's own `grad_outputs`
    own.stop_gradient = False
    return own
