"""`paddle.summary`: a table of a network's layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bireme.api.types import DTypeLike, TensorTree
from bireme.autograd import no_grad
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, constant
from bireme.jit.static_function import without_capture
from bireme.nn import Layer, LayerList, Sequential
from bireme.static import InputSpec

# A shape, an InputSpec or a list of them; None or -1 is a size that may change.
SizeLike: TypeAlias = "int | InputSpec | Sequence[int | None] | Sequence[SizeLike]"

_MEGABYTE = 1024.0**2


class _Row(NamedTuple):
    """One call of one layer."""

    name: str
    inputs: Any
    outputs: Any
    params: int
    trainable: int


def summary(
    net: Layer,
    input_size: SizeLike | None = None,
    dtypes: DTypeLike | Sequence[DTypeLike] | None = None,
    input: TensorTree | None = None,
) -> dict[str, int]:
    """Print each layer's shapes and number of parameters; returns the totals.

    `input_size` is a shape, an InputSpec or a list of them, with None or -1 for the batch size;
    `input` is what to call the network with instead.

    >>> summary(paddle.nn.Linear(4, 2), (1, 4))  # doctest: +SKIP
    {'total_params': 10, 'trainable_params': 10}
    """
    if input_size is None and input is None:
        raise InvalidArgument("[summary] give input_size or input")
    if input is not None:
        shapes = [tuple(t.shape) for t in _tensors(input)]
        args = [input]
    else:
        shapes = _shapes(input_size)
        args = _made_up(shapes, dtypes)
    training = net.training
    net.eval()
    try:
        rows = _run(net, args)
    finally:
        if training:
            net.train()
    print(_table(rows, shapes))  # noqa: T201 (its purpose)
    return {
        "total_params": sum(row.params for row in rows),
        "trainable_params": sum(row.trainable for row in rows),
    }


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    raise InvalidArgument(
        f"[summary] input must be a Tensor, or a list or dict of them. Received: "
        f"{type(value).__name__}; give input_size instead"
    )


def _shapes(size: Any) -> list[tuple[int, ...]]:
    """One shape per input of the network."""
    if isinstance(size, InputSpec):
        return [_shape(size.shape)]
    if isinstance(size, int):
        return [_shape((size,))]
    if isinstance(size, tuple) and all(isinstance(d, int) or d is None for d in size):
        return [_shape(size)]
    if isinstance(size, list | tuple):
        return [shape for item in size for shape in _shapes(item)]
    raise InvalidArgument(f"[summary] input_size must be a shape. Received: {size!r}")


def _shape(dims: Any) -> tuple[int, ...]:
    known = [d if isinstance(d, int) and d != -1 else None for d in dims]
    if known.count(None) > 1:
        raise InvalidArgument(
            f"[summary] only the batch size may be open (None or -1). Received: {list(dims)}"
        )
    if any(d is not None and d <= 0 for d in known):
        raise InvalidArgument(f"[summary] sizes must be above 0. Received: {list(dims)}")
    return tuple(1 if d is None else d for d in known)


def _made_up(shapes: list[tuple[int, ...]], dtypes: Any) -> list[Tensor]:
    kinds = list(dtypes) if isinstance(dtypes, list | tuple) else [dtypes] * len(shapes)
    if len(kinds) != len(shapes):
        raise InvalidArgument(
            f"[summary] one dtype for each input. Received: {len(kinds)} for {len(shapes)} inputs"
        )
    return [
        constant(np.zeros(shape, dt.as_dtype(kind or "float32").numpy))
        for shape, kind in zip(shapes, kinds, strict=True)
    ]


@no_grad()
def _run(net: Layer, args: list[Any]) -> list[_Row]:
    rows: dict[str, _Row] = {}
    hooks = []
    alone = not net.sublayers()

    def seen(layer: Layer, inputs: Any, outputs: Any) -> None:
        number = layer.full_name().rpartition("_")[2]
        name = f"{type(layer).__name__}-{int(number) + 1 if number.isdigit() else len(rows) + 1}"
        own = layer.parameters(include_sublayers=_is_whole(layer))
        trainable = sum(p.size for p in own if not p.stop_gradient)
        shapes = _shape_of(inputs), _shape_of(outputs)
        rows[name] = _Row(name, *shapes, sum(p.size for p in own), trainable)

    try:
        for layer in _shown(net, alone or _is_whole(net)):
            hooks.append(layer.register_forward_post_hook(seen))
        with without_capture():
            net(*args)
    finally:
        for hook in hooks:
            hook.remove()
    return list(rows.values())


def _is_whole(layer: Layer) -> bool:
    """Whether a list of layers computes by itself, as LSTM does: one row, not one per cell."""
    return isinstance(layer, LayerList) and type(layer).forward is not Layer.forward


def _shown(layer: Layer, itself: bool = True) -> list[Layer]:
    """The layers that get a row, each once."""
    found = [layer] if itself else []
    for below in () if _is_whole(layer) else layer.children():
        bare = isinstance(below, Sequential | LayerList) and not _is_whole(below)
        found += _shown(below, not bare)
    return list(dict.fromkeys(found))


def _shape_of(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_shape_of(v) for v in value]
    return list(value.shape) if hasattr(value, "shape") else []


def _elements(shape: Any) -> int:
    if isinstance(shape, list) and any(isinstance(s, list) for s in shape):
        return sum(map(_elements, shape))
    return math.prod(shape) if shape else 0


def _table(rows: list[_Row], shapes: list[tuple[int, ...]]) -> str:
    cells = [(r.name, str(r.inputs), str(r.outputs), f"{r.params:,}") for r in rows]
    least = zip((15, 20, 20, 15), zip(*cells, strict=True) if cells else [()] * 4, strict=True)
    widths = [max(width, *map(len, column), 0) for width, column in least]
    line = max(75, sum(widths) + 5)

    def row(values: tuple[str, ...]) -> str:
        return " ".join(f"{v:^{w}}" for v, w in zip(values, widths, strict=True))

    total = sum(r.params for r in rows)
    trainable = sum(r.trainable for r in rows)
    inputs = sum(math.prod(s) for s in shapes) * 4.0 / _MEGABYTE
    # Twice: each result and its gradient.
    results = 2.0 * sum(_elements(r.outputs) for r in rows) * 4.0 / _MEGABYTE
    weights = total * 4.0 / _MEGABYTE
    parts = [
        "-" * line,
        row(("Layer (type)", "Input Shape", "Output Shape", "Param #")),
        "=" * line,
        *[row(c) for c in cells],
        "=" * line,
        f"Total params: {total:,}",
        f"Trainable params: {trainable:,}",
        f"Non-trainable params: {total - trainable:,}",
        "-" * line,
        f"Input size (MB): {inputs:0.2f}",
        f"Forward/backward pass size (MB): {results:0.2f}",
        f"Params size (MB): {weights:0.2f}",
        f"Estimated Total Size (MB): {inputs + results + weights:0.2f}",
        "-" * line,
    ]
    return "\n".join(parts) + "\n"


__all__ = ["summary"]
