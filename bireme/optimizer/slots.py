"""What an optimizer remembers: accumulators per parameter, and clocks that parameters share."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from bireme.api.types import TensorLike
from bireme.core import dtype as dt
from bireme.core.aval import aval
from bireme.core.recorder_hooks import new_copy
from bireme.core.tensor import Tensor, alias, constant
from bireme.core.trace import state
from bireme.nn import naming


class Slot(NamedTuple):
    """A kind of accumulator.

    `shown` is how a clock's entry looks in the state dict: as one element, or spread to the
    parameter's shape.
    """

    name: str
    fill: float = 0.0
    shown: str = "one"
    dtype: str | None = None
    rows: int = 0  # a leading dimension, for rings of past gradients


class Slots:
    """The accumulators and master weights of all parameters."""

    def __init__(self, kinds: tuple[Slot, ...], wide: bool, multi_precision: bool):
        self.kinds = kinds
        self.wide = wide
        self.multi_precision = multi_precision
        self.masters: dict[str, Tensor] = {}
        self.params: dict[int, Any] = {}
        self._of: dict[int, list[Tensor]] = {}
        self._names: dict[tuple[int, str], str] = {}
        self._loaded: dict[tuple[str, str], Any] = {}  # by parameter and kind

    def has_master(self, param: Tensor) -> bool:
        return self.multi_precision and param.dtype in (dt.float16, dt.bfloat16)

    def target(self, param: Tensor) -> Tensor:
        """The tensor that is updated: the parameter, or its float32 master."""
        if not self.has_master(param):
            return param
        master = self.masters.get(param.name)
        if master is None:
            name = naming.generate(param.name + "_fp32_master")
            t = aval(param._value.aval.shape, dt.float32)
            master = new_copy(state.trace, name, alias(param), t, _widened)
            master.name, master.persistable = name, True
            self.masters[param.name] = master
        return master

    def tensors(
        self, params: list[Any], targets: list[Tensor], initial: dict[str, float]
    ) -> list[Tensor]:
        """All accumulators: the first kind of every parameter, then the second …"""
        rows = []
        for p, target in zip(params, targets, strict=True):
            own = self._of.get(id(p))
            if own is None:
                own = self._of[id(p)] = [
                    self._new(p, target, kind, initial.get(kind.name, kind.fill))
                    for kind in self.kinds
                ]
                self.params[id(p)] = p
            rows.append(own)
        return [tensor for column in zip(*rows, strict=True) for tensor in column]

    def has(self, param: Tensor) -> bool:
        """Whether the parameter's accumulators exist."""
        return id(param) in self._of

    def dtype_of(self, param: Tensor) -> dt.DType:
        """The type of a parameter's accumulators."""
        low = param.dtype in (dt.float16, dt.bfloat16)
        return dt.float32 if low and (self.wide or self.multi_precision) else param.dtype

    def _new(self, param: Tensor, target: Tensor, kind: Slot, fill: float) -> Tensor:
        dtype = self.dtype_of(param)
        shape = (kind.rows, *target.shape) if kind.rows else tuple(target.shape)
        loaded = self.loaded(param, kind.name)
        if loaded is not None:
            array = as_array(loaded, dtype).reshape(shape)
        else:
            array = np.full(shape, fill, dtype.numpy) if fill else np.zeros(shape, dtype.numpy)
        made = constant(array)
        made.name = self.name_of(param, kind.name)
        made.persistable = True
        return made

    def name_of(self, param: Tensor, kind: str) -> str:
        """`<param or master>_<kind>_<n>`, the key in the state dict."""
        key = (id(param), kind)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = naming.generate(f"{self.target(param).name}_{kind}")
        return name

    def loaded(self, param: Tensor, kind: str) -> Any:
        """What `load` brought for an accumulator that did not exist then."""
        return self._loaded.get((param.name, kind))

    def state_dict(self) -> dict[str, Tensor]:
        return {t.name: t for own in self._of.values() for t in own}

    def ordered(self, state: dict[str, Any], kinds: tuple[Slot, ...]) -> dict[str, Any]:
        """The same entries in Paddle's order: by kind, then by parameter."""
        result: dict[str, Any] = OrderedDict()
        for kind in kinds:
            for key in self.params:
                name = self._names.get((key, kind.name))
                if name in state:
                    result[name] = state[name]
        return result

    def load(self, entries: dict[tuple[str, str], Any], masters: dict[str, Any]) -> None:
        """Take over a state that fits (see `matching`), by parameter and kind; accumulators that
        do not exist yet find theirs when they are made."""
        self._loaded = dict(entries)
        for name, value in masters.items():
            if name in self.masters:
                self.masters[name].set_value(as_array(value, dt.float32))
                continue
            made = self.masters[name] = constant(as_array(value, dt.float32))
            made.name = naming.generate(name + "_fp32_master")
            made.persistable = True
        for key, own in self._of.items():
            for tensor, kind in zip(own, self.kinds, strict=True):
                value = self.loaded(self.params[key], kind.name)
                tensor.set_value(as_array(value, tensor.dtype))

    def forget_loaded(self) -> None:
        """All that was loaded is in accumulators now."""
        self._loaded = {}


def _widened(tensor: Tensor) -> Tensor:
    return tensor.astype(dt.float32)


def as_array(value: TensorLike, dtype: dt.DType) -> np.ndarray:
    """A copy of a tensor's or array's contents in `dtype`."""
    contents = getattr(value, "numpy", None)
    array = np.asarray(value) if contents is None else contents()
    return np.array(array, dtype.numpy)


class Clock:
    """Values that advance with every step, shared by parameters that were updated together."""

    __slots__ = ("members", "tensors")

    def __init__(self, tensors: list[Tensor], members: int):
        self.tensors = tensors
        self.members = members


class Clocks:
    """The clocks of all parameters. Usually there is one.

    A parameter that has no gradient in some step falls behind; it then gets a clock of its own.
    """

    def __init__(self, kinds: tuple[Slot, ...], slots: Slots):
        self.kinds = kinds
        self._slots = slots
        self._of: dict[int, Clock] = {}
        self.version = 0  # counts changes of who goes by which clock

    def partition(
        self, params: list[Any], initial: dict[str, float]
    ) -> list[tuple[Clock, list[Any]]]:
        """The parameters by the clock that they go by."""
        if not self.kinds:
            return [(_NO_CLOCK, params)]
        by_clock: dict[Clock, list[Any]] = {}
        for p in params:
            clock = self._of.get(id(p))
            if clock is None:
                self._start(params, initial)
                return self.partition(params, initial)
            by_clock.setdefault(clock, []).append(p)
        return [
            (c if len(members) == c.members else self._split(c, members), members)
            for c, members in by_clock.items()
        ]

    def _start(self, params: list[Any], initial: dict[str, float]) -> None:
        """Clocks for parameters seen for the first time, one per dtype and starting time."""
        fresh: dict[Any, list[Any]] = {}
        for p in params:
            if id(p) not in self._of:
                kind = dt.float64 if p.dtype is dt.float64 else dt.float32
                fresh.setdefault((kind, self._times(p, initial)), []).append(p)
        for (kind, times), members in fresh.items():
            tensors = []
            for slot, time in zip(self.kinds, times, strict=True):
                dtype = dt.as_dtype(slot.dtype) if slot.dtype else kind
                made = constant(np.full((1,), time, dtype.numpy))
                made.name = self._slots.name_of(members[0], slot.name)
                made.persistable = True
                tensors.append(made)
            clock = Clock(tensors, len(members))
            self._of.update({id(p): clock for p in members})
        self.version += 1

    def _times(self, param: Tensor, initial: dict[str, float]) -> tuple[float, ...]:
        times = []
        for slot in self.kinds:
            loaded = self._slots.loaded(param, slot.name)
            start = initial.get(slot.name, slot.fill)
            times.append(
                start if loaded is None else float(np.ravel(as_array(loaded, dt.float64))[0])
            )
        return tuple(times)

    def _split(self, clock: Clock, members: list[Any]) -> Clock:
        clock.members -= len(members)
        own = Clock([alias(t) for t in clock.tensors], len(members))
        self._of.update({id(p): own for p in members})
        self.version += 1
        return own

    def state_dict(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for key, param in self._slots.params.items():
            clock = self._of.get(key, _NO_CLOCK)
            for slot, tensor in zip(self.kinds, clock.tensors, strict=False):
                if slot.shown == "one":
                    shown = alias(tensor)
                else:
                    shape = tuple(param.shape)
                    shown = constant(np.full(shape, tensor.item(), tensor.dtype.numpy))
                shown.name = self._slots.name_of(param, slot.name)
                shown._clock = tensor  # pyright: ignore[reportAttributeAccessIssue] (whoever fills it sets this)
                state[shown.name] = shown
        return state

    def forget(self) -> None:
        """After a state was loaded, clocks start again from it."""
        self._of = {}
        self.version += 1


_NO_CLOCK = Clock([], 0)
