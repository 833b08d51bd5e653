"""Cross-entropy by class numbers on GPUs, over a vocabulary (see pallas_loss).

The compiler alone reads the logits once for their maximum and once more for the sum. The kernel
reads them in half precision and padded, if annotations give these forms (see gpu_matmul).
"""

from __future__ import annotations

import math
from typing import Any

from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import Widened, annotate, annotation_of
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.kernels import nvidia, pallas_loss
from bireme.kernels.gpu_matmul import Padded, cut, whole_of
from bireme.ops import loss_class
from bireme.ops.nn_support import wide

_NAME = "one_pass_loss"
_MANY = 4096  # classes from which on it pays


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
        and logits.shape[-1] >= _MANY
    )


def _logits(array: Any) -> Any:
    """What to read for these logits: narrower and padded if there is such a thing."""
    known = annotation_of(array)
    if isinstance(known, Widened):
        array = known.narrow
    whole = whole_of(array)
    return array if whole is None else whole


def _flat(array: Any) -> Any:
    return array.reshape(-1, array.shape[-1])


@kernel(
    "_cross_entropy", name=_NAME, platform="gpu", accepts=_plain, ready=lambda: nvidia.available()
)
def _loss(call: Call, input: Any, label: Any, weight: Any, smoothing: Any) -> Any:
    jnp = jax_door.jnp()
    attrs = call.attrs
    safe, factor = _terms(call, input, label)
    # The label's logit comes from the same kernel: nothing else reads the logits, and their
    # gradient can be written over them.
    classes = input.shape[-1]
    place = jnp.where(safe < 0, safe + classes, safe)
    each = pallas_loss.log_sum_exp(
        _flat(_logits(input)),
        jnp.clip(place, 0, classes - 1).astype(jnp.int32).reshape(-1),
        classes,
        interpret=nvidia.interpreted(),
    )
    total, score = (a.reshape(safe.shape) for a in each)
    # As an index that is out of range gives everywhere.
    score = jnp.where((place >= 0) & (place < classes), score, jnp.nan)
    return loss_class.hard_results(
        jnp, total, score, factor, input.ndim - 1, attrs["reduction"], attrs["keepdim"],
        input.dtype,
    )  # fmt: skip


def _terms(forward: Call, logits: Any, label: Any) -> tuple[Any, Any]:
    jnp = jax_door.jnp()
    attrs, ndim = forward.attrs, logits.ndim
    return loss_class.hard_terms(
        jnp, label, None, None, ndim, ndim - 1, attrs["ignore_index"], attrs["reduction"],
        jnp.float32,
    )  # fmt: skip


@kernel("_cross_entropy_grad", name=_NAME, platform="gpu", ready=lambda: nvidia.available(),
        accepts=lambda call: _plain(call.attrs["forward"]) and call.types[1] is None)  # fmt: skip
def _loss_grad(call: Call, *arrays: Any) -> Any:
    jnp = jax_door.jnp()
    forward: Call = call.attrs["forward"]
    attrs = forward.attrs
    saved = dict(zip(forward.saved_at, arrays[len(forward.outs) :], strict=True))
    logits = saved[0]
    whole = _logits(logits)
    total, grad = wide(jnp, saved[-2]), wide(jnp, arrays[0])
    if attrs["reduction"] == "none" and not attrs["keepdim"]:
        grad = jnp.expand_dims(grad, -1)
    safe, factor = _terms(forward, logits, saved[1])
    rows = math.prod(logits.shape[:-1])
    pull = pallas_loss.slope(
        _flat(whole),
        total.reshape(rows),
        safe.astype(jnp.int32).reshape(rows),
        jnp.broadcast_to(grad * factor, total.shape).reshape(rows),
        logits.shape[-1],
        interpret=nvidia.interpreted(),
    ).reshape(whole.shape)
    out = cut(pull, pull.ndim - 1, logits.shape[-1])
    if out is not pull:
        annotate(out, Padded(pull))
    return (out.astype(logits.dtype),)
