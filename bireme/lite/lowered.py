"""Ops without a rule of their own: their lowering, traced to JAX's primitives, is written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bireme.core.aval import Aval, NumberType
from bireme.core.op import Call
from bireme.host import jax_door
from bireme.lite.folding import folded
from bireme.lite.primitives import PRIMITIVES, Equation, primitive, result
from bireme.lite.writer import GraphWriter, Operand, UnsupportedForm


class Code(Protocol):
    """A jaxpr, closed or open, as far as it is read here."""

    @property
    def eqns(self) -> list[Any]: ...


def write_call(
    g: GraphWriter, call: Call, given: Sequence[Operand | float | None]
) -> list[Operand]:
    """The results of a call. `given` are operands, Python numbers, or None."""
    jax = jax_door.jax()
    operands = [x for x in given if isinstance(x, Operand)]
    specs = [
        jax.ShapeDtypeStruct(t.shape, t.dtype.numpy)
        for t, x in zip(call.types, given, strict=True)
        if isinstance(x, Operand) and isinstance(t, Aval)
    ]

    def run(*arrays: Any) -> Any:
        left = iter(arrays)
        flat = []
        for t, x in zip(call.types, given, strict=True):
            if isinstance(x, Operand):
                flat.append(next(left))
            elif isinstance(t, NumberType):
                flat.append(np.asarray(x, np.int64 if isinstance(x, int) else np.float64))
            else:
                flat.append(None)
        out = call.run(jax.numpy, flat)
        return list(out) if isinstance(out, list | tuple) else [out]

    try:
        return write_jaxpr(g, _traced(jax, run, specs), operands)
    except UnsupportedForm as e:
        raise UnsupportedForm(f"[{call.op.name}], first used at {call.source}: {e}") from None


def _traced(jax: Any, run: Any, specs: Any) -> Any:
    """The lowering as a jaxpr. Some need to know every size."""
    try:
        return jax.make_jaxpr(run)(*specs)
    except (TypeError, ValueError) as e:
        if all(type(d) is int for s in specs for d in s.shape):
            raise
        reason = str(e).strip().split("\n")[0][:200]
        raise UnsupportedForm(
            f"it cannot be written while sizes are open ({reason}); export with fixed sizes"
        ) from None


def write_jaxpr(g: GraphWriter, code: Code, given: Sequence[Operand]) -> list[Operand]:
    """The results of a jaxpr, closed or open, on these values."""
    known: dict[Any, Operand] = {}
    jaxpr: Any = getattr(code, "jaxpr", code)
    for var, value in zip(jaxpr.constvars, getattr(code, "consts", ()), strict=True):
        known[var] = g.constant(np.asarray(value))
    known.update(zip(jaxpr.invars, given, strict=True))

    def read(atom: Any) -> Operand:
        if hasattr(atom, "val"):  # a literal
            return g.constant(np.asarray(atom.val, atom.aval.dtype))
        return known[atom]

    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        rule = PRIMITIVES.get(name)
        if rule is None:
            raise UnsupportedForm(f"its step {name!r} has no form in Bireme Lite")
        operands = [read(a) for a in eqn.invars]
        made = folded(g, eqn, operands)
        if made is None:
            made = rule(g, eqn, *operands)
        known.update(zip(eqn.outvars, [made] if isinstance(made, Operand) else made, strict=True))
    return [read(v) for v in jaxpr.outvars]


@primitive(
    "pjit",
    "jit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "remat",
    "remat2",
    "checkpoint",
    "custom_lin",
)
def call_(g: GraphWriter, eqn: Equation, *xs: Operand) -> list[Operand]:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = eqn.params.get(name)
        if inner is not None:
            return write_jaxpr(g, inner, xs)
    raise UnsupportedForm(f"its step {eqn.primitive.name!r} has no body")


@primitive("platform_index")
def platform_index(g: GraphWriter, eqn: Equation) -> Operand:
    """Which of several lowerings to use: the one for any platform, else the first."""
    platforms = list(eqn.params["platforms"])
    number = platforms.index(None) if None in platforms else 0
    return g.constant(np.asarray(number, np.int32))


def _inner(g: GraphWriter, code: Any) -> int:
    """A graph of its own for a branch, test or body; its number."""
    inner = g.model.graph()
    given = [inner.input(tuple(v.aval.shape), v.aval.dtype) for v in code.jaxpr.invars]
    inner.finish(write_jaxpr(inner, code, given), copies=True)
    return g.model.graphs.index(inner)


@primitive("cond")
def cond(g: GraphWriter, eqn: Equation, which: Operand, *operands: Operand) -> list[Operand]:
    branches = eqn.params["branches"]
    known = g.array(which)
    if known is not None:
        return write_jaxpr(g, branches[min(max(int(known), 0), len(branches) - 1)], operands)
    graphs = [_inner(g, b) for b in branches]
    results = [result(eqn, i) for i in range(len(eqn.outvars))]
    given = [g.whole(which), *[g.whole(x) for x in operands]]
    return g.emit_many("cond", given, results, graphs=graphs)


@primitive("while")
def while_(g: GraphWriter, eqn: Equation, *operands: Operand) -> list[Operand]:
    p = eqn.params
    graphs = [_inner(g, p["cond_jaxpr"]), _inner(g, p["body_jaxpr"])]
    results = [result(eqn, i) for i in range(len(eqn.outvars))]
    counts = [p["cond_nconsts"], p["body_nconsts"]]
    return g.emit_many("while", [g.whole(x) for x in operands], results, counts, graphs=graphs)


@primitive("scan")
def scan(g: GraphWriter, eqn: Equation, *operands: Operand) -> list[Operand]:
    p = eqn.params
    graph = _inner(g, p["jaxpr"])
    results = [result(eqn, i) for i in range(len(eqn.outvars))]
    attrs = [p["num_consts"], p["num_carry"], int(p["reverse"]), p["length"]]
    return g.emit_many("scan", [g.whole(x) for x in operands], results, attrs, graphs=[graph])
