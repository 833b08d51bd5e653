"""`paddle.audio.features`: spectrograms and what is computed from them, as layers."""

from __future__ import annotations

from typing import Any

import bireme as paddle
from bireme.api.types import DTypeLike
from bireme.audio.functional import compute_fbank_matrix, create_dct, power_to_db
from bireme.audio.windows import get_window
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import Layer

__all__ = ["MFCC", "LogMelSpectrogram", "MelSpectrogram", "Spectrogram"]


class Spectrogram(Layer):
    """|stft| ** power of a waveform [batch, time]: [batch, 1 + n_fft // 2, frames]."""

    def __init__(
        self,
        n_fft: int = 512,
        hop_length: int | None = 512,
        win_length: int | None = None,
        window: str | tuple[str, float] = "hann",
        power: float = 1.0,
        center: bool = True,
        pad_mode: str = "reflect",
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        if power <= 0:
            raise InvalidArgument(f"[Spectrogram] power must be positive. Received: {power}")
        self.power = power
        length = n_fft if win_length is None else win_length
        self._options: dict[str, Any] = {
            "n_fft": n_fft,
            "hop_length": hop_length,
            "win_length": length,
            "center": center,
            "pad_mode": pad_mode,
        }
        self.register_buffer("fft_window", get_window(window, length, True, dtype))

    def forward(self, x: Tensor) -> Tensor:
        size = paddle.signal.stft(x, window=self.fft_window, **self._options).abs()
        return paddle.pow(size, self.power)


class MelSpectrogram(Layer):
    """A spectrogram in mel bands: [batch, n_mels, frames]."""

    def __init__(
        self,
        sr: int = 22050,
        n_fft: int = 2048,
        hop_length: int | None = 512,
        win_length: int | None = None,
        window: str | tuple[str, float] = "hann",
        power: float = 2.0,
        center: bool = True,
        pad_mode: str = "reflect",
        n_mels: int = 64,
        f_min: float = 50.0,
        f_max: float | None = None,
        htk: bool = False,
        norm: str | float | None = "slaney",
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        self._spectrogram = Spectrogram(
            n_fft, hop_length, win_length, window, power, center, pad_mode, dtype
        )
        self.n_mels, self.f_min, self.f_max = n_mels, f_min, f_max
        self.htk, self.norm = htk, norm
        top = sr // 2 if f_max is None else f_max
        bank = compute_fbank_matrix(sr, n_fft, n_mels, f_min, top, htk, norm, dtype)
        self.register_buffer("fbank_matrix", bank)

    def forward(self, x: Tensor) -> Tensor:
        return paddle.matmul(self.fbank_matrix, self._spectrogram(x))


class LogMelSpectrogram(Layer):
    """A mel spectrogram in decibels."""

    def __init__(
        self,
        sr: int = 22050,
        n_fft: int = 512,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: str | tuple[str, float] = "hann",
        power: float = 2.0,
        center: bool = True,
        pad_mode: str = "reflect",
        n_mels: int = 64,
        f_min: float = 50.0,
        f_max: float | None = None,
        htk: bool = False,
        norm: str | float | None = "slaney",
        ref_value: float = 1.0,
        amin: float = 1e-10,
        top_db: float | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        self._melspectrogram = MelSpectrogram(
            sr,
            n_fft,
            hop_length,
            win_length,
            window,
            power,
            center,
            pad_mode,
            n_mels,
            f_min,
            f_max,
            htk,
            norm,
            dtype,
        )
        self.ref_value, self.amin, self.top_db = ref_value, amin, top_db

    def forward(self, x: Tensor) -> Tensor:
        return power_to_db(self._melspectrogram(x), self.ref_value, self.amin, self.top_db)


class MFCC(Layer):
    """Mel-frequency cepstral coefficients: [batch, n_mfcc, frames]."""

    def __init__(
        self,
        sr: int = 22050,
        n_mfcc: int = 40,
        n_fft: int = 512,
        hop_length: int | None = None,
        win_length: int | None = None,
        window: str | tuple[str, float] = "hann",
        power: float = 2.0,
        center: bool = True,
        pad_mode: str = "reflect",
        n_mels: int = 64,
        f_min: float = 50.0,
        f_max: float | None = None,
        htk: bool = False,
        norm: str | float | None = "slaney",
        ref_value: float = 1.0,
        amin: float = 1e-10,
        top_db: float | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__()
        if n_mfcc > n_mels:
            raise InvalidArgument(
                f"[MFCC] n_mfcc must not exceed n_mels. Received: {n_mfcc} and {n_mels}"
            )
        self._log_melspectrogram = LogMelSpectrogram(
            sr,
            n_fft,
            hop_length,
            win_length,
            window,
            power,
            center,
            pad_mode,
            n_mels,
            f_min,
            f_max,
            htk,
            norm,
            ref_value,
            amin,
            top_db,
            dtype,
        )
        self.register_buffer("dct_matrix", create_dct(n_mfcc, n_mels, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return paddle.matmul(self.dct_matrix.T, self._log_melspectrogram(x))
