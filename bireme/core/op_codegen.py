"""The eager function of an op, as Python source for its exact signature.

Three paths, fastest first: every input a tensor (dict look-ups and list appends only); tensors
mixed with numbers, None and lists of tensors; and `invoke`, which lifts, normalises and makes
new Calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

from bireme.core.aval import FLOAT, INT
from bireme.core.trace import Value, state


def generate(
    op: Any,
    params: list[str],
    defaults: dict[str, Any],
    invoke: Callable[..., Any],
    tensor_types: set[type],
) -> Callable[..., Any]:
    """Make the function; `invoke(op, inputs, attrs)` is its general path."""
    from bireme.core.autograd import Node, attach_values, prune
    from bireme.core.tensor import Tensor

    names = [n.lstrip("*") for n in op.inputs]
    attrs = list(op.attr_names)
    has_list = any(n.startswith("*") for n in op.inputs)
    signature = ", ".join([f"{p}=_d_{p}" if p in defaults else p for p in params] + ["name=None"])
    lines = [f"def function({signature}):"]
    if names and not has_list:
        lines += _tensor_path(op, names, attrs)
    if names and (has_list or len(names) > 1):
        lines += _mixed_path(op, names, attrs)
    packed = "".join(
        (f"tuple({n})" if m.startswith("*") else n) + ", "
        for n, m in zip(names, op.inputs, strict=True)
    )
    lines.append(f"    return _invoke(_op, ({packed}), ({''.join(a + ', ' for a in attrs)}))")
    scope: dict[str, Any] = {
        "_invoke": invoke, "_op": op, "_state": state, "_tensors": tensor_types,
        "_tables": op.tables, "_Value": Value, "_Node": Node, "_Tensor": Tensor,
        "_prune": prune, "_attach": attach_values, "_FLOAT": FLOAT, "_INT": INT,
        **{f"_d_{k}": v for k, v in defaults.items()},
    }  # fmt: skip
    exec(_compiled("\n".join(lines)), scope)
    function = scope["function"]
    function.__name__ = function.__qualname__ = op.name
    return function


@functools.cache
def _compiled(source: str) -> CodeType:
    # Ops of one signature share their code; only the globals differ. Compiling each of them
    # anew was half of `import bireme`.
    return compile(source, "<bireme op>", "exec")


def _tensor_path(op: Any, names: list[str], attrs: list[str]) -> list[str]:
    """Every input is a tensor and the Call is known: the steady state of training."""
    tests = " and ".join(f"{n}.__class__ in _tensors" for n in names)
    key = ", ".join([f"v_{n}.aval" for n in names] + attrs) + ","
    lines = [
        f"    if {tests}:",
        "        _trace = _state.trace",
        *[f"        v_{n} = {n}._value" for n in names],
        "        try:",
        f"            _call = _tables[_trace.amp].get(({key}))",
        "        except (KeyError, TypeError):",
        "            _call = None",
        "        if _call is not None and _call.single:",
        *[f"            if v_{n}.trace is not _trace: _trace.leaf(v_{n})" for n in names],
        "            _values = _trace.values",
        "            _slot = len(_values)",
        "            v_out = _Value(_call.out, _trace, _slot)",
        # No call between these two, so that Ctrl-C cannot come between them (see trace.record).
        f"            _trace.code += (_call.id, {', '.join(f'v_{n}.slot' for n in names)})",
        "            _values += (v_out,)",
        "            if _slot >= _trace.limit: _trace.full()",
    ]
    if op.differentiable:
        any_node = " or ".join(f"{n}._node is not None" for n in names)
        edges = "".join(f"{n}._node, " for n in names)
        saved = "".join(_saved_expression(op, s) + ", " for s in op.saves)
        lines += [
            f"            if _trace.tape and _call.differentiable and ({any_node}):",
            f"                _node = _Node(_call, ({edges}), ({saved}))",
            "                if _call.scalar_out: _prune(_node)",
            "                return _Tensor(v_out, _node)",
        ]
    return [*lines, "            return _Tensor(v_out, None)"]


def _saved_expression(op: Any, name: str) -> str:
    users = op.used_by.get(name)
    if users is None:
        return f"v_{name}"
    wanted = " or ".join(f"{u}._node is not None" for u in users)
    return f"(v_{name} if {wanted} else None)"


def _mixed_path(op: Any, names: list[str], attrs: list[str]) -> list[str]:
    """Tensors, numbers, None and lists of tensors; anything else leaves the loop."""
    lines = ["    while True:"]
    values, types, edges = [], [], []
    for name, marked in zip(names, op.inputs, strict=True):
        if marked.startswith("*"):
            lines += [
                "        try:",
                f"            v_{name} = [t._value for t in {name}]",
                "        except (AttributeError, TypeError):",
                "            break",
                f"        t_{name} = tuple([v.aval for v in v_{name}])",
                f"        e_{name} = [t._node for t in {name}]",
            ]
            values.append(f"*v_{name}")
            edges.append(f"*e_{name}")
        else:
            lines += [
                f"        _kind = {name}.__class__",
                "        if _kind in _tensors:",
                f"            v_{name} = {name}._value",
                f"            t_{name} = v_{name}.aval",
                f"            e_{name} = {name}._node",
                "        elif _kind is float:",
                f"            v_{name}, t_{name}, e_{name} = {name}, _FLOAT, None",
                f"        elif _kind is int and -1 << 63 <= {name} < 1 << 63:",
                f"            v_{name}, t_{name}, e_{name} = {name}, _INT, None",
                f"        elif {name} is None:",
                f"            v_{name} = t_{name} = e_{name} = None",
                "        else:",
                "            break",
            ]
            values.append(f"v_{name}")
            edges.append(f"e_{name}")
        types.append(f"t_{name}")
    lines += [
        "        _trace = _state.trace",
        "        try:",
        f"            _call = _tables[_trace.amp].get(({', '.join(types + attrs)},))",
        "        except (KeyError, TypeError):",
        "            break",
        "        if _call is None:",
        "            break",
        f"        return _attach(_call, _trace, ({', '.join(values)},), ({', '.join(edges)},))",
    ]
    return lines
