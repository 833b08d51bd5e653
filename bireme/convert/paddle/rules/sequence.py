"""Ops on sequences (LoD): rows of several sequences lie one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import bireme
from bireme.convert.paddle.interpreter import Step, dims_of, rule
from bireme.convert.paddle.program import UnsupportedModel
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops import ragged

if TYPE_CHECKING:
    from bireme.convert.paddle.interpreter import Results


def _no_first_state(step: Step, *slots: str) -> None:
    if any(step.raw(s) is not None for s in slots):
        raise UnsupportedModel("a recurrence over sequences that starts from a given state")


@rule("gru", out="Hidden")
def gru(step: Step) -> Results:
    _no_first_state(step, "H0")
    return ragged.ragged_gru(
        step.need("Input"),
        step.need("Weight"),
        step("Bias"),
        step.lod("Input"),
        step.attr("is_reverse", False),
        step.attr("gate_activation", "sigmoid"),
        step.attr("activation", "tanh"),
        step.attr("origin_mode", False),
    )


@rule("lstm")
def lstm(step: Step) -> Results:
    _no_first_state(step, "H0", "C0")
    names = (
        ("gate_activation", "sigmoid"),
        ("cell_activation", "tanh"),
        ("candidate_activation", "tanh"),
    )
    hidden, cell = ragged.ragged_lstm(
        step.need("Input"),
        step.need("Weight"),
        step("Bias"),
        step.lod("Input"),
        step.attr("is_reverse", False),
        *[step.attr(n, d) for n, d in names],
        step.attr("use_peepholes", True),
    )
    return {"Hidden": hidden, "Cell": cell}


@rule("crf_decoding", out="ViterbiPath")
def crf_decoding(step: Step) -> Results:
    if step.raw("Length") is not None:
        raise UnsupportedModel("crf_decoding over a padded batch")
    path = ragged.ragged_viterbi(
        step.need("Emission"), step.need("Transition"), step.lod("Emission")
    )
    path = bireme.unsqueeze(path, -1)
    label = step("Label")
    return path if label is None else bireme.cast(path == label, "int64")


def _rows(step: Step, slot: str) -> tuple[Tensor, Tensor, Tensor]:
    return ragged.ragged_rows(step.lod(slot), dims_of(step.raw(slot))[0])


def _column(x: Tensor, like: Tensor) -> Tensor:
    """A number per sequence or row, ready to meet rows of `like`."""
    return bireme.reshape(bireme.cast(x, like.dtype), [-1] + [1] * (like.ndim - 1))


@rule("sequence_pool")
def sequence_pool(step: Step) -> Results:
    x, offsets = step.need("X"), step.lod("X")
    kind = step.attr("pooltype", "AVERAGE").upper()
    starts, ends = offsets[:-1], offsets[1:]
    if kind == "FIRST":
        made = bireme.gather(x, starts)
    elif kind == "LAST":
        made = bireme.gather(x, ends - 1)
    elif kind == "MAX":
        made = ragged.ragged_max(x, offsets)
    elif kind in ("SUM", "AVERAGE", "SQRT"):
        made = ragged.ragged_sum(x, offsets)
        if kind != "SUM":
            length = bireme.clip(_column(ends - starts, x), 1.0)
            made = made / (bireme.sqrt(length) if kind == "SQRT" else length)
    else:
        raise UnsupportedModel(f"sequence_pool of kind {kind!r:.40}")
    empty = step.attr("pad_value", 0.0)
    return bireme.where(_column(ends > starts, x) > 0, made, bireme.full_like(made, empty))


@rule("sequence_softmax")
def sequence_softmax(step: Step) -> Results:
    x, offsets = step.need("X"), step.lod("X")
    ids = _rows(step, "X")[0]
    power = bireme.exp(x - bireme.gather(ragged.ragged_max(x, offsets), ids))
    return power / bireme.gather(ragged.ragged_sum(power, offsets), ids)


@rule("sequence_reverse", out="Y")
def sequence_reverse(step: Step) -> Results:
    _, starts, ends = _rows(step, "X")
    x = step.need("X")
    at = bireme.arange(0, dims_of(x)[0], dtype="int64")
    return bireme.gather(x, starts + ends - 1 - at)


@rule("sequence_conv")
def sequence_conv(step: Step) -> Results:
    x, kernel = step.need("X"), step.need("Filter")
    if step.attr("contextStride", 1) != 1 or step.raw("PaddingData") is not None:
        raise UnsupportedModel("sequence_conv with a stride or trained padding")
    _, starts, ends = _rows(step, "X")
    first, length = step.attr("contextStart", 0), step.attr("contextLength", 1)
    rows = dims_of(x)[0]
    at = bireme.arange(0, rows, dtype="int64")
    parts = []
    for shift in range(first, first + length):
        place = at + shift
        inside = _column((place >= starts) & (place < ends), x)
        parts.append(bireme.gather(x, bireme.clip(place, starts, ends - 1)) * inside)
    return bireme.matmul(bireme.concat(parts, 1), kernel)


@rule("sequence_expand", "sequence_expand_as")
def sequence_expand(step: Step) -> Results:
    x_names = step.op.inputs.get("X", [])
    if step.op.type == "sequence_expand" and any(n in step.scope.lod for n in x_names):
        raise UnsupportedModel("sequence_expand of an input that has sequences itself")
    ids = _rows(step, "Y")[0]
    for name in step.op.outputs.get("Out", []):
        step.scope.lod[name] = step.scope.lod[step.op.inputs["Y"][0]]
    return bireme.gather(step.need("X"), ids)


@rule("lod_reset")
def lod_reset(step: Step) -> Results:
    names = step.op.inputs.get("Y", [])
    if not names or names[0] not in step.scope.lod:
        raise UnsupportedModel("lod_reset to lengths that are not another input's")
    for name in step.op.outputs.get("Out", []):
        step.scope.lod[name] = step.scope.lod[names[0]]
    return step.need("X")


@rule("sequence_mask", out="Y")
def sequence_mask(step: Step) -> Results:
    longest = step.axis("maxlen", "MaxLenTensor", default=-1)
    dtype = step.dtype("out_dtype", "int64")
    return F.sequence_mask(step.need("X"), None if longest < 0 else longest, dtype)
