"""One program for many sizes: a program with an open size, run on arrays that are padded.

JAX traces the program with a symbol for the size. Here its primitives are evaluated on arrays as
large as the largest size needs. The entries of a value lie in the corner where all indices are
small, `[0, n)` along each axis; what lies beyond is arbitrary. So a primitive that computes each
entry by itself runs as it is, and one that mixes entries (a sum, a product, a sort) first puts
something neutral there. The results are those of the program for the exact size, up to the order
of sums. A primitive without a rule, in a place where the size matters, is `Unsupported`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.capture import symbols
from bireme.core.dims import is_symbolic
from bireme.host import jax_door
from bireme.host.arrays import Array


class Unsupported(Exception):
    """What no rule covers."""


@dataclass(frozen=True)
class SizeRange:
    """The sizes `low` to `high` of the symbol `name`."""

    name: str
    low: int
    high: int

    def extent(self, dim: Any) -> int:
        """The largest size that a dimension has in this range."""
        if not is_symbolic(dim):
            return dim
        text = str(dim)
        return max(symbols.evaluate(text, {self.name: n}) for n in range(self.low, self.high + 1))


def places(count: int) -> type[np.signedinteger[Any]]:
    """A type for the numbers of so many places."""
    return np.int32 if count < 2**31 else np.int64


class Sizes:
    """A range, and the size that this run has: an integer in the program."""

    def __init__(self, of: SizeRange, size: Array):
        self._of = of
        self._size = size
        self._extents: dict[str, int] = {}
        self._actual: dict[str, Any] = {}

    def extent(self, dim: Any) -> int:
        if not is_symbolic(dim):
            return dim
        text = str(dim)
        if text not in self._extents:
            self._extents[text] = self._of.extent(dim)
        return self._extents[text]

    def least(self, dim: Any) -> int:
        """The smallest size that a dimension has in this range."""
        return -self.extent(-dim) if is_symbolic(dim) else dim

    def extents(self, shape: Sequence[Any]) -> tuple[int, ...]:
        return tuple([self.extent(d) for d in shape])

    def actual(self, dim: Any) -> Any:
        """The dimension in this run: an int if it is closed."""
        if not is_symbolic(dim):
            return dim
        text = str(dim)
        if text not in self._actual:
            size: Any = self._size
            found = jax_door.jnp().asarray(symbols.evaluate(text, {self._of.name: size}))
            self._actual[text] = found.astype(places(self.extent(dim)))
        return self._actual[text]

    def is_valid(self, x: Array, shape: Sequence[Any], axes: Sequence[int]) -> Any:
        """Which entries are no padding along these axes; None if none is."""
        lax = jax_door.jax().lax
        valid = None
        for axis in axes:
            if is_symbolic(shape[axis]):
                place = lax.broadcasted_iota(places(x.shape[axis]), x.shape, axis)
                inside = place < self.actual(shape[axis])
                valid = inside if valid is None else valid & inside
        return valid

    def filled(self, x: Array, shape: Sequence[Any], axes: Sequence[int], value: Any) -> Array:
        """`x` with `value` in the padding along these axes."""
        valid = self.is_valid(x, shape, axes)
        if valid is None:
            return x
        jnp = jax_door.jnp()
        return jnp.where(valid, x, jnp.asarray(value, x.dtype))

    def fitted(self, x: Array, shape: Sequence[Any], value: Any = 0) -> Array:
        """`x` cropped or padded to the extents of a shape."""
        lax, jnp = jax_door.jax().lax, jax_door.jnp()
        wanted = self.extents(shape)
        if x.shape == wanted:
            return x
        config = [(0, w - have, 0) for w, have in zip(wanted, x.shape, strict=True)]
        return lax.pad(x, jnp.asarray(value, x.dtype), config)


Rule = Callable[[Sizes, Any, list[Any]], Sequence[Any]]
RULES: dict[str, Rule] = {}  # by a primitive's name


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def run(jaxpr: Any, consts: Sequence[Any], sizes: Sizes, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate an open jaxpr on padded inputs."""
    values: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return atom.val if _is_literal(atom) else values[atom]

    values.update(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))
    last = {v: i for i, e in enumerate(jaxpr.eqns) for v in e.invars if not _is_literal(v)}
    kept = {v for v in jaxpr.outvars if not _is_literal(v)}
    for i, eqn in enumerate(jaxpr.eqns):
        made = _evaluated(sizes, eqn, [read(atom) for atom in eqn.invars])
        values.update(zip(eqn.outvars, made, strict=True))
        for v in {v for v in eqn.invars if not _is_literal(v)}:
            if last[v] == i and v not in kept:
                del values[v]
    return [read(atom) for atom in jaxpr.outvars]


def _is_literal(atom: Any) -> bool:
    return hasattr(atom, "val")


def _evaluated(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    from bireme.capture import padded_parts, padded_rules, padded_shapes  # noqa: F401 (fill RULES)

    name = eqn.primitive.name
    if is_open(eqn):
        found = RULES.get(name)
        if found is None:
            shapes = ", ".join(str(v.aval) for v in eqn.invars)
            raise Unsupported(f"{name} of {shapes}")
        results = found(sizes, eqn, arrays)
        for var, result in zip(eqn.outvars, results, strict=True):
            wanted = sizes.extents(var.aval.shape)
            if result.shape != wanted or result.dtype != var.aval.dtype:
                raise Unsupported(f"the rule of {name} made {result.dtype}{result.shape}")
        return results
    bound = bind(eqn, arrays)
    return bound if eqn.primitive.multiple_results else [bound]


def shapes_of(eqn: Any) -> list[tuple[Any, ...]]:
    """The exact shapes of the inputs."""
    return [v.aval.shape for v in eqn.invars]


def bind(eqn: Any, arrays: Sequence[Any], **changed: Any) -> Any:
    """The primitive as it is, with some parameters changed."""
    return eqn.primitive.bind(*arrays, **{**eqn.params, **changed})


def is_open(eqn: Any) -> bool:
    """Whether a size in the equation, or in one inside it, is open."""
    if any(
        is_symbolic(d) for v in (*eqn.invars, *eqn.outvars) for d in getattr(v.aval, "shape", ())
    ):
        return True
    return any(_has_open(p) for p in eqn.params.values())


def _has_open(thing: Any) -> bool:
    if isinstance(thing, tuple | list):
        return any(_has_open(t) for t in thing)
    inner = getattr(thing, "jaxpr", thing)
    if hasattr(inner, "eqns"):
        return any(is_open(e) for e in inner.eqns)
    return type(thing).__module__.endswith("shape_poly")


def lowest(dtype: Any) -> Any:
    """What every other number of the type is above."""
    jnp = jax_door.jnp()
    if jnp.issubdtype(dtype, np.floating):
        return -math.inf
    return False if dtype == np.bool_ else jnp.iinfo(dtype).min


def highest(dtype: Any) -> Any:
    """What every other number of the type is below."""
    jnp = jax_door.jnp()
    if jnp.issubdtype(dtype, np.floating):
        return math.inf
    return True if dtype == np.bool_ else jnp.iinfo(dtype).max


def padded_function(
    function: Callable[..., list[Any]], types: Sequence[Any], of: SizeRange
) -> tuple[Callable[..., list[Any]], list[Any]]:
    """A function of (floats, ints, *inputs) whose inputs have open sizes, on padded inputs, and
    their types. The last of its integers is the size."""
    jax = jax_door.jax()
    traced = jax.jit(function).trace(*types).jaxpr

    def wide(floats: Any, ints: Any, *inputs: Any) -> list[Any]:
        sizes = Sizes(of, ints[-1])
        return run(traced.jaxpr, traced.consts, sizes, [floats, ints[:-1], *inputs])

    floats, ints, *inputs = types
    more = jax.ShapeDtypeStruct((ints.shape[0] + 1,), ints.dtype)
    padded = [jax.ShapeDtypeStruct(tuple([of.extent(d) for d in t.shape]), t.dtype) for t in inputs]
    return wide, [floats, more, *padded]
