"""Half-precision products on GPUs whose number of columns is no multiple of 8: vocabularies.

Tensor cores read rows of 16 bytes. A vocabulary of 50257 words is not aligned to that, and its
three products take twice their time; with 47 empty words more they do not. To add them without a
copy, the cut logits are annotated with the padded ones (`Padded`), and the loss's gradient is made
in padded form (gpu_loss).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.kernels import kernel
from bireme.core.lowering import annotate, annotation_of
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.host.arrays import Array

_UNIT = 8  # elements of 16 bits that are read at once
_TILE = 64
_LARGE = 1 << 20  # elements of a weight from which on it pays
_NAME = "aligned_vocabulary"


@dataclass(frozen=True)
class Padded:
    """What an array is the leading columns of."""

    whole: Any


def whole_of(array: Array) -> Any:
    """The padded array that this one is cut from, or None."""
    found = annotation_of(array)
    return found.whole if isinstance(found, Padded) else None


def _column_axis(forward: Call) -> int:
    """The axis of the weight that becomes the result's columns."""
    return 0 if forward.attrs.get("transpose_y") else 1


def _accepts(forward: Call) -> bool:
    x, y = forward.types[:2]
    if not (isinstance(x, Aval) and isinstance(y, Aval)) or x.ndim < 2 or y.ndim != 2:
        return False
    if not (x.is_static and y.is_static) or y.size < _LARGE or x.size == 0:
        return False
    return (
        (forward.casts[1] or y.dtype) in (dt.bfloat16, dt.float16)
        and not forward.attrs.get("transpose_x")
        and y.shape[_column_axis(forward)] % _UNIT != 0
    )


def _pad(x: Any, axis: int) -> Any:
    pads = [(0, 0)] * x.ndim
    pads[axis] = (0, -x.shape[axis] % _TILE)
    return jax_door.jnp().pad(x, pads)


def cut(x: Array, axis: int, size: int) -> Any:
    """The first `size` entries of an axis."""
    if x.shape[axis] == size:
        return x
    return jax_door.jax().lax.slice_in_dim(x, 0, size, axis=axis)


def _product(call: Call, x: Any, y: Any, *bias: Any) -> Any:
    columns = call.outs[0].shape[-1]
    padded = [None if b is None else _pad(b, 0) for b in bias]
    whole = call.op.lower(jax_door.jnp(), call, [x, _pad(y, _column_axis(call)), *padded])
    out = cut(whole, whole.ndim - 1, columns)
    annotate(out, Padded(whole))
    return out


def _product_grad(call: Call, grad: Any, *saved: Any) -> Any:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    needs: tuple[int, ...] = call.attrs["needs"]
    axis = _column_axis(forward)
    whole = whole_of(grad)
    if whole is None:
        whole = _pad(grad, grad.ndim - 1)
    by_place = dict(zip(forward.saved_at, saved, strict=True))
    flat = forward.cast(jnp, [by_place.get(i) for i in range(len(forward.types))])
    if flat[1] is not None:
        flat[1] = _pad(flat[1], axis)
    types = list(forward.types)
    for i, at in ((1, axis), (2, 0)):
        t = types[i] if i < len(types) else None
        if isinstance(t, Aval):
            shape = (*t.shape[:at], whole.shape[-1], *t.shape[at + 1 :])
            types[i] = aval(shape, t.dtype)
    rule: Any = forward.op.vjp
    given = {"x": flat[0], forward.op.inputs[1]: flat[1], **forward.attrs}
    wanted = {k: given[k] for k in call.op.rule_params if k in given}  # type: ignore[attr-defined]
    found = rule(jnp, whole, **wanted, types=types, needs=[i in needs for i in range(len(types))])
    results = []
    for i in needs:
        t: Any = forward.types[i]
        g = found[i]
        if i == 1:
            g = cut(g, axis, t.shape[axis])
        elif i == 2:
            g = cut(g, 0, t.shape[0])
        results.append(jnp.reshape(g, t.shape).astype(t.dtype.numpy))
    return tuple(results)


for _op in ("matmul", "linear"):
    kernel(_op, name=_NAME, platform="gpu", accepts=_accepts)(_product)
    kernel(
        f"{_op}_grad",
        name=_NAME,
        platform="gpu",
        accepts=lambda call: _accepts(call.attrs["forward"]),
    )(_product_grad)


# --- between the product and the loss -------------------------------------------------------------


def _reshaped(call: Call, x: Any) -> Any:
    """A plain reshape; one that leaves the columns alone also reshapes the padded twin."""
    out = jax_door.jnp().reshape(x, call.outs[0].shape)
    whole = whole_of(x)
    if whole is not None and out.shape[-1:] == x.shape[-1:]:
        annotate(out, Padded(jax_door.jnp().reshape(whole, (*out.shape[:-1], whole.shape[-1]))))
    return out if call.single else (out,)


def _static(call: Call) -> bool:
    return all(isinstance(t, Aval) and t.is_static and t.ndim > 1 for t in call.types)


kernel("reshape", name=_NAME, platform="gpu", accepts=_static)(_reshaped)
kernel("reshape_grad", name=_NAME, platform="gpu", accepts=_static)(_reshaped)
