"""Discrete Fourier transforms: complex to complex, real to complex, complex to real.

Three ops carry all of `paddle.fft`. The adjoint of a transform is the transform of the other
direction with the other scaling, so each gradient is one of the three again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.keywords import put
from bireme.api.public import namespace
from bireme.api.types import DeviceLike, DTypeLike
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.ops.axes import axis_in
from bireme.ops.creation import arange
from bireme.ops.math import multiply
from bireme.ops.math_unary import _real_dtype, cast
from bireme.ops.padding import _pad_constant
from bireme.ops.rearrange import _roll

public = namespace("paddle.fft")

# The scaling of a transform's adjoint, which runs the other way.
_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
_MOST_AXES = 3  # XLA transforms up to three dimensions at a time


def complex_type(d: dt.DType) -> dt.DType:
    """The complex type with the digits of `d`."""
    return dt.complex128 if d in (dt.float64, dt.complex128) else dt.complex64


# --- the three ops ----------------------------------------------------------------------------


def _empty(x: Any) -> bool:
    return any(type(d) is int and d == 0 for d in x.shape)


def _transform(xp: Any, x: Any, axes: tuple[int, ...], norm: str, forward: bool) -> Any:
    if _empty(x):
        return x
    run = xp.fft.fftn if forward else xp.fft.ifftn
    for i in range(0, len(axes), _MOST_AXES):
        x = run(x, axes=axes[i : i + _MOST_AXES], norm=norm)
    return x


def _to_complex(
    xp: Any, x: Any, axes: tuple[int, ...], norm: str, forward: bool, onesided: bool
) -> Any:
    """The transform of real numbers; `onesided` leaves out what conjugation would give."""
    last = axes[-1]
    to = np.complex128 if x.dtype == np.float64 else np.complex64
    if _empty(x):
        shape = [*x.shape]
        shape[last] = shape[last] // 2 + 1 if onesided else shape[last]
        return xp.zeros(shape, to)
    if not onesided:
        return _transform(xp, x.astype(to), axes, norm, forward)
    if forward:
        half = xp.fft.rfft(x, axis=last, norm=norm)
    else:
        half = xp.conj(xp.fft.rfft(x, axis=last, norm=_OPPOSITE[norm]))
    return _transform(xp, half, axes[:-1], norm, forward)


def _to_real(
    xp: Any, x: Any, axes: tuple[int, ...], norm: str, forward: bool, last_size: Any
) -> Any:
    """The transform of the onesided half of a Hermitian spectrum."""
    last = axes[-1]
    size = 2 * (x.shape[last] - 1) if last_size is None else last_size
    if _empty(x) or (type(size) is int and size == 0):
        shape = [*x.shape]
        shape[last] = size
        return xp.zeros(shape, np.float64 if x.dtype == np.complex128 else np.float32)
    x = _transform(xp, x, axes[:-1], norm, forward)
    if forward:
        return xp.fft.irfft(xp.conj(x), n=size, axis=last, norm=_OPPOSITE[norm])
    return xp.fft.irfft(x, n=size, axis=last, norm=norm)


def _weighed(xp: Any, x: Any, axis: int, size: Any, inner: float) -> Any:
    """`x` with every frequency that stands for two (itself and its conjugate) times `inner`."""
    k = xp.arange(x.shape[axis])
    weight = xp.where((k == 0) | (2 * k == size), 1.0, inner)
    real = np.float64 if x.dtype == np.complex128 else np.float32
    shape = [1] * x.ndim
    shape[axis] = -1
    return x * weight.astype(real).reshape(shape)


def _check_complex(x: Any, **_: Any) -> None:
    if not x.dtype.is_complex:
        raise TypeMismatch("takes complex numbers")


def _check_real(x: Any, **_: Any) -> None:
    if x.dtype not in (dt.float32, dt.float64):
        raise TypeMismatch("takes real numbers")


def _c2c_vjp(xp: Any, grad: Any, axes: Any, norm: str, forward: bool) -> tuple[Any]:
    return (_transform(xp, grad, axes, _OPPOSITE[norm], not forward),)


@op(vjp=_c2c_vjp, check=_check_complex, infer=lambda x, axes, norm, forward: x, amp="black")
def fft_c2c(xp, x, axes=(), norm="backward", forward=True):
    """The discrete Fourier transform of complex numbers over `axes`."""
    return _transform(xp, x, axes, norm, forward)


def _r2c_type(x: Aval, axes: Any, norm: str, forward: bool, onesided: bool) -> Aval:
    shape = [*x.shape]
    if onesided:
        shape[axes[-1]] = shape[axes[-1]] // 2 + 1
    return aval(tuple(shape), complex_type(x.dtype))


def _r2c_vjp(
    xp: Any, grad: Any, types: Any, axes: Any, norm: str, forward: bool, onesided: bool
) -> tuple[Any]:
    if not onesided:
        return (xp.real(_transform(xp, grad, axes, _OPPOSITE[norm], not forward)),)
    size = types[0].shape[axes[-1]]
    halved = _weighed(xp, grad, axes[-1], size, 0.5)
    return (_to_real(xp, halved, axes, _OPPOSITE[norm], not forward, size),)


@op(vjp=_r2c_vjp, check=_check_real, infer=_r2c_type, amp="black")
def fft_r2c(xp, x, axes=(), norm="backward", forward=True, onesided=True):
    """The discrete Fourier transform of real numbers over `axes`."""
    return _to_complex(xp, x, axes, norm, forward, onesided)


def _c2r_type(x: Aval, axes: Any, norm: str, forward: bool, last_size: Any) -> Aval:
    shape = [*x.shape]
    shape[axes[-1]] = 2 * (shape[axes[-1]] - 1) if last_size is None else last_size
    return aval(tuple(shape), _real_dtype(x.dtype))


def _c2r_vjp(xp: Any, grad: Any, types: Any, axes: Any, norm: str, forward: bool) -> tuple[Any]:
    size = grad.shape[axes[-1]]
    if type(size) is int and size == 0:
        return (xp.zeros(types[0].shape, types[0].dtype.numpy),)
    half = _to_complex(xp, grad, axes, _OPPOSITE[norm], not forward, True)
    return (_weighed(xp, half, axes[-1], size, 2.0),)


@op(vjp=_c2r_vjp, check=_check_complex, infer=_c2r_type, amp="black")
def fft_c2r(xp, x, axes=(), norm="backward", forward=True, last_size=None):
    """The real transform over `axes` of half a Hermitian spectrum."""
    return _to_real(xp, x, axes, norm, forward, last_size)


# --- what the arguments of paddle.fft mean ----------------------------------------------------


def _check_norm(name: str, norm: Any) -> None:
    if norm not in _OPPOSITE:
        raise InvalidArgument(
            f"[{name}] norm must be 'backward', 'forward' or 'ortho'. Received: {norm!r}"
        )


def _size(name: str, what: str, size: Any) -> Any:
    if hasattr(size, "dimension_as_value"):  # a symbolic dimension of a captured graph
        return size
    if not isinstance(size, int) or size <= 0:
        raise InvalidArgument(f"[{name}] {what} must be a positive integer. Received: {size!r}")
    return size


def _sequence(name: str, what: str, given: Any) -> list[Any]:
    if not isinstance(given, Sequence):
        raise InvalidArgument(f"[{name}] {what} must be a list of integers. Received: {given!r}")
    return list(given)


def _where(
    name: str, ndim: int, s: Any, axes: Any, ordered: int
) -> tuple[tuple[Any, ...] | None, tuple[int, ...]]:
    """(sizes, axes) in the order of transformation: all but the last `ordered` axes sorted."""
    if ndim == 0:
        raise ShapeMismatch(f"[{name}] takes a tensor of at least one dimension. Received: a 0-d")
    sizes = None if s is None else [_size(name, "s", n) for n in _sequence(name, "s", s)]
    if sizes is not None and len(sizes) > ndim:
        raise ShapeMismatch(
            f"[{name}] s has more sizes than x has dimensions ({ndim}). Received: {s!r}"
        )
    if axes is None:
        count = ndim if sizes is None else len(sizes)
        return (None if sizes is None else tuple(sizes)), tuple(range(ndim - count, ndim))
    places = [axis_in(a, ndim, name, "axes") for a in _sequence(name, "axes", axes)]
    if not places or len(set(places)) != len(places):
        raise InvalidArgument(f"[{name}] axes must name each dimension once. Received: {axes!r}")
    if sizes is not None and len(sizes) != len(places):
        raise ShapeMismatch(
            f"[{name}] s and axes must have the same length. Received: {s!r} and {axes!r}"
        )
    moving = len(places) - ordered
    order = [*sorted(range(moving), key=places.__getitem__), *range(moving, len(places))]
    placed = tuple([places[i] for i in order])
    return (None if sizes is None else tuple([sizes[i] for i in order])), placed


def _resized(x: Tensor, sizes: Sequence[Any], axes: Sequence[int]) -> Tensor:
    """`x` cut, or filled up with zeros, to `sizes` along `axes`."""
    amounts = [(0, 0)] * x.ndim
    shape = x._value.aval.shape
    for size, axis in zip(sizes, axes, strict=True):
        if shape[axis] != size:
            amounts[axis] = (0, size - shape[axis])
    return x if not any(b for _, b in amounts) else _pad_constant(x, 0.0, tuple(amounts))


def _as_real(name: str, x: Tensor) -> Tensor:
    d = x.dtype
    if d.is_complex or d is dt.bool_:
        raise TypeMismatch(
            f"[{name}] takes real numbers. Received: a tensor of dtype {d.name}; "
            + ("use fft or fftn" if d.is_complex else "cast it with .astype('float32')")
        )
    if d.is_floating:
        return x if d in (dt.float32, dt.float64) else cast(x, dt.float32)
    default = dt.default_float()
    return cast(x, default if default is dt.float64 else dt.float32)


def as_complex_numbers(name: str, x: Tensor) -> Tensor:
    """`x` as complex numbers of its precision."""
    if x.dtype.is_complex:
        return x
    real = _as_real(name, x)
    return cast(real, complex_type(real.dtype))


def _run_any(name: str, x: Tensor, s: Any, axes: Any, norm: str, forward: bool) -> Tensor:
    """The transform of real or complex numbers, in full."""
    _check_norm(name, norm)
    if not x.dtype.is_complex:
        return _run_r2c(name, x, s, axes, norm, forward, False)
    sizes, places = _where(name, x.ndim, s, axes, 0)
    if sizes is not None:
        x = _resized(x, sizes, places)
    return fft_c2c(x, places, norm, forward)


def _run_r2c(
    name: str, x: Tensor, s: Any, axes: Any, norm: str, forward: bool, onesided: bool = True
) -> Tensor:
    _check_norm(name, norm)
    x = _as_real(name, x)
    sizes, places = _where(name, x.ndim, s, axes, 1)
    if sizes is not None:
        x = _resized(x, sizes, places)
    return fft_r2c(x, places, norm, forward, onesided)


def _run_c2r(name: str, x: Tensor, s: Any, axes: Any, norm: str, forward: bool) -> Tensor:
    _check_norm(name, norm)
    x = as_complex_numbers(name, x)
    sizes, places = _where(name, x.ndim, s, axes, 1)
    if sizes is None and places and x.shape[places[-1]] == 0:
        raise ShapeMismatch(
            f"[{name}] there is nothing to transform: a dimension is 0. Received: {x.shape}"
        )
    if sizes is None:
        return fft_c2r(x, places, norm, forward, None)
    x = _resized(x, (*sizes[:-1], sizes[-1] // 2 + 1), places)
    return fft_c2r(x, places, norm, forward, sizes[-1])


def _one(run: Any, name: str, x: Tensor, n: Any, axis: Any, norm: str, forward: bool) -> Tensor:
    """A transform over one axis."""
    if x.ndim == 0:
        raise ShapeMismatch(f"[{name}] takes a tensor of at least one dimension. Received: a 0-d")
    place = -1 if axis is None else axis
    if not isinstance(place, int):
        raise InvalidArgument(f"[{name}] axis must be an integer. Received: {axis!r}")
    return run(name, x, None if n is None else (n,), (place,), norm, forward)


def _two(run: Any, name: str, x: Tensor, s: Any, axes: Any, norm: str, forward: bool) -> Tensor:
    """A transform over two axes."""
    if x.ndim < 2:
        raise ShapeMismatch(f"[{name}] takes at least two dimensions. Received: {x.shape}")
    for what, given in (("s", s), ("axes", axes)):
        if given is not None and len(_sequence(name, what, given)) != 2:
            raise InvalidArgument(f"[{name}] {what} must be two integers. Received: {given!r}")
    return run(name, x, s, axes, norm, forward)


# --- paddle.fft -------------------------------------------------------------------------------

Sizes = Sequence[int] | None


@public(also={"input": "x", "dim": "axis"}, out=True)
def fft(
    x: Tensor, n: int | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The discrete Fourier transform along `axis`; `n` cuts or fills it up with zeros first.

    `norm` says which direction carries the factor 1/n: "backward", "forward", or half of it
    each ("ortho").
    """
    return _one(_run_any, "fft", x, n, axis, norm, True)


@public(also={"input": "x", "dim": "axis"}, out=True)
def ifft(
    x: Tensor, n: int | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The inverse of `fft`."""
    return _one(_run_any, "ifft", x, n, axis, norm, False)


@public(also={"input": "x", "dim": "axis"}, out=True)
def rfft(
    x: Tensor, n: int | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The transform of real numbers: the n // 2 + 1 frequencies from zero up."""
    return _one(_run_r2c, "rfft", x, n, axis, norm, True)


@public(also={"input": "x", "dim": "axis"}, out=True, takes="bfc")
def irfft(
    x: Tensor, n: int | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The inverse of `rfft`; `n` is the length of the result, by default an even one."""
    return _one(_run_c2r, "irfft", x, n, axis, norm, False)


@public(also={"input": "x", "dim": "axis"}, out=True, takes="bfc")
def hfft(
    x: Tensor, n: int | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The transform, which is real, of a signal whose other half is the conjugate of `x`."""
    return _one(_run_c2r, "hfft", x, n, axis, norm, True)


@public(also={"input": "x", "dim": "axis"}, out=True)
def ihfft(
    x: Tensor, n: int | None = None, axis: int = -1, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The inverse of `hfft`."""
    return _one(_run_r2c, "ihfft", x, n, axis, norm, False)


@public(also={"input": "x", "dim": "axes"}, out=True)
def fftn(
    x: Tensor, s: Sizes = None, axes: Sizes = None, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The discrete Fourier transform over `axes`, by default all (or the last `len(s)`)."""
    return _run_any("fftn", x, s, axes, norm, True)


@public(also={"input": "x", "dim": "axes"}, out=True)
def ifftn(
    x: Tensor, s: Sizes = None, axes: Sizes = None, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The inverse of `fftn`."""
    return _run_any("ifftn", x, s, axes, norm, False)


@public(also={"input": "x", "dim": "axes"}, out=True)
def rfftn(
    x: Tensor, s: Sizes = None, axes: Sizes = None, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The transform of real numbers over `axes`; the last one keeps half the frequencies."""
    return _run_r2c("rfftn", x, s, axes, norm, True)


@public(also={"input": "x", "dim": "axes"}, out=True, takes="bfc")
def irfftn(
    x: Tensor, s: Sizes = None, axes: Sizes = None, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The inverse of `rfftn`."""
    return _run_c2r("irfftn", x, s, axes, norm, False)


@public(also={"input": "x", "dim": "axes"}, out=True, takes="bfc")
def hfftn(
    x: Tensor, s: Sizes = None, axes: Sizes = None, norm: str = "backward", name: str | None = None
) -> Tensor:
    """`hfft` along the last of `axes` and `fft` along the others."""
    return _run_c2r("hfftn", x, s, axes, norm, True)


@public(also={"input": "x", "dim": "axes"}, out=True)
def ihfftn(
    x: Tensor, s: Sizes = None, axes: Sizes = None, norm: str = "backward", name: str | None = None
) -> Tensor:
    """The inverse of `hfftn`."""
    return _run_r2c("ihfftn", x, s, axes, norm, False)


@public(also={"input": "x", "dim": "axes"}, out=True)
def fft2(
    x: Tensor,
    s: Sizes = None,
    axes: Sizes = (-2, -1),
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """The discrete Fourier transform over two axes."""
    return _two(_run_any, "fft2", x, s, axes, norm, True)


@public(also={"input": "x", "dim": "axes"}, out=True)
def ifft2(
    x: Tensor,
    s: Sizes = None,
    axes: Sizes = (-2, -1),
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """The inverse of `fft2`."""
    return _two(_run_any, "ifft2", x, s, axes, norm, False)


@public(also={"input": "x", "dim": "axes"}, out=True)
def rfft2(
    x: Tensor,
    s: Sizes = None,
    axes: Sizes = (-2, -1),
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """`rfftn` over two axes."""
    return _two(_run_r2c, "rfft2", x, s, axes, norm, True)


@public(also={"input": "x", "dim": "axes"}, out=True, takes="bfc")
def irfft2(
    x: Tensor,
    s: Sizes = None,
    axes: Sizes = (-2, -1),
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """`irfftn` over two axes."""
    return _two(_run_c2r, "irfft2", x, s, axes, norm, False)


@public(also={"input": "x", "dim": "axes"}, out=True, takes="bfc")
def hfft2(
    x: Tensor,
    s: Sizes = None,
    axes: Sizes = (-2, -1),
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """`hfftn` over two axes."""
    return _two(_run_c2r, "hfft2", x, s, axes, norm, True)


@public(also={"input": "x", "dim": "axes"}, out=True)
def ihfft2(
    x: Tensor,
    s: Sizes = None,
    axes: Sizes = (-2, -1),
    norm: str = "backward",
    name: str | None = None,
) -> Tensor:
    """`ihfftn` over two axes."""
    return _two(_run_r2c, "ihfft2", x, s, axes, norm, False)


def _check_spacing(name: str, n: int, d: float) -> None:
    if n * d == 0:
        raise InvalidArgument(f"[{name}] n and d must not be zero. Received: n={n}, d={d}")


@public
def fftfreq(
    n: int,
    d: float = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    out: Tensor | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of `fft` of n samples that are `d` apart, in its order."""
    _check_spacing("fftfreq", n, d)
    to = dt.default_float() if dtype is None else dtype
    lowest = n // 2
    steps = arange(-lowest, (n + 1) // 2, dtype=to, device=device, requires_grad=requires_grad)
    made = multiply(_roll(steps, (-lowest,), (0,)), 1.0 / (n * d))
    return made if out is None else put(out, made, "fftfreq")


@public
def rfftfreq(
    n: int,
    d: float = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    *,
    out: Tensor | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of `rfft` of n samples that are `d` apart."""
    _check_spacing("rfftfreq", n, d)
    to = dt.default_float() if dtype is None else dtype
    steps = arange(0, n // 2 + 1, dtype=to, device=device, requires_grad=requires_grad)
    made = multiply(steps, 1.0 / (n * d))
    return made if out is None else put(out, made, "rfftfreq")


def _shifted(name: str, x: Tensor, axes: Any, extra: int) -> Tensor:
    if axes is None:
        places = tuple(range(x.ndim))
    else:
        given = [axes] if isinstance(axes, int) else _sequence(name, "axes", axes)
        places = tuple([axis_in(a, x.ndim, name, "axes") for a in given])
    if not places:
        raise ShapeMismatch(f"[{name}] a 0-d tensor has no frequencies to move. Received: a 0-d")
    shape = x._value.aval.shape
    return _roll(x, tuple([(shape[a] + extra) // 2 for a in places]), places)


@public(also={"input": "x", "dim": "axes"})
def fftshift(x: Tensor, axes: int | Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """`x` with frequency zero moved to the middle."""
    return _shifted("fftshift", x, axes, 0)


@public(also={"input": "x", "dim": "axes"})
def ifftshift(
    x: Tensor, axes: int | Sequence[int] | None = None, name: str | None = None
) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, 1)
