"""The reference backend: NumPy bodies, op by op. It is also the engine's cold tier."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np

from bireme.backends.base import Backend, Executable
from bireme.core import checks, jax_door
from bireme.core import dtype as dt
from bireme.core.errors import PositionOutOfRange
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph, Node
from bireme.core.op import Call


class NumpyExecutable(Executable):
    def __init__(self, graph: Graph, nodes: list[Node], backend: NumpyBackend):
        self.graph, self.nodes, self.backend = graph, nodes, backend
        self.call = self._evaluate
        self.kernels = Counter()

    def _evaluate(self, floats: Any, ints: Any, *inputs: Any) -> list[Any]:
        arrays = [np.asarray(i) for i in inputs]
        with np.errstate(all="ignore"):
            return self.graph.evaluate(arrays, floats, ints, self.backend.run_call, self.nodes)

    def put(self, array: Any) -> Any:
        return np.asarray(array)


class NumpyBackend(Backend):
    name = "numpy"

    def compile(
        self,
        graph: Graph,
        nodes: list[Node],
        donated: tuple[int, ...],
        shardings: tuple[Any, ...] | None = None,
    ) -> Executable:
        return NumpyExecutable(graph, nodes, self)

    def run_call(self, call: Call, arrays: list[Any]) -> Any:
        """One op; ops without a NumPy body run as a compiled program of their own, cached."""
        if not call.op.runs_on_numpy():
            out = _one_op(call)(*[a for a in arrays if a is not None])
            return np.asarray(out) if call.single else [np.asarray(o) for o in out]
        flat = call.cast(np, arrays)
        if any(getattr(a, "dtype", None) in _HALVES for a in flat) and _is_widened(call):
            flat = [_widened(a) for a in flat]
        try:
            out = call.op.lower(np, call, flat)
        except IndexError as e:  # positions are contents: nobody looked at them before
            raise PositionOutOfRange(
                f"[{call.op.shown}] {e} (recorded at {call.source}). Received: "
                f"{call.describe_inputs()}"
            ) from e
        if call.single:
            return _as_type(out, call.outs[0])
        return [_as_type(o, t) for o, t in zip(out, call.outs, strict=True)]

    def run_checked(self, call: Call, arrays: list[Any]) -> Any:
        """As run_call, and show what came out to who watches for NaN and infinity."""
        out = self.run_call(call, arrays)
        checks.look(call, [out] if call.single else list(out))
        return out


# NumPy adds up halves in halves: a sum of bfloat16 ones ends at 256. So the cold tier computes in
# float32 and rounds what comes out, as XLA does, except in ops that are exact.
_HALVES = frozenset(d.numpy for d in dt.ALL if d.is_floating and d.itemsize < 4)


def _is_widened(call: Call) -> bool:
    """Whether an op computes in float32 although it is given less. A user's own op never does."""
    op = call.op
    if isinstance(op, GradOp):
        op = call.attrs["forward"].op
    elif op.exact or "graph" in call.attrs:
        return False
    return (getattr(op.body, "__module__", None) or "").startswith("bireme.")


def _widened(array: Any) -> Any:
    return array.astype(np.float32) if getattr(array, "dtype", None) in _HALVES else array


def _as_type(out: Any, want: Any) -> np.ndarray:
    if out.__class__ is np.ndarray and out.dtype == want.dtype.numpy:
        return out
    return np.asarray(out, dtype=want.dtype.numpy)


@functools.lru_cache(maxsize=4096)
def _one_op(call: Call) -> Any:
    """A jitted function of the inputs that are not None."""
    jax = jax_door.jax()
    present = [i for i, t in enumerate(call.types) if t is not None]

    def run(*given: Any) -> Any:
        arrays: list[Any] = [None] * len(call.types)
        for i, a in zip(present, given, strict=True):
            arrays[i] = a
        return call.run(jax.numpy, arrays)

    return jax.jit(run)
