"""Frames of a signal, their overlap-add, and short-time Fourier transforms.

Cutting a signal into frames and adding frames up are each other's gradient.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.requirements import Holds
from bireme.core.tensor import Tensor
from bireme.ops.creation import ones
from bireme.ops.fft import as_complex_numbers, fft_c2c, fft_c2r, fft_r2c
from bireme.ops.manipulation import squeeze, transpose, unsqueeze
from bireme.ops.math import divide, multiply
from bireme.ops.math_unary import _real_dtype, cast
from bireme.ops.nn_support import scatter_add
from bireme.ops.padding import _pad_constant, _pad_copy

public = namespace("paddle.signal")

_MOST_SHIFTS = 32  # frames that overlap this often at most are added up as shifted blocks


def _cut(xp: Any, x: Any, length: int, hop: int) -> Any:
    """[..., time] to [..., frame, length]."""
    count = (x.shape[-1] - length) // hop + 1
    at = xp.arange(count)[:, None] * hop + xp.arange(length)
    return x[..., at]


def _add_up(xp: Any, x: Any, hop: int) -> Any:
    """[..., frame, length] to [..., time], frames `hop` apart."""
    count, length = x.shape[-2:]
    total = (count - 1) * hop + length
    lead = x.shape[:-2]
    blocks = -(-length // hop)
    if xp is not np and blocks > _MOST_SHIFTS:
        at = xp.arange(count)[:, None] * hop + xp.arange(length)
        return scatter_add(xp, xp.zeros((*lead, total), x.dtype), (..., at), x)
    keep = [(0, 0)] * (len(lead) + 1)
    parts = xp.pad(x, [*keep, (0, blocks * hop - length)])
    parts = parts.reshape((*lead, count, blocks, hop))
    out = 0
    for j in range(blocks):  # the j-th part of each frame falls on the j-th block after its first
        out = out + xp.pad(parts[..., j, :], [*keep[:-1], (j, blocks - 1 - j), (0, 0)])
    return xp.asarray(out).reshape((*lead, (count + blocks - 1) * hop))[..., :total].astype(x.dtype)


def _frame_type(x: Aval, frame_length: int, hop_length: int) -> Aval:
    count = (x.shape[-1] - frame_length) // hop_length + 1
    return aval((*x.shape[:-1], count, frame_length), x.dtype)


def _frame_vjp(xp: Any, grad: Any, types: Any, hop_length: int) -> tuple[Any]:
    back = _add_up(xp, grad, hop_length)
    rest = types[0].shape[-1] - back.shape[-1]  # samples after the last whole frame
    return (xp.pad(back, [(0, 0)] * (back.ndim - 1) + [(0, rest)]),)


@op(name="frame", vjp=_frame_vjp, infer=_frame_type)
def _frame(xp, x, frame_length=1, hop_length=1):
    """Overlapping frames of the last dimension: [..., frame, length]."""
    return _cut(xp, x, frame_length, hop_length)


def _overlap_type(x: Aval, hop_length: int) -> Aval:
    count, length = x.shape[-2:]
    return aval((*x.shape[:-2], (count - 1) * hop_length + length), x.dtype)


def _overlap_vjp(xp: Any, grad: Any, types: Any, hop_length: int) -> tuple[Any]:
    return (_cut(xp, grad, types[0].shape[-1], hop_length),)


@op(name="overlap_add", vjp=_overlap_vjp, infer=_overlap_type)
def _overlap_add(xp, x, hop_length=1):
    """Frames [..., frame, length], `hop_length` apart, added up to one signal."""
    return _add_up(xp, x, hop_length)


# --- public -----------------------------------------------------------------------------------


def _positive(name: str, what: str, value: Any) -> None:
    if not isinstance(value, int) or value <= 0:
        raise InvalidArgument(f"[{name}] {what} must be a positive integer. Received: {value!r}")


def _check_axis(name: str, x: Tensor, axis: Any) -> None:
    if x.ndim == 0:
        raise ShapeMismatch(f"[{name}] takes at least one dimension. Received: a 0-d tensor")
    if axis not in (0, -1):
        raise InvalidArgument(f"[{name}] axis must be 0 or -1. Received: {axis!r}")


def _too_long(length: int, have: Any) -> bool:
    return isinstance(have, int) and length > have


@public(takes="ifc")
def frame(
    x: Tensor, frame_length: int, hop_length: int, axis: int = -1, name: str | None = None
) -> Tensor:
    """Overlapping frames: [..., length, frame] of the last axis, [frame, length, ...] of axis 0."""
    _check_axis("frame", x, axis)
    _positive("frame", "frame_length", frame_length)
    _positive("frame", "hop_length", hop_length)
    if _too_long(frame_length, x.shape[axis]):
        raise InvalidArgument(
            f"[frame] frame_length must not exceed the signal. Received: {frame_length} for "
            f"{x.shape[axis]} samples"
        )
    order = list(range(x.ndim))
    if axis == 0 and x.ndim > 1:
        cut = _frame(transpose(x, [*order[1:], 0]), frame_length, hop_length)
        return transpose(cut, [x.ndim - 1, x.ndim, *order[:-1]])
    cut = _frame(x, frame_length, hop_length)
    return cut if axis == 0 else transpose(cut, [*order[:-1], x.ndim, x.ndim - 1])


@public(takes="ifc")
def overlap_add(x: Tensor, hop_length: int, axis: int = -1, name: str | None = None) -> Tensor:
    """The signal of frames [..., length, frame], or [frame, length, ...] for axis 0."""
    _check_axis("overlap_add", x, axis)
    _positive("overlap_add", "hop_length", hop_length)
    if x.ndim < 2:
        raise ShapeMismatch(f"[overlap_add] takes at least two dimensions. Received: {x.shape}")
    if _too_long(hop_length, x.shape[-2 if axis == -1 else 1]):
        raise InvalidArgument(
            f"[overlap_add] hop_length must not exceed the frames. Received: hop_length="
            f"{hop_length} for {x.shape}"
        )
    last = x.ndim - 1
    if axis == -1:
        return _overlap_add(transpose(x, [*range(last - 1), last, last - 1]), hop_length)
    if x.ndim == 2:
        return _overlap_add(x, hop_length)
    added = _overlap_add(transpose(x, [*range(2, x.ndim), 0, 1]), hop_length)
    return transpose(added, [added.ndim - 1, *range(added.ndim - 1)])


def _window(name: str, window: Tensor | None, win_length: int, n_fft: int, dtype: Any) -> Tensor:
    """The window, in the middle of n_fft samples."""
    if not 0 < win_length <= n_fft:
        raise InvalidArgument(
            f"[{name}] win_length must be between 1 and n_fft. Received: win_length={win_length}, "
            f"n_fft={n_fft}"
        )
    if window is None:
        window = ones([win_length], dtype=dtype)
    elif list(window.shape) != [win_length]:
        raise ShapeMismatch(
            f"[{name}] window must have win_length ({win_length}) samples. Received: {window.shape}"
        )
    left = (n_fft - win_length) // 2
    right = n_fft - win_length - left
    return window if left + right == 0 else _pad_constant(window, 0.0, ((left, right),))


@public(method=True)
def stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """The short-time Fourier transform of [time] or [batch, time]: [..., frequency, frame].

    Frames of `n_fft` samples start every `hop_length` (n_fft // 4) samples, are weighed by
    `window` and transformed; `center` pads the signal so that frame t is centred at t * hop.
    """
    if x.ndim not in (1, 2):
        raise ShapeMismatch(f"[stft] takes [time] or [batch, time]. Received: {x.shape}")
    if x.dtype.is_integer:
        x = cast(x, dt.default_float())
    if window is not None and window.dtype.is_integer:
        window = cast(window, dt.default_float())
    hop = n_fft // 4 if hop_length is None else hop_length
    _positive("stft", "hop_length", hop)
    _positive("stft", "n_fft", n_fft)
    if _too_long(n_fft, x.shape[-1]):
        raise InvalidArgument(
            f"[stft] n_fft must not exceed the signal. Received: n_fft={n_fft} for "
            f"{x.shape[-1]} samples"
        )
    weights = _window("stft", window, n_fft if win_length is None else win_length, n_fft, x.dtype)
    if center:
        if pad_mode not in ("constant", "reflect"):
            raise InvalidArgument(
                f"[stft] pad_mode must be 'reflect' or 'constant'. Received: {pad_mode!r}"
            )
        pairs = (*[(0, 0)] * (x.ndim - 1), (n_fft // 2, n_fft // 2))
        padded = pad_mode == "constant"
        x = _pad_constant(x, 0.0, pairs) if padded else _pad_copy(x, pairs, pad_mode)
    frames = multiply(_frame(x, n_fft, hop), weights)
    axes, norm = (frames.ndim - 1,), "ortho" if normalized else "backward"
    if frames.dtype.is_complex:
        if onesided:
            raise InvalidArgument(
                "[stft] onesided=True needs a real signal and window. Received: complex ones; "
                "the other half of their spectrum is not its conjugate"
            )
        out = fft_c2c(frames, axes, norm, True)
    else:
        out = fft_r2c(frames, axes, norm, True, onesided is None or onesided)
    return transpose(out, [*range(out.ndim - 2), out.ndim - 1, out.ndim - 2])


@public(method=True, takes="bfc")
def istft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool = True,
    length: int | None = None,
    return_complex: bool = False,
    name: str | None = None,
) -> Tensor:
    """The signal whose `stft` is nearest to x: the frames' inverse transforms, overlap-added."""
    x = as_complex_numbers("istft", x)
    if x.ndim not in (2, 3):
        raise ShapeMismatch(
            f"[istft] takes [frequency, frame] or [batch, frequency, frame]. Received: {x.shape}"
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    win = n_fft if win_length is None else win_length
    if not 0 < hop <= win:
        raise InvalidArgument(
            f"[istft] hop_length must be between 1 and win_length. Received: hop_length={hop}, "
            f"win_length={win}"
        )
    rows = n_fft // 2 + 1 if onesided else n_fft
    if isinstance(x.shape[-2], int) and x.shape[-2] != rows:
        raise ShapeMismatch(
            f"[istft] x must have {rows} frequencies for n_fft={n_fft} and onesided={onesided}. "
            f"Received: {x.shape}"
        )
    if x.size == 0:
        raise ShapeMismatch(f"[istft] x has no frames. Received: {x.shape}")
    weights = _window("istft", window, win, n_fft, _real_dtype(x.dtype))
    if return_complex and onesided:
        raise InvalidArgument("[istft] return_complex=True needs onesided=False. Received: True")
    if not return_complex and weights.dtype.is_complex:
        raise TypeMismatch("[istft] a complex window needs return_complex=True. Received: False")
    alone = x.ndim == 2
    frames = transpose(unsqueeze(x, 0) if alone else x, [0, 2, 1])
    norm = "ortho" if normalized else "backward"
    if return_complex:
        parts = fft_c2c(frames, (2,), norm, False)
    else:
        if not onesided:
            frames = frames[:, :, : n_fft // 2 + 1]
        # As in Paddle the length of a frame is that of an even transform.
        parts = fft_c2r(frames, (2,), norm, False, None)
    out = _overlap_add(multiply(parts, weights), hop)
    squares = multiply(multiply(weights, weights), ones([x.shape[-1], 1], dtype=weights.dtype))
    envelope = _overlap_add(squares, hop)
    start = n_fft // 2 if center else 0
    if length is not None:
        stop = start + length
    else:
        stop = -start if start else None
    out, envelope = out[:, start:stop], envelope[start:stop]
    gaps = _has_gaps(window, win, n_fft, x.shape[-1], hop, start, stop)
    if gaps:
        raise InvalidArgument(f"[istft] {_GAPS}. Received: hop_length={hop}, win_length={win}")
    out = _uncover(out, envelope) if gaps is None else divide(out, envelope)
    return squeeze(out, 0) if alone else out


_SMALLEST_ENVELOPE = 1e-11  # Paddle's
_GAPS = (
    "some samples are covered by no window, so they cannot be recovered; take a smaller "
    "hop_length or another window"
)


@op(
    name="istft",
    requires=lambda x, envelope: [
        Holds(_GAPS, lambda xp, inputs, out: ~_is_uncovered(xp, inputs[1]), before=True)
    ],
)
def _uncover(xp, x, envelope):
    """Samples without the windows they were seen through."""
    return x / envelope


def _is_uncovered(xp: Any, envelope: Any) -> Any:
    """Whether some samples lie under no window."""
    return xp.min(xp.abs(envelope), initial=np.inf) < _SMALLEST_ENVELOPE


def _has_gaps(window: Tensor | None, win: int, n_fft: int, count: Any, *rest: Any) -> bool | None:
    """Whether some samples lie under no window; None where the window's contents are not at hand
    (asking for them would run everything recorded so far)."""
    ready = None if window is None else window._value.buf
    if not isinstance(count, int) or (window is not None and ready is None):
        return None
    weights = np.ones(win) if ready is None else np.abs(np.asarray(ready))
    left = (n_fft - win) // 2
    padded = np.pad(weights.astype(np.float64), (left, n_fft - win - left))
    return _uncovered(padded.tobytes(), count, *rest)


@lru_cache(maxsize=64)
def _uncovered(window: bytes, count: int, hop: int, start: int, stop: int | None) -> bool:
    squares = np.frombuffer(window) ** 2
    envelope = _add_up(np, np.broadcast_to(squares, (count, len(squares))), hop)
    return bool(_is_uncovered(np, envelope[start:stop]))
