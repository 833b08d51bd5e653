"""Scope: where a program's parameters and other state live from run to run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bireme.api.types import DTypeLike, PlaceLike, TensorLike
from bireme.core.errors import TypeMismatch
from bireme.core.tensor import Tensor, constant


class ScopeTensor:
    """The contents of one entry: `np.array(t)` reads them and `t.set(array)` replaces them."""

    def __init__(self, scope: Scope, name: str):
        self._scope, self._name = scope, name

    def set(self, array: TensorLike, place: PlaceLike | None = None) -> None:
        """Replace the contents. They go to the device of the next run, wherever `place` is."""
        self._scope.put(self._name, constant(np.array(array)))

    def _tensor(self) -> Tensor:
        return self._scope.tensor(self._name)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return self._tensor().__array__(dtype)

    def numpy(self) -> np.ndarray:
        return self._tensor().numpy()

    def shape(self) -> list[int]:
        return list(self._tensor().shape)

    def _is_initialized(self) -> bool:
        return self._scope.has_contents(self._name)

    def __repr__(self) -> str:
        return repr(self._tensor())


class ScopeVariable:
    """One entry of a scope."""

    def __init__(self, scope: Scope, name: str):
        self._scope, self._name = scope, name

    def name(self) -> str:
        return self._name

    def get_tensor(self) -> ScopeTensor:
        return ScopeTensor(self._scope, self._name)


class Scope:
    """Contents by name. A scope made by `new_scope` also sees what its parent holds."""

    def __init__(self, parent: Scope | None = None):
        self._parent = parent
        self._kids: list[Scope] = []
        self._entries: dict[str, Tensor | None] = {}

    def var(self, name: str) -> ScopeVariable:
        """The entry of this name, made without contents if there is none."""
        if not isinstance(name, str):
            raise TypeMismatch(f"[Scope.var] a name must be a str. Received: {type(name).__name__}")
        if name not in self._entries:
            self._entries[name] = None
        return ScopeVariable(self, name)

    def find_var(self, name: str) -> ScopeVariable | None:
        """The entry of this name, here or in a parent; None if there is none."""
        owner = self._owner(name)
        return None if owner is None else ScopeVariable(owner, name)

    def _owner(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None and name not in scope._entries:
            scope = scope._parent
        return scope

    def has_contents(self, name: str) -> bool:
        owner = self._owner(name)
        return owner is not None and owner._entries[name] is not None

    def tensor(self, name: str) -> Tensor:
        owner = self._owner(name)
        found = None if owner is None else owner._entries[name]
        if found is None:
            raise MissingState(
                f"variable {name!r} has no contents in this scope. Run the startup program first: "
                "exe.run(paddle.static.default_startup_program())"
            )
        return found

    def put(self, name: str, tensor: Tensor) -> None:
        """Set the contents where the entry is, or here."""
        owner = self._owner(name) or self
        tensor._name = name
        owner._entries[name] = tensor

    def erase(self, names: list[str]) -> None:
        for name in names:
            self._entries.pop(name, None)

    def local_var_names(self) -> list[str]:
        return list(self._entries)

    def size(self) -> int:
        return len(self._entries)

    def new_scope(self) -> Scope:
        """A scope that sees this one's entries and keeps new ones to itself."""
        kid = Scope(self)
        self._kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        self._kids.clear()


class MissingState(TypeMismatch):
    """State that a program needs and no startup program has initialised."""


_current = Scope()


def global_scope() -> Scope:
    """The scope that executors use when none is given."""
    return _current


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Use `scope` as the global scope inside the block."""
    global _current
    if not isinstance(scope, Scope):
        raise TypeMismatch(f"[scope_guard] takes a Scope. Received: {type(scope).__name__}")
    before, _current = _current, scope
    try:
        yield
    finally:
        _current = before
