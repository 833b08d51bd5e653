"""The one error of this package."""

from __future__ import annotations

from bireme.core.errors import BiremeError


class OcrError(BiremeError, ValueError):
    """Something that cannot be read: names the file (or what stood for it) and the reason."""

    def __init__(self, source: str, reason: str):
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason

    def __reduce__(self) -> tuple[type[OcrError], tuple[str, str]]:
        return type(self), (self.source, self.reason)
