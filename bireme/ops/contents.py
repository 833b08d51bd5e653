"""Functions that read the contents of their tensors, where sizes of results depend on them.

Eager code computes the tensors and reads them. A static program has no contents while it is built,
so it records the call; the executor computes the tensors, makes the call, and goes on with what it
gave (static/host_calls.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, TypeVar

from bireme.core import recorder_hooks
from bireme.core.dtype import DType
from bireme.core.tensor import Tensor
from bireme.core.trace import Trace, state

_F = TypeVar("_F", bound=Callable[..., Any])


class Result(NamedTuple):
    """The size and the dtype of a result; None stands for a size that the contents decide."""

    shape: Sequence[Any]
    dtype: DType


def reads_contents(results: Callable[..., Any]) -> Callable[[_F], _F]:
    """Mark such a function. `results` takes the same arguments and gives a `Result` for each
    tensor that the function returns, in the same tuples and lists."""

    def mark(function: _F) -> _F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if state.trace.__class__ is Trace:
                return function(*args, **kwargs)
            return recorder_hooks.call_with_contents(state.trace, function, results, args, kwargs)

        return call  # type: ignore[return-value]

    return mark


def reads_contents_if_given(*names: str, results: Callable[..., Any]) -> Callable[[_F], _F]:
    """`reads_contents` for calls that give a tensor as one of these arguments, or in a list."""

    def mark(function: _F) -> _F:
        places = [list(signature(function).parameters).index(n) for n in names]
        reading = reads_contents(results)(function)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = [args[at] for at in places if at < len(args)]
            given += [kwargs[n] for n in names if n in kwargs]
            if any(map(_has_tensor, given)):
                return reading(*args, **kwargs)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return mark


def _has_tensor(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_tensor, value))
    return isinstance(value, Tensor)
