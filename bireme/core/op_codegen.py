"""The eager function of an op, as Python source for its exact signature.

Three kinds of paths, fastest first: one for each usual pattern of inputs, all tensors among them
(dict look-ups and list appends only); tensors mixed with numbers, None and lists of tensors; and
`invoke`, which lifts, normalises and makes new Calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bireme.core import code_cache
from bireme.core.aval import FLOAT, INT
from bireme.core.errors import second_name
from bireme.core.trace import Value, state


def generate(
    op: Any,
    params: list[str],
    defaults: dict[str, Any],
    invoke: Callable[..., Any],
    tensor_types: set[type],
) -> Callable[..., Any]:
    """Make the function; `invoke(op, inputs, attrs)` is its general path."""
    from bireme.core.autograd import Node, attach_values, prune, wired
    from bireme.core.tensor import Tensor

    names = [n.lstrip("*") for n in op.inputs]
    attrs = list(op.attr_names)
    has_list = any(n.startswith("*") for n in op.inputs)
    also = op.also  # second names: {"input": "x"}
    spare = set(also.values())  # may be given under another name, so not required under this one
    listed = [f"{p}=_d_{p}" if p in defaults else f"{p}=None" if p in spare else p for p in params]
    listed += ["name=None", *(["*"] if also else ()), *(f"{other}=None" for other in also)]
    lines = [f"def function({', '.join(listed)}):"]
    for other, mine in also.items():
        lines.append(
            f"    if {other} is not None: {mine} = _second({op.shown!r}, {mine!r}, {mine}, "
            f"{other!r}, {other})"
        )
    if names and not has_list:
        for pattern in _patterns(op, names):
            lines += _direct_path(op, names, attrs, pattern)
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
        "_prune": prune, "_wired": wired, "_attach": attach_values, "_FLOAT": FLOAT, "_INT": INT,
        "_second": second_name,
        **{f"_d_{k}": v for k, v in defaults.items()},
    }  # fmt: skip
    # Ops of one signature share their code; only the globals differ.
    exec(code_cache.compiled("\n".join(lines)), scope)
    function = scope["function"]
    function.__name__ = function.__qualname__ = op.name
    return function


# What an input is, by letter: how to test for it, and its type in the key of a Call.
_TESTS = {"t": "{}.__class__ in _tensors", "f": "{}.__class__ is float",
          "i": "{}.__class__ is int", "-": "{} is None"}  # fmt: skip
_TYPES = {"t": "v_{}.aval", "f": "_FLOAT", "i": "_INT", "-": "None"}


def _patterns(op: Any, names: list[str]) -> list[str]:
    """The kinds of inputs that get a path of their own."""
    patterns = ["t" * len(names), *op.usual]
    if len(names) == 2 and op.promote is not None:
        patterns.append("tf")
    elif len(names) > 1 and names[-1] not in op.required and not op.usual:  # a bias, usually
        patterns.append("t" * (len(names) - 1) + "-")
    return patterns


def _direct_path(op: Any, names: list[str], attrs: list[str], pattern: str) -> list[str]:
    """Inputs of exactly these kinds, and the Call is known: the steady state of training."""
    kinds = dict(zip(names, pattern, strict=True))
    tensors = [n for n in names if kinds[n] == "t"]
    slots = ", ".join(f"v_{n}.slot" for n in tensors)
    numbers = [
        f"            _trace.{where} += ({''.join(f'{n}, ' for n in names if kinds[n] == kind)})"
        for kind, where in (("f", "floats"), ("i", "ints"))
        if kind in pattern
    ]
    key = ", ".join([_TYPES[kinds[n]].format(n) for n in names] + attrs) + ","
    several = bool(op.usual)
    lines = [
        f"    if {' and '.join(_TESTS[kinds[n]].format(n) for n in names)}:",
        "        _trace = _state.trace",
        *[f"        v_{n} = {n}._value" for n in tensors],
        "        try:",
        f"            _call = _tables[_trace.amp].get(({key}))",
        "        except (KeyError, TypeError):",
        "            _call = None",
        f"        if _call is not None{'' if several else ' and _call.single'}:",
        *[f"            if v_{n}.trace is not _trace: _trace.leaf(v_{n})" for n in tensors],
        "            _values = _trace.values",
        "            _slot = len(_values)",
        *(_SEVERAL_VALUES if several else _ONE_VALUE),
        # No call between these, so that Ctrl-C cannot come between them (see trace.record).
        f"            _trace.code += (_call.id, {slots})",
        *numbers,
        "            _values += _new",
        "            if _slot >= _trace.limit: _trace.full()",
    ]
    if op.differentiable:
        any_node = " or ".join(f"{n}._node is not None" for n in tensors)
        edges = "".join(f"{n}._node, " if n in tensors else "None, " for n in names)
        saved = "".join(_saved_expression(op, s, kinds) + ", " for s in op.saves)
        lines += [
            f"            if _trace.tape and _call.differentiable and ({any_node}):",
            f"                _node = _Node(_call, ({edges}), ({saved}))",
            "                _trace.nodes += (_node,)",
            "                if _call.scalar_out: _prune(_node)",
            *([] if not several else _WIRED),
            "                return _Tensor(v_out, _node)",
        ]
    if several:
        lines.append("            if not _call.single: return [_Tensor(v, None) for v in _new]")
    return [*lines, "            return _Tensor(v_out, None)"]


_ONE_VALUE = [
    "            v_out = _Value(_call.out, _trace, _slot)",
    "            _new = (v_out,)",
]
_SEVERAL_VALUES = [
    "            _new = [_Value(a, _trace, i) for i, a in enumerate(_call.outs, _slot)]",
    "            v_out = _new[0]",
]
_WIRED = [
    "                if not _call.single: return _wired(_call, _node, _new)",
]


def _saved_expression(op: Any, name: str, kinds: dict[str, str]) -> str:
    if name == "out" and op.usual:
        return "*_new"
    value = {"t": f"v_{name}", "-": "None"}.get(kinds.get(name, "t"), name)
    users = op.used_by.get(name)
    if users is None:
        return value
    wanted = " or ".join(f"{u}._node is not None" for u in users if kinds[u] == "t")
    return f"({value} if {wanted} else None)" if wanted else "None"


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
