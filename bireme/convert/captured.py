"""Imported models that are captured once per set of input types."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from bireme.capture.capture import capture
from bireme.capture.recorder import is_capturing
from bireme.core.cache import BoundedCache
from bireme.core.errors import BiremeError
from bireme.core.tensor import Tensor
from bireme.core.trace import state
from bireme.jit.static_function import CapturedCall

_MAX_CALLS = 256  # captured graphs of one model


class CapturedCalls:
    """Calls a function of named tensors as one captured graph per set of types. A function that
    cannot be captured, because results decide what runs next, runs eagerly."""

    def __init__(self, run: Callable[[dict[str, Any]], Any], known: dict[str, Tensor], label: str):
        """`known` are the tensors that the function takes from elsewhere, by name."""
        self._run, self._known, self._label = run, known, label
        self._calls: BoundedCache[Any, CapturedCall | None] = BoundedCache(_MAX_CALLS)

    def __call__(self, given: dict[str, Any]) -> Any:
        if is_capturing() or not all(isinstance(v, Tensor) for v in given.values()):
            return self._run(given)
        names, tensors = list(given), list(given.values())
        tape = state.trace.tape
        types = tuple([t._value.aval for t in tensors])
        needs = tuple([t._node is not None for t in tensors]) if tape else ()
        key = (tuple(names), types, needs, tape, state.trace.amp)
        entry = self._calls.entry(key)
        call = None if entry is None else entry.value
        if entry is None or (call is not None and not call.is_current()):
            call = None
            # What is wrong raises again where it runs eagerly.
            with contextlib.suppress(BiremeError):
                captured = capture(
                    lambda arguments: self._run(dict(zip(names, arguments, strict=True))),
                    types,
                    label=self._label,
                    needs=needs,
                    names=names,
                    known=self._known,
                    tape=tape,
                    amp=state.trace.amp,
                )
                call = CapturedCall(captured)
            if entry is None:
                self._calls.add(key, call)
            else:
                entry.value = call
        return self._run(given) if call is None else call(tensors)
