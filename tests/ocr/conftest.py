from __future__ import annotations

import pytest

from bireme.ocr import Reader


@pytest.fixture(scope="session")
def reader() -> Reader:
    return Reader(tier="tiny", engine="xla")
