"""The eager function of an op, as Python source for its exact signature.

Three kinds of paths, fastest first: one for each usual pattern of inputs, all tensors among them
(dict look-ups and list appends only); tensors mixed with numbers, None and lists of tensors; and
`invoke`, which lifts, normalises and makes new Calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from bireme.core.aval import FLOAT, INT
from bireme.core.errors import BiremeError, cut_internal_frames
from bireme.core.trace import Value, state
from bireme.core.value import promises
from bireme.host import code_cache
from bireme.host.signatures import LazySignature, own_signature

if TYPE_CHECKING:
    from bireme.core.op import Op


def source_of(op: Op, params: list[str], defaults: dict[str, Any]) -> str:
    """The source of the function."""
    names = [n.lstrip("*") for n in op.inputs]
    attrs = list(op.attr_names)
    has_list = any(n.startswith("*") for n in op.inputs)
    listed = [f"{p}=_d_{p}" if p in defaults else p for p in params]
    lines = [f"def function({', '.join((*listed, 'name=None'))}):"]
    if names and not has_list:
        for pattern in _patterns(op, names):
            lines += _direct_path(op, names, attrs, pattern)
    if names and (has_list or len(names) > 1):
        lines += _mixed_path(op, names, attrs)
    packed = "".join(
        (f"tuple({n})" if m.startswith("*") else n) + ", "
        for n, m in zip(names, op.inputs, strict=True)
    )
    lines += [
        "    try:",
        f"        return _invoke(_op, ({packed}), ({''.join(a + ', ' for a in attrs)}))",
        "    except _Error as e:",
        "        _cut(e)",
        "        raise",
    ]
    return "\n".join(lines)


class _Source:
    """The source of a generated function for tracebacks and debuggers, made when one of them asks:
    `linecache` takes it from the `__loader__` among the function's globals."""

    __slots__ = ("_arguments",)

    def __init__(self, *arguments: Any):
        self._arguments = arguments

    def get_source(self, module: str) -> str:
        return source_of(*self._arguments)


def generate(
    op: Op,
    params: list[str],
    defaults: dict[str, Any],
    invoke: Callable[..., Any],
    tensor_types: set[type],
) -> FunctionType:
    """Make the function; `invoke(op, inputs, attrs)` is its general path."""
    from bireme.core.autograd import GradNode, attach_values, prune, wired
    from bireme.core.tensor import Tensor

    scope: dict[str, Any] = {
        "_invoke": invoke, "_op": op, "_state": state, "_tensors": tensor_types,
        "_tables": op.tables, "_Value": Value, "_promises": promises,
        "_Node": GradNode, "_Tensor": Tensor,
        "_prune": prune, "_wired": wired, "_attach": attach_values, "_FLOAT": FLOAT, "_INT": INT,
        "_Error": BiremeError, "_cut": cut_internal_frames,
        "__name__": op.body.__module__, "__loader__": _Source(op, params, defaults),
        **{f"_d_{k}": v for k, v in defaults.items()},
    }  # fmt: skip
    # Ops of one signature share their code; only the globals differ.
    exec(code_cache.compiled(source_of(op, params, defaults)), scope)
    function = scope["function"]
    function.__name__ = function.__qualname__ = op.name
    function.__module__, function.__doc__ = op.body.__module__, op.doc
    # The definition is what `inspect.getsource` shows; the signature is without its `xp`.
    function.__wrapped__ = op.body
    function.__signature__ = LazySignature.of(functools.partial(own_signature, function))
    function.op = op
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
    slots = ", ".join(f"s_{n}" for n in tensors)
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
        "            _leaves = _trace.leaves",
        *[_SLOT.format(n=n) for n in tensors],
        "            _values = _trace.values",
        "            _slot = len(_values)",
        *(_SEVERAL_VALUES if several else _ONE_VALUE),
        # No call between these, so that Ctrl-C cannot come between them (see trace.record).
        f"            _trace.code += (_call.id, {slots})",
        *numbers,
        "            _values += _new",
        "            if _slot >= _trace.limit: _trace.flush()",
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


# Where an input is: a result of this trace, or one of its leaves. Values are shared by threads, so
# a slot is read once, by the trace that it belongs to.
_SLOT = (
    "            s_{n} = v_{n}.slot if v_{n}.trace is _trace "
    "else _leaves.get(v_{n}) or _trace.leaf(v_{n}, {n})"
)

_ONE_VALUE = [
    # promise(), without the call
    "            v_out = _Value()",
    "            v_out.aval = _call.out",
    "            v_out.trace = _trace",
    "            v_out.slot = _slot",
    "            v_out.buf = None",
    "            _new = (v_out,)",
]
_SEVERAL_VALUES = [
    "            _new = _promises(_call.outs, _trace, _slot)",
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
        f"        return _attach(_call, _trace, ({', '.join(values)},), ({', '.join(edges)},), "
        f"({', '.join(names)},))",
    ]
    return lines
