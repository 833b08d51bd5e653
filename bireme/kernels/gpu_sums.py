"""Sums on GPUs: what is known of the addends decides how they are added.

If the fact of an addend has a method `plus`, that adds them; otherwise the sum is known by its
addends, for rules that would rather read those (a norm after a residual connection).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from bireme.core.aval import Aval
from bireme.core.graph import Node
from bireme.core.kernels import fusion
from bireme.core.op import Call
from bireme.host import thresholds
from bireme.host.arrays import Array, Namespace
from bireme.kernels.fusing import Fuser, Widened, fused_op
from bireme.kernels.gpu_matmul import product

_NAME = "known_sums"


@runtime_checkable
class Addend(Protocol):
    """A fact of a value that knows how something is added to it."""

    def plus(self, f: Fuser, other: int) -> int | None:
        """The sum with `other`, or None if it has no better way."""


@dataclass(frozen=True)
class Sum:
    """The sum of `addends`, all of its shape and type."""

    addends: tuple[int, ...]


@dataclass(frozen=True)
class Biased:
    """`product`, rows of which had `bias` added."""

    product: int
    bias: int


class TermRef(NamedTuple):
    """What a kernel reads for an addend (see pallas_norm.Term)."""

    array: int
    bias: int | None = None


def addends_of(f: Fuser, ref: int) -> tuple[int, ...]:
    known = f.fact(ref, Sum)
    return known.addends if known else (ref,)


def terms_of(f: Fuser, ref: int) -> list[TermRef]:
    """The addends of a float32 value, in half precision if that is what they came from."""
    return [_term_of(f, a) for a in addends_of(f, ref)]


def _term_of(f: Fuser, ref: int) -> TermRef:
    known = f.fact(ref, Widened)
    if known is None:
        return TermRef(ref)
    biased = f.fact(known.narrow, Biased)
    return TermRef(biased.product, biased.bias) if biased else TermRef(known.narrow)


def _before_widening(f: Fuser, x: int, y: int) -> int | None:
    """The sum of two values that were widened, if it can be made in their own type as well."""
    a, b = f.fact(x, Widened), f.fact(y, Widened)
    if a is None or b is None:
        return None
    known = f.facts.get(a.narrow)
    if (
        not getattr(known, "widened", False)
        or f.type_of(a.narrow).dtype is not f.type_of(b.narrow).dtype
    ):
        return None
    narrow = known.plus(f, b.narrow)  # type: ignore[union-attr]
    return None if narrow is None else f.cast(narrow, f.type_of(x).dtype)


def _alike(call: Call) -> bool:
    x, y = call.types
    return isinstance(x, Aval) and isinstance(y, Aval) and x.is_static and x.shape == y.shape


@fusion("add", name=_NAME, platform="gpu", accepts=_alike)
def _add(f: Fuser, node: Node) -> list[int]:
    call, (x, y) = f.without_casts(node)
    for known, other in ((f.facts.get(y), x), (f.facts.get(x), y)):
        out = known.plus(f, other) if isinstance(known, Addend) else None
        if out is not None:
            return [out]
    out = _before_widening(f, x, y)
    if out is not None:
        return [out]
    (out,) = f.add(call, (x, y))
    addends = (*addends_of(f, x), *addends_of(f, y))
    f.facts[out] = Sum(addends if len(addends) <= thresholds.GPU_SUM_ADDENDS else (x, y))
    return [out]


@fused_op("add_bias", ("x", "bias"), lambda x, bias: x)
def add_bias(xp: Namespace, x: Array, bias: Array) -> Array:
    """x + bias over the last dimension."""
    return x + bias


def _long(call: Call) -> bool:
    """A linear layer whose bias can be added by the reader of its result."""
    x, _, bias = call.types
    kind = call.outs[0].dtype
    return (
        isinstance(x, Aval)
        and x.is_static
        and isinstance(bias, Aval)
        and bias.ndim == 1
        and bias.shape == call.outs[0].shape[-1:]
        and kind.is_floating
        and kind.itemsize == 2
    )


@fusion("linear", name=_NAME, platform="gpu", accepts=_long)
def _linear(f: Fuser, node: Node) -> list[int]:
    x, weight, bias = f.operands(node)
    (plain,) = f.emit(product, [x, weight])
    (out,) = f.emit(add_bias, [plain, bias])
    f.facts[out] = Biased(plain, bias)
    return [out]
