"""Program: a graph that is written op by op and run by an Executor.

paddle.enable_static()
main, startup = static.Program(), static.Program()
with static.program_guard(main, startup):
    x = static.data("x", [None, 4])
    loss = static.nn.fc(x, 1).mean()
exe.run(startup)
exe.run(main, feed={"x": batch}, fetch_list=[loss])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from bireme.api.types import DTypeLike, PlaceLike, TensorLike
from bireme.capture.recorder import is_capturing
from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.cache import BoundedCache
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.random import Generator
from bireme.core.tensor import Parameter, Tensor, constant
from bireme.core.trace import Value
from bireme.static import recorder
from bireme.static.block import Block
from bireme.static.recorder import ProgramTrace
from bireme.static.scope import Scope, global_scope

_MAX_PLANS = 32  # ways to run one program that are remembered


class Program:
    """Ops in order, the variables that they read and write, and how state starts."""

    def __init__(self) -> None:
        self._trace = ProgramTrace(self)
        self._initial: dict[str, tuple[Aval, Callable[[Scope], Any]]] = {}
        self._plans: BoundedCache[Any, Any] = BoundedCache(_MAX_PLANS)  # see executor.py
        self._origin: Program | None = None  # what this is a copy of, and where its values are
        self._copied: dict[int, Tensor] = {}
        self._random_seed = 0
        self._generator: Generator | None = None
        self._graph_passes: tuple[str, ...] = ()
        self._layouts: dict[str, Callable[[Tensor], Tensor]] = {}  # of state over several devices
        # The inputs and results of a program for inference.
        self._feeds: list[str] = []
        self._fetches: list[Tensor] = []

    # --- what it holds ---------------------------------------------------------------------

    def global_block(self) -> Block:
        return Block(self)

    current_block = global_block

    def block(self, index: int) -> Block:
        """The block of this number. There is one: bodies of loops and branches are inside ops."""
        if index != 0:
            raise InvalidArgument(f"[Program.block] there is only block 0. Received: {index}")
        return Block(self)

    @property
    def blocks(self) -> list[Block]:
        return [Block(self)]

    @property
    def num_blocks(self) -> int:
        return 1

    def num_ops(self) -> int:
        """How many ops were recorded."""
        return len(self._trace.graph([]).nodes)

    def list_vars(self) -> Iterator[Tensor]:
        """Every variable: inputs, parameters, other state."""
        return iter([v.tensor for v in self._trace.vars.values()])

    def all_parameters(self) -> list[Parameter]:
        return [v.tensor for v in self._trace.vars.values() if isinstance(v.tensor, Parameter)]

    def parameters_num(self) -> int:
        return len(self.all_parameters())

    def get_parameter_value_by_name(self, name: str) -> Tensor:
        """The parameter of this name."""
        for p in self.all_parameters():
            if p.name == name:
                return p
        raise InvalidArgument(f"the program has no parameter {name!r}{self._near(name)}")

    def get_all_parameter_values(self) -> list[Parameter]:
        return self.all_parameters()

    def get_output_value_by_name(self, name: str) -> Tensor:
        """The variable or result of this name."""
        return self.find(name)

    # --- state -----------------------------------------------------------------------------

    def initialized_by_startup(self, name: str, t: Aval, make: Callable[[Scope], Any]) -> None:
        """Let the startup program of the moment put `make(scope)` into the scope."""
        _defaults.startup._initial.setdefault(name, (t, make))

    def state_names(self, mode: str = "all") -> list[str]:
        """The names of the state: 'param', 'opt' (everything else), or 'all'."""
        if mode not in ("all", "param", "opt"):
            raise InvalidArgument(
                f"[state_dict] mode must be 'param', 'opt' or 'all'. Received: {mode!r}"
            )
        found = [v for v in self._trace.vars.values() if v.kind == "state"]
        if mode != "all":
            found = [v for v in found if isinstance(v.tensor, Parameter) == (mode == "param")]
        return [v.name for v in found]

    def state_dict(self, mode: str = "all", scope: Scope | None = None) -> dict[str, Tensor]:
        """The contents of the program's state in `scope`, by name."""
        held = global_scope() if scope is None else scope
        return {name: constant(held.tensor(name).numpy()) for name in self.state_names(mode)}

    def set_state_dict(self, state_dict: dict[str, Any], scope: Scope | None = None) -> None:
        """Put contents of that form into `scope`; entries for other variables are left alone."""
        if not isinstance(state_dict, dict):
            raise TypeMismatch(
                f"[set_state_dict] takes a dict. Received: {type(state_dict).__name__}"
            )
        held = global_scope() if scope is None else scope
        put = {}
        for name, given in state_dict.items():
            var = self._trace.vars.get(name)
            if var is not None and var.kind == "state":
                put[name] = constant(fitting(name, var.leaf.aval, given))
        for name, tensor in put.items():  # all fit
            held.put(name, tensor)

    # --- randomness ------------------------------------------------------------------------

    @property
    def random_seed(self) -> int:
        """The seed of this program's own random numbers; 0 takes them from paddle.seed."""
        return self._random_seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if not isinstance(seed, int):
            raise TypeMismatch(f"random_seed must be an int. Received: {type(seed).__name__}")
        self._random_seed = seed
        self._generator = Generator(seed) if seed else None

    def global_seed(self, seed: int = 0) -> None:
        """Make this program's random numbers repeatable."""
        self.random_seed = seed

    # --- passes ----------------------------------------------------------------------------

    def use_graph_pass(self, name: str) -> None:
        """Let this pass (see `bireme.passes.names()`) change the graph of every run."""
        self._graph_passes = (*self._graph_passes, name)

    # --- copies and text -------------------------------------------------------------------

    def clone(self, for_test: bool = False) -> Program:
        """A copy that shares the state by name. With `for_test` it infers: no gradients and
        updates, dropout off, batch norm with its running statistics."""
        from bireme.static.copying import copy_program

        return copy_program(self, for_test)

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:
        """The program as text; with details, where each op was recorded."""
        text = str(self)
        if not with_details:
            return text
        lines = [f"  {op.namescope}{op.type}: {op.source}" for op in self.global_block().ops]
        return "\n".join([text, "recorded at:", *lines])

    def __str__(self) -> str:
        graph = self._trace.graph([])
        for var in self._trace.vars.values():
            graph.names[self._trace.slot_of(var.leaf)] = var.name
        return str(graph)

    def __repr__(self) -> str:
        return str(self)

    # --- looking things up -----------------------------------------------------------------

    def slot_of(self, what: Tensor | str) -> int:
        """The place of a variable, or of the variable of this name, in the recorded graph."""
        value = self.find(what)._value if isinstance(what, str) else self._own(what)
        slot = None if value is None else self._trace.known_slot(value)
        if slot is None:
            raise InvalidArgument(
                f"{getattr(what, 'name', what)!r} is not a variable of this program. Build it "
                "inside program_guard(program), and fetch variables of the program that runs"
            )
        return slot

    def is_fixed(self, what: Tensor | str) -> bool:
        """Whether `what` was known while the program was written: a constant, a known shape."""
        if not isinstance(what, Tensor) or what._value.buf is None:
            return False
        return self._own(what) is None

    def _own(self, what: Any) -> Value | None:
        if not isinstance(what, Tensor):
            raise TypeMismatch(
                f"a variable or its name was expected. Received: {type(what).__name__}"
            )
        value = what._value
        if self._trace.known_slot(value) is not None:
            return value
        copied = self._copy_of(value)
        if copied is not None:
            return copied._value
        var = self._trace.vars.get(what._name or "")
        return None if var is None else var.tensor._value

    def _copy_of(self, value: Value) -> Tensor | None:
        if self._origin is None:
            return None
        found = self._copied.get(id(value))
        if found is None:  # recorded in another type since
            found = self._copied.get(id(self._origin._trace.recast.get(id(value))))
        return found

    def find_copy(self, of: Tensor) -> Tensor:
        """The variable of this copy that corresponds to a variable of the original program."""
        return self._copied[id(of._value)]

    def find(self, name: str) -> Tensor:
        """The variable or result of this name."""
        var = self._trace.vars.get(name)
        if var is not None:
            return var.tensor
        value = self._trace.find(name)
        if value is not None:
            return Tensor(value, None)
        if self._origin is not None:
            copied = self._copy_of(self._origin.find(name)._value)
            if copied is not None:
                if copied._name is None:
                    copied.name = name  # asked for again, it is found at once
                return copied
        raise InvalidArgument(f"the program has no variable {name!r}{self._near(name)}")

    def _near(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self._trace.vars, 3)
        return f"; nearest: {', '.join(near)}" if near else ""


def fitting(name: str, t: Aval, given: TensorLike) -> np.ndarray:
    """`given` as contents of a variable of type `t`, or a clear error."""
    array = given.numpy() if isinstance(given, Tensor) else np.array(given)
    if tuple(array.shape) != t.shape:
        raise InvalidArgument(
            f"variable {name!r} has shape {list(t.shape)}. Received: contents of shape "
            f"{list(array.shape)}"
        )
    return array.astype(t.dtype.numpy)


class _Defaults:
    """The programs that are written into when none is named."""

    def __init__(self) -> None:
        self.main, self.startup = Program(), Program()


_defaults = _Defaults()


def default_main_program() -> Program:
    """The program that ops are recorded into in static mode."""
    return _defaults.main


def default_startup_program() -> Program:
    """The program that initialises the state of the program being written."""
    return _defaults.startup


@contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Write into these programs inside the block."""
    for given, what in ((main_program, "main_program"), (startup_program, "startup_program")):
        if not isinstance(given, Program) and (given is not None or what == "main_program"):
            raise TypeMismatch(
                f"[program_guard] {what} must be a Program. Received: {type(given).__name__}"
            )
    before = _defaults.main, _defaults.startup
    _defaults.main = main_program
    _defaults.startup = startup_program or _defaults.startup
    recorder.write_into(main_program._trace)
    try:
        yield
    finally:
        _defaults.main, _defaults.startup = before
        recorder.write_into(_defaults.main._trace)


@contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Mark the ops recorded inside the block; shown by `to_string(..., with_details=True)`."""
    if not isinstance(prefix, str) or not prefix:
        raise TypeMismatch(f"[name_scope] prefix must be a str. Received: {prefix!r}")
    scopes = _defaults.main._trace.prefixes
    outer = scopes[-1][1]
    scopes.append((len(_defaults.main._trace.code), f"{outer}{prefix}/"))
    try:
        yield
    finally:
        scopes.append((len(_defaults.main._trace.code), outer))


def data(
    name: str, shape: Sequence[int | str | None], dtype: DTypeLike | None = None, lod_level: int = 0
) -> Tensor:
    """An input that `Executor.run` is fed. None or -1 is a size that may change from run to run.

    Unknown first sizes are one size, the batch; a str names a size that differs from it.
    """
    if not isinstance(name, str) or not name:
        raise TypeMismatch(f"[data] name must be a str. Received: {name!r}")
    if lod_level:
        raise InvalidArgument(
            f"[data] sequences of different lengths are padded, with their lengths as another "
            f"input; lod_level must be 0. Received: {lod_level}"
        )
    if not isinstance(shape, list | tuple):
        raise TypeMismatch(
            f"[data] shape must be a list or tuple. Received: {type(shape).__name__}"
        )
    kind = dt.default_float() if dtype is None else dt.as_dtype(dtype)
    return recorder.declare_data(_defaults.main._trace, name, shape, kind)


def enable_static() -> None:
    """Write programs from now on: ops are recorded and run by an Executor."""
    recorder.start_static(_defaults.main._trace)


def disable_static(place: PlaceLike | None = None) -> None:
    """Back to eager code; `place` becomes its device."""
    recorder.stop_static()
    if place is not None:
        from bireme.device import set_device

        set_device(place)


def in_dynamic_mode() -> bool:
    """Whether ops run as they are called: neither in static mode nor while a function is
    captured."""
    return not is_capturing()
