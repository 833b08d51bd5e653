"""Paddle's second names for keywords (`input` for `x`, `dim` for `axis` …) and its `out=`.

A thin shim translates them. It is put around those public functions only that have such names
(see public.py), hands positional calls straight through, and the operators do not pass it at all.

Functions that are more than one op also get their complaint about an argument that is no
tensor here: they use it as one, and what fails is explained. Trying costs nothing.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, TypeVar

from bireme.api import hints
from bireme.core.dtype_kinds import check_kinds
from bireme.core.errors import BiremeError, TypeMismatch, cut_internal_frames, not_a_tensor
from bireme.core.views import check_inplace, replace
from bireme.host.signatures import LazySignature

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def second_names(**also: str) -> Callable[[F], F]:
    """`@second_names(eps="epsilon")` on a constructor: a caller may write eps= for epsilon=."""
    return lambda function: shim(function, also)  # type: ignore[return-value]


def shim(
    function: Callable[..., Any],
    also: Mapping[str, str],
    out: int | None = None,
    spread: int | None = None,
    form: Callable[..., Any] | None = None,
    implies: Mapping[str, dict[str, Any]] | None = None,
) -> Callable[..., Any]:
    """`function`, also called by the keywords `also` and, where asked for, with `out=`.

    `out` is its place among the positional arguments, -1 if it is a keyword only; `spread` that of
    sizes which may be given one by one. `form` is a second signature, for calls with `dim=` or a
    number as second argument. The function itself if there is none of these.
    """
    if not also and out is None and spread is None and form is None:
        return function
    others = frozenset(also)
    name = function.__name__
    if name == "__init__":  # a class is called by its own name
        name = function.__qualname__.rpartition(".")[0]

    def rename(kwargs: dict[str, Any]) -> dict[str, Any]:
        for other, mine in also.items():
            if other in kwargs:
                value = kwargs.pop(other)
                kwargs[mine] = second_name(name, mine, kwargs.get(mine), other, value)
                if implies and other in implies:
                    kwargs = implies[other] | kwargs
        return kwargs

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if not kwargs:
                return function(*args)
            into = kwargs.pop("out", None) if out is not None else None
            if not others.isdisjoint(kwargs):
                kwargs = rename(kwargs)
            result = function(*args, **kwargs)
        except BiremeError as e:
            cut_internal_frames(e)
            raise
        except AttributeError as e:
            raise _explained(e, function, args, kwargs) from None
        except TypeError as e:
            better = hints.unexpected(e, name, function)
            if better is e:
                raise
            raise better from None
        return result if into is None else put(into, result, name)

    made = call
    if spread is not None or form is not None or (out is not None and out >= 0):
        made = functools.wraps(function)(_arranging(call, function, spread, out, form))
    if out is not None:  # so that help() and other readers of signatures know of it
        made.__signature__ = LazySignature.of(  # type: ignore[attr-defined]
            functools.partial(_with_out, function, out)
        )
    return made


def _arranging(
    call: Callable[..., Any],
    function: Callable[..., Any],
    spread: int | None,
    out: int | None,
    form: Callable[..., Any] | None,
) -> Callable[..., Any]:
    """The shim `call` of a function whose positional arguments come in several ways."""
    last = sys.maxsize if out is None or out < 0 else out
    first = sys.maxsize if spread is None else spread

    def arranged(*args: Any, **kwargs: Any) -> Any:
        count = len(args)
        if form is not None and (args[1].__class__ is int if count > 1 else "dim" in kwargs):
            return form(*args, **kwargs)
        if count > first and args[first].__class__ is int:
            args = (*args[:first], args[first:])
        elif count > last:
            args, kwargs["out"] = (*args[:last], *args[last + 1 :]), args[last]
        if kwargs:
            return call(*args, **kwargs)
        try:
            return function(*args)  # no more frames than without these ways
        except BiremeError as e:
            cut_internal_frames(e)
            raise
        except AttributeError as e:
            raise _explained(e, function, args, kwargs) from None

    return arranged


def _with_out(function: Callable[..., Any], at: int) -> inspect.Signature:
    """The function's signature with `out` where Paddle has it."""
    known = inspect.signature(function)
    parameters = list(known.parameters.values())
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if at < 0:
        kind = inspect.Parameter.KEYWORD_ONLY
        later = [i for i, p in enumerate(parameters) if p.kind is kind and p.name in _AFTER_OUT]
        at = min(later, default=len(parameters))
    parameters.insert(at, inspect.Parameter("out", kind, default=None))
    return known.replace(parameters=parameters)


_AFTER_OUT = frozenset(("device", "name", "sorter"))


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose complaints about arguments that are no tensors can be understood."""
    if hasattr(function, "op"):
        return function  # it complains itself

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BiremeError as e:
            cut_internal_frames(e)
            raise
        except AttributeError as e:
            raise _explained(e, function, args, kwargs) from None
        except TypeError as e:
            better = hints.unexpected(e, function.__name__, function)
            if better is e:
                raise
            raise better from None

    return call


def taking(function: Callable[..., Any], takes: str) -> Callable[..., Any]:
    """`function`, which refuses a first tensor (or list of tensors) of kinds not in `takes`."""
    first = next(iter(inspect.signature(function).parameters))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get(first)
        for x in given if isinstance(given, list | tuple) else (given,):
            value = getattr(x, "_value", None)
            if value is None:
                continue
            try:
                check_kinds(takes, [first], [value.aval])
            except TypeMismatch as e:
                raise TypeMismatch(f"[{function.__name__}] {e}. Received: {value.aval}") from None
        return function(*args, **kwargs)

    return call


def explained(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Functions of a namespace without records, which explain their errors as those with one."""
    return {
        name: guarded(function) if isinstance(function, FunctionType) else function
        for name, function in functions.items()
    }


def _explained(
    error: AttributeError, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Exception:
    """What to raise for `error`: a TypeMismatch if it came from an argument used as a tensor."""
    given = error.obj
    if error.name not in _TENSOR_ATTRIBUTES or hasattr(given, "_value"):
        return error
    named = [*zip(inspect.signature(function).parameters, args, strict=False), *kwargs.items()]
    names = [name for name, value in named if value is given]
    if not names:
        return error
    return not_a_tensor(function.__name__, names[0], given)


_TENSOR_ATTRIBUTES = frozenset(
    ("_array", "_value", "_node", "aval", "dtype", "ndim", "shape", "size", "numpy")
)


def put(into: Any, result: Any, name: str) -> Any:
    """Give `result` to the tensors given as `out=`, whatever shape and dtype they had."""
    if isinstance(into, list | tuple):
        for one, part in zip(into, result, strict=True):
            put(one, part, name)
        return into
    check_inplace(into, f"{name}(out=)")
    return replace(into, result, None)


def second_name(function: str, mine: str, given: object, other: str, value: T) -> T:
    """`value`, given under a second name of the parameter `mine`, which must be free."""
    if given is not None:
        raise TypeMismatch(
            f"[{function}] {other!r} is another name for {mine!r}; give one of them. Received: both"
        )
    return value
