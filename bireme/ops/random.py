"""Random tensors.

Every op takes a key (seed, offset) from the default generator as run-time inputs, so a program
with random ops is compiled once, and gives the same numbers in every tier (`ops/random_bits.py`).
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from bireme.api.public import another_name, public
from bireme.api.types import DeviceLike, DTypeLike, Shape
from bireme.core import dtype as dt
from bireme.core import views
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import broadcast_shapes, op
from bireme.core.random import get_rng_state, next_key, seed, set_rng_state
from bireme.core.requirements import Holds, InRange
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.ops import random_bits
from bireme.ops.axes import ints, number
from bireme.ops.creation import placed
from bireme.ops.math import complex as complex_of
from bireme.ops.math import multiply, plus
from bireme.ops.math_unary import cast, exp

public(seed)
public(get_rng_state)
public(set_rng_state)
manual_seed = another_name("manual_seed", seed)
get_cuda_rng_state = another_name("get_cuda_rng_state", get_rng_state)
set_cuda_rng_state = another_name("set_cuda_rng_state", set_rng_state)


def _shape(shape: Any, name: str) -> tuple[Any, ...]:
    dims = ints(shape, "shape")
    for d in dims:
        if type(d) is int and d < 0:
            raise InvalidArgument(
                f"[{name}] every dimension must be 0 or more. Received: shape {list(dims)}"
            )
    return dims


def _float_name(dtype: Any, name: str) -> str:
    want = dt.default_float() if dtype is None else dt.as_dtype(dtype)
    if not want.is_floating:
        raise TypeMismatch(
            f"[{name}] dtype must be a floating type. Received: {want.name}; use paddle.randint "
            "for integers"
        )
    return want.name


# --- uniform and normal -----------------------------------------------------------------------


def _shaped(*_: Any, shape: tuple[Any, ...], dtype: str) -> Aval:
    return aval(shape, dt.as_dtype(dtype))


@op(name="uniform", inputs=("seed", "offset", "low", "high"), infer=_shaped, differentiable=False)
def _uniform(xp, seed, offset, low, high, shape=(), dtype="float32"):
    """Uniform numbers in [low, high)."""
    to = dt.as_dtype(dtype).numpy
    work = np.float64 if to == np.float64 else np.float32
    unit = random_bits.uniform(xp, seed, offset, shape, to).astype(work)
    low, high = xp.asarray(low).astype(work), xp.asarray(high).astype(work)
    return (unit * (high - low) + low).astype(to)


@op(name="gaussian", inputs=("seed", "offset", "mean", "std"), infer=_shaped, differentiable=False)
def _normal(xp, seed, offset, mean, std, shape=(), dtype="float32"):
    """Normal numbers with a mean and a standard deviation."""
    to = dt.as_dtype(dtype).numpy
    work = np.float64 if to == np.float64 else np.float32
    z = random_bits.normal(xp, seed, offset, shape, work)
    return (z * xp.asarray(std).astype(work) + xp.asarray(mean).astype(work)).astype(to)


def _drawn(draw: Any, key: Any, a: float, b: float, shape: Any, dtype: Any, name: str) -> Tensor:
    """Numbers of `draw`; the parts of complex ones are drawn one after the other, as in Paddle, and
    those of normal ones have half the variance each."""
    want = dt.default_float() if dtype is None else dt.as_dtype(dtype)
    if not want.is_complex:
        return draw(*key, a, b, shape, _float_name(want, name))
    part = "float32" if want is dt.complex64 else "float64"
    if draw is _normal:
        b *= math.sqrt(0.5)
    pair = draw(*key, a, b, (2, *shape), part)
    return complex_of(pair[0], pair[1])


@public(out=True)
def uniform(
    shape: Shape,
    dtype: DTypeLike | None = None,
    min: float = 0,
    max: float = 1.0,
    seed: int = 0,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in [min, max); a `seed` other than 0 gives the same ones in every call."""
    key = (seed, 0) if seed else next_key()
    made = _uniform(
        *key, _scalar(min), _scalar(max), _shape(shape, "uniform"), _float_name(dtype, "uniform")
    )
    return placed(made, device, requires_grad)


def _scalar(value: Any) -> Any:
    return value if isinstance(value, Tensor) else float(value)


@public(also={"size": "shape"}, out=True, spread=0)
def rand(
    shape: Shape,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1)."""
    made = _drawn(_uniform, next_key(), 0.0, 1.0, _shape(shape, "rand"), dtype, "rand")
    return placed(made, device, requires_grad, pin_memory)


@public(out=True)
def standard_normal(
    shape: Shape,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Normal numbers with mean 0 and standard deviation 1."""
    made = _drawn(_normal, next_key(), 0.0, 1.0, _shape(shape, "randn"), dtype, "randn")
    return placed(made, device, requires_grad, pin_memory)


randn = another_name("randn", standard_normal, also={"size": "shape"}, spread=0)


def gaussian(
    shape: Shape,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Normal numbers with a mean and a standard deviation."""
    key = (seed, 0) if seed else next_key()
    return _normal(
        *key, float(mean), float(std), _shape(shape, "gaussian"), _float_name(dtype, "gaussian")
    )


@public(also={"size": "shape"}, out=True)
def normal(
    mean: float | Tensor = 0.0,
    std: float | Tensor = 1.0,
    shape: Shape | None = None,
    name: str | None = None,
) -> Tensor:
    """Normal numbers; `shape` is that of the mean or std where one of them is a tensor."""
    for what, given in (("mean", mean), ("std", std)):
        if isinstance(given, list | tuple | np.ndarray | str):
            raise TypeMismatch(
                f"[normal] {what} must be a number or a Tensor. Received: {type(given).__name__}"
            )
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if isinstance(shape, int):
            raise TypeMismatch(f"[normal] shape must be a list of sizes. Received: {shape!r}")
        if shape is None:
            raise InvalidArgument("[normal] give a shape, or a tensor as mean or std")
        if isinstance(mean, complex):
            return plus(multiply(standard_normal(shape, dt.complex64), std), mean)
        return gaussian(shape, mean, std)
    like: Any = mean if isinstance(mean, Tensor) else std
    dims = broadcast_shapes(*[t._value.aval.shape for t in (mean, std) if isinstance(t, Tensor)])
    is_complex = isinstance(mean, complex) or (isinstance(mean, Tensor) and mean.dtype.is_complex)
    if is_complex and not like.dtype.is_complex:
        wide = like.dtype is dt.float64
        made = standard_normal(dims, dt.complex128 if wide else dt.complex64)
    else:
        made = _drawn(_normal, next_key(), 0.0, 1.0, dims, like.dtype, "normal")
    return plus(multiply(made, std), mean)


@public
def log_normal(
    mean: float | Tensor = 1.0,
    std: float | Tensor = 2.0,
    shape: Shape | None = None,
    name: str | None = None,
) -> Tensor:
    """exp of normal numbers with this mean and standard deviation."""
    return exp(normal(mean, std, shape))


@public(method=False)
def rand_like(
    input: Tensor,
    name: str | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1) in the shape of `input`."""
    shape = input._value.aval.shape
    made = _drawn(_uniform, next_key(), 0.0, 1.0, shape, dtype or input.dtype, "rand")
    return placed(made, device, requires_grad)


@public(also={"input": "x"}, method=False)
def randn_like(
    x: Tensor,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Standard normal numbers in the shape of x."""
    shape = x._value.aval.shape
    made = _drawn(_normal, next_key(), 0.0, 1.0, shape, dtype or x.dtype, "randn_like")
    return placed(made, device, requires_grad)


# --- integers ---------------------------------------------------------------------------------


def _words64(xp: Any, seed: Any, offset: Any, shape: tuple[Any, ...]) -> Any:
    low = random_bits.bits(xp, seed, offset, shape).astype(np.uint64)
    high = random_bits.bits(xp, seed, offset, shape, word=1).astype(np.uint64)
    return (high << np.uint64(32)) | low


@op(name="randint", inputs=("seed", "offset", "low", "high"), infer=_shaped, differentiable=False)
def _randint(xp, seed, offset, low, high, shape=(), dtype="int64"):
    """Integers in [low, high)."""
    low, high = (xp.asarray(v).astype(np.int64).reshape((1,)) for v in (low, high))
    span = (high - low).astype(np.uint64)
    drawn = _words64(xp, seed, offset, shape).reshape((-1,)) % span
    made = drawn.astype(np.int64) + low
    return made.reshape(shape).astype(dt.as_dtype(dtype).numpy)


def _bounds(low: Any, high: Any, name: str) -> tuple[int, int]:
    if high is None:
        low, high = 0, low
        if high <= 0:
            raise InvalidArgument(
                f"[{name}] with only one bound it must be positive. Received: {high}"
            )
    low, high = number(low, "low"), number(high, "high")
    if low >= high:
        raise InvalidArgument(f"[{name}] low must be below high. Received: {low} and {high}")
    return low, high


@public
def randint(
    low: int = 0,
    high: int | None = None,
    shape: Shape = (1,),
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Integers in [low, high), or in [0, low) if `high` is not given."""
    want = dt.int64 if dtype is None else dt.as_dtype(dtype)
    if want not in (dt.int32, dt.int64):
        raise TypeMismatch(f"[randint] dtype must be int32 or int64. Received: {want.name}")
    bounds = _bounds(low, high, "randint")
    return _randint(*next_key(), *bounds, _shape(shape, "randint"), want.name)


@public(method=False)
def randint_like(
    x: Tensor,
    low: int = 0,
    high: int | None = None,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Integers in [low, high) in the shape of x, and in its type unless `dtype` is given."""
    want = x.dtype if dtype is None else dt.as_dtype(dtype)
    bounds = _bounds(low, high, "randint_like")
    return _randint(*next_key(), *bounds, x._value.aval.shape, want.name)


@op(
    name="randperm",
    inputs=("seed", "offset"),
    differentiable=False,
    infer=lambda seed, offset, n, dtype: aval((n,), dt.as_dtype(dtype)),
)
def _randperm(xp, seed, offset, n=0, dtype="int64"):
    """The numbers below n in random order."""
    order = xp.argsort(_words64(xp, seed, offset, (n,)), stable=True)
    return order.astype(dt.as_dtype(dtype).numpy)


@public(out=True)
def randperm(
    n: int,
    dtype: DTypeLike = "int64",
    name: str | None = None,
    *,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The numbers from 0 to n - 1 in random order."""
    count = number(n, "n")
    if type(count) is int and count < 0:
        raise InvalidArgument(f"[randperm] n must be 0 or more. Received: {n}")
    want = dt.as_dtype(dtype)
    if want not in (dt.int32, dt.int64, dt.float32, dt.float64):
        raise TypeMismatch(
            "[randperm] dtype must be int32, int64, float32 or float64. Received: " + want.name
        )
    made = _randperm(*next_key(), count, want.name)
    return placed(made, device, requires_grad, pin_memory)


# --- choices ----------------------------------------------------------------------------------


@op(
    name="bernoulli",
    inputs=("x", "seed", "offset", "p"),
    infer=lambda x, *_: x,
    requires=lambda x, seed, offset, p: [InRange("x", 0, 1)] if p is None else [],
    differentiable=False,
)
def _bernoulli(xp, x, seed, offset, p=None):
    """1 with probability x (or p), else 0."""
    work = np.float64 if x.dtype == np.float64 else np.float32
    chance = x.astype(work) if p is None else xp.asarray(p).astype(work)
    return (random_bits.uniform(xp, seed, offset, x.shape, work) < chance).astype(x.dtype)


@public(method=False)
def bernoulli(x: Tensor, p: float | None = None, name: str | None = None) -> Tensor:
    """1 with the probability that x (or p) says, else 0."""
    if not x.dtype.is_floating:
        raise TypeMismatch(
            f"[bernoulli] x must hold probabilities as floats. Received: {x.dtype.name}"
        )
    if p is not None and not 0 <= p <= 1:
        raise InvalidArgument(f"[bernoulli] p must be in [0, 1]. Received: {p}")
    return _bernoulli(x, *next_key(), p)


def _multinomial_type(x: Aval, seed: Any, offset: Any, count: int, replacement: bool) -> Aval:
    return aval((*x.shape[:-1], count), dt.int64)


def _is_drawable(xp: Any, x: Any, count: int, replacement: bool) -> Any:
    """Whether `count` positions can be drawn with probabilities in proportion to x."""
    wanted = 1 if replacement else count
    return xp.all(x >= 0) & xp.all(xp.sum((x > 0).astype(np.int64), axis=-1) >= wanted)


@op(
    name="multinomial",
    inputs=("x", "seed", "offset"),
    infer=_multinomial_type,
    requires=lambda x, seed, offset, count, replacement: [
        Holds(
            "the probabilities must not be negative or NaN, and at least one, or num_samples "
            "without replacement, must be positive",
            lambda xp, inputs, out: _is_drawable(xp, inputs[0], count, replacement),
        )
    ],
    differentiable=False,
)
def _multinomial(xp, x, seed, offset, count=1, replacement=False):
    """Positions drawn with probabilities in proportion to x."""
    work = np.float64 if x.dtype == np.float64 else np.float32
    weight = x.astype(work)
    if replacement:
        total = xp.cumsum(weight, axis=-1)
        unit = random_bits.uniform(xp, seed, offset, (*x.shape[:-1], count), work)
        place = unit * total[..., -1:]
        index = xp.sum(total[..., None, :] <= place[..., :, None], axis=-1)
        return xp.minimum(index, x.shape[-1] - 1).astype(np.int64)
    # The order of exponential waiting times is a draw without replacement.
    unit = random_bits.uniform(xp, seed, offset, x.shape, work)
    wait = -xp.log1p(-unit) / xp.where(weight > 0, weight, 1)
    wait = xp.where(weight > 0, wait, np.inf)
    return xp.argsort(wait, axis=-1, stable=True)[..., :count].astype(np.int64)


@public(also={"input": "x"}, out=True)
def multinomial(
    x: Tensor, num_samples: int = 1, replacement: bool = False, name: str | None = None
) -> Tensor:
    """Positions drawn with probabilities in proportion to x, along its last dimension."""
    if x.ndim not in (1, 2):
        raise ShapeMismatch(f"[multinomial] x must have 1 or 2 dimensions. Received: {x.shape}")
    count = number(num_samples, "num_samples")
    length = x._value.aval.shape[-1]
    if count < 1 or (not replacement and type(length) is int and count > length):
        raise InvalidArgument(
            f"[multinomial] num_samples must be positive and, without replacement, at most the "
            f"{length} categories. Received: {count}"
        )
    return _multinomial(x, *next_key(), count, bool(replacement))


# --- counts and waiting times -----------------------------------------------------------------


def _special(xp: Any) -> Any:
    return importlib.import_module("scipy.special" if xp is np else "jax.scipy.special")


def _rounds(xp: Any, most: int, turn: Any, unfinished: Any, first: tuple[Any, ...]) -> Any:
    """The state after `turn(round, *state)` has been called while `unfinished(*state)`, `most`
    times at most. XLA compiles one round, and not all of them: on a GPU those of a gamma's took it
    six minutes where a slice of the numbers was wanted."""
    if xp is np:
        state = first
        for i in range(most):
            if not unfinished(*state):
                break
            state = turn(i, *state)
        return state

    def more(carried: Any) -> Any:
        return (carried[0] < most) & unfinished(*carried[1])

    def once(carried: Any) -> Any:
        return carried[0] + 1, turn(carried[0], *carried[1])

    return jax_door.jax().lax.while_loop(more, once, (np.int64(0), first))[1]


def _invert(xp: Any, cdf: Any, unit: Any, top: Any, steps: int) -> Any:
    """The smallest whole k with cdf(k) > unit, by bisection of (-1, top]."""

    def halve(_: Any, low: Any, high: Any) -> Any:
        middle = xp.floor((low + high) / 2)
        above = cdf(middle) > unit
        return xp.where(above, low, middle), xp.where(above, middle, high)

    def apart(low: Any, high: Any) -> Any:
        return xp.any(high - low > 1)

    return _rounds(xp, steps, halve, apart, (xp.full_like(unit, -1.0), top))[1]


@op(name="poisson", inputs=("x", "seed", "offset"), infer=lambda x, *_: x, differentiable=False)
def _poisson(xp, x, seed, offset):
    """Poisson counts with rate x, by inversion of their distribution."""
    rate = x.astype(np.float64)
    unit = random_bits.uniform(xp, seed, offset, x.shape, np.float64)
    safe = xp.where(rate > 0, rate, 1)
    top = xp.ceil(safe + 12 * xp.sqrt(safe) + 40)

    def cdf(k: Any) -> Any:
        return xp.where(k < 0, 0, _special(xp).gammaincc(xp.maximum(k, 0) + 1, safe))

    count = _invert(xp, cdf, unit, top, 40)
    return xp.where(rate > 0, count, 0).astype(x.dtype)


@public(method=False)
def poisson(x: Tensor, name: str | None = None) -> Tensor:
    """Poisson counts with the rates in x."""
    if not x.dtype.is_floating:
        raise TypeMismatch(f"[poisson] x must be floating. Received: {x.dtype.name}")
    return _poisson(x, *next_key())


def _binomial_type(count: Aval, prob: Aval, *_: Any) -> Aval:
    return aval(broadcast_shapes(count.shape, prob.shape), dt.int64)


@op(
    name="binomial",
    inputs=("count", "prob", "seed", "offset"),
    infer=_binomial_type,
    requires=lambda *_: [InRange("count", 0, math.inf), InRange("prob", 0, 1)],
    differentiable=False,
)
def _binomial(xp, count, prob, seed, offset):
    """Successes among `count` trials, by inversion of their distribution."""
    n, p = xp.broadcast_arrays(count.astype(np.float64), prob.astype(np.float64))
    unit = random_bits.uniform(xp, seed, offset, n.shape, np.float64)

    def cdf(k: Any) -> Any:
        inside = (k >= 0) & (k < n)
        a, b = xp.where(inside, n - k, 1), xp.where(inside, k + 1, 1)
        return xp.where(k < 0, 0, xp.where(k >= n, 1, _special(xp).betainc(a, b, 1 - p)))

    drawn = _invert(xp, cdf, unit, n, 40)
    return xp.where(p <= 0, 0, xp.where(p >= 1, n, drawn)).astype(np.int64)


@public(method=False)
def binomial(count: Tensor, prob: Tensor, name: str | None = None) -> Tensor:
    """Successes among `count` trials of probability `prob`, as int64."""
    return _binomial(count, prob, *next_key())


_GAMMA_ROUNDS = 8  # each accepts at least 95 %: one draw in 10^10 keeps its last candidate


@op(
    name="standard_gamma",
    inputs=("x", "seed", "offset"),
    infer=lambda x, *_: x,
    requires=lambda *_: [InRange("x", 0, math.inf, nan=True)],
    differentiable=False,
)
def _standard_gamma(xp, x, seed, offset):
    """Gamma numbers of shape x and scale 1, by Marsaglia and Tsang's rejection."""
    work = np.float64 if x.dtype == np.float64 else np.float32
    alpha = x.astype(work)
    raised = xp.where(alpha < 1, alpha + 1, alpha)
    d = raised - work(1 / 3)
    c = 1 / xp.sqrt(9 * d)
    offsets = xp.asarray(offset).astype(np.int64)

    def draw(i: Any, result: Any, pending: Any) -> Any:
        # Rounds are streams of their own, far from any offset that the generator hands out.
        stream = offsets + (2 * i + 1) * np.int64(1 << 40)
        z = random_bits.normal(xp, seed, stream, x.shape, work)
        u = random_bits.uniform(xp, seed, stream + np.int64(1 << 40), x.shape, work)
        v = (1 + c * z) ** 3
        safe = xp.where(v > 0, v, 1)
        accepted = (v > 0) & (xp.log1p(-u) < 0.5 * z * z + d - d * safe + d * xp.log(safe))
        return xp.where(pending & (v > 0), d * v, result), pending & ~accepted

    def unfinished(_: Any, pending: Any) -> Any:
        return xp.any(pending)

    first = d, xp.ones(x.shape, bool)
    result, _ = _rounds(xp, _GAMMA_ROUNDS, draw, unfinished, first)
    boost = random_bits.uniform(xp, seed, offset, x.shape, work)
    power = xp.exp(xp.where(alpha > 0, xp.log1p(-boost) / xp.where(alpha > 0, alpha, 1), -np.inf))
    drawn = xp.where(alpha < 1, result * power, result)
    # Positive, as Paddle's: logarithms of it and quotients by it are finite.
    return xp.maximum(drawn, np.finfo(work).tiny).astype(x.dtype)


@public(method=False)
def standard_gamma(x: Tensor, name: str | None = None) -> Tensor:
    """Gamma numbers with the shapes in x and scale 1."""
    if not x.dtype.is_floating:
        raise TypeMismatch(f"[standard_gamma] x must be floating. Received: {x.dtype.name}")
    return _standard_gamma(x, *next_key())


# --- in place ---------------------------------------------------------------------------------


def _transformed_type(*_: Any, shape: tuple[Any, ...], dtype: str, kind: str) -> Aval:
    return aval(shape, dt.as_dtype(dtype))


@op(
    name="random_transform",
    inputs=("seed", "offset", "a", "b"),
    infer=_transformed_type,
    differentiable=False,
)
def _transformed(xp, seed, offset, a, b, shape=(), dtype="float32", kind="exponential"):
    """Uniform numbers bent into another distribution with parameters a and b."""
    to = dt.as_dtype(dtype).numpy
    work = np.float64 if to == np.float64 else np.float32
    a, b = xp.asarray(a).astype(work), xp.asarray(b).astype(work)
    unit = random_bits.uniform(xp, seed, offset, shape, work)
    if kind == "exponential":
        made = -xp.log1p(-unit) / a
    elif kind == "cauchy":
        made = a + b * xp.tan(math.pi * (unit - 0.5))
    else:  # geometric: the continuous waiting time, as in Paddle
        made = xp.log1p(-unit) / xp.log1p(-a)
    return made.astype(to)


@op(vjp=lambda xp, grad: (xp.zeros_like(grad), None), infer=lambda x, made: made, exact=True)
def _instead(xp, x, made):
    """`made`, with a gradient of zeros for what was there before."""
    return made


def _fill(x: Tensor, made: Tensor, name: str) -> Tensor:
    return views.assign(x, made if x._node is None else _instead(x, made), name)


def _like(x: Tensor, name: str) -> tuple[tuple[Any, ...], str]:
    return x._value.aval.shape, _float_name(x.dtype, name)


@public(also={"from": "min", "to": "max"})
def uniform_(
    x: Tensor, min: float = 0, max: float = 1.0, seed: int = 0, name: str | None = None
) -> Tensor:
    """Fill x with uniform numbers in [min, max)."""
    key = (seed, 0) if seed else next_key()
    return _fill(x, _uniform(*key, float(min), float(max), *_like(x, "uniform_")), "uniform_")


@public
def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, name: str | None = None) -> Tensor:
    """Fill x with normal numbers."""
    made = _normal(*next_key(), float(mean), float(std), *_like(x, "normal_"))
    return _fill(x, made, "normal_")


@public
def log_normal_(x: Tensor, mean: float = 1.0, std: float = 2.0, name: str | None = None) -> Tensor:
    """Fill x with exp of normal numbers."""
    made = _normal(*next_key(), float(mean), float(std), *_like(x, "log_normal_"))
    return _fill(x, exp(made), "log_normal_")


@public(also={"lambd": "lam"})
def exponential_(x: Tensor, lam: float = 1.0, name: str | None = None) -> Tensor:
    """Fill x with exponential waiting times of rate `lam`."""
    made = _transformed(*next_key(), float(lam), 0.0, *_like(x, "exponential_"), "exponential")
    return _fill(x, made, "exponential_")


@public
def cauchy_(x: Tensor, loc: float = 0, scale: float = 1, name: str | None = None) -> Tensor:
    """Fill x with Cauchy numbers."""
    made = _transformed(*next_key(), float(loc), float(scale), *_like(x, "cauchy_"), "cauchy")
    return _fill(x, made, "cauchy_")


@public
def geometric_(x: Tensor, probs: float | Tensor, name: str | None = None) -> Tensor:
    """Fill x with geometric waiting times for successes of probability `probs`."""
    chance = probs if isinstance(probs, Tensor) else float(probs)
    made = _transformed(*next_key(), chance, 0.0, *_like(x, "geometric_"), "geometric")
    return _fill(x, made, "geometric_")


@public
def bernoulli_(x: Tensor, p: float | Tensor = 0.5, name: str | None = None) -> Tensor:
    """Fill x with 1 (probability p) and 0."""
    return _fill(x, _bernoulli(x, *next_key(), p), "bernoulli_")


@public
def random_(x: Tensor, from_: int = 0, to: int | None = None, *, generator: Any = None) -> Tensor:
    """Fill x with integers: in [from_, to), in [0, from_), or over the whole range of its type.

    They are drawn from `generator`, or from the one of `paddle.seed`.
    """
    key = next_key() if generator is None else generator.next_key()
    if to is None and from_ == 0:
        low, high = 0, _top(x.dtype)
    else:
        low, high = _bounds(from_, to, "random_")
    if x.dtype.is_integer:
        made = _randint(*key, low, high, x._value.aval.shape, x.dtype.name)
        return _fill(x, made, "random_")
    whole = _randint(*key, low, high, x._value.aval.shape, "int64")
    return _fill(x, cast(whole, x.dtype), "random_")


def _top(d: dt.DType) -> int:
    """The largest whole number up to which the type holds all."""
    if d.is_integer:
        return min(int(np.iinfo(d.numpy).max), 2**63 - 1)
    import ml_dtypes

    return 2 ** (ml_dtypes.finfo(d.numpy).nmant + 1)
