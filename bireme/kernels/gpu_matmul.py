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
from bireme.core.graph import Node
from bireme.core.kernels import fusion, kernel
from bireme.core.op import OPS, Call
from bireme.host import jax_door, thresholds
from bireme.host.arrays import Array, Namespace
from bireme.kernels.fusing import Fuser, fused_op, uncast

_UNIT = 8  # elements of 16 bits that are read at once
_TILE = 64
_NAME = "aligned_vocabulary"


@dataclass(frozen=True)
class Padded:
    """What a value is the leading columns of."""

    whole: int


def _column_axis(forward: Call) -> int:
    """The axis of the weight that becomes the result's columns."""
    return 0 if forward.attrs.get("transpose_y") else 1


def _accepts(forward: Call) -> bool:
    x, y = forward.types[:2]
    if not (isinstance(x, Aval) and isinstance(y, Aval)) or x.ndim < 2 or y.ndim != 2:
        return False
    if not (x.is_static and y.is_static) or y.size < thresholds.GPU_VOCABULARY or x.size == 0:
        return False
    return (
        (forward.casts[1] or y.dtype) in (dt.bfloat16, dt.float16)
        and not forward.attrs.get("transpose_x")
        and y.shape[_column_axis(forward)] % _UNIT != 0
    )


def _padded_size(size: int) -> int:
    return size + -size % _TILE


def _resized(x: Aval, axis: int, size: int) -> Aval:
    return aval((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)


@fused_op("pad_to", ("x",), _resized)
def pad_to(xp: Namespace, x: Array, axis: int, size: int) -> Array:
    """`x` with zeros after the end of an axis, which then has this size."""
    return _with_zeros(xp, x, axis, size)


def _with_zeros(xp: Namespace, x: Array, axis: int, size: int) -> Array:
    pads = [(0, 0)] * x.ndim
    pads[axis] = (0, size - x.shape[axis])
    return xp.pad(x, pads)


@fused_op("cut_to", ("x",), _resized)
def cut_to(xp: Namespace, x: Array, axis: int, size: int) -> Array:
    """The first `size` entries of an axis."""
    return _first(x, axis, size)


def _first(x: Array, axis: int, size: int) -> Array:
    return jax_door.jax().lax.slice_in_dim(x, 0, size, axis=axis)


def _product_type(x: Aval, weight: Aval) -> Aval:
    return aval((*x.shape[:-1], weight.shape[1]), x.dtype)


@fused_op("product", ("x", "weight"), _product_type)
def product(xp: Namespace, x: Array, weight: Array) -> Array:
    """x @ weight over the last dimension."""
    out = xp.matmul(x.reshape(-1, weight.shape[0]), weight)
    return out.reshape(*x.shape[:-1], weight.shape[1])


def _pad(f: Fuser, ref: int, axis: int) -> int:
    return f.emit(pad_to, [ref], axis=axis, size=_padded_size(f.shape(ref)[axis]))[0]


def cut(f: Fuser, ref: int, axis: int, size: int) -> int:
    """The first `size` entries of an axis."""
    return ref if f.shape(ref)[axis] == size else f.emit(cut_to, [ref], axis=axis, size=size)[0]


def _wider(forward: Call) -> Call:
    """The call on a padded weight and bias, in the type that it computes in."""
    call = uncast(forward)
    types = list(call.types)
    for i, axis in ((1, _column_axis(forward)), (2, 0)):
        t = types[i] if i < len(types) else None
        if isinstance(t, Aval):
            types[i] = _resized(t, axis, _padded_size(t.shape[axis]))
    return call.op.call_with(tuple(types), call.layout, call.attrs, call.casts)


def _fuse_product(f: Fuser, node: Node) -> list[int]:
    axis = _column_axis(node.call)
    x, y, *bias = f.operands(node)
    wide = _pad(f, y, axis)
    if node.call.op.name == "linear" and bias == [None]:
        (whole,) = f.emit(product, [x, wide])
    else:
        biases = [None if b is None else _pad(f, b, 0) for b in bias]
        (whole,) = f.add(_wider(node.call), [x, wide, *biases])
    last = len(f.shape(whole)) - 1
    out = cut(f, whole, last, node.call.outs[0].shape[-1])
    f.facts[out] = Padded(whole)
    return [out]


def _fuse_product_grad(f: Fuser, node: Node) -> list[int]:
    forward: Call = node.call.attrs["forward"]
    needs: tuple[int, ...] = node.call.attrs["needs"]
    axis, grad = _column_axis(forward), node.args[0]
    if grad.__class__ is not int:
        return []
    known = f.fact(grad, Padded)
    whole = known.whole if known else _pad(f, grad, len(f.shape(grad)) - 1)  # type: ignore[arg-type]
    saved = {}
    for place, ref in f.saved(node).items():
        ref = None if ref is None else f.cast(ref, forward.casts[place])
        saved[place] = _pad(f, ref, axis) if place == 1 and ref is not None else ref
    made = f.add(_wider(forward).gradient(needs, (True,)), [whole, *saved.values()])
    results = []
    for i, ref in zip(needs, made, strict=True):
        t: Any = forward.types[i]
        at = {1: axis, 2: 0}.get(i)
        ref = ref if at is None else cut(f, ref, at, t.shape[at])
        results.append(f.emit(OPS["cast"], [ref], dtype=t.dtype.name)[0])
    return results


def _product(call: Call, *flat: Any) -> Any:
    """The same where only this call is seen."""
    jnp = jax_door.jnp()
    x, y, *bias = flat
    wider = _wider(call)
    args = [x]
    for i, (a, axis) in enumerate(zip((y, *bias), (_column_axis(call), 0), strict=False), 1):
        t = wider.types[i]
        args.append(_with_zeros(jnp, a, axis, t.shape[axis]) if isinstance(t, Aval) else a)
    whole = call.op.lower(jnp, wider, args)
    return _first(whole, whole.ndim - 1, call.outs[0].shape[-1])


for _op in ("matmul", "linear"):
    kernel(_op, name=_NAME, platform="gpu", accepts=_accepts, fuse=_fuse_product)(_product)
    fusion(
        f"{_op}_grad",
        name=_NAME,
        platform="gpu",
        accepts=lambda call: _accepts(call.attrs["forward"]),
    )(_fuse_product_grad)


# --- between the product and the loss -------------------------------------------------------------


def _reshaped(f: Fuser, node: Node) -> list[int]:
    """A plain reshape; one that leaves the columns alone also reshapes what is padded."""
    made = f.copy(node)
    before, out = node.args[0], node.call.outs[0]
    known = f.fact(before, Padded)
    if known is not None and out.shape[-1:] == f.shape(before)[-1:]:  # type: ignore[arg-type]
        shape = (*out.shape[:-1], f.shape(known.whole)[-1])
        f.facts[made[0]] = Padded(f.emit(OPS["reshape"], [known.whole], shape=shape)[0])
    return made


def _static(call: Call) -> bool:
    return all(isinstance(t, Aval) and t.is_static and t.ndim > 1 for t in call.types)


fusion("reshape", name=_NAME, platform="gpu", accepts=_static)(_reshaped)
fusion("reshape_grad", name=_NAME, platform="gpu", accepts=_static)(_reshaped)
