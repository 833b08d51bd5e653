"""The gradient of an op is an op: `relu` has `relu_grad`, which has a gradient of its own.

Its lowering is the op's explicit rule where there is one and `jax.vjp` of the op's lowering
where there is none. A backward pass therefore records one entry per forward entry.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from bireme.core import jax_door
from bireme.core.aval import Aval
from bireme.core.lowering import in_type, lowering
from bireme.core.op import Call, Op


class GradOp(Op):
    """Inputs: the results' gradients, then what the forward op saved. Results: the gradients
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
            register=False,
        )
        self.rule_params: list[str] = (
            [] if forward.vjp is None else list(inspect.signature(forward.vjp).parameters)[2:]
        )

    def call_for(self, forward: Call, needs: tuple[int, ...], present: tuple[bool, ...]) -> Call:
        """The Call that differentiates `forward` by its flat inputs `needs`."""
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

    def infer_types(self, call: Call) -> tuple[bool, tuple[Aval, ...]]:
        forward: Call = call.attrs["forward"]
        types = [forward.types[i] for i in call.attrs["needs"]]
        return False, tuple(t for t in types if isinstance(t, Aval))

    def lower(self, xp: Any, call: Call, arrays: list[Any]) -> Any:
        forward: Call = call.attrs["forward"]
        needs: tuple[int, ...] = call.attrs["needs"]
        grads = arrays[: call.layout[0]]
        saved = dict(zip(forward.saved_at, arrays[call.layout[0] :], strict=True))
        flat = [saved.get(i) for i in range(len(forward.types))]
        flat = forward.cast(xp, flat)
        if forward.op.vjp is None:
            results = _derived(forward, grads, flat, needs)
        else:
            outs = [saved.get(-1 - i) for i in range(len(forward.outs))]
            results = self._by_rule(xp, forward, grads, flat, outs, needs)
        return tuple(_fit(xp, g, forward.types[i]) for g, i in zip(results, needs, strict=True))

    def _by_rule(
        self, xp: Any, forward: Call, grads: Sequence[Any], flat: list[Any], outs: list[Any],
        needs: tuple[int, ...],
    ) -> list[Any]:  # fmt: skip
        grads = [
            _zeros(xp, o) if g is None else g for g, o in zip(grads, forward.outs, strict=True)
        ]
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


def _zeros(xp: Any, like: Aval) -> Any:
    return xp.zeros(like.shape, like.dtype.numpy)


def _derived(
    forward: Call, grads: Sequence[Any], flat: list[Any], needs: tuple[int, ...]
) -> list[Any]:
    jax = jax_door.jax()
    jnp = jax.numpy
    wanted = [i for i, o in enumerate(forward.outs) if o.dtype.differentiable]

    def evaluate(*xs: Any) -> list[Any]:
        inputs = list(flat)
        for i, x in zip(needs, xs, strict=True):
            inputs[i] = x
        out = forward.op.lower(jnp, forward, inputs)
        outs = [out] if forward.single else list(out)
        return [outs[i] for i in wanted]

    choose, lowering.choose = lowering.choose, None  # kernels have no derivative of their own
    try:
        primals, pull = jax.vjp(evaluate, *[flat[i] for i in needs])
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
    return [jnp.conj(g) for g in pull(cotangents)]


def _fit(xp: Any, grad: Any, to: Any) -> Any:
    """A gradient in its input's shape and type: summed over what was broadcast."""
    if grad is None:
        return _zeros(xp, to)
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
        grad = in_type(xp, grad, to.dtype.numpy)
    return grad
