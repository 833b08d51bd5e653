"""Sums on GPUs: annotations of the addends decide how they are added.

If the annotation of an addend has a method `plus`, that adds them; otherwise the sum is annotated
with its addends, for kernels that would rather read those (a norm after a residual connection).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bireme.core.aval import Aval
from bireme.core.kernels import kernel
from bireme.core.lowering import Widened, annotate, annotation_of, in_type
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.host.arrays import Array
from bireme.kernels.pallas_norm import Term

_NAME = "known_sums"
_MANY = 4


@dataclass(frozen=True)
class Sum:
    """The sum of `addends`, all of its shape and type."""

    addends: tuple[Any, ...]


@dataclass(frozen=True)
class Biased:
    """`product`, rows of which had `bias` added."""

    product: Any
    bias: Any


def addends_of(array: Array) -> tuple[Any, ...]:
    known = annotation_of(array)
    return known.addends if isinstance(known, Sum) else (array,)


def term_of(array: Array, width: int) -> Term:
    """A float32 array [..., width] as rows, in half precision if that is what it came from."""
    known = annotation_of(array)
    if not isinstance(known, Widened):
        return Term(array.reshape(-1, width))
    biased = annotation_of(known.narrow)
    if isinstance(biased, Biased):
        return Term(biased.product.reshape(-1, width), biased.bias)
    return Term(known.narrow.reshape(-1, width))


def _before_widening(x: Any, y: Any) -> Any:
    """The sum of two arrays that were widened, if it can be made in their own type as well."""
    a, b = annotation_of(x), annotation_of(y)
    if not (isinstance(a, Widened) and isinstance(b, Widened)):
        return None
    known = annotation_of(a.narrow)
    if not getattr(known, "widened", False) or a.narrow.dtype != b.narrow.dtype:
        return None
    narrow = known.plus(b.narrow)
    return None if narrow is None else in_type(jax_door.jnp(), narrow, x.dtype)


def _alike(call: Call) -> bool:
    x, y = call.types
    return isinstance(x, Aval) and isinstance(y, Aval) and x.is_static and x.shape == y.shape


@kernel("add", name=_NAME, platform="gpu", accepts=_alike)
def _add(call: Call, x: Any, y: Any) -> Any:
    for known, other in ((annotation_of(y), x), (annotation_of(x), y)):
        plus = getattr(known, "plus", None)
        out = None if plus is None else plus(other)
        if out is not None:
            return out
    out = _before_widening(x, y)
    if out is not None:
        return out
    out = call.op.lower(jax_door.jnp(), call, [x, y])
    addends = (*addends_of(x), *addends_of(y))
    annotate(out, Sum(addends if len(addends) <= _MANY else (x, y)))
    return out


def _long(call: Call) -> bool:
    """A linear layer whose bias can be added by the reader of its result."""
    x, _, bias = call.types
    kind = call.outs[0].dtype
    return (
        isinstance(x, Aval) and x.is_static and isinstance(bias, Aval) and bias.ndim == 1
        and bias.shape == call.outs[0].shape[-1:] and kind.is_floating and kind.itemsize == 2
    )  # fmt: skip


@kernel("linear", name=_NAME, platform="gpu", accepts=_long)
def _linear(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    product = call.op.lower(jax_door.jnp(), call, [x, weight, None])
    out = product + bias
    annotate(out, Biased(product, bias))
    return out
