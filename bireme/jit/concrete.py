"""A captured function as a static program, for programs that look into what `to_static` made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bireme.capture import tree
from bireme.core.errors import CaptureError
from bireme.core.tensor import Parameter, Tensor
from bireme.static.input_spec import InputSpec
from bireme.static.program import (
    Program,
    data,
    disable_static,
    enable_static,
    in_dynamic_mode,
    program_guard,
)

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


@dataclass
class ConcreteProgram:
    """A function that was written into a program: its variables, parameters and the program."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    parameters: list[Parameter]
    main_program: Program
    startup_program: Program


class AsProgram:
    """The part of a `StaticFunction` that writes it into a program."""

    _function: Callable[..., Any]
    _layer: Layer | None
    inputs: Any  # its InputSpecs

    def _known(self, what: str) -> list[Any]:
        """Its arguments, with an InputSpec for each tensor."""
        raise CaptureError(f"[{what}] the function has no arguments yet")

    @property
    def concrete_program(self) -> ConcreteProgram:
        """The function written into a static program, with its variables and parameters."""
        arguments = self._known("concrete_program")
        specs = self.inputs
        main, startup = Program(), Program()
        with _writing(main, startup):
            inputs = [data(s.name or "x", list(s.shape), s.dtype) for s in specs]
            given = _filled(arguments, iter(inputs))
            outputs, _ = tree.flatten(self._function(*given))
        parameters = [] if self._layer is None else self._layer.parameters()
        return ConcreteProgram(inputs, outputs, parameters, main, startup)

    @property
    def main_program(self) -> Program:
        """The function as a static program."""
        return self.concrete_program.main_program

    @property
    def code(self) -> str:
        """The source of the function as it was written."""
        return inspect.getsource(inspect.unwrap(self._function))


@contextmanager
def _writing(main: Program, startup: Program) -> Iterator[None]:
    """Write into these programs, in eager code too."""
    eager = in_dynamic_mode()
    if eager:
        enable_static()
    try:
        with program_guard(main, startup):
            yield
    finally:
        if eager:
            disable_static()


def _filled(specs: Any, variables: Iterator[Tensor]) -> Any:
    """`specs` with a variable in the place of each InputSpec or tensor."""
    if isinstance(specs, InputSpec | Tensor):
        return next(variables)
    if isinstance(specs, list | tuple):
        return type(specs)([_filled(s, variables) for s in specs])
    if isinstance(specs, dict):
        return {k: _filled(s, variables) for k, s in specs.items()}
    return specs
