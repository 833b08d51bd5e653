"""Calls, conditionals and loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.onnx.primitives import primitive
from bireme.convert.onnx.writer import Writer
from bireme.core.dtype import as_dtype

if TYPE_CHECKING:
    from bireme.convert.onnx.primitives import Equation


def _inner(eqn: Equation) -> Any:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        found = eqn.params.get(name)
        if found is not None:
            return found
    raise KeyError(eqn.primitive.name)


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
def call(w: Writer, eqn: Equation, *xs: str) -> list[str]:
    from bireme.convert.onnx.lowered import write_jaxpr

    return write_jaxpr(w, _inner(eqn), xs)


def _named(w: Writer, name: str, aval: Any) -> Any:
    shape = [d if type(d) is int else None for d in aval.shape]
    return w.onnx.helper.make_tensor_value_info(name, w.element_type(as_dtype(aval.dtype)), shape)


def _results(w: Writer, outs: list[str], avals: Any) -> list[Any]:
    """Graph outputs: fresh names, since an inner graph may not return what it was given."""
    return [_named(w, w.emit("Identity", o), a) for o, a in zip(outs, avals, strict=True)]


@primitive("cond")
def cond(w: Writer, eqn: Equation, which: str, *operands: str) -> list[str]:
    """A choice among branches by number: a chain of Ifs."""
    return _choose(w, eqn, which, list(operands), 0)


def _choose(w: Writer, eqn: Equation, which: str, operands: list[str], at: int) -> list[str]:
    from bireme.convert.onnx.lowered import write_jaxpr

    branches = eqn.params["branches"]
    if at == len(branches) - 1:
        return write_jaxpr(w, branches[at], operands)
    avals = [v.aval for v in eqn.outvars]
    with w.inner() as nodes:
        results = _results(w, write_jaxpr(w, branches[at], operands), avals)
        first = w.onnx.helper.make_graph(nodes, w.fresh("branch"), [], results)
    with w.inner() as nodes:
        results = _results(w, _choose(w, eqn, which, operands, at + 1), avals)
        rest = w.onnx.helper.make_graph(nodes, w.fresh("branch"), [], results)
    dtype = np.dtype(eqn.invars[0].aval.dtype)
    is_it = (
        w.emit("Equal", which, w.constant(at, dtype)) if dtype != np.bool_ else w.emit("Not", which)
    )
    made = w.emit("If", is_it, outputs=len(avals), then_branch=first, else_branch=rest)
    return [made] if len(avals) == 1 else made


@primitive("while")
def while_(w: Writer, eqn: Equation, *operands: str) -> list[str]:
    from bireme.convert.onnx.lowered import write_jaxpr

    p = eqn.params
    n_test, n_body = p["cond_nconsts"], p["body_nconsts"]
    test_given, body_given = operands[:n_test], operands[n_test : n_test + n_body]
    start = list(operands[n_test + n_body :])
    avals = [v.aval for v in eqn.outvars]
    (going,) = write_jaxpr(w, p["cond_jaxpr"], [*test_given, *start])
    with w.inner() as nodes:
        names = [w.fresh("carried") for _ in avals]
        turn, was = w.fresh("turn"), w.fresh("going")
        new = write_jaxpr(w, p["body_jaxpr"], [*body_given, *names])
        (more,) = write_jaxpr(w, p["cond_jaxpr"], [*test_given, *new])
        helper, kinds = w.onnx.helper, w.onnx.TensorProto
        given = [
            helper.make_tensor_value_info(turn, kinds.INT64, []),
            helper.make_tensor_value_info(was, kinds.BOOL, []),
            *[_named(w, n, a) for n, a in zip(names, avals, strict=True)],
        ]
        flag = helper.make_tensor_value_info(w.emit("Identity", more), kinds.BOOL, [])
        body = helper.make_graph(nodes, w.fresh("body"), given, [flag, *_results(w, new, avals)])
    made = w.emit("Loop", None, going, *start, outputs=len(avals), body=body)
    return [made] if len(avals) == 1 else made


@primitive("scan")
def scan(w: Writer, eqn: Equation, *operands: str) -> list[str]:
    """A Loop that takes its row of each input by number and stacks what it makes."""
    from bireme.convert.onnx.lowered import write_jaxpr

    p = eqn.params
    n_fixed, n_state = p["num_consts"], p["num_carry"]
    fixed, state = operands[:n_fixed], list(operands[n_fixed : n_fixed + n_state])
    rows = operands[n_fixed + n_state :]
    inner = p["jaxpr"]
    avals = [v.aval for v in inner.jaxpr.outvars]
    helper, kinds = w.onnx.helper, w.onnx.TensorProto
    length = w.reshape(w.shape([p["length"]]), ())
    with w.inner() as nodes:
        turn, was = w.fresh("turn"), w.fresh("going")
        names = [w.fresh("carried") for _ in state]
        place = turn
        if p["reverse"]:
            last = w.emit("Sub", length, w.constant(1, "int64"))
            place = w.emit("Sub", last, turn)
        parts = [w.emit("Gather", r, place, axis=0) for r in rows]
        made = write_jaxpr(w, inner, [*fixed, *names, *parts])
        given = [
            helper.make_tensor_value_info(turn, kinds.INT64, []),
            helper.make_tensor_value_info(was, kinds.BOOL, []),
            *[_named(w, n, a) for n, a in zip(names, avals[:n_state], strict=True)],
        ]
        flag = helper.make_tensor_value_info(w.emit("Identity", was), kinds.BOOL, [])
        body = helper.make_graph(nodes, w.fresh("body"), given, [flag, *_results(w, made, avals)])
    outs = w.emit("Loop", length, w.constant(True, "bool"), *state, outputs=len(avals), body=body)
    outs = [outs] if len(avals) == 1 else outs
    if p["reverse"]:
        back = [w.ints(v) for v in ([-1], [-(1 << 62)], [0], [-1])]
        outs = [*outs[:n_state], *[w.emit("Slice", o, *back) for o in outs[n_state:]]]
    return outs
