"""`paddle.incubate.autograd`: derivatives of functions, forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bireme.autograd.jacobians import Rows, Tensors, listed, pull_back
from bireme.core.errors import AutogradError, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.ops.creation import ones_like, zeros_like
from bireme.ops.math_unary import assign_value

__all__ = [
    "Hessian", "Jacobian", "disable_prim", "enable_prim", "forward_grad", "grad", "jvp", "vjp",
]  # fmt: skip


class _Mode:
    forward = False


def enable_prim() -> None:
    """Allow `forward_grad`. Every op here is differentiable any number of times, so nothing
    else changes."""
    _Mode.forward = True


def disable_prim() -> None:
    """Undo `enable_prim`."""
    _Mode.forward = False


def prim_enabled() -> bool:
    """Whether `forward_grad` is allowed."""
    return _Mode.forward


def _check(name: str, what: str, given: Any) -> None:
    for one in given if isinstance(given, list | tuple) else [given]:
        if not isinstance(one, Tensor):
            raise TypeMismatch(
                f"[{name}] {what} must be a Tensor or a list of Tensors. Received: "
                f"{type(one).__name__}"
            )


def _check_v(name: str, v: Tensors | None, like: Any) -> None:
    if v is None:
        return
    _check(name, "v", v)
    given, wanted = listed(v), listed(like)
    if len(given) != len(wanted):
        raise AutogradError(f"[{name}] v must be {len(wanted)} tensors. Received: {len(given)}")
    for i, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if list(a.shape) != list(b.shape):
            raise AutogradError(f"[{name}] v[{i}] must have shape {b.shape}. Received: {a.shape}")


def _apart(x: Tensor) -> Tensor:
    """A tensor of its own to differentiate by, still linked to x's history if it has one."""
    if not x.stop_gradient:
        return assign_value(x)
    own = x.detach()
    own.stop_gradient = False
    return own


def _separate(xs: Any) -> Any:
    return tuple([_apart(x) for x in xs]) if isinstance(xs, list | tuple) else _apart(xs)


def _apply(func: Any, xs: Tensors) -> Any:
    return func(*xs) if isinstance(xs, list | tuple) else func(xs)


def _as_given(found: list[Tensor], like: Any) -> Any:
    return tuple(found) if isinstance(like, list | tuple) else found[0]


def _start(name: str, func: Any, xs: Tensors) -> tuple[Any, Any]:
    """(separate inputs, results of the function)."""
    if not callable(func):
        raise TypeMismatch(f"[{name}] func must be a function. Received: {type(func).__name__}")
    _check(name, "xs", xs)
    xs = _separate(xs)
    return xs, _apply(func, xs)


def vjp(
    func: Callable[..., Any],
    xs: Tensors,
    v: Tensors | None = None,
) -> tuple[Any, Any]:
    """(func(xs), the gradient of sum(v * func(xs)) by xs); v is ones by default."""
    xs, ys = _start("vjp", func, xs)
    _check_v("vjp", v, ys)
    return ys, _as_given(pull_back(ys, listed(xs), v), xs)


def jvp(
    func: Callable[..., Any],
    xs: Tensors,
    v: Tensors | None = None,
) -> tuple[Any, Any]:
    """(func(xs), how it changes when xs moves along v); v is ones by default."""
    xs, ys = _start("jvp", func, xs)
    _check_v("jvp", v, xs)
    return ys, _as_given(_push(listed(ys), listed(xs), v), ys)


def _push(ys: list[Tensor], xs: list[Tensor], v: Tensors | None) -> list[Tensor]:
    """Forward derivatives by two backward ones: the pull-back is linear in its weights, and the
    gradient of a linear function applies it the other way round."""
    weights = []
    for y in ys:
        weight = zeros_like(y)
        weight.stop_gradient = False
        weights.append(weight)
    pulled = pull_back(ys, xs, weights)
    return pull_back(pulled, weights, [ones_like(x) for x in xs] if v is None else v)


def forward_grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_inputs: Tensors | None = None,
) -> Tensors:
    """How `outputs` change when `inputs` move along `grad_inputs` (ones by default)."""
    if not prim_enabled():
        raise AutogradError(
            "[forward_grad] forward differentiation is off. Received: no enable_prim(); call "
            "paddle.incubate.autograd.enable_prim() first"
        )
    _check("forward_grad", "outputs", outputs)
    _check("forward_grad", "inputs", inputs)
    _check_v("forward_grad", grad_inputs, inputs)
    return _as_given(_push(listed(outputs), listed(inputs), grad_inputs), outputs)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Tensors | None = None,
) -> Tensors:
    """The gradient of sum(grad_outputs * outputs) by `inputs`; it can be differentiated again."""
    _check("grad", "outputs", outputs)
    _check("grad", "inputs", inputs)
    _check_v("grad", grad_outputs, outputs)
    return _as_given(pull_back(outputs, listed(inputs), grad_outputs), inputs)


class Jacobian:
    """The derivatives of a function's flattened results by its flattened inputs.

    [results, inputs], or [batch, results, inputs]; rows are computed as they are indexed.
    """

    def __init__(self, func: Callable[..., Any], xs: Tensors, is_batched: bool = False) -> None:
        xs = listed(_separate(xs))
        self._rows = Rows(listed(func(*xs)), xs, is_batched)

    def __getitem__(self, indexes: Any) -> Tensor:
        return self._rows.pick(indexes if isinstance(indexes, tuple) else (indexes,))

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of the matrix."""
        return self._rows.shape


class Hessian:
    """The second derivatives of a function with one result (per sample of a batch)."""

    def __init__(self, func: Callable[..., Any], xs: Tensors, is_batched: bool = False) -> None:
        def slope(*inputs: Tensor) -> Tensor:
            rows = Rows(listed(func(*inputs)), list(inputs), is_batched)
            if rows.shape[-2] != 1:
                raise _SeveralResults(
                    "[Hessian] the function must have one result"
                    f"{' per sample' if is_batched else ''}. Received: {rows.shape[-2]}"
                )
            return rows.row(0)

        self.symbolic = Jacobian(slope, xs, is_batched)

    def __getitem__(self, indexes: Any) -> Tensor:
        return self.symbolic[indexes]

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of the matrix."""
        return self.symbolic.shape


class _SeveralResults(ShapeMismatch):
    """A RuntimeError as in Paddle."""
