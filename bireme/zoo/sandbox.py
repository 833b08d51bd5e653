"""Jinja's immutable sandbox with bounds: a template from a stranger ends soon and stays small.

The sandbox keeps a template away from Python's insides, but not from endless loops or from texts
that double forty times. Here everything that a template repeats or builds is counted before it
is done: loops, calls of macros, what goes into filters and is joined, printed or multiplied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from jinja2 import TemplateError, nodes, pass_eval_context
from jinja2.filters import do_format, do_join, do_replace
from jinja2.sandbox import ImmutableSandboxedEnvironment

_STEPS = 1_000_000  # of one rendering: about a second
_TEXT = 32_000_000  # characters of one text, and of all that is printed
_NUMBER = 10_000  # the largest width, count or repetition that is asked for
_BITS = 20_000  # of a whole number
_A_CALL = 8  # steps
_A_STEP = 64  # characters that are handled in the time of one step

# Filters whose result shows all parts of a value, and those that look at no part of it.
_SHOWING = frozenset(
    {
        "e",
        "escape",
        "forceescape",
        "format",
        "join",
        "pprint",
        "replace",
        "safe",
        "string",
        "tojson",
        "urlencode",
        "urlize",
        "xmlattr",
    }
)
_FREE = frozenset({"count", "d", "default", "first", "last", "length"})

_left: ContextVar[list[int]] = ContextVar("steps left")
# Widths in formats, old and new.
_WIDE = re.compile(r"%[-+ #0]*[\d.]*(?:\d{5}|\*)|\{[^{}]*(?:\d{5}|\{)")
_SIZED = frozenset(
    {"batch", "center", "indent", "round", "slice", "tojson", "truncate", "wordwrap"}
)


class _TooMuch(TemplateError):
    """A template that does or makes more than a chat needs."""


def _spend(steps: int) -> None:
    left = _left.get(None)
    if left is None:  # constants are looked at when a template is compiled
        return
    left[0] -= steps
    if left[0] < 0:
        raise _TooMuch("it takes too many steps")


def _fits(size: int) -> None:
    if size > _TEXT:
        raise _TooMuch(f"it makes a text of {size} characters")
    _spend(size // _A_STEP)


def _weigh(value: Any) -> Any:
    """The value, whose parts are counted: all of what its text would show."""
    rest = [value]
    while rest:
        part = rest.pop()
        if isinstance(part, str):
            _fits(len(part))
        elif isinstance(part, Mapping):
            _spend(1 + 2 * len(part))
            rest += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            _spend(1 + len(part))
            rest += part
        elif isinstance(part, range):
            _spend(len(part))
    return value


def _counted(value: Any) -> Any:
    """The value, of which every element costs a step when it is asked for."""
    if isinstance(value, str):
        _fits(len(value))
        return value
    if hasattr(value, "__len__"):
        _spend(len(value))
        return value
    return _each(value) if hasattr(value, "__next__") else value


def _each(values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        _spend(1)
        yield value


def _small(values: Any) -> None:
    """Raise for numbers that could be widths or repetitions and are too large."""
    for value in values:
        if isinstance(value, int | float) and not -_NUMBER <= value <= _NUMBER:
            raise _TooMuch(f"it asks for {value!r:.40} of something")


def _range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > 100_000:
        raise _TooMuch(f"it counts to {len(made)}")
    _spend(len(made))
    return made


class Environment(ImmutableSandboxedEnvironment):
    """Jinja's environment for chat templates; `rendered` renders with it."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, **options: Any):
        super().__init__(finalize=_weigh, **options)
        self.globals["range"] = _range
        self.filters |= {
            "replace": _replace,
            "join": _join,
            "format": self._formatted,
        }

    # What generated code asks for.

    def step(self) -> str:
        _spend(1)
        return ""

    def counted(self, value: Any) -> Any:
        _spend(_A_CALL)
        return _counted(value)

    def weighed(self, value: Any) -> Any:
        _spend(_A_CALL)
        return _each(value) if hasattr(value, "__next__") else _weigh(value)

    def bounded(self, value: Any) -> Any:
        _small([value])
        return value

    def joined(self, *parts: Any) -> str:
        texts = [str(_weigh(part)) for part in parts]
        _fits(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = [len(x) if hasattr(x, "__len__") else 0 for x in (left, right)]
        if operator == "+":
            _fits(sum(sizes))
        elif operator == "%" and isinstance(left, str):
            self._format(left, right)
        elif operator in ("*", "**") and all(type(x) in (int, bool) for x in (left, right)):
            bits = int(left).bit_length()
            more = int(right).bit_length() if operator == "*" else int(right)
            if (bits + more if operator == "*" else bits * more) > _BITS:
                raise _TooMuch("it makes a huge number")
        elif operator == "*":
            times = next((int(x) for x in (left, right) if isinstance(x, int)), 0)
            _fits(max(sizes) * max(times, 0))
        return super().call_binop(context, operator, left, right)

    def call(self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore
        owner = getattr(__obj, "__self__", None)
        if owner is self:  # what `_count_in` put there
            return __obj(*args)
        _spend(_A_CALL)
        if isinstance(owner, str):
            values = [*args, *kwargs.values()]
            _small(values)
            _weigh(values)
            name = getattr(__obj, "__name__", "")
            if name == "join" and args:
                args = (_listed(args[0]), *args[1:])
                _fits(len(owner) * len(args[0]))
            elif name in ("replace", "translate"):
                _fits(_replaced(owner, *args))
            elif name == "expandtabs":
                _fits(len(owner) + owner.count("\t") * max([8, *values]))
        elif (
            __obj is not self.globals["range"]
            and getattr(__obj, "__module__", "") == "jinja2.utils"
        ):
            _small([*args, *kwargs.values()])  # lipsum and its like
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Any:
        inner = super().wrap_str_format(value)
        if inner is None:
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            self._format(value.__self__, [*args, *kwargs.values()])
            return inner(*args, **kwargs)

        return formatted

    def _formatted(self, text: Any, *args: Any, **kwargs: Any) -> str:
        self._format(str(text), [*args, *kwargs.values()])
        return do_format(text, *args, **kwargs)

    def _format(self, text: str, values: Any) -> None:
        if _WIDE.search(text):
            raise _TooMuch("it formats something very wide")
        _weigh(values)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> Any:
        _count_in(source)
        return super()._generate(source, *args, **kwargs)


def _replaced(text: str, *args: Any) -> int:
    """How long a text may become when parts of it are replaced."""
    if len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        times = text.count(args[0]) if args[0] else len(text) + 1
        return len(text) + times * len(args[1])
    return len(text) * 8


def _listed(values: Any) -> list[Any]:
    return list(_counted(values)) if hasattr(values, "__iter__") else values


@pass_eval_context
def _replace(context: Any, text: Any, old: Any, new: Any, count: Any = None) -> Any:
    """Jinja's filter, after a look at the result's size."""
    _fits(_replaced(str(_weigh(text)), str(old), str(_weigh(new))))
    return do_replace(context, text, old, new, count)


@pass_eval_context
def _join(context: Any, values: Any, between: Any = "", attribute: Any = None) -> Any:
    """Jinja's filter, after a look at the result's size."""
    parts = _weigh(_listed(values))
    _fits(len(str(_weigh(between))) * len(parts))
    return do_join(context, parts, between, attribute)


def _asked(name: str, *args: Any) -> nodes.Call:
    """A call of one of the environment's methods; no template can put another in its place."""
    return nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)


def _count_in(node: nodes.Node) -> None:
    """Put the counting into a template's tree, from the leaves up."""
    for child in list(node.iter_child_nodes()):
        _count_in(child)
    for field, value in list(node.iter_fields()):
        if isinstance(value, nodes.Concat):
            setattr(node, field, _asked("joined", *value.nodes))
        elif isinstance(value, list):
            value[:] = [
                _asked("joined", *v.nodes) if isinstance(v, nodes.Concat) else v for v in value
            ]
    if isinstance(node, nodes.For):
        node.iter = _asked("counted", node.iter)
    if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
        node.body.insert(0, nodes.ExprStmt(_asked("step")))
    if isinstance(node, nodes.Filter) and node.node is not None and node.name not in _FREE:
        node.node = _asked("weighed" if node.name in _SHOWING else "counted", node.node)
    if isinstance(node, nodes.Filter) and node.name in _SIZED:
        node.args = [_asked("bounded", a) for a in node.args]
        for pair in node.kwargs:
            pair.value = _asked("bounded", pair.value)


def rendered(template: Any, variables: Mapping[str, Any]) -> str:
    """The text of a template of an `Environment`."""
    # Templates often look at all messages for each of them.
    token = _left.set([_STEPS + 8 * len(variables["messages"]) ** 2])
    try:
        pieces, size = [], 0
        for piece in template.generate(**variables):
            size += len(piece)
            _fits(len(piece))
            if size > _TEXT:
                raise _TooMuch(f"it makes a text of more than {_TEXT} characters")
            pieces.append(piece)
        return "".join(pieces)
    finally:
        _left.reset(token)
