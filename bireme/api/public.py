"""Public functions: one decorator says all that is public about a function.

    @public(also={"input": "x", "other": "y"}, out=True, inplace=True, sample=[((3, 4), (4,))])
    @op(promote="float_binary", infer="elementwise")
    def hypot(xp, x, y): ...

The decorator returns the function itself, so that ops call each other with nothing in between,
and keeps a record of the rest. Namespaces (`functions`), Tensor's methods (`methods`) and with
them `__all__`, the type stubs and rows of the parity table are made from these records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature, unwrap
from types import FunctionType, MappingProxyType
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from bireme.api.in_place import in_place_of
from bireme.api.keywords import guarded, shim, taking
from bireme.core.tensor import Tensor
from bireme.core.views import assign

F = TypeVar("F", bound=Callable[..., Any])
InPlace = bool | Literal["function", "method"]

TENSOR = "paddle.Tensor"  # the namespace of what is a Tensor method and nothing else
RECORDS: dict[str, dict[str, Public]] = {}  # namespace -> name -> its record
_BY_FUNCTION: dict[Callable[..., Any], Public] = {}  # the first record of each function
_forms: dict[Any, Callable[..., Any]] = {}  # names of one function stay one function
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Options(TypedDict, total=False):
    """What can be said of a public function."""

    name: str  # in its namespaces, if it is not the function's own
    spaces: tuple[str, ...]  # the namespaces that it belongs to
    also: Mapping[str, str]  # second names of parameters: {"input": "x"}
    implies: Mapping[str, dict[str, Any]]  # arguments that such a name brings along
    out: bool  # it takes `out=`
    out_at: int  # by position too, and where
    # The kinds of numbers that its first tensor may hold, by letter as for `@op(takes=...)`, if it
    # is more than one op.
    takes: str
    spread: int  # the position of sizes that may be given one by one, as in `zeros(2, 3)`
    # It is a Tensor method; by default functions of `paddle` are whose first argument is a tensor.
    method: bool
    # It has an in-place form, the same name with `_`; "function" or "method" if only as that.
    inplace: InPlace
    inplace_also: bool  # which takes the second names of parameters too
    # Arguments of calls that the tests compare with Paddle: a tuple of sizes stands for a tensor,
    # a dict at the end holds keywords.
    sample: Sequence[Sequence[Any]]


class Public:
    """All that is public about a function."""

    __slots__ = (
        "also", "form", "function", "implies", "inplace", "inplace_also", "method", "name",
        "options", "out", "out_at", "sample", "spaces", "spread", "takes",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], **options: Unpack[Options]):
        if not Options.__optional_keys__.issuperset(options):
            unknown = sorted(options.keys() - Options.__optional_keys__)
            raise TypeError(f"@public does not take {unknown}; see Options for what it takes")
        get = options.get
        self.function = function
        self.options = options
        self.name: str = get("name") or function.__name__
        self.spaces: tuple[str, ...] = get("spaces", ())
        self.also = get("also", _NOTHING)
        self.implies = get("implies", _NOTHING)
        self.out_at = get("out_at")
        self.out = get("out", self.out_at is not None)
        self.spread = get("spread")
        self.takes = get("takes")
        self.method = get("method")
        self.inplace = get("inplace", False)
        self.inplace_also = get("inplace_also", False)
        self.sample = get("sample", ())
        self.form: Callable[..., Any] | None = None  # see `second_signature`

    @property
    def is_method(self) -> bool:
        if self.method is not None:
            return self.method
        if TENSOR in self.spaces:
            return True
        return "paddle" in self.spaces and _takes_a_tensor_first(self.function)

    def as_function(self) -> Callable[..., Any]:
        """The function of the namespaces: it knows its second keywords, and explains errors."""
        return self._form(self.also, True)

    def as_method(self) -> Callable[..., Any]:
        """The Tensor method: its first argument is a tensor, which nobody names."""
        also = self.also
        if also:
            first = _unwrapped(self.function).__code__.co_varnames[0]  # type: ignore[attr-defined]
            also = {other: mine for other, mine in also.items() if mine != first}
        return self._form(also, False)

    def _form(self, also: Mapping[str, str], guard: bool) -> Callable[..., Any]:
        function = self.function
        key = (function, tuple(also.items()), self.out, self.spread, guard)
        made = _forms.get(key)
        if made is None:
            if self.takes is not None:
                function = taking(function, self.takes)
            out = None if not self.out else -1 if self.out_at is None else self.out_at
            made = shim(function, also, out, self.spread, self.form, self.implies)
            if guard and made is function and isinstance(function, FunctionType):
                made = guarded(function)
            _forms[key] = made
        return made

    def in_place(self) -> Public | None:
        """The record of the function's in-place form, if it has one that follows the rule."""
        if not self.inplace:
            return None
        key = (self.function, "in place")
        if key not in _forms:
            _forms[key] = in_place(self.function)
        return Public(
            _forms[key],
            name=self.name + "_",
            spaces=() if self.inplace == "method" else self.spaces,
            also=self.also if self.inplace_also else _NOTHING,
            method=self.inplace == "method" or (self.inplace is True and self.is_method),
        )

    def register(self) -> None:
        for space in self.spaces:
            names = RECORDS.setdefault(space, {})
            if self.name in names:
                raise ImportError(f"{space}.{self.name} is defined twice")
            names[self.name] = self
        _BY_FUNCTION.setdefault(self.function, self)


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind decorators; an op's function is its own."""
    return unwrap(function, stop=lambda f: hasattr(f, "op"))


def _takes_a_tensor_first(function: Callable[..., Any]) -> bool:
    function = _unwrapped(function)
    op = getattr(function, "op", None)
    if op is not None:
        return bool(op.inputs) and not op.inputs[0].startswith("*")
    code = function.__code__  # type: ignore[attr-defined]
    return bool(code.co_argcount) and function.__annotations__.get(code.co_varnames[0]) == "Tensor"


class namespace:  # noqa: N801 (used as a decorator)
    """The decorator `public` of a file whose functions belong to other namespaces than `paddle`.

    public = namespace("paddle.linalg")
    """

    def __init__(self, *spaces: str):
        self.spaces = spaces

    @overload
    def __call__(self, function: F, /) -> F: ...

    @overload
    def __call__(self, /, **options: Unpack[Options]) -> Callable[[F], F]: ...

    def __call__(self, function: Any = None, /, **options: Unpack[Options]) -> Any:
        """Make a function public; see `Options`."""
        options.setdefault("spaces", self.spaces)

        def define(function: Any) -> Any:
            Public(function, **options).register()
            return function

        return define if function is None else define(function)


public = namespace("paddle")
method = namespace(TENSOR)


def another_name(name: str, function: F, /, **changes: Unpack[Options]) -> F:
    """`sub = another_name("sub", subtract)`: a second name of a public function, with the options
    of the first but for `changes`."""
    same = _BY_FUNCTION[function].options | {"name": name, "sample": ()}
    Public(function, **(same | changes)).register()
    return function


def second_signature(function: Callable[..., Any]) -> Callable[[F], F]:
    """`@second_signature(gather)`: what `gather` does when it is called in PyTorch's order, with
    `dim=` or a number as second argument."""

    def define(form: F) -> F:
        _BY_FUNCTION[function].form = form
        return form

    return define


def in_place(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """The form of `function` that gives its result to its first argument."""
    name = function.__name__ + "_"

    @in_place_of(function)
    def inplace(*args: Any, **kwargs: Any) -> Tensor:
        x = args[0] if args else kwargs.pop(next(iter(signature(function).parameters)), None)
        return assign(x, function(x, *args[1:], **kwargs), name)

    inplace.__name__ = inplace.__qualname__ = name
    inplace.__module__ = function.__module__
    inplace.__doc__ = f"`{function.__name__}` in place: changes its first argument and returns it."
    inplace.__wrapped__ = function  # type: ignore[attr-defined]
    return inplace


def every(space: str) -> Iterator[Public]:
    """The records of a namespace, those of in-place forms too."""
    for record in RECORDS.get(space, {}).values():
        yield record
        form = record.in_place()
        if form is not None and space in form.spaces:
            yield form


def functions(space: str) -> dict[str, Callable[..., Any]]:
    """The public functions of a namespace by name."""
    made: dict[str, Callable[..., Any]] = {}
    for record in every(space):
        if record.name in made:
            raise ImportError(f"{space}.{record.name} is defined twice")
        made[record.name] = record.as_function()
    return made


def methods() -> dict[str, Callable[..., Any]]:
    """The Tensor methods among the public functions by name."""
    made: dict[str, Callable[..., Any]] = {}
    records = {id(r): r for names in RECORDS.values() for r in names.values()}
    for record in records.values():
        for one in (record, record.in_place()):
            if one is None or not one.is_method:
                continue
            if one.name in made:
                raise ImportError(f"Tensor.{one.name} is defined twice")
            made[one.name] = one.as_method()
    return made


__all__ = [
    "Public",
    "another_name",
    "every",
    "functions",
    "in_place",
    "method",
    "methods",
    "namespace",
    "public",
    "second_signature",
]
