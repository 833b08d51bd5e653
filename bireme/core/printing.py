"""How tensors print: Paddle's layout."""

from __future__ import annotations

from typing import Any

import numpy as np

options: dict[str, Any] = {
    "precision": 8,
    "threshold": 1000,
    "edgeitems": 3,
    "linewidth": 80,
    "suppress": None,
}


def format_tensor(tensor: Any) -> str:
    array = np.asarray(tensor._array())
    if array.dtype.kind == "V" or array.dtype.name in ("bfloat16",) or "float8" in array.dtype.name:
        array = array.astype(np.float32)
    body = np.array2string(
        array,
        separator=", ",
        prefix=" " * 7,
        precision=options["precision"],
        threshold=options["threshold"],
        edgeitems=options["edgeitems"],
        max_line_width=options["linewidth"],
        suppress_small=options["suppress"],
    )
    return (
        f"Tensor(shape={list(tensor.shape)}, dtype={tensor.dtype.name}, place={tensor.place}, "
        f"stop_gradient={tensor.stop_gradient},\n       {body})"
    )
