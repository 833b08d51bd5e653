"""Files of the input shapes of a predictor's runs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from bireme.io.atomic import replacing
from bireme.io.foreign import read_json, reading

MAX_SHAPES = 256


def read_shapes(path: str) -> list[dict[str, Sequence[int]]]:
    """The shapes in a file of `collect_shape_range_info`."""
    with reading("shapes", path):
        document = read_json(path, "shapes")
        return [
            {str(name): [int(d) for d in shape] for name, shape in entry.items()}
            for entry in document["shapes"]
        ]


def add_shapes(path: str, shapes: dict[str, list[int]]) -> None:
    """Add one set of input shapes to a file, unless it is there or the file is full."""
    known = read_shapes(path) if os.path.exists(path) else []
    if shapes in known or len(known) >= MAX_SHAPES:
        return
    with replacing(path) as file:
        file.write(json.dumps({"shapes": [*known, shapes]}, indent=1).encode())
