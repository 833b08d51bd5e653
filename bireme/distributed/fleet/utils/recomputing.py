"""recompute: run a part of the model again in the backward pass instead of keeping its insides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import bireme
from bireme.autograd.functional import backward
from bireme.autograd.py_layer import PyLayer, PyLayerContext
from bireme.core.errors import InvalidArgument
from bireme.core.op import op
from bireme.core.random import get_rng_state, set_rng_state
from bireme.core.tensor import Tensor
from bireme.core.trace import state
from bireme.host import jax_door


def _held(xp: Any, grad: Any, types: Any) -> tuple[Any, Any]:
    return list(grad), [None] * len(types["grads"])


def _hold_types(xs: Any, grads: Any) -> tuple[Any, ...]:
    return tuple(xs)


@op(name="hold", inputs=("*xs", "*grads"), vjp=_held, infer=_hold_types)
def _hold(xp: Any, xs: Any, grads: Any) -> Any:
    """`xs`, once `grads` are there.

    What is computed from the results is not what was computed from `xs` before. Without that a
    compiler would find the second run equal to the first, and keep the first one's results. The
    barrier says so on accelerators; on CPUs XLA removes it early, so that the results are also
    multiplied with a one that nobody can know to be one.
    """
    if xp is np:
        return list(xs)
    kept = jax_door.jax().lax.optimization_barrier([*xs, *grads])
    held, last = kept[: len(xs)], kept[-1]
    seen = xp.reshape(last, (-1,))[0]
    one = xp.where(seen == seen, 1.0, 1.001)  # false for NaN only
    return [x * one.astype(x.dtype) if xp.issubdtype(x.dtype, xp.floating) else x for x in held]


class _Again(PyLayer):
    """Runs a function without a tape, and once more with one when its gradient is wanted."""

    @staticmethod
    def forward(ctx: PyLayerContext, run: Callable[..., Any], same: bool, *inputs: Tensor) -> Any:
        ctx.run, ctx.inputs, ctx.amp = run, inputs, state.trace.amp  # pyright: ignore[reportAttributeAccessIssue]
        ctx.random = get_rng_state() if same else None  # pyright: ignore[reportAttributeAccessIssue]
        results = run(*inputs)
        many = results if isinstance(results, list | tuple) else [results]
        # A part of a pipeline may have no layer: it returns what it is given.
        ctx.mark_not_inplace(*[r for r in many if any(r is given for given in inputs)])
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        inputs = _hold(
            [given.detach() for given in ctx.inputs], [g for g in grads if g is not None]
        )
        for held, given in zip(inputs, ctx.inputs, strict=True):
            held.stop_gradient = given.stop_gradient
        now, amp, tape = get_rng_state(), state.trace.amp, state.trace.tape
        try:
            if ctx.random is not None:
                set_rng_state(ctx.random)
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


def recompute_sequential(ctx: dict[str, Any], functions: Any, *args: Any, **kwargs: Any) -> Any:
    """Run `functions` one after the other in `ctx["segments"]` groups of which all but the last
    are recomputed.

    >>> y = recompute_sequential({"segments": 4}, layers, x)  # doctest: +SKIP
    """
    segments = int(ctx.get("segments", 1))
    preserve = ctx.get("preserve_rng_state", True)
    steps = list(functions.children() if hasattr(functions, "children") else functions)
    if not steps or segments < 1:
        raise InvalidArgument(
            f"[recompute_sequential] needs functions and segments of 1 or more. Received: "
            f"{len(steps)} functions, segments={segments}"
        )

    def run(begin: int, end: int) -> Callable[..., Any]:
        def part(*given: Any, **named: Any) -> Any:
            out: Any = given
            for i, step in enumerate(steps[begin:end]):
                many = isinstance(out, tuple)
                out = step(*out, **named if i == 0 and begin == 0 else {}) if many else step(out)
            return out

        return part

    size = max(1, len(steps) // segments)
    cuts = [i * size for i in range(segments) if i * size < len(steps)]
    out: Any = args
    for begin, end in zip(cuts, [*cuts[1:], len(steps)], strict=True):
        given = out if isinstance(out, tuple) else (out,)
        named = kwargs if begin == 0 else {}
        if end == len(steps):
            return run(begin, end)(*given, **named)
        out = recompute(run(begin, end), *given, preserve_rng_state=preserve, **named)
    return out


def recompute_hybrid(
    ctx: dict[str, Any], function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """`recompute` in a tensor-parallel model. With `ctx["partition"]` the kept arguments are cut
    over the mesh dimension "mp" until they are used again; `ctx["mp_group"]` says who shares them.

    >>> y = recompute_hybrid({"mp_group": group, "partition": True}, block, x)  # doctest: +SKIP
    """
    if ctx.get("mp_group") is None:
        raise InvalidArgument("[recompute_hybrid] ctx needs 'mp_group', the model-parallel group")
    if ctx.get("offload"):
        raise InvalidArgument(
            "[recompute_hybrid] 'offload', arguments on the host, is not built; use 'partition'"
        )
    from bireme.distributed.auto_parallel.plans import cut
    from bireme.distributed.mesh import get_mesh

    mesh = get_mesh()
    if ctx.get("partition") and mesh is not None and "mp" in mesh.dim_names:
        args = tuple(
            [
                cut(a, mesh, mp=-1)
                if isinstance(a, Tensor) and a.ndim and not a.stop_gradient
                else a
                for a in args
            ]
        )
    preserve = ctx.get("preserve_rng_state", True)
    return recompute(function, *args, preserve_rng_state=preserve, **kwargs)


__all__ = ["recompute", "recompute_hybrid", "recompute_sequential"]
