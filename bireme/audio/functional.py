"""`paddle.audio.functional`: mel scales, filter banks, decibels, cosine transforms, windows."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import bireme as paddle
from bireme.api.keywords import explained as _explained
from bireme.api.types import DTypeLike
from bireme.audio.windows import get_window
from bireme.core.errors import InvalidArgument, not_a_tensor
from bireme.core.tensor import Tensor

__all__ = [
    "compute_fbank_matrix", "create_dct", "fft_frequencies", "get_window", "hz_to_mel",
    "mel_frequencies", "mel_to_hz", "power_to_db",
]  # fmt: skip

# Slaney's scale: linear up to 1 kHz, logarithmic above.
_HZ_PER_MEL = 200.0 / 3
_LOG_FROM_HZ = 1000.0
_LOG_FROM_MEL = _LOG_FROM_HZ / _HZ_PER_MEL
_LOG_STEP = math.log(6.4) / 27.0


_Number = TypeVar("_Number", float, Tensor)


def _check_number(function: str, argument: str, given: Any) -> None:
    if not isinstance(given, Tensor | int | float):
        raise not_a_tensor(function, argument, given)


def hz_to_mel(freq: _Number, htk: bool = False) -> _Number:
    """Frequencies in mel: Slaney's scale, or HTK's."""
    _check_number("hz_to_mel", "freq", freq)
    if isinstance(freq, Tensor):
        if htk:
            return 2595.0 * paddle.log10(1.0 + freq / 700.0)
        above = _LOG_FROM_MEL + paddle.log(freq / _LOG_FROM_HZ + 1e-10) / _LOG_STEP
        return paddle.where(freq > _LOG_FROM_HZ, above, freq / _HZ_PER_MEL)
    if htk:
        return 2595.0 * math.log10(1.0 + freq / 700.0)
    if freq >= _LOG_FROM_HZ:
        return _LOG_FROM_MEL + math.log(freq / _LOG_FROM_HZ + 1e-10) / _LOG_STEP
    return freq / _HZ_PER_MEL


def mel_to_hz(mel: _Number, htk: bool = False) -> _Number:
    """Mels as frequencies, the inverse of `hz_to_mel`."""
    _check_number("mel_to_hz", "mel", mel)
    if htk:
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    if isinstance(mel, Tensor):
        above = _LOG_FROM_HZ * paddle.exp(_LOG_STEP * (mel - _LOG_FROM_MEL))
        return paddle.where(mel > _LOG_FROM_MEL, above, _HZ_PER_MEL * mel)
    if mel >= _LOG_FROM_MEL:
        return _LOG_FROM_HZ * math.exp(_LOG_STEP * (mel - _LOG_FROM_MEL))
    return _HZ_PER_MEL * mel


def mel_frequencies(
    n_mels: int = 64,
    f_min: float = 0.0,
    f_max: float = 11025.0,
    htk: bool = False,
    dtype: DTypeLike = "float32",
) -> Tensor:
    """`n_mels` frequencies from f_min to f_max, evenly spaced in mel."""
    low, high = hz_to_mel(f_min, htk), hz_to_mel(f_max, htk)
    return mel_to_hz(paddle.linspace(low, high, n_mels, dtype=dtype), htk)


def fft_frequencies(sr: int, n_fft: int, dtype: DTypeLike = "float32") -> Tensor:
    """The frequencies of a transform of n_fft samples at the rate `sr`, from 0 up."""
    return paddle.linspace(0, float(sr) / 2, 1 + n_fft // 2, dtype=dtype)


def compute_fbank_matrix(
    sr: int,
    n_fft: int,
    n_mels: int = 64,
    f_min: float = 0.0,
    f_max: float | None = None,
    htk: bool = False,
    norm: str | float | None = "slaney",
    dtype: DTypeLike = "float32",
) -> Tensor:
    """Triangular filters [n_mels, 1 + n_fft // 2] that turn a spectrum into mel bands.

    `norm`: "slaney" for filters of equal area, a number for rows of that p-norm 1.
    """
    top = float(sr) / 2 if f_max is None else f_max
    edges = mel_frequencies(n_mels + 2, f_min, top, htk, dtype)
    ramps = edges.unsqueeze(1) - fft_frequencies(sr, n_fft, dtype).unsqueeze(0)
    steps = (edges[1:] - edges[:-1]).unsqueeze(1)
    rising, falling = -ramps[:-2] / steps[:-1], ramps[2:] / steps[1:]
    weights = paddle.clip(paddle.minimum(rising, falling), 0.0)
    if norm == "slaney":
        return weights * (2.0 / (edges[2:] - edges[:-2])).unsqueeze(1)
    if isinstance(norm, int | float):
        return paddle.nn.functional.normalize(weights, p=norm, axis=-1)
    return weights


def power_to_db(
    spect: Tensor, ref_value: float = 1.0, amin: float = 1e-10, top_db: float | None = 80.0
) -> Tensor:
    """Power in decibels relative to ref_value, at least amin, and at most top_db below the peak."""
    if amin <= 0 or ref_value <= 0:
        raise InvalidArgument(
            f"[power_to_db] amin and ref_value must be positive. Received: {amin} and {ref_value}"
        )
    if top_db is not None and top_db < 0:
        raise InvalidArgument(f"[power_to_db] top_db must not be negative. Received: {top_db}")
    shift = 10.0 * math.log10(max(ref_value, amin))
    found = 10.0 * paddle.log10(paddle.clip(spect, amin)) - shift
    return found if top_db is None else paddle.maximum(found, found.max() - top_db)


def create_dct(
    n_mfcc: int, n_mels: int, norm: str | None = "ortho", dtype: DTypeLike = "float32"
) -> Tensor:
    """The matrix [n_mels, n_mfcc] of the discrete cosine transform (of the second kind)."""
    if norm not in (None, "ortho"):
        raise InvalidArgument(f"[create_dct] norm must be None or 'ortho'. Received: {norm!r}")
    n = paddle.arange(n_mels, dtype=dtype).unsqueeze(1)
    k = paddle.arange(n_mfcc, dtype=dtype)
    found = paddle.cos(math.pi / n_mels * (n + 0.5) * k)
    if norm is None:
        return found * 2.0
    first = paddle.where(k == 0, 1.0 / math.sqrt(2.0), 1.0).astype(dtype)
    return found * first * math.sqrt(2.0 / n_mels)


globals().update(_explained({name: globals()[name] for name in __all__}))
