"""Passes over pairs of programs (main, startup), what they know of each other, and their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.static.program import Program

P = TypeVar("P", bound="type[PassBase]")


class PassContext:
    """What passes tell each other, and which of them were applied."""

    def __init__(self) -> None:
        self._applied: list[PassBase] = []
        self._attrs: dict[str, Any] = {}

    def set_attr(self, key: str, value: object) -> None:
        self._attrs[key] = value

    def get_attr(self, key: str, default: object = None) -> Any:
        return self._attrs.get(key, default)

    @property
    def passes(self) -> list[PassBase]:
        """Those that were applied, in order."""
        return self._applied


class PassBase(ABC):
    """A change of programs. Say `_check_self` (are the attributes fine?), `_check_conflict` (may
    it follow this other pass?) and `_apply_single_impl` (change one pair of programs)."""

    _REGISTERED_PASSES: ClassVar[dict[str, type[PassBase]]] = {}
    name: str | None = None

    def __init__(self) -> None:
        self._attrs: dict[str, Any] = {}

    def set_attr(self, key: str, value: object) -> PassBase:
        self._attrs[key] = value
        return self

    def get_attr(self, key: str, default: object = None) -> Any:
        return self._attrs.get(key, default)

    @abstractmethod
    def _check_self(self) -> bool: ...

    @abstractmethod
    def _check_conflict(self, other_pass: PassBase) -> bool: ...

    @abstractmethod
    def _apply_single_impl(
        self, main_program: Program, startup_program: Program, context: PassContext
    ) -> None: ...

    def _may_follow(self, others: Sequence[PassBase]) -> bool:
        """A pass is applied once, and after those that it gets along with."""
        return all(type(o) is not type(self) and self._check_conflict(o) for o in others)

    def apply(
        self,
        main_programs: list[Program],
        startup_programs: list[Program],
        context: PassContext | None = None,
    ) -> PassContext:
        """Change the programs, unless the pass does not fit itself or what was applied before."""
        for given in (main_programs, startup_programs):
            if not isinstance(given, list) or not all(isinstance(p, Program) for p in given):
                raise TypeMismatch(
                    f"[{self.name}] takes lists of Programs. Received: {given!r:.80}"
                )
        if len(main_programs) != len(startup_programs):
            raise InvalidArgument(
                f"[{self.name}] there must be one startup program for each main program. "
                f"Received: {len(main_programs)} and {len(startup_programs)}"
            )
        context = PassContext() if context is None else context
        if self._check_self() and self._may_follow(context.passes):
            for main, startup in zip(main_programs, startup_programs, strict=True):
                self._apply_single_impl(main, startup, context)
            context.passes.append(self)
        return context


def register_pass(name: str) -> Callable[[P], P]:
    """Let `new_pass(name)` make one of these."""

    def add(kind: P) -> P:
        if not issubclass(kind, PassBase):
            raise TypeMismatch(f"[register_pass] {kind!r} is no PassBase")
        PassBase._REGISTERED_PASSES[name] = kind
        kind.name = name
        return kind

    return add


def new_pass(name: str, pass_attrs: Mapping[str, Any] | None = None) -> PassBase:
    """The pass of this name with these attributes.

    >>> new_pass("fuse_attention").name
    'fuse_attention'
    """
    kind = PassBase._REGISTERED_PASSES.get(name)
    if kind is None:
        known = ", ".join(sorted(PassBase._REGISTERED_PASSES))
        raise InvalidArgument(
            f"[new_pass] no pass {name!r} is registered; there are {known}. What XLA fuses by "
            "itself and what shardings say needs no pass"
        )
    made = kind()
    for key, value in (pass_attrs or {}).items():
        made.set_attr(key, value)
    return made


class PassManager:
    """Several passes in order. Those that conflict with an earlier one are left out, unless
    `auto_solve_conflict` is off."""

    def __init__(
        self,
        passes: Sequence[PassBase],
        context: PassContext | None = None,
        auto_solve_conflict: bool = True,
    ) -> None:
        self._context = PassContext() if context is None else context
        self._passes: list[PassBase] = []
        for p in passes:
            before = [*self._context.passes, *self._passes]
            if not auto_solve_conflict or (p._check_self() and p._may_follow(before)):
                self._passes.append(p)

    def apply(self, main_programs: list[Program], startup_programs: list[Program]) -> PassContext:
        for p in self._passes:
            self._context = p.apply(main_programs, startup_programs, self._context)
        return self._context

    @property
    def context(self) -> PassContext:
        return self._context

    @property
    def names(self) -> list[str | None]:
        return [p.name for p in self._passes]

    @property
    def passes(self) -> tuple[PassBase, ...]:
        return tuple(self._passes)
