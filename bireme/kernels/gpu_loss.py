"""Cross-entropy by class numbers on GPUs, over a vocabulary (see pallas_loss).

The compiler alone reads the logits once for their maximum and once more for the sum. The kernel
reads them in half precision and padded, if they are there in these forms (see gpu_matmul).
"""

from __future__ import annotations

import math
from typing import Any

from bireme.core.aval import Aval
from bireme.core.graph import Node
from bireme.core.kernels import fusion, kernel
from bireme.core.op import Call
from bireme.core.requirements import InRange
from bireme.host import jax_door, thresholds
from bireme.host.arrays import Array, Namespace
from bireme.kernels import nvidia, pallas_loss
from bireme.kernels.fusing import Fuser, Widened, fused_op
from bireme.kernels.gpu_matmul import Padded, cut
from bireme.ops import loss_class
from bireme.ops.nn_support import wide

_NAME = "one_pass_loss"


def _plain(forward: Call) -> bool:
    """By class numbers over the last axis, without weights or smoothing."""
    logits, _, weight, smoothing = forward.types
    return (
        isinstance(logits, Aval)
        and logits.is_static
        and logits.dtype.is_floating
        and logits.dtype.itemsize <= 4
        and weight is None
        and smoothing is None
        and forward.attrs["use_softmax"]
        and forward.attrs["axis"] in (-1, logits.ndim - 1)
        and logits.size > 0
        and logits.shape[-1] >= thresholds.GPU_LOSS_CLASSES
    )


def _types(logits: Aval, label: Aval, outs: tuple[Aval, ...], **rest: Any) -> tuple[Aval, ...]:
    return outs


def _labels(logits: Any, label: Any, classes: int, ignore_index: int, **rest: Any) -> list[InRange]:
    return [InRange("label", 0, classes - 1, ignored=ignore_index)]


def _flat(array: Any) -> Any:
    return array.reshape(-1, array.shape[-1])


def _terms(label: Any, ndim: int, ignore_index: int, reduction: str) -> tuple[Any, Any]:
    jnp = jax_door.jnp()
    return loss_class.hard_terms(
        jnp, label, None, None, ndim, ndim - 1, ignore_index, reduction, jnp.float32
    )


@fused_op("loss_of_classes", ("logits", "label"), _types, requires=_labels)
def loss_of_classes(
    xp: Namespace,
    logits: Array,
    label: Array,
    classes: int,
    ignore_index: int,
    reduction: str,
    keepdim: bool,
    outs: tuple[Aval, ...],
) -> tuple[Any, Any]:
    """`_cross_entropy` of the first `classes` columns."""
    attrs = {"ignore_index": ignore_index, "reduction": reduction, "keepdim": keepdim}
    cut = logits[..., :classes].astype(outs[0].dtype.numpy)
    return loss_class._cross_entropy.op.body(xp, cut, label, None, None, **attrs)


@kernel("loss_of_classes", name=_NAME, platform="gpu", ready=lambda: nvidia.available())
def _loss_of_classes(call: Call, logits: Any, label: Any) -> Any:
    jnp = jax_door.jnp()
    attrs, classes, ndim = call.attrs, call.attrs["classes"], logits.ndim
    safe, factor = _terms(label, ndim, attrs["ignore_index"], attrs["reduction"])
    # The label's logit comes from the same kernel: nothing else reads the logits, and their
    # gradient can be written over them.
    place = jnp.where(safe < 0, safe + classes, safe)
    each = pallas_loss.log_sum_exp(
        _flat(logits),
        jnp.clip(place, 0, classes - 1).astype(jnp.int32).reshape(-1),
        classes,
        interpret=nvidia.interpreted(),
    )
    total, score = (a.reshape(safe.shape) for a in each)
    # As an index that is out of range gives everywhere.
    score = jnp.where((place >= 0) & (place < classes), score, jnp.nan)
    return loss_class.hard_results(
        jnp,
        total,
        score,
        factor,
        ndim - 1,
        attrs["reduction"],
        attrs["keepdim"],
        call.outs[0].dtype.numpy,
    )


@fused_op(
    "loss_gradient",
    ("grad", "logits", "label", "total"),
    lambda grad, logits, label, total, **rest: logits,
    requires=lambda grad, *rest, **attrs: _labels(*rest[:2], **attrs),
)
def loss_gradient(
    xp: Namespace,
    grad: Array,
    logits: Array,
    label: Array,
    total: Array,
    classes: int,
    ignore_index: int,
    reduction: str,
    keepdim: bool,
) -> Array:
    """The gradient at the logits, zero from `classes` on; `total` is log(sum(exp(logits)))."""
    ndim = logits.ndim
    safe, factor = _terms(label, ndim, ignore_index, reduction)
    pull = _spread(xp, grad, reduction, keepdim) * factor
    column = xp.arange(logits.shape[-1], dtype=xp.int32)
    share = xp.exp(wide(xp, logits) - wide(xp, total)) - (column == safe).astype(xp.float32)
    return xp.where(column < classes, share * pull, 0).astype(logits.dtype)


def _spread(xp: Namespace, grad: Array, reduction: str, keepdim: bool) -> Any:
    """The gradient of each sample's loss, with the axis of classes."""
    grad = wide(xp, grad)
    return xp.expand_dims(grad, -1) if reduction == "none" and not keepdim else grad


@kernel("loss_gradient", name=_NAME, platform="gpu", ready=lambda: nvidia.available())
def _loss_gradient(call: Call, grad: Any, logits: Any, label: Any, total: Any) -> Any:
    jnp = jax_door.jnp()
    attrs = call.attrs
    safe, factor = _terms(label, logits.ndim, attrs["ignore_index"], attrs["reduction"])
    rows = math.prod(logits.shape[:-1])
    each = _spread(jnp, grad, attrs["reduction"], attrs["keepdim"]) * factor
    return pallas_loss.slope(
        _flat(logits),
        wide(jnp, total).reshape(rows),
        safe.astype(jnp.int32).reshape(rows),
        jnp.broadcast_to(each, total.shape).reshape(rows),
        attrs["classes"],
        interpret=nvidia.interpreted(),
    ).reshape(logits.shape)


# --- rules ---------------------------------------------------------------------------------------


def _logits(f: Fuser, ref: int) -> int:
    """What to read for these logits: narrower and padded if there is such a thing."""
    known = f.fact(ref, Widened)
    ref = known.narrow if known else ref
    padded = f.fact(ref, Padded)
    return padded.whole if padded else ref


def _attrs(forward: Call) -> dict[str, Any]:
    names = ("ignore_index", "reduction", "keepdim")
    return {"classes": forward.types[0].shape[-1], **{n: forward.attrs[n] for n in names}}  # type: ignore[union-attr]


@fusion(
    "_cross_entropy", name=_NAME, platform="gpu", accepts=_plain, ready=lambda: nvidia.available()
)
def _loss(f: Fuser, node: Node) -> list[int]:
    logits, label = f.operands(node)[:2]
    attrs = {**_attrs(node.call), "outs": node.call.outs}
    return f.emit(loss_of_classes, [_logits(f, logits), label], **attrs)


@fusion(
    "_cross_entropy_grad",
    name=_NAME,
    platform="gpu",
    ready=lambda: nvidia.available(),
    accepts=lambda call: _plain(call.attrs["forward"]) and call.types[1] is None,
)
def _loss_grad(f: Fuser, node: Node) -> list[int]:
    forward: Call = node.call.attrs["forward"]
    saved = f.saved(node)
    logits = saved[0]
    whole = _logits(f, logits)
    args = [node.args[0], whole, saved[1], saved[-2]]
    (pull,) = f.emit(loss_gradient, args, **_attrs(forward))
    out = cut(f, pull, len(f.shape(pull)) - 1, f.shape(logits)[-1])
    if out != pull:
        f.facts[out] = Padded(pull)
    return [f.cast(out, f.type_of(logits).dtype)]
