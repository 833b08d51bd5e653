"""RNN, GRU and LSTM.

The usual forms are our fused layers, after sorting the gates. Other activations, peepholes, clips
and GRU's reset before the product are written out step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import bireme as paddle
from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.imports.elementwise import dtype_of
from bireme.convert.onnx.imports.quantised import dequantised, rounded
from bireme.convert.onnx.imports.shapes import shape_of
from bireme.convert.onnx.reader import OnnxError
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops.rnn import gru, lstm, simple_rnn

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Values


_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": lambda x, a, b: F.relu(x),
    "tanh": lambda x, a, b: paddle.tanh(x),
    "sigmoid": lambda x, a, b: F.sigmoid(x),
    "affine": lambda x, a, b: x * (1.0 if a is None else a) + (0.0 if b is None else b),
    "leakyrelu": lambda x, a, b: F.leaky_relu(x, 0.01 if a is None else a),
    "thresholdedrelu": lambda x, a, b: F.thresholded_relu(x, 1.0 if a is None else a),
    "scaledtanh": lambda x, a, b: paddle.tanh(x * b) * a,
    "hardsigmoid": lambda x, a, b: F.hardsigmoid(
        x, 0.2 if a is None else a, 0.5 if b is None else b
    ),
    "elu": lambda x, a, b: F.elu(x, 1.0 if a is None else a),
    "softsign": lambda x, a, b: F.softsign(x),
    "softplus": lambda x, a, b: F.softplus(x),
}
_USUAL = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
_ORDER = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}  # our gates by ONNX's numbers


class Layer:
    """One direction of a recurrent node, with time first: x is [T, B, I]."""

    def __init__(
        self,
        n: NodeView,
        kind: str,
        at: int,
        w: Tensor,
        r: Tensor,
        b: Tensor | None,
        in_8_bits: bool,
    ):
        self.n, self.kind = n, kind
        self.in_8_bits = in_8_bits  # round what is multiplied with the weights to 8 bits
        self.hidden = n.attr("hidden_size") or shape_of(r)[2]
        self.w, self.r = w[at], r[at]
        self.b = None if b is None else b[at]
        count = len(_USUAL[kind])
        names = n.attr("activations")
        per = names[at * count : (at + 1) * count] if names else _USUAL[kind]
        self.names = [name.lower() for name in per]
        alpha, beta = n.attr("activation_alpha") or [], n.attr("activation_beta") or []
        self.functions = []
        for i, name in enumerate(self.names):
            if name not in _ACTIVATIONS:
                raise OnnxError(f"the activation {name!r} is not known")
            a, c = (v[at * count + i] if len(v) > at * count + i else None for v in (alpha, beta))
            self.functions.append(self._activation(name, a, c))

    @staticmethod
    def _activation(name: str, a: Any, b: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: _ACTIVATIONS[name](x, a, b)

    def is_usual(self, peephole: Tensor | None) -> bool:
        n = self.n
        if n.attr("clip") or n.attr("input_forget") or peephole is not None or self.in_8_bits:
            return False
        if self.kind == "RNN":
            return self.names in (["tanh"], ["relu"])
        if n.attr("activation_alpha") or n.attr("activation_beta"):
            return False
        if self.kind == "GRU" and not n.attr("linear_before_reset", 0):
            return False
        return self.names == _USUAL[self.kind]

    def _sorted(self, x: Tensor) -> Tensor:
        parts = [x[g * self.hidden : (g + 1) * self.hidden] for g in _ORDER[self.kind]]
        return parts[0] if len(parts) == 1 else paddle.concat(parts, 0)

    def run(
        self,
        x: Tensor,
        h: Tensor,
        c: Any,
        lengths: Tensor | None,
        reverse: bool,
        peephole: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """(y, last h, last c or None)."""
        if not self.is_usual(peephole):
            return self._steps(x, h, c, lengths, reverse, peephole)
        gates = len(_ORDER[self.kind]) * self.hidden
        w, r = self._sorted(self.w), self._sorted(self.r)
        bias_i = None if self.b is None else self._sorted(self.b[:gates])
        bias_h = None if self.b is None else self._sorted(self.b[gates:])
        if self.kind == "LSTM":
            return lstm(x, h, c, w, r, bias_i, bias_h, lengths, reverse)
        if self.kind == "GRU":
            return (*gru(x, h, w, r, bias_i, bias_h, lengths, reverse), None)
        y, h = simple_rnn(x, h, w, r, bias_i, bias_h, self.names[0], lengths, reverse)
        return y, h, None

    def _steps(self, x: Any, h: Any, c: Any, lengths: Any, reverse: bool, peephole: Any) -> Any:
        steps = shape_of(x)[0]
        if type(steps) is not int:
            raise OnnxError(f"this form of {self.kind} needs a known number of steps")
        gates = len(_ORDER[self.kind]) * self.hidden
        bias = [None, None] if self.b is None else [self.b[:gates], self.b[gates:]]
        inputs = paddle.matmul(rounded(x) if self.in_8_bits else x, self.w.transpose([1, 0]))
        inputs = inputs if bias[0] is None else inputs + bias[0]
        cell = {"RNN": self._simple, "GRU": self._gru, "LSTM": self._lstm}[self.kind]
        made: list[Any] = [None] * steps
        for t in range(steps)[:: -1 if reverse else 1]:
            new_h, new_c = cell(inputs[t], h, c, bias[1], peephole)
            if lengths is not None:
                runs = (lengths > t).unsqueeze(-1)
                made[t] = paddle.where(runs, new_h, paddle.zeros_like(new_h))
                new_h = paddle.where(runs, new_h, h)
                new_c = None if new_c is None else paddle.where(runs, new_c, c)
            else:
                made[t] = new_h
            h, c = new_h, new_c
        return paddle.stack(made, 0), h, c

    def _recurrent(self, h: Tensor, r: Tensor, bias: Any) -> Tensor:
        out = paddle.matmul(rounded(h) if self.in_8_bits else h, r.transpose([1, 0]))
        return out if bias is None else out + bias

    def _clipped(self, x: Tensor) -> Tensor:
        bound = self.n.attr("clip")
        return paddle.clip(x, -bound, bound) if bound else x

    def _simple(self, part: Tensor, h: Tensor, c: Any, bias: Any, peephole: Any) -> Any:
        return self.functions[0](self._clipped(part + self._recurrent(h, self.r, bias))), None

    def _gru(self, part: Tensor, h: Tensor, c: Any, bias: Any, peephole: Any) -> Any:
        size = self.hidden
        f, g = self.functions
        zr = None if bias is None else bias[: 2 * size]
        both = f(self._clipped(part[:, : 2 * size] + self._recurrent(h, self.r[: 2 * size], zr)))
        z, r = both[:, :size], both[:, size:]
        last = None if bias is None else bias[2 * size :]
        if self.n.attr("linear_before_reset", 0):
            inner = r * self._recurrent(h, self.r[2 * size :], last)
        else:
            inner = self._recurrent(r * h, self.r[2 * size :], last)
        new = g(self._clipped(part[:, 2 * size :] + inner))
        return (1 - z) * new + z * h, None

    def _lstm(self, part: Tensor, h: Tensor, c: Tensor, bias: Any, peephole: Any) -> Any:
        size = self.hidden
        f, g, k = self.functions
        total = part + self._recurrent(h, self.r, bias)
        i, o, forget, new = (total[:, j * size : (j + 1) * size] for j in range(4))
        if peephole is not None:
            i = i + peephole[:size] * c
            forget = forget + peephole[2 * size :] * c
        i = f(self._clipped(i))
        keep = 1 - i if self.n.attr("input_forget") else f(self._clipped(forget))
        cell = keep * c + i * g(self._clipped(new))
        if peephole is not None:
            o = o + peephole[size : 2 * size] * cell
        return f(self._clipped(o)) * k(cell), cell


def recurrent(
    n: NodeView,
    kind: str,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h0: Tensor | None = None,
    c0: Tensor | None = None,
    peephole: Tensor | None = None,
    in_8_bits: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """All directions of a recurrent node."""
    batch_first = bool(n.attr("layout", 0))
    if batch_first:
        x = x.transpose([1, 0, 2])
    directions = shape_of(w)[0]
    backwards = n.attr("direction", "forward") == "reverse"
    ys, hs, cs = [], [], []
    for at in range(directions):
        layer = Layer(n, kind, at, w, r, b, in_8_bits)
        zero = paddle.zeros([shape_of(x)[1], layer.hidden], dtype_of(x).name)
        starts = []
        for given in (h0, c0):
            if given is None:
                starts.append(zero)
            else:
                starts.append(given[:, at] if batch_first else given[at])
        own = None if peephole is None else peephole[at]
        y, h, c = layer.run(x, starts[0], starts[1], lengths, backwards or at == 1, own)
        ys.append(y)
        hs.append(h)
        cs.append(c)
    y, h = paddle.stack(ys, 1), paddle.stack(hs, 0)  # [T, D, B, H], [D, B, H]
    c = paddle.stack(cs, 0) if cs[0] is not None else None
    if batch_first:
        y, h = y.transpose([2, 0, 1, 3]), h.transpose([1, 0, 2])
        c = None if c is None else c.transpose([1, 0, 2])
    return y, h, c


@onnx_op("RNN", "GRU")
def rnn_or_gru(n: NodeView, *inputs: Any) -> Values:
    return recurrent(n, n.kind, *inputs)[:2]


@onnx_op("LSTM")
def long_short(n: NodeView, *inputs: Any) -> Values:
    return recurrent(n, "LSTM", *inputs)


@onnx_op("DynamicQuantizeLSTM", domain="com.microsoft")
def quantised_lstm(n: NodeView, x: Tensor, w: Tensor, r: Tensor, *rest: Any) -> Values:
    """ONNX Runtime's LSTM with 8-bit weights, stored as [direction, input, gates]."""
    given: list[Any] = [*rest, *[None] * 9]
    b, lengths, h0, c0, peephole, w_scale, w_zero, r_scale, r_zero = given[:9]

    def plain(q: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        shape = [shape_of(q)[0], 1, -1] if scale.ndim > 1 else [-1, 1, 1]
        made = dequantised(q, scale.reshape(shape), zero.reshape(shape))
        return made.transpose([0, 2, 1])

    return recurrent(
        n,
        "LSTM",
        x,
        plain(w, w_scale, w_zero),
        plain(r, r_scale, r_zero),
        b,
        lengths,
        h0,
        c0,
        peephole,
        True,
    )


__all__ = ["recurrent"]
