"""`paddle.flops`: multiplications and additions of one forward pass, by Paddle's rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bireme import nn
from bireme.autograd import no_grad
from bireme.core.errors import TypeMismatch
from bireme.jit.static_function import without_capture

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


Counter = Callable[[Any, Any, Any], None]


class _Count:
    """What a counting function sees of a layer: the layer, and `total_ops` to add to."""

    def __init__(self, layer: nn.Layer):
        self._layer = layer
        self.total_ops = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def _convolution(m: Any, x: Any, y: Any) -> None:
    kernel = math.prod(m.weight.shape[2:])
    bias = 0 if m.bias is None else 1
    m.total_ops += int(y.size * (x[0].shape[1] / m._groups * kernel + bias))


def _linear(m: Any, x: Any, y: Any) -> None:
    m.total_ops += m.weight.shape[0] * y.size


def _batch_norm(m: Any, x: Any, y: Any) -> None:
    m.total_ops += 2 * x[0].size


def _per_input(m: Any, x: Any, y: Any) -> None:
    m.total_ops += x[0].size


def _per_output(m: Any, x: Any, y: Any) -> None:
    m.total_ops += y.size


def _adaptive_pool(m: Any, x: Any, y: Any) -> None:
    windows = zip(x[0].shape[2:], y.shape[2:], strict=True)
    m.total_ops += (math.prod(a // b for a, b in windows) + 1) * y.size


def _nothing(m: Any, x: Any, y: Any) -> None:
    """Counts as free."""


_COUNTERS: dict[type, Counter] = {
    nn.Conv1D: _convolution,
    nn.Conv2D: _convolution,
    nn.Conv3D: _convolution,
    nn.Conv1DTranspose: _convolution,
    nn.Conv2DTranspose: _convolution,
    nn.Conv3DTranspose: _convolution,
    nn.BatchNorm2D: _batch_norm,
    nn.BatchNorm: _batch_norm,
    nn.ReLU: _nothing,
    nn.ReLU6: _nothing,
    nn.LeakyReLU: _per_input,
    nn.Linear: _linear,
    nn.Dropout: _nothing,
    nn.AvgPool1D: _per_output,
    nn.AvgPool2D: _per_output,
    nn.AvgPool3D: _per_output,
    nn.AdaptiveAvgPool1D: _adaptive_pool,
    nn.AdaptiveAvgPool2D: _adaptive_pool,
    nn.AdaptiveAvgPool3D: _adaptive_pool,
}


def flops(
    net: Layer,
    input_size: Sequence[int],
    custom_ops: dict[type, Counter] | None = None,
    print_detail: bool = False,
) -> int:
    """Print and return the work of one forward pass on an input of shape `input_size`.

    Layers without a rule count as free, and a line says so. `custom_ops` maps a layer's class
    to a function (layer, inputs, outputs) that adds to `layer.total_ops`.

    >>> flops(paddle.nn.Linear(4, 2), [1, 4])  # doctest: +SKIP
    8
    """
    if not isinstance(net, nn.Layer):
        raise TypeMismatch(f"[flops] takes a Layer. Received: {type(net).__name__}")
    rows = _run(net, input_size, custom_ops or {})
    if print_detail:
        _say(_table([("Layer Name", "Input Shape", "Output Shape", "Params", "Flops"), *rows]))
    total, params = sum(r[4] for r in rows), sum(r[3] for r in rows)
    _say(f"Total Flops: {total}     Total Params: {params}")
    return total


def _say(text: str) -> None:
    print(text)  # noqa: T201 (its purpose)


@no_grad()
def _run(net: nn.Layer, input_size: Any, custom: dict[type, Counter]) -> list[Any]:
    """(name, input shape, output shape, parameters, operations) of each leaf layer."""
    from bireme import zeros

    leaves = [m for m in net.sublayers(include_self=True) if not list(m.children())]
    counts, shapes, hooks = {}, {}, []
    told: set[type] = set()
    for layer in leaves:
        kind = type(layer)
        counter = custom.get(kind) or _COUNTERS.get(kind)
        counts[layer] = _Count(layer)
        if kind not in told:
            told.add(kind)
            _say(_about(kind, kind in custom, counter is not None))

        def seen(layer: Any, x: Any, y: Any, counter: Any = counter) -> None:
            first = y[0] if isinstance(y, list | tuple) else y
            shapes[layer] = (list(x[0].shape), list(first.shape))
            if counter is not None:
                counter(counts[layer], x, y)

        hooks.append(layer.register_forward_post_hook(seen))
    training = net.training
    net.eval()
    try:
        with without_capture():
            net(zeros(list(input_size)))
    finally:
        for hook in hooks:
            hook.remove()
        if training:
            net.train()
    return [
        (
            layer.full_name(),
            *shapes[layer],
            sum(p.size for p in layer.parameters()),
            int(counts[layer].total_ops),
        )
        for layer in leaves
        if layer in shapes
    ]


def _about(kind: type, custom: bool, known: bool) -> str:
    if custom:
        return f"Customize Function has been applied to {kind}"
    if known:
        return f"{kind}'s flops has been counted"
    return f"Cannot find suitable count function for {kind}. Treat it as zero FLOPs."


def _table(rows: list[Any]) -> str:
    cells = [[str(c) for c in row] for row in rows]
    widths = [max(map(len, column)) + 2 for column in zip(*cells, strict=True)]
    line = "+" + "+".join("-" * w for w in widths) + "+"
    lines = [line]
    for row in cells:
        lines += ["|" + "|".join(f"{c:^{w}}" for c, w in zip(row, widths, strict=True)) + "|", line]
    return "\n".join(lines)


__all__ = ["flops"]
