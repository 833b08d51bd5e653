"""All cases of all packages."""

from __future__ import annotations

from tests.clients import models_detection, models_image, models_other, models_text
from tests.clients.cases import CASES

__all__ = ["CASES", "models_detection", "models_image", "models_other", "models_text"]
