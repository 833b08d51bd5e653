"""Window functions, made with NumPy: they are constants of a model."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from bireme.api.types import DTypeLike, PlaceLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor, constant
from bireme.ops.creation import placed

# Each takes the number of points of the symmetric window (two or more) and its parameters.
Maker = Callable[..., np.ndarray]


def _cosines(size: int, *weights: float) -> np.ndarray:
    angle = np.linspace(-np.pi, np.pi, size)
    return sum((w * np.cos(k * angle) for k, w in enumerate(weights)), np.zeros(size))


def _centred(size: int) -> np.ndarray:
    return np.arange(size) - (size - 1) / 2


def _bohman(size: int) -> np.ndarray:
    x = np.abs(np.linspace(-1, 1, size))
    w = (1 - x) * np.cos(np.pi * x) + np.sin(np.pi * x) / np.pi
    w[[0, -1]] = 0
    return w


def _exponential(size: int, center: float | None = None, tau: float = 1.0) -> np.ndarray:
    middle = (size - 1) / 2 if center is None else center
    return np.exp(-np.abs(np.arange(size) - middle) / tau)


def _kaiser(size: int, beta: float) -> np.ndarray:
    half = (size - 1) / 2
    inside = np.maximum(1 - (_centred(size) / half) ** 2, 0)
    return np.i0(beta * np.sqrt(inside)) / np.i0(beta)


def _triangle(size: int) -> np.ndarray:
    return 1 - np.abs(_centred(size)) / ((size + size % 2) / 2)


def _tukey(size: int, alpha: float = 0.5) -> np.ndarray:
    if alpha <= 0:
        return np.ones(size)
    if alpha >= 1:
        return _cosines(size, 0.5, 0.5)
    width = int(alpha * (size - 1) / 2)
    edge = np.arange(width + 1) / (alpha * (size - 1))
    rise = 0.5 * (1 + np.cos(np.pi * (2 * edge - 1)))
    return np.concatenate([rise, np.ones(size - 2 * (width + 1)), rise[::-1]])


def _taylor(size: int, nbar: int = 4, sll: float = 30, norm: bool = True) -> np.ndarray:
    a = np.arccosh(10 ** (sll / 20)) / np.pi
    spread = nbar**2 / (a**2 + (nbar - 0.5) ** 2)
    m = np.arange(1, nbar)
    weights = []
    for i, one in enumerate(m):
        others = np.delete(m, i)
        above = (-1) ** i * np.prod(1 - one**2 / spread / (a**2 + (m - 0.5) ** 2))
        weights.append(above / (2 * np.prod(1 - one**2 / others**2)))

    def at(n: Any) -> np.ndarray:
        turns = 2 * np.pi * m[:, None] * (np.atleast_1d(n) - size / 2 + 0.5) / size
        return 1 + 2 * np.asarray(weights) @ np.cos(turns)

    return at(np.arange(size)) / (at((size - 1) / 2) if norm else 1)


MAKERS: dict[str, Maker] = {
    "bartlett": lambda size: 1 - np.abs(2 * _centred(size) / (size - 1)),
    "blackman": lambda size: _cosines(size, 0.42, 0.5, 0.08),
    "bohman": _bohman,
    "cosine": lambda size: np.sin(np.pi / size * (np.arange(size) + 0.5)),
    "exponential": _exponential,
    "gaussian": lambda size, std: np.exp(-(_centred(size) ** 2) / (2 * std * std)),
    "general_cosine": lambda size, a: _cosines(size, *a),
    "general_gaussian": lambda size, p, sig: np.exp(-0.5 * np.abs(_centred(size) / sig) ** (2 * p)),
    "general_hamming": lambda size, alpha: _cosines(size, alpha, 1 - alpha),
    "hamming": lambda size: _cosines(size, 0.54, 0.46),
    "hann": lambda size: _cosines(size, 0.5, 0.5),
    "kaiser": _kaiser,
    "nuttall": lambda size: _cosines(size, 0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "taylor": _taylor,
    "triang": _triangle,
    "tukey": _tukey,
}
_NEED_A_PARAMETER = {
    "exponential", "gaussian", "general_cosine", "general_gaussian", "general_hamming", "kaiser",
}  # fmt: skip


def get_window(
    window: str | tuple[Any, ...],
    win_length: int,
    fftbins: bool = True,
    dtype: DTypeLike = "float64",
) -> Tensor:
    """The window of that name, or (name, parameters …), with `win_length` points.

    `fftbins` makes it periodic, for use with transforms; otherwise it is symmetric.
    """
    name, *parameters = window if isinstance(window, tuple) else (window,)
    if name not in MAKERS:
        raise InvalidArgument(
            f"[get_window] window must be one of {', '.join(MAKERS)}, or a tuple of a name and "
            f"parameters. Received: {window!r}"
        )
    if not isinstance(window, tuple) and name in _NEED_A_PARAMETER:
        raise InvalidArgument(
            f"[get_window] the {name} window needs parameters: pass ({name!r}, …). Received: "
            f"{window!r}"
        )
    if not isinstance(win_length, Real):
        raise TypeMismatch(
            f"[get_window] win_length must be a number of points. Received: {win_length!r}"
        )
    if win_length < 0 or int(win_length) != win_length:
        raise InvalidArgument(f"[get_window] win_length must be 0 or more. Received: {win_length}")
    if name == "exponential" and not fftbins and parameters[:1] not in ([], [None]):
        raise InvalidArgument(
            f"[get_window] a symmetric exponential window has its centre in the middle. Received: "
            f"center={parameters[0]}"
        )
    to = dt.as_dtype(dtype).numpy
    if win_length <= 1:
        return constant(np.ones(win_length, to))
    made = MAKERS[name](win_length + bool(fftbins), *parameters)
    return constant((made[:-1] if fftbins else made).astype(to))


# --- by their own names, with PyTorch's arguments ------------------------------------------------


def _named(
    window: str | tuple[Any, ...],
    length: int,
    periodic: bool,
    dtype: DTypeLike,
    layout: object,
    device: PlaceLike | None,
    pin_memory: bool,
    requires_grad: bool,
) -> Tensor:
    if layout not in (None, "strided"):
        raise InvalidArgument(f"a window is an ordinary tensor. Received: layout={layout!r}")
    made = get_window(window, length, periodic, dtype)
    return placed(made, device, requires_grad, pin_memory)


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = "float32",
    layout: object = None,
    device: PlaceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle that begins at zero; `get_window("bartlett", ...)`."""
    return _named(
        "bartlett", window_length, periodic, dtype, layout, device, pin_memory, requires_grad
    )


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = "float32",
    layout: object = None,
    device: PlaceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`get_window("blackman", ...)`."""
    return _named(
        "blackman", window_length, periodic, dtype, layout, device, pin_memory, requires_grad
    )


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DTypeLike = "float32",
    layout: object = None,
    device: PlaceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta * cos(2 pi n / N)."""
    window = ("general_cosine", [alpha, beta])
    return _named(window, window_length, periodic, dtype, layout, device, pin_memory, requires_grad)


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = "float32",
    layout: object = None,
    device: PlaceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`get_window("hann", ...)`."""
    return _named("hann", window_length, periodic, dtype, layout, device, pin_memory, requires_grad)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DTypeLike = "float32",
    layout: object = None,
    device: PlaceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`get_window(("kaiser", beta), ...)`."""
    window = ("kaiser", beta)
    return _named(window, window_length, periodic, dtype, layout, device, pin_memory, requires_grad)
