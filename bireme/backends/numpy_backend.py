"""The reference backend: NumPy bodies, op by op. It is also the engine's cold tier."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.backends import fused
from bireme.backends.base import Backend, Executable, WithFixed
from bireme.backends.numpy_gradient import NotTraced
from bireme.core import checks, kernels, requirements
from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.errors import BiremeError, InvalidArgument, PositionOutOfRange
from bireme.core.grad_op import GradOp
from bireme.core.graph import Graph
from bireme.core.op import Call, Op
from bireme.host import jax_door, uninterrupted
from bireme.host.arrays import Array
from bireme.kernels import blas, install_direct, native

if TYPE_CHECKING:
    from bireme.core.place import Place


class NumpyExecutable(Executable):
    def __init__(self, graph: Graph, backend: NumpyBackend):
        self.graph, self.steps, self.backend = graph, graph.schedule(), backend
        self.call = self._evaluate

    def _evaluate(self, floats: Any, ints: Any, *inputs: Any) -> list[Any]:
        arrays = [np.asarray(i) for i in inputs]
        with self.backend.running():
            return self.graph.evaluate(arrays, floats, ints, self.backend.run_call, self.steps)

    def put(self, array: np.ndarray) -> Array:
        return np.asarray(array)


class NumpyBackend(Backend):
    name = "numpy"
    raises = True

    def __init__(self) -> None:
        install_direct()

    def compile(
        self,
        graph: Graph,
        *,
        place: Place | None = None,
        fixed: Mapping[int, Any] | None = None,
        donated: tuple[int, ...] = (),
        shardings: tuple[Any, ...] | None = None,
        watched: tuple[int, ...] = (),
    ) -> Executable:
        whole = NumpyExecutable(graph, self)
        return whole if fixed is None else WithFixed(whole, graph, fixed)

    def put(self, array: Array, place: Place) -> Array:
        return np.asarray(array)

    @contextmanager
    def running(self) -> Iterator[None]:
        """What a run of a graph takes place in."""
        with np.errstate(all="ignore"), kernels.run_directly(), blas.alone():
            yield

    def run_call(self, call: Call, arrays: list[Any]) -> Any:
        """One op, with a look at what it requires."""
        if not call.requires:
            return (call.cold or _prepared(call))(call, arrays)
        requirements.check(call, arrays, None, before=True)
        out = (call.cold or _prepared(call))(call, arrays)
        requirements.check(call, arrays, out, before=False)
        return out

    def run_checked(self, call: Call, arrays: list[Any]) -> Any:
        """As run_call, and show what came out to who watches for NaN and infinity."""
        out = self.run_call(call, arrays)
        checks.look(call, [out] if call.single else list(out))
        return out


def _prepared(call: Call) -> Callable[[Call, list[Any]], Any]:
    """What runs a call from now on: by a native kernel that takes it, by its NumPy body, or,
    without one, as a compiled program of its own, cached."""
    if not call.op.runs_on_numpy():
        made = _run_derived if isinstance(call.op, GradOp) else _run_compiled
    elif kernels.may_run_directly(call):
        made = _run
    else:
        care = _needs_care(call) or not call.single
        made = _run if care else _plain(call)
        if fused.may_run(call):
            if native.is_coming():
                return made  # until the kernels are there: then it may run in one pass
            made = fused.runner(call, made) or made
    call.cold = made
    return made


def _needs_care(call: Call) -> bool:
    """Whether inputs are cast or widened, or the op lowers itself in its own way."""
    flat = [t for t in call.types if isinstance(t, Aval)]
    return (
        type(call.op).lower is not Op.lower
        or any(c is not None for c in call.casts)
        or any(t.dtype.numpy in _HALVES for t in flat)
        or call.op.body is None
    )


def _plain(call: Call) -> Callable[[Call, list[Any]], Any]:
    """The NumPy body of an op with one result, with nothing in between."""
    op, attrs = call.op, call.attrs
    body: Any = op.numpy if callable(op.numpy) else op.body
    want = call.outs[0].dtype.numpy
    group = None if all(n < 0 for n in call.layout) else call.layout

    def run(call: Call, arrays: list[Any]) -> Any:
        try:
            out = body(np, *(arrays if group is None else call.group(arrays)), **attrs)
        except (IndexError, np.linalg.LinAlgError) as e:
            raise _explained(call, e) from e
        if out.__class__ is np.ndarray and out.dtype == want:
            return out
        return np.asarray(out, dtype=want)

    return run


def _run(call: Call, arrays: list[Any]) -> Any:
    flat = call.cast(np, arrays)
    if any(getattr(a, "dtype", None) in _HALVES for a in flat) and _is_widened(call):
        flat = [_widened(a) for a in flat]
    kernel = kernels.direct(call)
    try:
        body = None if kernel is None else kernel.lower
        out = call.op.lower(np, call, flat) if body is None else body(call, *flat)
    except (IndexError, np.linalg.LinAlgError) as e:
        raise _explained(call, e) from e
    if call.single:
        return _as_type(out, call.outs[0])
    return [_as_type(o, t) for o, t in zip(out, call.outs, strict=True)]


def _run_derived(call: Call, arrays: list[Any]) -> Any:
    """The gradient of an op without a gradient rule, of a gradient for example."""
    try:
        return _run(call, arrays)
    except NotTraced:
        call.cold = _run_compiled
        return _run_compiled(call, arrays)


def _run_compiled(call: Call, arrays: list[Any]) -> Any:
    out = _one_op(call).run([a for a in arrays if a is not None])
    return np.asarray(out) if call.single else [np.asarray(o) for o in out]


def _explained(call: Call, error: Exception) -> BiremeError:
    """An error of NumPy's in terms of the user's code."""
    # Positions are contents: nobody looked at them before.
    kind = PositionOutOfRange if isinstance(error, IndexError) else InvalidArgument
    return kind(
        f"[{call.op.shown}] {error} (recorded at {call.source}). Received: {call.describe_inputs()}"
    )


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


class _OneOp:
    """A Call as a jitted function of the inputs that are not None."""

    def __init__(self, call: Call):
        jax = jax_door.jax()
        present = [i for i, t in enumerate(call.types) if t is not None]

        def run(*given: Any) -> Any:
            arrays: list[Any] = [None] * len(call.types)
            for i, a in zip(present, given, strict=True):
                arrays[i] = a
            return call.run(jax.numpy, arrays)

        self._jitted = jax.jit(run)
        self._is_traced = False

    def run(self, given: list[Any]) -> Any:
        if self._is_traced:
            return self._jitted(*given)
        out = uninterrupted.run(lambda: self._jitted(*given))
        self._is_traced = True
        return out


_one_op = functools.lru_cache(maxsize=4096)(_OneOp)
