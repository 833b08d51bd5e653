"""How tensors print: Paddle's layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core.errors import TypeMismatch

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor

options: dict[str, Any] = {
    "precision": 8,
    "threshold": 1000,
    "edgeitems": 3,
    "linewidth": 80,
    "sci_mode": False,
}


def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    sci_mode: bool | None = None,
    linewidth: int | None = None,
) -> None:
    """Change how tensors print: digits after the point, the size above which the middle is left
    out, how much is shown at each edge then, scientific notation, characters in a line."""
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
        "sci_mode": sci_mode,
    }
    for name, value in given.items():
        if value is None:
            continue
        wanted = bool if name == "sci_mode" else int
        if not isinstance(value, wanted):
            raise TypeMismatch(
                f"[set_printoptions] {name} must be of type {wanted.__name__}. Received: {value!r}"
            )
        options[name] = value


def format_tensor(tensor: Tensor) -> str:
    array = np.asarray(tensor._array())
    return (
        f"Tensor(shape={list(tensor.shape)}, dtype={tensor.dtype.name}, place={tensor.place}, "
        f"stop_gradient={tensor.stop_gradient},\n       {format_array(array, 7)})"
    )


def format_array(array: np.ndarray, indent: int) -> str:
    """The elements in brackets; lines after the first begin `indent` characters in."""
    if array.dtype.kind == "V" or ("float" in array.dtype.name and array.itemsize <= 2):
        array = array.astype(np.float32)  # NumPy formats its own types only
    cut = array.size > options["threshold"]
    shown = _edges(array)  # as in Paddle, these alone decide the width
    texts = [_item(v) for v in shown.reshape(-1)]
    width = max(map(len, texts), default=0)
    # One negative number gives all the others a blank where its sign is.
    signed = array.dtype.kind != "b" and bool((shown < 0).any())
    return _Layout(cut, width, signed).nested(array, indent)


def _edges(array: np.ndarray) -> np.ndarray:
    """The elements that are left when the middle is cut out."""
    edge = options["edgeitems"]
    for axis, size in enumerate(array.shape):
        if size > 2 * edge:
            keep = [*range(edge), *range(size - edge, size)]
            array = np.take(array, keep, axis=axis)
    return array


def _item(value: Any) -> str:
    precision = options["precision"]
    style = "e" if options["sci_mode"] else "f"
    if value.dtype.kind == "f":
        if style == "f" and np.ceil(value) == value:
            return f"{value:.0f}."
        return f"{value:.{precision}{style}}"
    if value.dtype.kind == "c":
        return f"({value.real:.{precision}{style}}{value.imag:+.{precision}{style}}j)"
    return str(value)


class _Layout:
    """Brackets, commas and line breaks around items of one width."""

    def __init__(self, cut: bool, width: int, signed: bool):
        self.cut, self.width, self.signed = cut, width, signed

    def nested(self, array: np.ndarray, indent: int) -> str:
        if array.ndim == 0:
            return self._padded(array[()])
        edge, size = options["edgeitems"], array.shape[0]
        places: list[int | None] = list(range(size))
        if self.cut and size > 2 * edge:
            places = [*range(edge), None, *range(size - edge, size)]
        parts = ["..." if i is None else self.nested(array[i], indent + 1) for i in places]
        if array.ndim > 1:
            between = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
            return f"[{between.join(parts)}]"
        per_line = max(1, (options["linewidth"] - indent) // (self.width + 2))
        lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"

    def _padded(self, value: Any) -> str:
        text = _item(value)
        if len(text) >= self.width:
            return text
        if self.signed and not value < 0:
            text = " " + text
        return text.ljust(self.width)
