"""Ops that call Python while a program runs: py_func and Print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import ExecutionError, InvalidArgument, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.static.executor import EFFECTS

EFFECTS.update(("py_func", "print_tensor"))


def _call(xp: Any, function: Any, arrays: list[Any], types: list[Aval]) -> list[Any]:
    """The results of a Python function, called when the program runs."""

    def host(*given: Any) -> list[np.ndarray]:
        return _checked(function(*[np.asarray(a) for a in given]), types, function)

    if xp is np:
        return host(*arrays)
    jax = jax_door.jax()
    shapes = [jax.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in types]
    return list(jax.experimental.io_callback(jax_door.keeping_errors(host), shapes, *arrays))


def _checked(made: Any, types: list[Aval], function: Callable[..., Any]) -> list[np.ndarray]:
    results = [] if made is None else list(made) if isinstance(made, list | tuple) else [made]
    if len(results) != len(types):
        raise ExecutionError(
            f"[py_func] {_name(function)} must return {len(types)} arrays. Received: {len(results)}"
        )
    arrays = [np.asarray(r, t.dtype.numpy) for r, t in zip(results, types, strict=True)]
    for array, t in zip(arrays, types, strict=True):
        if array.shape != t.shape:
            raise ExecutionError(
                f"[py_func] {_name(function)} must return {t}. Received: shape {list(array.shape)}"
            )
    return arrays


def _name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))


def _out_types(xs: Any, function: Any, backward: Any, skip: Any, shapes: Any, dtypes: Any) -> Any:
    return tuple([aval(s, dt.as_dtype(d)) for s, d in zip(shapes, dtypes, strict=True)])


def _py_func_vjp(
    xp: Any, grads: Any, xs: Any, out: Any, types: Any, needs: Any, backward: Any, skip: Any
) -> tuple[Any, ...]:
    if backward is None:
        return (None,)
    kept = [a for i, a in enumerate((*xs, *out)) if i not in skip]
    wanted = [t for t in types[0] if t.dtype.differentiable]
    found = iter(_call(xp, backward, [*kept, *grads], wanted))
    return ([next(found) if t.dtype.differentiable else None for t in types[0]],)


@op(name="py_func", inputs=("*xs",), infer=_out_types, vjp=_py_func_vjp, fallible=True)
def _py_func(xp, xs, function=None, backward=None, skip=(), shapes=(), dtypes=()):
    """The results of a Python function on arrays."""
    types = _out_types(xs, function, backward, skip, shapes, dtypes)
    return _call(xp, function, xs, list(types))


def py_func(
    func: Callable[..., Any],
    x: Tensor | Sequence[Tensor],
    out: Tensor | Sequence[Tensor],
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Tensor | Sequence[Tensor] | None = None,
) -> Any:
    """Call `func` on arrays while the program runs; its results become `out`.

    `out` are variables made with `block.create_var`, or None. `backward_func` takes the inputs,
    the results (less those to skip) and the results' gradients, and returns the inputs'.
    """
    if not callable(func) or (backward_func is not None and not callable(backward_func)):
        raise TypeMismatch("[py_func] func and backward_func must be functions")
    inputs, outs = _listed(x), _listed(out)
    skipped = []
    for v in _listed(skip_vars_in_backward_input):
        places = [i for i, known in enumerate((*inputs, *outs)) if known is v]
        if not places:
            raise InvalidArgument(f"[py_func] {v.name!r} is to be skipped, but neither in nor out")
        skipped += places
    function, types = func, [t._value.aval for t in outs]
    if not outs:  # an unused result keeps the call in the program
        types = [aval((), dt.int32)]

        def function(*arrays: Any) -> Any:
            func(*arrays)
            return np.int32(0)

    made = _py_func(
        inputs,
        function,
        backward_func,
        tuple(skipped),
        tuple([t.shape for t in types]),
        tuple([t.dtype.name for t in types]),
    )
    for variable, result in zip(outs, made, strict=False):
        variable._value = result._value
        variable._node = result._node if backward_func is not None else None
    return out


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return [given] if isinstance(given, Tensor) else list(given)


class Printer:
    """The settings and the count of one Print call."""

    def __init__(self, name: str, first_n: int, summarize: int, lines: Sequence[str], message: str):
        self.name, self.message, self.lines = name, message, tuple(lines)
        self.first_n, self.summarize = first_n, summarize
        self.shown: dict[str, int] = {}

    def show(self, array: np.ndarray, ending: str) -> None:
        count = self.shown[ending] = self.shown.get(ending, 0) + 1
        if 0 <= self.first_n < count:
            return
        few = array.ravel() if self.summarize < 0 else array.ravel()[: self.summarize]
        facts = {
            "name": f"Variable: {self.name}{ending}",
            "shape": f"  - shape: {list(array.shape)}",
            "layout": "  - layout: NCHW",
            "lod": "  - lod: {}",
            "type": f"  - dtype: {array.dtype}",
        }
        text = [self.message] if self.message else []
        text += [facts[line] for line in self.lines]
        print("\n".join([*text, f"  - data: {few.tolist()}"]), flush=True)  # noqa: T201


def _show(xp: Any, x: Any, printer: Any, ending: str) -> None:
    if xp is np:
        printer.show(np.asarray(x), ending)
    else:
        jax_door.jax().debug.callback(lambda a: printer.show(np.asarray(a), ending), x)


def _print_vjp(xp: Any, grad: Any, printer: Printer, phase: str) -> tuple[Any, ...]:
    if phase != "forward":
        _show(xp, grad, printer, "@GRAD")
    return (grad,)


@op(name="print_tensor", infer=lambda x, printer, phase: x, vjp=_print_vjp)
def _print_tensor(xp, x, printer=None, phase="both"):
    """`x` itself, shown while the program runs."""
    if phase != "backward":
        _show(xp, x, printer, "")
    return x


def Print(  # noqa: N802 (Paddle's name)
    input: Tensor,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_layout: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Tensor:
    """`input` itself; running the program prints it (and its gradient) the first `first_n`
    times, with at most `summarize` elements (-1: all)."""
    phase = print_phase.lower()
    if phase not in ("forward", "backward", "both"):
        raise InvalidArgument(
            f"[Print] print_phase must be 'forward', 'backward' or 'both'. Received: {phase!r}"
        )
    chosen = {
        "name": print_tensor_name,
        "shape": print_tensor_shape,
        "layout": print_tensor_layout,
        "lod": print_tensor_lod,
        "type": print_tensor_type,
    }
    lines = [line for line, wanted in chosen.items() if wanted]
    return _print_tensor(
        input, Printer(input.name, first_n, summarize, lines, message or ""), phase
    )
