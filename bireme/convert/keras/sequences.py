"""Keras' layers over sequences: recurrent ones and attention."""

from __future__ import annotations

from collections.abc import Sequence

import bireme as paddle
from bireme.convert.errors import ModelFileError, UnsupportedModel
from bireme.convert.imported import View
from bireme.convert.keras.layers import Weights, layer
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops.rnn import gru, lstm, simple_rnn

Config = dict[str, object]
KINDS = ("LSTM", "GRU", "SimpleRNN")
_USUAL = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def _check(config: Config, xs: Sequence[Tensor]) -> None:
    for setting in ("return_state", "stateful", "time_major"):
        if config.get(setting):
            raise UnsupportedModel(f"{setting} has no rule")
    if len(xs) != 1:
        raise UnsupportedModel("a first state that is given has no rule")


def _recurrent(kind: str, config: Config, x: Tensor, w: Weights, prefix: str = "") -> Tensor:
    """[batch, time, units], or the last step's [batch, units]; what runs backwards gives its
    steps in the order in which it takes them."""
    for setting, usual in _USUAL.items():
        given = config.get(setting, usual)
        if given != usual and not (kind == "SimpleRNN" and setting == "recurrent_activation"):
            if kind == "SimpleRNN" and given == "relu":
                continue
            raise UnsupportedModel(f"the {setting} {given!r:.60} of {kind} has no rule")
    kernel, inner = w[prefix + "kernel"], w[prefix + "recurrent_kernel"]
    bias = w.get(prefix + "bias")
    units, back = inner.shape[0], bool(config.get("go_backwards"))
    rows = paddle.transpose(x, [1, 0, 2])
    zero = paddle.zeros([x.shape[0], units], x.dtype)
    if kind == "LSTM":
        y, last, _ = lstm(rows, zero, zero, kernel.t(), inner.t(), bias, None, None, back)
    elif kind == "GRU":
        if not config.get("reset_after", True):
            raise UnsupportedModel("a GRU with reset_after=False has no rule")
        given = None if bias is None else _gates(bias[0])
        kept = None if bias is None else _gates(bias[1])
        y, last = gru(rows, zero, _gates(kernel).t(), _gates(inner).t(), given, kept, None, back)
    else:
        name = str(config.get("activation", "tanh"))
        y, last = simple_rnn(rows, zero, kernel.t(), inner.t(), bias, None, name, None, back)
    if not config.get("return_sequences"):
        return last
    return paddle.transpose(paddle.flip(y, [0]) if back else y, [1, 0, 2])


def _gates(x: Tensor) -> Tensor:
    """Keras' order is update, reset, candidate; ours reset, update, candidate."""
    update, reset, candidate = paddle.split(x, 3, -1)
    return paddle.concat([reset, update, candidate], -1)


@layer(*KINDS, activates=False)
def recurrent(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    _check(dict(n.node.attrs), xs)
    return _recurrent(n.node.op, dict(n.node.attrs), xs[0], w)


@layer("Bidirectional", activates=False)
def bidirectional(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    made = []
    forward = n.attr("layer")
    for side, given in (("forward", forward), ("backward", n.attr("backward_layer") or forward)):
        kind, config = str(given["class_name"]), dict(given["config"])
        if kind not in KINDS:
            raise UnsupportedModel(f"{kind!r:.60} in both directions has no rule")
        _check(config, xs)
        if side == "backward" and not n.attr("backward_layer"):
            config["go_backwards"] = not config.get("go_backwards")
        y = _recurrent(kind, config, xs[0], w, f"{side}_")
        if side == "backward" and config.get("return_sequences"):
            y = paddle.flip(y, [1])
        made.append(y)
    first, second = made
    mode = n.attr("merge_mode", "concat")
    if mode == "concat":
        return paddle.concat(made, -1)
    if mode == "sum":
        return first + second
    if mode == "mul":
        return first * second
    if mode == "ave":
        return (first + second) / 2
    raise UnsupportedModel(f"the merge_mode {mode!r:.40} has no rule")


# --- attention ------------------------------------------------------------------------------


def _three(n: View, xs: Sequence[Tensor], first: tuple[str, ...]) -> list[Tensor]:
    """Query, value and key, which is the value if nobody gives it."""
    names = [*first[: len(xs) - len(n.attr("named") or [])], *(n.attr("named") or [])]
    if len(names) != len(xs) or len(set(names)) != len(names) or not set(names) <= set(first):
        raise UnsupportedModel(f"attention to {names!r:.100} has no rule")
    given = dict(zip(names, xs, strict=True))
    if "query" not in given or "value" not in given:
        raise ModelFileError("attention needs a query and a value")
    return [given["query"], given["value"], given.get("key", given["value"])]


_ORDER = ("query", "value", "key")


@layer("MultiHeadAttention", named=True)
def multi_head_attention(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    query, value, key = _three(n, xs, _ORDER)
    if n.attr("attention_axes") not in (None, [1], 1) or query.ndim != 3:
        raise UnsupportedModel("attention over other axes than time has no rule")
    if n.attr("use_gate"):
        raise UnsupportedModel("attention with gates has no rule")

    def heads(x: Tensor, name: str) -> Tensor:
        made = paddle.einsum("btd,dhk->bhtk", x, w[f"{name}_kernel"])
        bias = w.get(f"{name}_bias")
        return made if bias is None else made + bias.unsqueeze(1)

    scale = 1.0 / float(n.attr("key_dim")) ** 0.5
    scores = paddle.matmul(heads(query, "query") * scale, heads(key, "key"), transpose_y=True)
    mixed = paddle.matmul(F.softmax(scores, -1), heads(value, "value"))
    made = paddle.einsum("bhtk,hko->bto", mixed, w["output_kernel"])
    return made + w["output_bias"] if "output_bias" in w else made


def _attended(scores: Tensor, value: Tensor) -> Tensor:
    return paddle.matmul(F.softmax(scores, -1), value)


@layer("Attention")
def attention(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    query, value, key = _three(n, xs, _ORDER)
    if n.attr("score_mode", "dot") == "concat":
        wide = query.unsqueeze(2) + key.unsqueeze(1)
        wide = wide * w["scale"] if "scale" in w else wide
        return _attended(w["concat_score_weight"] * paddle.sum(paddle.tanh(wide), -1), value)
    scores = paddle.matmul(query, key, transpose_y=True)
    return _attended(scores * w["scale"] if "scale" in w else scores, value)


@layer("AdditiveAttention")
def additive_attention(n: View, xs: Sequence[Tensor], w: Weights) -> Tensor:
    query, value, key = _three(n, xs, _ORDER)
    made = paddle.tanh(query.unsqueeze(2) + key.unsqueeze(1))
    return _attended(paddle.sum(made * w["scale"] if "scale" in w else made, -1), value)
