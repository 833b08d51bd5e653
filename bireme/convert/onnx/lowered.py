"""Ops without an ONNX rule of their own, written out as their lowering says.

The lowering is traced to JAX's primitives, some sixty of them, and each has its ONNX form in
`primitives/`. That is how control flow, gradients and the long tail of ops reach ONNX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.convert.onnx.primitives import PRIMITIVES
from bireme.convert.onnx.writer import UnsupportedForm, Writer
from bireme.core.aval import Aval, NumberType
from bireme.core.op import Call
from bireme.host import jax_door


def write_call(w: Writer, call: Call, given: Sequence[Any]) -> list[str]:
    """The results of a call. `given` are names of values, Python numbers, or None."""
    jax = jax_door.jax()
    names = [g for g in given if isinstance(g, str)]
    specs = [
        jax.ShapeDtypeStruct(t.shape, t.dtype.numpy)
        for t, g in zip(call.types, given, strict=True)
        if isinstance(g, str) and isinstance(t, Aval)
    ]

    def run(*arrays: Any) -> Any:
        left = iter(arrays)
        flat = []
        for t, g in zip(call.types, given, strict=True):
            if isinstance(g, str):
                flat.append(next(left))
            elif isinstance(t, NumberType):
                flat.append(np.asarray(g, np.int64 if isinstance(g, int) else np.float64))
            else:
                flat.append(None)
        out = call.run(jax.numpy, flat)
        return list(out) if isinstance(out, list | tuple) else [out]

    closed = jax.make_jaxpr(run)(*specs)
    try:
        return write_jaxpr(w, closed, names)
    except UnsupportedForm as e:
        raise UnsupportedForm(f"[{call.op.name}], first used at {call.source}: {e}") from None


def write_jaxpr(w: Writer, code: Any, names: Sequence[str]) -> list[str]:
    """The results of a jaxpr, closed or open, on these values."""
    known: dict[Any, str] = {}
    jaxpr = getattr(code, "jaxpr", code)
    for var, value in zip(jaxpr.constvars, getattr(code, "consts", ()), strict=True):
        known[var] = w.constant(np.asarray(value))
    known.update(zip(jaxpr.invars, names, strict=True))

    def read(atom: Any) -> str:
        if hasattr(atom, "val"):  # a literal
            return w.constant(np.asarray(atom.val, atom.aval.dtype))
        return known[atom]

    for eqn in jaxpr.eqns:
        rule = PRIMITIVES.get(eqn.primitive.name)
        if rule is None:
            raise UnsupportedForm(f"its step {eqn.primitive.name!r} has no ONNX form")
        made = rule(w, eqn, *[read(a) for a in eqn.invars])
        outs = [made] if isinstance(made, str) else list(made)
        known.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]
