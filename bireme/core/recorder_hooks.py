"""Hooks of a recorder: where parameters live, which numbers change from run to run, and where
gradients come from.

Eager code keeps a parameter's contents in the parameter and reads a learning rate when a step is
recorded. A static program (bireme.static) keeps contents in a Scope and reads the rate in every
run. Each function here is dispatched on the trace that is recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from bireme.core.aval import Aval
from bireme.core.trace import Value
from bireme.core.value import value_of

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor


@singledispatch
def new_state(
    trace: object, name: str, t: Aval, make: Callable[[], Any], build: Callable[[Value], Any]
) -> Any:
    """A parameter of type `t`: `make()` gives its first contents, `build(value)` the tensor."""
    return build(value_of(t, make()))


@singledispatch
def new_copy(trace: object, name: str, tensor: Tensor, t: Aval, cast: Callable[[Any], Any]) -> Any:
    """A tensor of its own that starts as `cast(tensor)`, of type `t`: a float32 master weight."""
    return cast(tensor)


@singledispatch
def each_run(trace: object, name: str, read: Callable[[], float]) -> Any:
    """A number that may change between runs of the recorded program."""
    return read()


@singledispatch
def parameters(trace: object) -> list[Any] | None:
    """The trainable parameters of the program that is being written; None outside of one."""
    return None


@singledispatch
def differentiate(trace: object, loss: Tensor, params: list[Any], stops: Iterable[Any]) -> None:
    """Put the gradients of `loss` into `params` before an update. Eager users call
    `loss.backward()` themselves."""


@singledispatch
def set_contents(trace: object, tensor: Tensor, array: object) -> bool:
    """Whether the recorder has put `array` where the tensor's contents live."""
    return False


@singledispatch
def block(trace: object) -> Any:
    """The block of the program that `trace` records; None where it records no program."""
    return None


@singledispatch
def description(trace: object, tensor: Tensor) -> str | None:
    """How a tensor prints that the recorder `trace` holds without contents."""
    return None


@singledispatch
def stopped(trace: object, tensor: Tensor, stop: bool) -> None:
    """A tensor that `trace` makes is about to be told whether gradients stop there."""


@singledispatch
def call_with_contents(
    trace: object,
    function: Callable[..., Any],
    results: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call a function that reads the contents of its tensors. A program has none yet: it records
    the call, with results of the sizes and dtypes that `results` gives for the same arguments."""
    return function(*args, **kwargs)


@singledispatch
def read_sizes(trace: object, tensor: Tensor) -> list[Any]:
    """The sizes that an integer tensor holds. A program has no contents while it is built: there
    they are symbols that a run replaces by the numbers."""
    return tensor.numpy().reshape(-1).tolist()
