"""What a recorder may do in its own way besides recording: where parameters live, what changes
from run to run, and where gradients come from.

Eager code keeps a parameter's contents in the parameter and reads a learning rate when a step is
recorded. A static program (bireme.static) keeps contents in a Scope and reads the rate in every
run. Each function here is dispatched on the trace that is recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatch
from typing import Any

from bireme.core.aval import Aval
from bireme.core.trace import Value


@singledispatch
def new_state(
    trace: Any, name: str, t: Aval, make: Callable[[], Any], build: Callable[[Value], Any]
) -> Any:
    """A parameter of type `t`: `make()` gives its first contents, `build(value)` the tensor."""
    return build(Value(t, None, 0, make()))


@singledispatch
def new_copy(trace: Any, name: str, tensor: Any, t: Aval, cast: Callable[[Any], Any]) -> Any:
    """A tensor of its own that starts as `cast(tensor)`, of type `t`: a float32 master weight."""
    return cast(tensor)


@singledispatch
def each_run(trace: Any, name: str, read: Callable[[], float]) -> Any:
    """A number that may change from one run of what is being recorded to the next."""
    return read()


@singledispatch
def parameters(trace: Any) -> list[Any] | None:
    """The trainable parameters of the program that is being written; None outside of one."""
    return None


@singledispatch
def differentiate(trace: Any, loss: Any, params: list[Any], stops: Iterable[Any]) -> None:
    """Put the gradients of `loss` into `params` before an update. Eager users call
    `loss.backward()` themselves."""


@singledispatch
def set_contents(trace: Any, tensor: Any, array: Any) -> bool:
    """Whether the recorder has put `array` where the tensor's contents live."""
    return False


@singledispatch
def block(trace: Any) -> Any:
    """The block of the program that `trace` records; None where it records no program."""
    return None


@singledispatch
def description(trace: Any, tensor: Any) -> str | None:
    """How a tensor prints that the recorder `trace` holds without contents."""
    return None
