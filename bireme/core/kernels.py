"""Fast lowerings beside the plain ones: one registry for every platform.

A kernel replaces an op's plain lowering (or its gradient's) in compiled programs where it applies:

    @kernel("conv2d", name="native_conv", platform="cpu", accepts=lambda call: ...)
    def _(call, x, weight, bias): ...

The plain composition remains the oracle and the fallback, and derivatives of derivatives use it.
Kernels are switched by name (`BIREME_KERNELS_OFF=native_conv` or `disable("native_conv")`), and the
profiler shows which ones ran.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.core.lowering import lowering
from bireme.core.op import Call
from bireme.host import config, jax_door


@dataclass(frozen=True)
class Kernel:
    """A lowering of one op for one platform."""

    name: str
    op: str
    platform: str
    accepts: Callable[[Call], bool]
    lower: Callable[..., Any] | None
    ready: Callable[[], bool]
    inference: bool
    direct: Callable[[], Any] | None
    fuse: Callable[..., list[int]] | None


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
    direct: Callable[[], Any] | None = None,
    fuse: Callable[..., list[int]] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a lowering for `op` (or `<op>_grad`); `ready` says whether it can be used at all.
    One for inference is used in programs whose weights are fixed, before any other. The body of one
    with `direct` also runs on NumPy arrays, in the cold tier, whenever that returns something. With
    `fuse` it also rewrites the op where its neighbours are seen (see kernels/fusing.py)."""

    def register(lower: Callable[..., Any]) -> Callable[..., Any]:
        _register(Kernel(name, op, platform, accepts, lower, ready, inference, direct, fuse))
        return lower

    return register


def fusion(
    op: str,
    *,
    name: str,
    platform: str,
    accepts: Callable[[Call], bool] = lambda call: True,
    ready: Callable[[], bool] = lambda: True,
) -> Callable[[Callable[..., list[int]]], Callable[..., list[int]]]:
    """Register a rule for `op` that rewrites it in a graph, and no lowering of its own."""

    def register(fuse: Callable[..., list[int]]) -> Callable[..., list[int]]:
        _register(Kernel(name, op, platform, accepts, None, ready, False, None, fuse))
        return fuse

    return register


def _register(made: Kernel) -> None:
    listed = _by_op.setdefault(made.op, [])
    listed.insert(0 if made.inference else len(listed), made)


def fuses(platform: str) -> bool:
    """Whether any rule rewrites graphs for this platform."""
    return _ALL not in _off and any(
        k.fuse is not None and k.platform == platform for ks in _by_op.values() for k in ks
    )


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

    Yields the chosen kernels, counted by (op, kernel).
    """
    chosen: Counter[Choice] = Counter()

    def pick(call: Call) -> Callable[..., Any] | None:
        k = choose(call, platform, inference)
        if k is None or k.lower is None:
            return None
        if not call.op.fused:  # what was fused is counted by the ops that it stands for
            count(k, chosen)
        return k.lower

    before = lowering.choose, lowering.kept, lowering.precision
    lowering.choose, lowering.kept, lowering.precision = pick, {}, _precision
    try:
        yield chosen
    finally:
        lowering.choose, lowering.kept, lowering.precision = before


def count(k: Kernel, chosen: Counter[Choice]) -> None:
    """A kernel was put into a program."""
    uses[k.name] += 1
    chosen[k.op.lstrip("_"), k.name] += 1


# Samples at places between pixels: their weights are products only in our lowering.
_EXACT = frozenset({"deformable_conv", "deformable_conv_grad"})


def is_product(call: Call) -> bool:
    """Whether the op, or the one whose gradient it is, multiplies matrices or convolves."""
    forward = call.attrs.get("forward")
    return (forward.op if isinstance(forward, Call) else call.op).amp == "white"


def _precision(call: Call) -> AbstractContextManager[Any]:
    """Products and convolutions may round float32 to TF32 on a GPU, as Paddle's do. Means, samples
    and spectra that are lowered to products may not."""
    rounds = config.tf32 and is_product(call) and call.op.name not in _EXACT
    return jax_door.jax().default_matmul_precision("default" if rounds else "highest")


@contextmanager
def run_directly() -> Iterator[None]:
    """Inside the block calls are run one by one, and a forward kernel's residuals are kept for the
    gradient's."""
    before = lowering.kept
    lowering.kept = {}
    try:
        yield
    finally:
        lowering.kept = before


def may_run_directly(call: Call) -> bool:
    """Whether a kernel takes this call on NumPy arrays, now or later; it is looked up once."""
    if call.direct is None:
        taking = (k for k in _by_op.get(call.op.name, ()) if k.direct is not None)
        call.direct = next((k for k in taking if k.accepts(call)), False)
    return call.direct is not False


def direct(call: Call) -> Kernel | None:
    """The kernel that takes this call on NumPy arrays, if it is there by now."""
    k = call.direct if may_run_directly(call) else None
    return None if k is None or k.direct() is None or is_off(k.name) else k


def is_off(name: str) -> bool:
    """Whether a kernel is switched off."""
    return bool(_off) and (_ALL in _off or name in _off)


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
    """The names that are switched off, TF32 among them; part of a program's key."""
    return tuple(sorted(_off if config.tf32 else {*_off, "tf32"}))
