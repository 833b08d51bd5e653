"""What recurrent layers say about inputs and states that do not fit them.

The ops below see sequences in their own order, time first, and one cell's weights; these checks
come before anything is transposed, and speak of what the user gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.core.errors import InvalidArgument, ShapeMismatch, not_a_tensor
from bireme.core.tensor import Tensor

Shape = Sequence[Any]  # of sizes; one that is not known yet fits all


def check_sequence(layer: str, inputs: Any, size: int, time_major: bool, lengths: Any) -> None:
    """Inputs of a layer: three dimensions, the last of the layer's size, and a length for each."""
    order = "[time, batch" if time_major else "[batch, time"
    _check_inputs(layer, inputs, 3, size, f"{order}, {size}] (time_major={time_major})")
    if isinstance(lengths, Tensor):
        batch, have = inputs._value.aval.shape[1 if time_major else 0], lengths._value.aval.shape
        if len(have) != 1 or not _fits(have[0], batch):
            raise ShapeMismatch(
                f"[{layer}] sequence_length must have shape {_shown((batch,))}, one number for "
                f"each sequence of the batch. Received: shape {list(lengths.shape)}, for inputs of "
                f"shape {list(inputs.shape)} (time_major={time_major})"
            )


def check_step(cell: str, inputs: object, size: int) -> None:
    """Inputs of a cell: one step of each sequence."""
    _check_inputs(cell, inputs, 2, size, f"[batch, {size}]")


def _check_inputs(who: str, inputs: object, ndim: int, size: int, wanted: str) -> None:
    if not isinstance(inputs, Tensor):
        raise not_a_tensor(who, "inputs", inputs)
    shape = inputs._value.aval.shape
    if len(shape) != ndim or not _fits(shape[-1], size):
        raise ShapeMismatch(
            f"[{who}] inputs must have shape {wanted}: input_size is {size}. Received: shape "
            f"{list(inputs.shape)}"
        )


def check_states(who: str, name: str, states: object, wanted: Sequence[tuple[str, Shape]]) -> None:
    """States: one Tensor, or as many as are wanted, each with what its sizes mean and its shape."""
    parts = states if isinstance(states, list | tuple) else (states,)
    if len(parts) != len(wanted):
        raise InvalidArgument(
            f"[{who}] {name} must have {len(wanted)} part(s). Received: {len(parts)}"
        )
    for at, (part, (meaning, shape)) in enumerate(zip(parts, wanted, strict=True)):
        shown = name if len(parts) == 1 else f"{name}[{at}]"
        if not isinstance(part, Tensor):
            raise not_a_tensor(who, shown, part)
        have = part._value.aval.shape
        if len(have) != len(shape) or not all(map(_fits, have, shape)):
            raise ShapeMismatch(
                f"[{who}] {shown} must have shape {_shown(shape)} ({meaning}). Received: shape "
                f"{list(part.shape)}"
            )


def _fits(have: Any, wanted: Any) -> bool:
    return have == wanted or type(have) is not int or type(wanted) is not int


def _shown(shape: Shape) -> list[int]:
    return [d if type(d) is int else -1 for d in shape]
