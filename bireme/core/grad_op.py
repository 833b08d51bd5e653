"""The gradient of an op is an op: `relu` has `relu_grad`, which has a gradient of its own.

Its lowering is the op's explicit rule where there is one and `jax.vjp` of the op's lowering
where there is none. A backward pass therefore records one entry per forward entry.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.backends import numpy_gradient, traced_numpy
from bireme.core.aval import Aval
from bireme.core.lowering import lowering
from bireme.core.op import Call, Op
from bireme.core.requirements import Holds, Requirement
from bireme.host import jax_door
from bireme.host.arrays import Array, Namespace


def _starts(layout: Sequence[int]) -> list[int]:
    """Where each parameter begins among the flat inputs."""
    return [0, *itertools.accumulate(map(abs, layout))][:-1]


class GradOp(Op):
    """Inputs: the results' gradients, then the residuals of the forward op. Results: the gradients
    of those inputs that need one."""

    def __init__(self, forward: Op):
        self.forward = forward
        super().__init__(
            forward.name + "_grad",
            # Named after the op: in a gradient of a gradient both lists of gradients are inputs.
            (f"*grads_of_{forward.name}", *("*" + name for name in forward.saves)),
            {"forward": None, "needs": ()},
            None,
            numpy=forward.vjp is not None,
            fallible=forward.fallible,
            register=False,
        )
        self.rule_params: list[str] = (
            [] if forward.vjp is None else list(inspect.signature(forward.vjp).parameters)[2:]
        )

    def gradient_call(
        self, forward: Call, needs: tuple[int, ...], present: tuple[bool, ...]
    ) -> Call:
        grads = [o if p else None for o, p in zip(forward.outs, present, strict=True)]
        saved = [
            None
            if users is not None and not any(u in needs for u in users)
            else (forward.types[i] if i >= 0 else forward.outs[-1 - i])
            for i, users in zip(forward.saved_at, forward.saved_for, strict=True)
        ]
        groups = {"out": len(forward.outs)}
        for name, n in zip(forward.op.inputs, forward.layout, strict=True):
            groups[name.lstrip("*")] = abs(n)
        layout = (len(grads), *(groups[name] for name in forward.op.saves))
        types = (*grads, *saved)
        attrs = {"forward": forward, "needs": needs}
        return Call(self, types, layout, attrs, (None,) * len(types))

    def requirements_of(self, call: Call) -> tuple[Requirement, ...]:
        """The forward op's, of the inputs that it saved: its own results may not be wanted."""
        kept = {n.lstrip("*"): at for n, at in zip(self.inputs, _starts(call.layout), strict=True)}
        return tuple(
            [
                r
                for r in call.attrs["forward"].requires
                if not isinstance(r, Holds)
                and r.input in kept
                and call.types[kept[r.input] + r.item] is not None
            ]
        )

    def infer_types(self, call: Call) -> tuple[bool, tuple[Aval, ...]]:
        forward: Call = call.attrs["forward"]
        types = [forward.types[i] for i in call.attrs["needs"]]
        return False, tuple(t for t in types if isinstance(t, Aval))

    def lower(self, xp: Namespace, call: Call, arrays: list[Any]) -> tuple[Array, ...]:
        forward: Call = call.attrs["forward"]
        needs: tuple[int, ...] = call.attrs["needs"]
        grads = arrays[: call.layout[0]]
        saved = dict(zip(forward.saved_at, arrays[call.layout[0] :], strict=True))
        flat = [saved.get(i) for i in range(len(forward.types))]
        flat = forward.cast(xp, flat)
        if forward.op.vjp is None:
            traced = xp is np or xp is traced_numpy.namespace
            derived = _derived_from_numpy if traced else _derived
            results = derived(forward, grads, flat, needs)
        else:
            outs = [saved.get(-1 - i) for i in range(len(forward.outs))]
            results = self._by_rule(xp, forward, grads, flat, outs, needs)
        return tuple(_fit(xp, g, forward.types[i]) for g, i in zip(results, needs, strict=True))

    def _by_rule(
        self, xp: Any, forward: Call, grads: Sequence[Any], flat: list[Any], outs: list[Any],
        needs: tuple[int, ...],
    ) -> list[Any]:  # fmt: skip
        grads = [zeros(xp, o) if g is None else g for g, o in zip(grads, forward.outs, strict=True)]
        by_name = dict(
            zip((n.lstrip("*") for n in forward.op.inputs), forward.group(flat), strict=True)
        )
        by_name.update(forward.attrs)
        by_name["out"] = outs[0] if forward.single else tuple(outs)
        by_name["types"] = forward.group(forward.types)
        by_name["needs"] = forward.group([i in needs for i in range(len(flat))])
        rule = forward.op.vjp
        assert rule is not None  # noqa: S101 (checked by the caller)
        found = rule(
            xp,
            grads[0] if forward.single else tuple(grads),
            **{p: by_name[p] for p in self.rule_params},
        )
        spread: list[Any] = []
        for g, n in zip(found, forward.layout, strict=True):
            spread.extend([g] if n < 0 else (g or [None] * n))
        return [spread[i] for i in needs]


def zeros(xp: Namespace, like: Aval) -> Array:
    """The gradient of what nothing depends on."""
    return xp.zeros(like.shape, like.dtype.numpy)


def _derived_from_numpy(
    forward: Call, grads: Sequence[Any], flat: list[Any], needs: tuple[int, ...]
) -> list[Any]:
    """The gradients by the composition of the op's body; raises NotTraced where that uses other
    functions than `traced_numpy` has."""
    if any(t.dtype.is_complex for t in (*forward.types, *forward.outs) if isinstance(t, Aval)):
        raise numpy_gradient.NotTraced("complex numbers")
    xp = traced_numpy.namespace
    wanted = [i for i, o in enumerate(forward.outs) if o.dtype.differentiable]
    smooth = [i for i in needs if forward.types[i].dtype.differentiable]  # type: ignore[union-attr]

    def evaluate(xs: list[Any]) -> list[Any]:
        inputs = list(flat)
        for i, x in zip(smooth, xs, strict=True):
            inputs[i] = x
        out = forward.op.lower(xp, forward, inputs)
        outs = [out] if forward.single else list(out)
        return [outs[i] for i in wanted]

    given = [zeros(np, forward.outs[i]) if grads[i] is None else grads[i] for i in wanted]
    inputs = [flat[i] for i in smooth]
    found = numpy_gradient.pull_back(evaluate, inputs, given, flat)
    by_input = dict(zip(smooth, found, strict=True))
    return [by_input.get(i) for i in needs]


def _derived(
    forward: Call, grads: Sequence[Any], flat: list[Any], needs: tuple[int, ...]
) -> list[Any]:
    jax = jax_door.jax()
    jnp = jax.numpy
    wanted = [i for i, o in enumerate(forward.outs) if o.dtype.differentiable]

    smooth = [i for i in needs if forward.types[i].dtype.differentiable]  # type: ignore[union-attr]

    def evaluate(*xs: Any) -> list[Any]:
        inputs = list(flat)
        for i, x in zip(smooth, xs, strict=True):
            inputs[i] = x
        out = forward.op.lower(jnp, forward, inputs)
        outs = [out] if forward.single else list(out)
        return [outs[i] for i in wanted]

    choose, lowering.choose = lowering.choose, None  # kernels have no derivative of their own
    try:
        primals, pull = jax.vjp(evaluate, *[flat[i] for i in smooth])
    finally:
        lowering.choose = choose
    # jax.vjp pulls back without conjugation; Paddle's gradient of a real loss by a complex
    # variable is the conjugate, so conjugate on the way in and out.
    cotangents = [
        jnp.zeros(p.shape, p.dtype)
        if grads[i] is None
        else jnp.conj(jnp.asarray(grads[i]).astype(p.dtype))
        for i, p in zip(wanted, primals, strict=True)
    ]
    found = dict(zip(smooth, [jnp.conj(g) for g in pull(cotangents)], strict=True))
    return [found.get(i) for i in needs]


def _fit(xp: Any, grad: Any, to: Any) -> Any:
    """A gradient in its input's shape and type: summed over what was broadcast."""
    if grad is None:
        return zeros(xp, to)
    grad = xp.asarray(grad)
    if tuple(grad.shape) != to.shape:
        extra = grad.ndim - to.ndim
        axes = list(range(extra))
        for i, d in enumerate(to.shape):
            have = grad.shape[i + extra]  # may be symbolic: compared only where it is a number
            if type(d) is int and d == 1 and not (type(have) is int and have == 1):
                axes.append(i + extra)
        if extra >= 0 and axes:
            grad = xp.sum(grad, axis=tuple(axes), keepdims=True)
        grad = xp.reshape(grad, to.shape)
    if grad.dtype != to.dtype.numpy:
        if grad.dtype.kind == "c" and not to.dtype.is_complex:
            grad = xp.real(grad)
        grad = grad.astype(to.dtype.numpy)
    return grad
