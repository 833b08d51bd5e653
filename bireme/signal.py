"""`paddle.signal`: short-time Fourier transforms."""

from __future__ import annotations

from bireme.core.keywords import accept as _accept
from bireme.ops.signal import frame, istft, overlap_add, stft

__all__ = ["istft", "stft"]

_names = {"frame": frame, "istft": istft, "overlap_add": overlap_add, "stft": stft}
globals().update(_accept("signal", _names))
