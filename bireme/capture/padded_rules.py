"""What the primitives of JAX do with padded arrays (see padded.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.capture.padded import Sizes, Unsupported, bind, highest, lowest, rule, run, shapes_of
from bireme.core.dims import is_symbolic
from bireme.host import jax_door

# Each entry of a result depends on the entries at its own place.
_BY_ENTRY = (
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "bessel_i0e", "bessel_i1e", "cbrt", "ceil", "clamp", "clz", "complex", "conj",
    "convert_element_type", "copy", "copy_p", "cos", "cosh", "digamma", "div", "eq", "erf",
    "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "igamma", "igamma_grad_a",
    "igammac", "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic",
    "lt", "max", "min", "mul", "name", "ne", "neg", "nextafter", "not", "optimization_barrier",
    "or", "polygamma", "population_count", "pow", "real", "reduce_precision",
    "regularized_incomplete_beta", "rem", "round", "rsqrt", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square",
    "stop_gradient", "sub", "tan", "tanh", "threefry2x32", "xor", "zeta",
)  # fmt: skip


def _results(eqn: Any, bound: Any) -> Sequence[Any]:
    return bound if eqn.primitive.multiple_results else [bound]


@rule(*_BY_ENTRY, "transpose", "squeeze", "stack")
def _by_entry(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    return _results(eqn, bind(eqn, arrays))


@rule("bitcast_convert_type")
def _bitcast(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    if len(eqn.outvars[0].aval.shape) < len(eqn.invars[0].aval.shape) and is_symbolic(
        eqn.invars[0].aval.shape[-1]
    ):
        raise Unsupported("a bit cast that takes an open axis together")
    return [bind(eqn, arrays)]


@rule("dim_as_value")
def _dim_as_value(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    jnp = jax_door.jnp()
    return [jnp.asarray(sizes.actual(eqn.params["dim"])).astype(eqn.outvars[0].aval.dtype)]


@rule("broadcast_in_dim", "iota")
def _made_in_shape(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    # Sizes that are open are also given as arguments to some primitives; the shape has them.
    taken = arrays[:1] if eqn.primitive.name == "broadcast_in_dim" else []
    return [bind(eqn, taken, shape=sizes.extents(eqn.outvars[0].aval.shape))]


# --- sums and the like --------------------------------------------------------------------------

_NEUTRAL = {
    "reduce_sum": lambda dtype: 0,
    "reduce_prod": lambda dtype: 1,
    "reduce_max": lowest,
    "reduce_min": highest,
    "reduce_and": lambda dtype: True if dtype == np.bool_ else -1,
    "reduce_or": lambda dtype: 0,
    "reduce_xor": lambda dtype: 0,
    "argmax": lowest,
    "argmin": highest,
}
_RUNNING = {
    "cumsum": lambda dtype: 0,
    "cumprod": lambda dtype: 1,
    "cummax": lowest,
    "cummin": highest,
    "cumlogsumexp": lowest,
}


@rule(*_NEUTRAL)
def _reduce(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    x, shape = arrays[0], eqn.invars[0].aval.shape
    neutral = _NEUTRAL[eqn.primitive.name](x.dtype)
    return [bind(eqn, [sizes.filled(x, shape, eqn.params["axes"], neutral)])]


@rule(*_RUNNING)
def _running(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    x, shape = arrays[0], eqn.invars[0].aval.shape
    if eqn.params["reverse"]:
        x = sizes.filled(x, shape, [eqn.params["axis"]], _RUNNING[eqn.primitive.name](x.dtype))
    return [bind(eqn, [x])]


@rule("sort")
def _sort(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    shape, axis = eqn.invars[0].aval.shape, eqn.params["dimension"]
    valid = sizes.is_valid(arrays[0], shape, [axis])
    if valid is None:
        return bind(eqn, arrays)
    keys = eqn.params["num_keys"] + 1
    return bind(eqn, [(~valid).astype(np.int8), *arrays], num_keys=keys)[1:]


@rule("top_k")
def _top_k(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    x, shape = arrays[0], eqn.invars[0].aval.shape
    axis = eqn.params.get("axis", len(shape) - 1)
    if is_symbolic(eqn.params["k"]):
        raise Unsupported("an open number of largest")
    return bind(eqn, [sizes.filled(x, shape, [axis], lowest(x.dtype))])


@rule("dot_general")
def _dot_general(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    (left, right), _ = eqn.params["dimension_numbers"]
    # Zeros on both sides: a number that is not finite times zero is none.
    cleaned = [
        sizes.filled(x, shape, axes, 0)
        for x, shape, axes in zip(arrays, shapes_of(eqn), (left, right), strict=True)
    ]
    return [bind(eqn, cleaned)]


# --- windows ------------------------------------------------------------------------------------


def _static_start(padding: Any) -> None:
    if any(is_symbolic(low) for low, _ in padding):
        raise Unsupported("windows that begin at an open place")


@rule("conv_general_dilated")
def _conv(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    p = eqn.params
    (left, right), dims = shapes_of(eqn), p["dimension_numbers"]
    _static_start(p["padding"])
    if any(is_symbolic(s) for s in (*p["lhs_dilation"], *p["rhs_dilation"], *p["window_strides"])):
        raise Unsupported("a convolution with an open stride or dilation")
    grouped = p["feature_group_count"] > 1 or p["batch_group_count"] > 1
    of_groups = [left[dims.lhs_spec[0]], left[dims.lhs_spec[1]], right[dims.rhs_spec[0]]]
    if grouped and any(map(is_symbolic, of_groups)):
        raise Unsupported("a convolution in groups of open size")
    x = sizes.filled(arrays[0], left, dims.lhs_spec[1:], 0)
    weight = sizes.filled(arrays[1], right, dims.rhs_spec[1:], 0)
    padding = tuple([(low, _behind(sizes, high)) for low, high in p["padding"]])
    made = bind(eqn, [x, weight], padding=padding)
    return [sizes.fitted(made, eqn.outvars[0].aval.shape)]


def _behind(sizes: Sizes, high: Any) -> int:
    """Padding behind the entries: as much as is ever needed. There are zeros already."""
    return max(sizes.extent(high), 0) if is_symbolic(high) else high


_WINDOW_NEUTRAL = {
    "reduce_window_sum": lambda dtype: 0,
    "reduce_window_max": lowest,
    "reduce_window_min": highest,
}


@rule(*_WINDOW_NEUTRAL)
def _reduce_window(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    p = eqn.params
    _static_start(p["padding"])
    if any(map(is_symbolic, p["window_dimensions"])):
        raise Unsupported("a window of open size")
    neutral = _WINDOW_NEUTRAL[eqn.primitive.name](arrays[0].dtype)
    shape = eqn.invars[0].aval.shape
    x = sizes.filled(arrays[0], shape, range(len(shape)), neutral)
    padding = tuple([(low, _behind(sizes, high)) for low, high in p["padding"]])
    return [sizes.fitted(bind(eqn, [x], padding=padding), eqn.outvars[0].aval.shape)]


# --- programs inside ----------------------------------------------------------------------------


def _inner(eqn: Any) -> Any:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        found = eqn.params.get(name)
        if found is not None:
            return found
    raise Unsupported(f"{eqn.primitive.name} without a program")


def _run(program: Any, sizes: Sizes, arrays: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr that may be closed over constants."""
    return run(getattr(program, "jaxpr", program), getattr(program, "consts", ()), sizes, arrays)


@rule(
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat",
    "checkpoint",
    "remat2",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "custom_lin",
)
def _call(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    inner = _inner(eqn)
    count = len(getattr(inner, "jaxpr", inner).invars)
    return _run(inner, sizes, arrays[len(arrays) - count :])


@rule("padded_call")
def _padded_call(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    return eqn.params["function"](*arrays)


@rule("cond")
def _cond(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    branches = [lambda *operands, b=b: _run(b, sizes, operands) for b in eqn.params["branches"]]
    return jax_door.jax().lax.switch(arrays[0], branches, *arrays[1:])


@rule("while")
def _while(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    p = eqn.params
    cond, body = p["cond_jaxpr"], p["body_jaxpr"]
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    of_cond, of_body, state = arrays[:first], arrays[first:second], arrays[second:]
    return jax_door.jax().lax.while_loop(
        lambda s: _run(cond, sizes, [*of_cond, *s])[0],
        lambda s: _run(body, sizes, [*of_body, *s]),
        state,
    )


@rule("scan")
def _scan(sizes: Sizes, eqn: Any, arrays: list[Any]) -> Sequence[Any]:
    lax, jnp = jax_door.jax().lax, jax_door.jnp()
    p = eqn.params
    body = p["jaxpr"]
    fixed, carried = jax_door.scan_counts(p)
    consts, state, rows = (
        arrays[:fixed],
        arrays[fixed : fixed + carried],
        arrays[fixed + carried :],
    )
    length, steps = sizes.actual(p["length"]), sizes.extent(p["length"])

    def step(state: list[Any], item: tuple[Any, list[Any]]) -> tuple[list[Any], list[Any]]:
        at, row = item
        made = _run(body, sizes, [*consts, *state, *row])
        new = made[:carried]
        if is_symbolic(p["length"]):  # the steps in the padding change nothing
            new = [jnp.where(at < length, n, s) for n, s in zip(new, state, strict=True)]
        return new, made[carried:]

    places = jnp.arange(steps, dtype=np.int32)
    state, made = lax.scan(
        step,
        list(state),
        (places, list(rows)),
        length=steps,
        reverse=p["reverse"],
        unroll=p["unroll"],
    )
    return [*state, *made]
