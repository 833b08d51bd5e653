"""append_backward and gradients: the engine's own backward pass, recorded into the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bireme.core.autograd import LeafNode
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.static.program import Program
from bireme.static.recorder import ProgramTrace, gradients_in


def append_backward(
    loss: Tensor,
    parameter_list: Iterable[Tensor | str] | None = None,
    no_grad_set: Iterable[Tensor | str] | None = None,
    callbacks: list[Callable[..., Any]] | None = None,
    checkpoints: list[Any] | None = None,
    distop_context: object = None,
) -> list[tuple[Any, Tensor]]:
    """Record the gradients of `loss`, of the sum of its elements where it has several; returns
    (parameter, gradient) pairs.

    A gradient is called like its parameter with '@GRAD'. The compiler decides what is computed
    again in the backward pass, so `checkpoints` must only be variables of the program.
    """
    program = _program_of(loss, "append_backward")
    if callbacks or distop_context is not None:
        raise InvalidArgument(
            "[append_backward] callbacks and distop_context see Paddle's own op descriptions, "
            "which do not exist here; use Tensor.register_hook to change a gradient"
        )
    for point in checkpoints or ():
        program.slot_of(point)
    if parameter_list is None:
        params = [p for p in program.all_parameters() if p._node is not None]
        known = {id(p) for p in params}
        params += [t for t in _kept_leaves(loss) if id(t) not in known]
    else:
        params = [_variable(program, p) for p in parameter_list]
    stops = [_variable(program, s) for s in no_grad_set or ()]
    excluded = {id(s) for s in stops}
    params = [p for p in params if id(p) not in excluded]
    found = gradients_in(program._trace, [loss], [None], params, stops)
    pairs = []
    for p, grad in zip(params, found, strict=True):
        if grad is not None:
            grad.name = f"{p.name}@GRAD"
            p._grad = grad
            pairs.append((p, grad))
    return pairs


def _kept_leaves(loss: Tensor) -> list[Tensor]:
    """The leaves behind `loss` that are `persistable`, parameters among them."""
    found: list[Tensor] = []
    seen: set[int] = set()
    waiting = [loss._node]
    while waiting:
        node = waiting.pop()
        node = getattr(node, "node", node)  # of one of several results
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        waiting += node.edges
        tensor = node.tensor() if isinstance(node, LeafNode) else None
        if tensor is not None and tensor.persistable:
            found.append(tensor)
    return found[::-1]


def gradients(
    targets: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    target_gradients: Tensor | Sequence[Tensor] | None = None,
    no_grad_set: Iterable[Tensor | str] | None = None,
) -> list[Tensor | None]:
    """Record the gradients of `targets` by `inputs`; None where there is no path."""
    wanted, sources = _listed(targets), _listed(inputs)
    if not wanted:
        return [None] * len(sources)
    program = _program_of(wanted[0], "gradients")
    given = _listed(target_gradients) if target_gradients is not None else [None] * len(wanted)
    if len(given) != len(wanted):
        raise InvalidArgument(
            f"[gradients] needs one target gradient per target. Received: {len(given)} for "
            f"{len(wanted)}"
        )
    stops = [_variable(program, s) for s in no_grad_set or ()]
    # An input that needs no gradient of its own (fed data) is differentiated by all the same
    # if the path from it was recorded; otherwise it has none.
    found = gradients_in(program._trace, wanted, given, sources, stops)
    for source, grad in zip(sources, found, strict=True):
        if grad is not None and source._name is not None and grad._name is None:
            grad.name = f"{source._name}@GRAD"
    return found


def _listed(given: Any) -> list[Any]:
    return [given] if isinstance(given, Tensor) else list(given)


def _program_of(tensor: Any, where: str) -> Program:
    if not isinstance(tensor, Tensor):
        raise TypeMismatch(f"[{where}] takes a variable. Received: {type(tensor).__name__}")
    owner = tensor._value.trace
    if not isinstance(owner, ProgramTrace):
        raise InvalidArgument(
            f"[{where}] takes a variable of a static program; eager code calls x.backward() or "
            "paddle.grad(outputs, inputs)"
        )
    return owner.program


def _variable(program: Program, given: Any) -> Tensor:
    return program.find(given) if isinstance(given, str) else given
