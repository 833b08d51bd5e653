"""`paddle.audio.backends`: reading and writing sound files.

The one backend reads and writes PCM WAV files with Python's standard library.
"""

from __future__ import annotations

import os
import wave
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

import bireme as paddle
from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor

__all__ = ["get_current_backend", "list_available_backends", "set_backend"]


class UnknownFormat(InvalidArgument, NotImplementedError):
    """A file or backend that is not supported; a NotImplementedError as in Paddle."""


@dataclass
class AudioInfo:
    """What the header of a sound file says."""

    sample_rate: int
    num_samples: int
    num_channels: int
    bits_per_sample: int
    encoding: str


@contextmanager
def _opened(file: str | os.PathLike[str] | BinaryIO) -> Any:
    try:
        with wave.open(file if hasattr(file, "read") else os.fspath(file), "rb") as f:  # type: ignore[arg-type]
            yield f
    except (wave.Error, EOFError) as e:
        raise UnknownFormat(
            f"[audio] only PCM WAV files can be read. Received: {file!r} ({e}); convert it to WAV"
        ) from None


def info(filepath: str | os.PathLike[str] | BinaryIO) -> AudioInfo:
    """The sample rate, length, channels and width of a WAV file."""
    with _opened(filepath) as f:
        bits = f.getsampwidth() * 8
        return AudioInfo(f.getframerate(), f.getnframes(), f.getnchannels(), bits, "PCM_S")


def _samples(data: bytes, width: int) -> np.ndarray:
    """Little-endian integers of 1 (unsigned), 2, 3 or 4 bytes, centred at zero."""
    if width == 1:
        return np.frombuffer(data, np.uint8).astype(np.int32) - 128
    if width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.reshape(-1).view("<i4") >> 8
    return np.frombuffer(data, "<i2" if width == 2 else "<i4")


def load(
    filepath: str | os.PathLike[str] | BinaryIO, frame_offset: int = 0, num_frames: int = -1,
    normalize: bool = True, channels_first: bool = True,
) -> tuple[Tensor, int]:  # fmt: skip
    """(waveform in float32, sample rate) of a WAV file.

    The waveform is [channels, time] (or [time, channels]), between -1 and 1 if `normalize`.
    """
    with _opened(filepath) as f:
        rate, channels, width = f.getframerate(), f.getnchannels(), f.getsampwidth()
        start = min(max(frame_offset, 0), f.getnframes())
        f.setpos(start)
        rest = f.getnframes() - start
        data = f.readframes(rest if num_frames < 0 else min(num_frames, rest))
    sound = _samples(data, width).astype(np.float32).reshape(-1, channels)
    if normalize:
        sound = sound / np.float32(2 ** (8 * width - 1))
    return paddle.to_tensor(np.ascontiguousarray(sound.T) if channels_first else sound), rate


_ENCODINGS = (None, "PCM_S", "PCM_16")


def save(
    filepath: str | os.PathLike[str] | BinaryIO, src: Tensor, sample_rate: int,
    channels_first: bool = True, encoding: str | None = None, bits_per_sample: int | None = 16,
) -> None:  # fmt: skip
    """Write a waveform as a 16-bit WAV file: floats between -1 and 1, or 16-bit integers."""
    if src.ndim != 2:
        raise ShapeMismatch(f"[save] takes [channels, time]. Received: {src.shape}")
    if bits_per_sample not in (None, 16) or encoding not in _ENCODINGS:
        raise InvalidArgument(
            "[save] writes 16-bit PCM. Received: "
            f"bits_per_sample={bits_per_sample}, encoding={encoding!r}"
        )
    sound = src.numpy()
    if src.dtype.is_floating:
        sound = np.clip(sound.astype(np.float64) * 2**15, -(2**15), 2**15 - 1)
    if channels_first:
        sound = sound.T
    with wave.open(filepath if hasattr(filepath, "write") else os.fspath(filepath), "wb") as f:  # type: ignore[arg-type]
        f.setnchannels(sound.shape[1])
        f.setsampwidth(2)
        f.setframerate(sample_rate)
        f.writeframes(np.ascontiguousarray(sound.astype("<i2")).tobytes())


_BACKEND = "wave_backend"


def list_available_backends() -> list[str]:
    """The backends that can be set."""
    return [_BACKEND]


def get_current_backend() -> str:
    """The backend that `paddle.audio.load` and `save` use."""
    return _BACKEND


def set_backend(backend_name: str) -> None:
    """Choose a backend."""
    if backend_name not in list_available_backends():
        raise UnknownFormat(
            f"[set_backend] must be one of {list_available_backends()}. Received: {backend_name!r}"
        )
