"""Gradients of NumPy bodies: the cold tier's counterpart of `jax.vjp`.

A second derivative is the derivative of a gradient rule, which is a composition of array functions.
Here a rule (or a body without a rule) runs on `Traced` arrays, which note the functions that they
go through; then the gradients are pulled back through these. A pull is written in the same
functions, so gradients of any order work: arrays of an inner gradient may be traced by an outer
one. A composition with any other function raises `NotTraced`, and JAX differentiates it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from bireme.host.arrays import Array


class NotTraced(Exception):
    """A composition that only JAX differentiates."""


class Traced:
    """An array that notes what is computed with it. Its operators and other methods are in
    traced_numpy.py, beside the functions that they are."""

    __slots__ = ("level", "tape", "value")
    __array_ufunc__ = None  # NumPy's operators leave the work to ours
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any, tape: list[Any], level: int):
        self.value, self.tape, self.level = value, tape, level

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return len(self.value.shape)

    @property
    def size(self) -> int:
        return math.prod(self.value.shape)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise NotTraced("a traced array is no NumPy array")

    def __bool__(self) -> bool:
        raise NotTraced("the contents of a traced array were read")

    def __iter__(self) -> Any:
        raise NotTraced("a traced array was iterated over")


def plain(x: Any) -> Any:
    """The array without notes."""
    while x.__class__ is Traced:
        x = x.value
    return x


def level_of(args: Sequence[Any]) -> int:
    """How many gradients are being computed around these arrays; 0 for plain ones."""
    top = 0
    for a in args:
        if a.__class__ is Traced and a.level > top:
            top = a.level
    return top


def note(
    call: Callable[..., Any],
    args: Sequence[Any],
    options: dict[str, Any],
    level: int,
    pull: Callable[[Any, Any, list[Any], list[int]], Sequence[Any]],
) -> Traced:
    """Compute, and note how gradients come back: `pull(grad, out, args, which)`."""
    inner = [a.value if a.__class__ is Traced and a.level == level else a for a in args]
    value = call(*inner, **options)
    which = [i for i, a in enumerate(args) if a.__class__ is Traced and a.level == level]
    sources = [args[i] for i in which]
    out = Traced(value, sources[0].tape, level)
    out.tape.append((out, sources, lambda grad: pull(grad, value, inner, which)))
    return out


def pull_back(
    run: Callable[[list[Any]], Sequence[Any]],
    inputs: Sequence[Any],
    grads: Sequence[Any],
    others: Sequence[Any],
) -> list[Any]:
    """The gradients of `inputs` (None: nothing depends on one), given those of `run(inputs)`,
    which also uses the arrays `others`."""
    level = level_of([*inputs, *grads, *others]) + 1
    tape: list[Any] = []
    traced = [Traced(x, tape, level) for x in inputs]
    found: dict[int, Any] = {}

    def collect(array: Array, grad: Array) -> None:
        before = found.get(id(array))
        grad = grad if grad.dtype == array.dtype else grad.astype(array.dtype)
        found[id(array)] = grad if before is None else before + grad

    try:
        for out, grad in zip(run(traced), grads, strict=True):
            if out.__class__ is Traced and out.level == level:
                collect(out, grad)
        for out, sources, pull in reversed(tape):
            grad = found.pop(id(out), None)
            if grad is not None:
                for source, back in zip(sources, pull(grad), strict=True):
                    collect(source, back)
        return [found.get(id(t)) for t in traced]
    except (TypeError, AttributeError, NotImplementedError) as e:  # what our arrays cannot do
        raise NotTraced(str(e)) from e
    finally:
        tape.clear()  # which the arrays refer to
