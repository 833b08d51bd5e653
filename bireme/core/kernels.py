"""Fast lowerings beside the plain ones: one registry for every platform.

A kernel replaces an op's plain lowering (or its gradient's) in compiled programs where it applies:

    @kernel("conv2d", name="native_conv", platform="cpu", accepts=lambda call: ...)
    def _(call, x, weight, bias): ...

The plain composition stays the oracle, the fallback, and what derivatives of derivatives use.
Kernels are switched by name (`BIREME_KERNELS_OFF=native_conv` or `disable("native_conv")`), and
the profiler shows which ones ran.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.core.lowering import lowering
from bireme.core.op import Call


@dataclass(frozen=True)
class Kernel:
    """A lowering of one op for one platform."""

    name: str
    op: str
    platform: str
    accepts: Callable[[Call], bool]
    lower: Callable[..., Any]
    ready: Callable[[], bool]
    inference: bool


Choice = tuple[str, str]  # an op's name and its kernel's

_by_op: dict[str, list[Kernel]] = {}
_off: set[str] = {n for n in os.environ.get("BIREME_KERNELS_OFF", "").split(",") if n}
_ALL = "*"  # among those switched off: all of them, also those that are registered later
uses: Counter[str] = Counter()  # how often each kernel was put into a program


def kernel(
    op: str,
    *,
    name: str,
    platform: str,
    accepts: Callable[[Call], bool] = lambda call: True,
    ready: Callable[[], bool] = lambda: True,
    inference: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a lowering for `op` (or `<op>_grad`); `ready` says whether it can be used at all.
    One for inference is used in programs whose weights are fixed, before any other."""

    def register(lower: Callable[..., Any]) -> Callable[..., Any]:
        made = Kernel(name, op, platform, accepts, lower, ready, inference)
        listed = _by_op.setdefault(op, [])
        listed.insert(0 if inference else len(listed), made)
        return lower

    return register


def choose(call: Call, platform: str, inference: bool = False) -> Kernel | None:
    """The first enabled kernel that takes this call on this platform."""
    if _ALL in _off:
        return None
    for k in _by_op.get(call.op.name, ()):
        if k.platform != platform or k.name in _off or (k.inference and not inference):
            continue
        if k.accepts(call) and k.ready():
            return k
    return None


@contextmanager
def lowering_for(platform: str, inference: bool = False) -> Iterator[Counter[Choice]]:
    """Inside the block, calls that are lowered use the kernels of `platform`.

    Yields what was chosen, counted by (op, kernel).
    """
    chosen: Counter[Choice] = Counter()

    def pick(call: Call) -> Callable[..., Any] | None:
        k = choose(call, platform, inference)
        if k is None:
            return None
        uses[k.name] += 1
        chosen[k.op.lstrip("_"), k.name] += 1
        return k.lower

    before = lowering.choose, lowering.residuals
    lowering.choose, lowering.residuals = pick, {}
    try:
        yield chosen
    finally:
        lowering.choose, lowering.residuals = before


def names() -> list[str]:
    """Every registered kernel's name."""
    return sorted({k.name for ks in _by_op.values() for k in ks})


def _known(name: str) -> str:
    if name not in names():
        raise InvalidArgument(f"no kernel named {name!r}. Known: {', '.join(names())}")
    return name


def disable(name: str) -> None:
    """Use the plain lowering instead, in programs compiled from now on."""
    _off.add(_known(name))


def enable(name: str) -> None:
    _off.discard(_known(name))


@contextmanager
def disabled(*switched: str) -> Iterator[None]:
    """Without these kernels inside the block (all of them if none is named)."""
    chosen = set(switched) or {_ALL}
    before = set(_off)
    _off.update(chosen)
    try:
        yield
    finally:
        _off.clear()
        _off.update(before)


def settings() -> tuple[str, ...]:
    """What is switched off; part of a program's key."""
    return tuple(sorted(_off))
