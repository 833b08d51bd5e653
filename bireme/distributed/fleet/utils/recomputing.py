"""recompute: run a part of the model again in the backward pass instead of keeping its insides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bireme
from bireme.autograd.functional import backward
from bireme.autograd.py_layer import PyLayer, PyLayerContext
from bireme.core.errors import InvalidArgument
from bireme.core.random import get_rng_state, set_rng_state
from bireme.core.tensor import Tensor
from bireme.core.trace import state


class _Again(PyLayer):
    """Runs a function without a tape, and once more with one when its gradient is wanted."""

    @staticmethod
    def forward(ctx: PyLayerContext, run: Callable[..., Any], same: bool, *inputs: Tensor) -> Any:
        ctx.run, ctx.inputs, ctx.amp = run, inputs, state.trace.amp  # type: ignore[attr-defined]
        ctx.random = get_rng_state() if same else None  # type: ignore[attr-defined]
        return run(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        inputs = []
        for given in ctx.inputs:
            inputs.append(given.detach())
            inputs[-1].stop_gradient = given.stop_gradient
        now, amp, tape = get_rng_state(), state.trace.amp, state.trace.tape
        if ctx.random is not None:
            set_rng_state(ctx.random)
        try:
            state.trace.amp, state.trace.tape = ctx.amp, True
            results = ctx.run(*inputs)
        finally:
            state.trace.amp, state.trace.tape = amp, tape
            if ctx.random is not None:
                set_rng_state(now)
        many = isinstance(results, list | tuple)
        tensors = [r for r in (results if many else [results]) if isinstance(r, Tensor)]
        wanted = [(r, g) for r, g in zip(tensors, grads, strict=True) if not r.stop_gradient]
        if wanted:
            backward([r for r, _ in wanted], [g for _, g in wanted])
        return tuple(None if t.stop_gradient else t.grad for t in inputs)


def recompute(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, keeping only its arguments for the backward pass.

    Two keywords are not the function's: `preserve_rng_state=True` repeats the random numbers of
    the first run, and `use_reentrant=False` has gradients of parameters even if no argument needs
    one.

    >>> y = recompute(block, x)  # doctest: +SKIP
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    reentrant = kwargs.pop("use_reentrant", True)
    if not callable(function):
        raise InvalidArgument(
            f"[recompute] the first argument must be callable. Received: {type(function).__name__}"
        )
    places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    names = [k for k, a in kwargs.items() if isinstance(a, Tensor)]
    tensors = [args[i] for i in places] + [kwargs[k] for k in names]

    def run(*given: Tensor) -> Any:
        full, named = list(args), dict(kwargs)
        for i, t in zip(places, given, strict=False):
            full[i] = t
        named |= zip(names, given[len(places) :], strict=False)
        return function(*full, **named)

    if not reentrant:  # something that needs a gradient, so that the backward pass comes by
        anchor = bireme.zeros([1])
        anchor.stop_gradient = False
        tensors.append(anchor)
    return _Again.apply(run, bool(preserve), *tensors)


__all__ = ["recompute"]
