"""`paddle.audio`: sound files, spectrograms and datasets."""

from __future__ import annotations

from bireme.audio import backends, datasets, features, functional
from bireme.audio.backends import info, load, save

__all__ = ["backends", "datasets", "features", "functional", "info", "load", "save"]
