"""Attention on NVIDIA GPUs by cuDNN's fused kernels: the score matrix is never written.

The gradient needs statistics of each row's softmax: within one program they are residuals of the
forward kernel, otherwise they are computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval_of
from bireme.core.graph import Node
from bireme.core.kernels import kernel
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.host.arrays import Array, Namespace
from bireme.kernels import nvidia
from bireme.kernels.fusing import Fuser, fused_op

_NAME = "cudnn_attention"
_WIDEST = 128  # per head, forward and backward


def _kind(call: Call) -> dt.DType | None:
    """The type that the op computes in."""
    first = call.types[0]
    return call.casts[0] or (first.dtype if isinstance(first, Aval) else None)


def fits_cudnn(call: Call) -> bool:
    """Whether cuDNN has a kernel for the call, apart from its sizes being closed."""
    query, key, value, mask = call.types[:4]
    if not (isinstance(query, Aval) and isinstance(key, Aval) and isinstance(value, Aval)):
        return False
    plain = mask is None and call.types[5] is None  # no mask, no dropout
    width = query.shape[3]
    return (
        plain
        and _kind(call) in (dt.bfloat16, dt.float16)
        and type(width) is int
        and {key.shape[3], value.shape[3]} == {width}
        and width % 8 == 0
        and width <= _WIDEST
        and (not call.attrs["causal"] or query.shape[1] == key.shape[1])
    )


def _accepts(call: Call) -> bool:
    query, key = call.types[:2]
    if not (isinstance(query, Aval) and isinstance(key, Aval) and fits_cudnn(call)):
        return False
    return query.is_static and key.is_static and query.size > 0 and key.size > 0


def _function(
    call: Call, scale: Any, implementation: str = "cudnn"
) -> Callable[[Any, Any, Any], Any]:
    """Attention by the kernel, which takes even lengths only in training: others are padded."""
    jax, jnp = jax_door.jax(), jax_door.jnp()
    width = call.types[0].shape[3]  # type: ignore[union-attr]
    causal = call.attrs["causal"]

    def attend(query: Array, key: Array, value: Array) -> Any:
        # The kernel's own scale is a constant. The usual one leaves a factor of exactly 1.
        factor = (scale * math.sqrt(width)).astype(query.dtype)
        batch, rows, length = query.shape[0], query.shape[1], key.shape[1]
        lengths = {}
        if not causal and (rows % 2 or length % 2):
            # A causal mask hides the padding; here the kernel is told where it begins.
            lengths = {
                "query_seq_lengths": jnp.full((batch,), rows, np.int32),
                "key_value_seq_lengths": jnp.full((batch,), length, np.int32),
            }
        found = jax.nn.dot_product_attention(
            *map(_to_even_length, (query * factor, key, value)),
            is_causal=causal,
            implementation=implementation,
            **lengths,
        )
        return found[:, :rows]

    return attend


def _to_even_length(x: Any) -> Any:
    return jax_door.jnp().pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) if x.shape[1] % 2 else x


def _inputs(call: Call, flat: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
    """(query, key and value, the scale)"""
    return tuple(flat[:3]), flat[4]


def _attention(call: Call, *flat: Any) -> Any:
    inputs, scale = _inputs(call, flat)
    return _function(call, scale)(*inputs)


def _accepts_grad(call: Call) -> bool:
    return _accepts(call.attrs["forward"]) and max(call.attrs["needs"]) < 3


def _attention_grad(call: Call, grad: Any, *saved: Any) -> Any:
    jax = jax_door.jax()
    forward: Call = call.attrs["forward"]
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    flat = forward.cast(jax.numpy, [by_place.get(i) for i in range(len(forward.types))])
    inputs, scale = _inputs(forward, flat)
    _, pull = jax.vjp(_function(forward, scale), *inputs)
    return _fitted(call, pull(grad.astype(inputs[0].dtype)))


def _fitted(call: Call, found: Sequence[Any]) -> tuple[Any, ...]:
    wanted = zip(call.attrs["needs"], call.outs, strict=True)
    return tuple([found[i].astype(t.dtype.numpy) for i, t in wanted])


# --- both, where one program has them ----------------------------------------------------------


class _Pull:
    """How a call is pulled back: a function of the gradient and of arrays from the forward pass.
    Which arrays is known before; the function, when the forward call was traced."""

    def __init__(self, call: Call):
        jax = jax_door.jax()
        self.call = call
        types = [
            jax.ShapeDtypeStruct(getattr(t, "shape", ()), (c or t.dtype).numpy)  # type: ignore[union-attr]
            for t, c in ((call.types[i], call.casts[i]) for i in (0, 1, 2, 4))
        ]
        _, kept = jax.eval_shape(self.forward, *types)
        self.kept = tuple([aval_of(k) for k in kept])

    def forward(self, query: Any, key: Any, value: Any, scale: Any) -> tuple[Any, list[Any]]:
        jax = jax_door.jax()
        out, pull = jax.vjp(_function(self.call, scale), query, key, value)
        kept, self.function = jax.tree.flatten(pull)
        return out, kept

    def back(self, grad: Any, kept: Sequence[Any]) -> Any:
        return jax_door.jax().tree.unflatten(self.function, kept)(grad)

    def __repr__(self) -> str:
        return _NAME


@fused_op(
    "attention_and_residuals",
    ("query", "key", "value", "scale"),
    lambda query, key, value, scale, pull: (pull.call.outs[0], *pull.kept),
)
def attention_and_residuals(
    xp: Namespace, query: Array, key: Array, value: Array, scale: Array, pull: _Pull
) -> tuple[Any, ...]:
    """Attention, and what its gradient takes from it."""
    out, kept = pull.forward(query, key, value, scale)
    return out, *kept


@fused_op("attention_pull", ("grad", "*kept"), lambda grad, kept, pull, types, needs: types)
def attention_pull(
    xp: Namespace,
    grad: Array,
    kept: list[Array],
    pull: _Pull,
    types: tuple[Aval, ...],
    needs: tuple[int, ...],
) -> tuple[Any, ...]:
    """The gradients of those of query, key and value that are in `needs`."""
    found = pull.back(grad.astype(pull.call.outs[0].dtype.numpy), kept)
    return tuple([found[i].astype(t.dtype.numpy) for i, t in zip(needs, types, strict=True)])


def _fuse(f: Fuser, node: Node) -> list[int]:
    query, key, value, _, scale, *_ = operands = f.operands(node)
    pull = _Pull(node.call)
    out, *kept = f.emit(
        attention_and_residuals, [query, key, value, scale], node.call.casts[4], pull=pull
    )
    f.kept[node.call, tuple(operands[:3])] = pull, kept
    return [out]


def _fuse_grad(f: Fuser, node: Node) -> list[int]:
    forward: Call = node.call.attrs["forward"]
    saved = f.saved(node)
    inputs = tuple([f.cast(saved[i], forward.casts[i]) for i in range(3)])
    grad, known = node.args[0], f.kept.get((forward, inputs))
    if known is None:
        return []
    pull, kept = known
    attrs = {"types": node.call.outs, "needs": node.call.attrs["needs"]}
    return f.emit(attention_pull, [grad, kept], pull=pull, **attrs)


for _op, _lower, _accepted, _rule in (
    ("attention", _attention, _accepts, _fuse),
    ("attention_grad", _attention_grad, _accepts_grad, _fuse_grad),
):
    kernel(
        _op,
        name=_NAME,
        platform="gpu",
        accepts=_accepted,
        fuse=_rule,
        ready=lambda: nvidia.available(),
    )(_lower)
