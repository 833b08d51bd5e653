"""paddle.base.framework: modes, parameters and places, under their internal names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from bireme.autograd import is_grad_enabled, set_grad_enabled
from bireme.base.data_feeder import convert_np_dtype_to_dtype_
from bireme.core.errors import BiremeError
from bireme.core.place import Place, default_place
from bireme.core.tensor import Parameter
from bireme.flags import get_flags, set_flags
from bireme.static import (
    Program,
    Variable,
    default_main_program,
    default_startup_program,
    program_guard,
)
from bireme.static.block import Block
from bireme.static.program import in_dynamic_mode

_F = TypeVar("_F", bound=Callable[..., Any])
EagerParamBase = Parameter


class ModeError(BiremeError, RuntimeError):
    """A function that cannot be recorded into a program was called while one is written."""


def in_pir_mode() -> bool:
    """Whether a program is being written: there is one kind of program, Paddle's newer one."""
    return not in_dynamic_mode()


def in_dynamic_or_pir_mode() -> bool:
    """True: Paddle's older kind of program does not exist here."""
    return True


def use_pir_api() -> bool:
    """Whether programs are of Paddle's newer kind: the graph that functions record is one."""
    return True


def dygraph_only(func: _F) -> _F:
    """Decorator: the function raises while a program is written."""

    @wraps(func)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not in_dynamic_mode():
            raise ModeError(
                f"[{func.__name__}] works on tensors with contents only; call it outside of "
                "static programs and to_static functions"
            )
        return func(*args, **kwargs)

    return checked  # type: ignore[return-value]


non_static_only = dygraph_only


def _current_expected_place() -> Place:
    """The device that computes."""
    return default_place()


_current_expected_place_ = _current_expected_place


class _Tracer:
    """Whether gradients are recorded, as an attribute that programs read and set."""

    @property
    def _has_grad(self) -> bool:
        return is_grad_enabled()

    @_has_grad.setter
    def _has_grad(self, recorded: bool) -> None:
        set_grad_enabled(recorded)


_tracer = _Tracer()


def _dygraph_tracer() -> _Tracer | None:
    """What records eager ops; None while a program is written."""
    return _tracer if in_dynamic_mode() else None


@contextmanager
def _no_check_dy2st_diff() -> Iterator[None]:
    """A block in which eager and captured results may differ; nothing here compares them."""
    yield


__all__ = [
    "Block",
    "EagerParamBase",
    "Parameter",
    "Program",
    "Variable",
    "convert_np_dtype_to_dtype_",
    "default_main_program",
    "default_startup_program",
    "dygraph_only",
    "get_flags",
    "in_dynamic_mode",
    "in_dynamic_or_pir_mode",
    "in_pir_mode",
    "non_static_only",
    "program_guard",
    "set_flags",
    "use_pir_api",
]
