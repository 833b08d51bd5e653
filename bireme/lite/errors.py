"""What can go wrong with Bireme Lite's runtime."""

from __future__ import annotations

from bireme.core.errors import BiremeError


class LiteError(BiremeError, RuntimeError):
    """A model file that cannot be read, or a run that failed."""


class LiteUnavailable(BiremeError, RuntimeError):
    """There is no runtime here, and none can be built."""
