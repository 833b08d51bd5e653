"""static_pylayer: a part of a program with a gradient of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bireme.autograd import PyLayer, no_grad
from bireme.core.errors import InvalidArgument, TypeMismatch

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor


def static_pylayer(
    forward_fn: Callable[..., Any],
    inputs: Sequence[Tensor],
    backward_fn: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """forward_fn(*inputs), differentiated by `backward_fn` (gradients in, gradients out).

    Without `backward_fn` no gradient goes through, and none may be asked for.
    """
    if not callable(forward_fn) or (backward_fn is not None and not callable(backward_fn)):
        raise TypeMismatch("[static_pylayer] forward_fn and backward_fn must be functions")
    if backward_fn is None:
        for x in inputs:
            if not x.stop_gradient:
                raise InvalidArgument(
                    "[static_pylayer] ``stop_gradient`` attr of all inputs to ``forward_fn`` are "
                    "expected to be True, when ``backward_fn == None``: give a backward_fn, or "
                    f"set stop_gradient. Received: {x.name!r}, which needs a gradient"
                )
        with no_grad():
            return forward_fn(*inputs)

    without_result = False

    class Pair(PyLayer):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            nonlocal without_result
            made = forward_fn(*args)
            without_result = made is None  # it may have none, which a PyLayer must have
            return args[0] if without_result else made

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward_fn(*grads)

    out = Pair.apply(*inputs)
    return None if without_result else out
