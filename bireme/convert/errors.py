"""What can be wrong with a model file."""

from __future__ import annotations

from bireme.core.errors import FileFormatError


class ModelFileError(FileFormatError):
    """A model file that cannot be read: damaged, foreign, or from a newer version."""


class UnsupportedModel(FileFormatError, NotImplementedError):
    """A readable model that uses something Bireme has no rule for."""
