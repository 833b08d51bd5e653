"""Ops of one's own, in Python, on the same table as Bireme's. See docs/custom-ops.md.

    def swish_backward(xp, grad, x, beta):
        s = 1 / (1 + xp.exp(-beta * x))
        return grad * (s + beta * x * s * (1 - s))

    @custom_op(backward=swish_backward)
    def my_swish(xp, x, beta=1.0):
        return x / (1 + xp.exp(-beta * x))

The function is recorded, typed, captured and saved like any other op of Bireme.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core import kernels
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument
from bireme.core.op import OPS, op
from bireme.host import jax_door

_custom: set[str] = set()  # names that users gave


def define(body: Callable[..., Any], name: str, **options: Any) -> Callable[..., Any]:
    """Enter an op into the table; one that a user defined before under this name is replaced."""
    if name in OPS and name not in _custom:
        raise InvalidArgument(
            f"[custom_op] {name!r} is the name of an op of Bireme's own; choose another one"
        )
    before = OPS.pop(name, None)
    try:
        function = op(body, name=name, **options)
    except Exception:
        if before is not None:
            OPS[name] = before
        raise
    _custom.add(name)
    return function


def custom_op(
    forward: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    infer: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    inputs: Sequence[str] | None = None,
    differentiable: bool = True,
    host: bool = False,
) -> Any:
    """Define an op from its forward function; usable as a decorator.

    forward(xp, x, ..., attribute=default) computes with `xp`, which is NumPy or jax.numpy.
        Parameters without a default are tensors; `inputs=("x", "bias")` names them where
        optional ones have defaults, and "*xs" is a list of tensors. The others are attributes.
    backward(xp, grad, ...) returns the gradient of each tensor parameter (one, or a tuple with
        None for those without). It asks for what it needs by name: parameters, `out`, `types`,
        `needs`. Without it the gradient is derived from `forward`. With several results `grad`
        and `out` are tuples.
    infer(x, ..., **attributes) gives the result's type: (shape, dtype) or an argument, which has
        both; a list for several results. Without it the type is derived from `forward`.
    host=True: `forward` and `backward` are called with NumPy arrays always, also from compiled
        programs, and may use any Python library. They need `infer`.
    """
    if forward is None:
        return functools.partial(
            custom_op, backward=backward, infer=infer, name=name, inputs=inputs,
            differentiable=differentiable, host=host,
        )  # fmt: skip
    if host and infer is None:
        raise InvalidArgument(
            "[custom_op] with host=True the result's type must be known without running: give "
            "infer=lambda x: x, or one that returns (shape, dtype)"
        )
    if host and backward is None:
        differentiable = False
    body = forward
    typed = None if infer is None else _typed(infer)
    if host:
        assert typed is not None  # noqa: S101 (checked above)
        body = _called_back(forward, typed)
    rule = None if backward is None or not differentiable else _rule(backward, host)
    return define(
        body,
        name or forward.__name__,
        inputs=inputs,
        infer=typed,
        vjp=rule,
        differentiable=differentiable,
        fallible=host,
    )


def custom_kernel(
    op_name: str | Callable[..., Any],
    *,
    platform: str,
    name: str | None = None,
    accepts: Callable[..., bool] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A faster lowering of an op on one platform ("gpu", "cpu", "tpu"), in JAX or Pallas.

    The function takes what the op's forward takes. `accepts(x, ..., attribute=...)` may look at
    types and attributes and leave a call to the plain lowering, which stays the reference, and is
    what gradients without a rule are derived from.

        @custom_kernel("my_swish", platform="gpu")
        def _(xp, x, beta=1.0): ...
    """
    chosen = op_name if isinstance(op_name, str) else op_name.op.name  # type: ignore[attr-defined]
    if chosen not in OPS:
        raise InvalidArgument(f"[custom_kernel] there is no op named {chosen!r}")
    label = name or f"custom_{chosen}_{platform}"

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def lower(call: Any, *arrays: Any) -> Any:
            return function(jax_door.jnp(), *call.group(arrays), **call.attrs)

        def takes(call: Any) -> bool:
            return accepts is None or accepts(*call.group(call.types), **call.attrs)

        kernels.kernel(chosen, name=label, platform=platform, accepts=takes)(lower)
        return function

    return register


def _typed(infer: Callable[..., Any]) -> Callable[..., Any]:
    """`infer` with its results as types of the engine."""

    def types(*given: Any, **attributes: Any) -> Any:
        said = infer(*given, **attributes)
        return tuple(map(_type, said)) if isinstance(said, list) else _type(said)

    return types


def _type(said: Any) -> Aval:
    if isinstance(said, Aval):
        return said
    if isinstance(said, tuple) and len(said) == 2 and isinstance(said[0], tuple | list):
        return aval(tuple(said[0]), dt.as_dtype(said[1]))
    raise InvalidArgument(
        "infer must return (shape, dtype), one of its arguments, or a list of these. Received: "
        f"{said!r}"
    )


def _rule(backward: Callable[..., Any], host: bool) -> Callable[..., Any]:
    """A user's gradient function as the engine calls one."""
    params = inspect.signature(backward)
    wants_types = "types" in params.parameters
    order = list(params.parameters.values())
    if host and not wants_types:
        order.append(inspect.Parameter("types", inspect.Parameter.KEYWORD_ONLY))

    def rule(xp: Any, grad: Any, **named: Any) -> tuple[Any, ...]:
        types = named["types"] if wants_types else named.pop("types", None)
        if not host or xp is np:
            found = backward(xp, grad, **named)
            return tuple(found) if isinstance(found, tuple | list) else (found,)
        outs = [t for t in types if isinstance(t, Aval)]
        if len(outs) != len(types):
            raise InvalidArgument("a backward function on the host takes single tensors only")
        return tuple(_callback(lambda g, n: _filled(backward, g, n, outs), outs, grad, named))

    rule.__signature__ = params.replace(parameters=order)  # type: ignore[attr-defined]
    return rule


def _filled(backward: Any, grad: Any, named: dict[str, Any], outs: list[Aval]) -> list[Any]:
    found = backward(np, grad, **named)
    found = tuple(found) if isinstance(found, tuple | list) else (found,)
    return [
        np.zeros(t.shape, t.dtype.numpy) if f is None else np.asarray(f, t.dtype.numpy)
        for f, t in zip(found, outs, strict=True)
    ]


def _called_back(forward: Callable[..., Any], typed: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` for NumPy, as a lowering for both tiers."""

    @functools.wraps(forward)
    def body(xp: Any, *given: Any, **attributes: Any) -> Any:
        if xp is np:
            return forward(np, *given, **attributes)
        types = [_types_of(g) for g in given]
        outs = typed(*types, **attributes)
        listed = list(outs) if isinstance(outs, tuple) else [outs]

        def run(arrays: Any, rest: dict[str, Any]) -> list[Any]:
            made = forward(np, *arrays, **attributes)
            made = list(made) if isinstance(outs, tuple) else [made]
            return [np.asarray(m, t.dtype.numpy) for m, t in zip(made, listed, strict=True)]

        results = _callback(run, listed, list(given), {})
        return tuple(results) if isinstance(outs, tuple) else results[0]

    return body


def _types_of(x: Any) -> Any:
    if x is None:
        return None
    if isinstance(x, list | tuple):
        return [_types_of(i) for i in x]
    return aval(tuple(x.shape), dt.as_dtype(x.dtype))


def _callback(
    function: Callable[[Any, dict[str, Any]], Sequence[Any]],
    outs: list[Aval],
    first: Any,
    named: dict[str, Any],
) -> list[Any]:
    """Call `function` with NumPy arrays from inside a compiled program."""
    jax = jax_door.jax()
    arrays = {k: v for k, v in named.items() if hasattr(v, "dtype")}
    fixed = {k: v for k, v in named.items() if k not in arrays}

    def call(one: Any, many: dict[str, Any]) -> list[Any]:
        as_numpy = functools.partial(jax.tree_util.tree_map, np.asarray)
        return list(function(as_numpy(one), {**as_numpy(many), **fixed}))

    types = [jax.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in outs]
    host = jax_door.keeping_errors(call)
    return jax.pure_callback(host, types, first, arrays, vmap_method="sequential")
