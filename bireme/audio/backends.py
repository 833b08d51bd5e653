"""`paddle.audio.backends`: reading and writing sound files.

The one backend reads and writes PCM WAV files with Python's standard library.
"""

from __future__ import annotations

import io
import os
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

import bireme as paddle
from bireme.core.errors import FileFormatError, InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.io import atomic
from bireme.io.foreign import open_regular, reading

__all__ = ["get_current_backend", "list_available_backends", "set_backend"]


class UnknownFormat(FileFormatError, NotImplementedError):
    """A file that is not supported; a NotImplementedError as in Paddle."""


class UnknownBackend(InvalidArgument, NotImplementedError):
    """A backend that does not exist; a NotImplementedError as in Paddle."""


@dataclass
class AudioInfo:
    """What the header of a sound file says."""

    sample_rate: int
    num_samples: int
    num_channels: int
    bits_per_sample: int
    encoding: str


_STREAMED = 0x7FFF0000  # a length from here on says that the writer did not know it


@contextmanager
def _opened(file: str | os.PathLike[str] | BinaryIO) -> Iterator[tuple[Any, int]]:
    """(an open WAV file, how many frames it holds)."""
    own = not hasattr(file, "read")
    source: Any = open_regular(file, "audio") if own else file  # type: ignore[arg-type]
    try:
        with reading("audio", file), wave.open(source, "rb") as f:
            yield f, _frames(f, source, file)
    except (wave.Error, EOFError) as e:
        raise UnknownFormat(
            f"[audio] only PCM WAV files can be read. Received: {file!r} ({e}); convert it to WAV"
        ) from None
    finally:
        if own:
            source.close()


def _frames(f: wave.Wave_read, source: Any, name: Any) -> int:
    """How many frames there are; the header's number must be true."""
    width, size = f.getsampwidth(), f.getsampwidth() * f.getnchannels()
    if not 1 <= width <= 4:
        raise UnknownFormat(
            f"[audio] only PCM WAV files of 8, 16, 24 and 32 bits can be read. Received: {name!r} "
            f"with {8 * width} bits; convert it to WAV of 32 bits"
        )
    if f.getframerate() <= 0:
        raise UnknownFormat(f"[audio] {name!r} is damaged: {f.getframerate()} samples per second")
    start = source.tell()  # of the samples
    there = (source.seek(0, os.SEEK_END) - start) // size
    source.seek(start)
    told = f.getnframes()
    if told <= there:
        return told
    if told * size >= _STREAMED:
        return there
    raise FileFormatError(
        f"[audio] {name!r} is truncated: its header announces {told} samples and it has {there}"
    )


def info(filepath: str | os.PathLike[str] | BinaryIO) -> AudioInfo:
    """The sample rate, length, channels and width of a WAV file."""
    with _opened(filepath) as (f, frames):
        bits = f.getsampwidth() * 8
        return AudioInfo(f.getframerate(), frames, f.getnchannels(), bits, "PCM_S")


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
    filepath: str | os.PathLike[str] | BinaryIO,
    frame_offset: int = 0,
    num_frames: int = -1,
    normalize: bool = True,
    channels_first: bool = True,
) -> tuple[Tensor, int]:
    """(waveform in float32, sample rate) of a WAV file.

    The waveform is [channels, time] (or [time, channels]), between -1 and 1 if `normalize`.
    """
    with _opened(filepath) as (f, frames):
        rate, channels, width = f.getframerate(), f.getnchannels(), f.getsampwidth()
        start = min(max(frame_offset, 0), frames)
        f.setpos(start)
        rest = frames - start
        wanted = rest if num_frames < 0 else min(num_frames, rest)
        data = f.readframes(wanted)
        if len(data) != wanted * width * channels:
            raise FileFormatError(
                f"[load] {filepath!r} is damaged: it announces {wanted} samples and gives "
                f"{len(data)} bytes"
            )
    sound = _samples(data, width).astype(np.float32).reshape(-1, channels)
    if normalize:
        sound = sound / np.float32(2 ** (8 * width - 1))
    return paddle.to_tensor(np.ascontiguousarray(sound.T) if channels_first else sound), rate


_ENCODINGS = (None, "PCM_S", "PCM_16")


def save(
    filepath: str | os.PathLike[str] | BinaryIO,
    src: Tensor,
    sample_rate: int,
    channels_first: bool = True,
    encoding: str | None = None,
    bits_per_sample: int | None = 16,
) -> None:
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
    if hasattr(filepath, "write"):
        _write(filepath, sound, sample_rate)  # type: ignore[arg-type]
        return
    whole = io.BytesIO()  # a device or pipe, which may be given, cannot be sought in
    _write(whole, sound, sample_rate)
    with atomic.replacing(filepath) as file:  # type: ignore[arg-type]
        file.write(whole.getbuffer())


def _write(file: BinaryIO, sound: np.ndarray, sample_rate: int) -> None:
    with wave.open(file, "wb") as f:
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
        raise UnknownBackend(
            f"[set_backend] must be one of {list_available_backends()}. Received: {backend_name!r}"
        )
