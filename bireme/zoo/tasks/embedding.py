"""Embeddings of texts, and what follows from them: similarity and ranking."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.zoo.files.folder import mapped_safetensors
from bireme.zoo.models.encoder_heads import mean_of
from bireme.zoo.tasks.running import Compiled, run_rows
from bireme.zoo.tasks.texts import TextModel, listed, read_json_of

Pair = tuple[str, str] | Sequence[str]

_POOLINGS = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_lasttoken": "last",
}
_SHORT = {"cls": "first", "lasttoken": "last", "mean_sqrt_len_tokens": "mean_sqrt_len"}
_ACTIVATIONS = {"Tanh": F.tanh, "Identity": lambda x: x, "GELU": F.gelu, "ReLU": F.relu}


def pooled(hidden: Tensor, mask: Tensor, how: str) -> Tensor:
    """One vector per text of hidden states [batch, tokens, width]."""
    if how == "first":
        return hidden[:, 0]
    if how == "mean":
        return mean_of(hidden, mask)
    real = mask.astype(hidden.dtype).unsqueeze(-1)
    if how == "max":
        low = paddle.full([1], float("-inf"), hidden.dtype)
        return paddle.where(real > 0, hidden, low).max(1)
    if how == "mean_sqrt_len":
        return (hidden * real).sum(1) / real.sum(1).sqrt()
    at = (mask.astype("int64").sum(1) - 1).reshape([-1, 1, 1])
    at = at.expand([hidden.shape[0], 1, hidden.shape[2]])
    return paddle.take_along_axis(hidden, at, 1).squeeze(1)


class Embedding:
    """Texts as vectors: `embed(texts)` gives float32 [texts, width].

    A folder of sentence-transformers says in modules.json how tokens become one vector and
    whether it has length 1; other folders give the mean of the tokens.
    """

    def __init__(self, model: str | os.PathLike[str], *, max_length: int | None = None):
        self.text = TextModel(model, "base", max_length)
        self.poolings = ["mean"]
        self.normalize = False
        self.dense: list[tuple[nn.Linear, Any]] = []
        self._read_modules(self.text.source.path)
        self._run = Compiled(self.text.model, self._vectors)

    def _read_modules(self, folder: str) -> None:
        for module in read_json_of(folder, "modules.json") or []:
            kind = str(module.get("type", "")).rpartition(".")[2]
            path = os.path.normpath(os.path.join(folder, str(module.get("path", ""))))
            if os.path.commonpath([os.path.abspath(folder), os.path.abspath(path)]) != (
                os.path.abspath(folder)
            ):
                raise FileFormatError(f"[task] modules.json of {folder!r} points outside of it")
            if kind == "Pooling":
                self.poolings = _poolings(read_json_of(path, "config.json") or {}, path)
            elif kind == "Normalize":
                self.normalize = True
            elif kind == "Dense":
                self.dense.append(_dense(path))
            elif kind != "Transformer":
                raise FileFormatError(
                    f"[task] {folder!r} has a module {kind!r} that is not known. Known: "
                    "Transformer, Pooling, Dense, Normalize"
                )

    def _vectors(self, *arguments: Tensor) -> Tensor:
        hidden, mask = self.text.call(self.text.model, arguments), arguments[-1]
        x = paddle.concat([pooled(hidden, mask, how) for how in self.poolings], -1)
        for layer, act in self.dense:
            x = act(layer(x))
        return F.normalize(x, axis=-1) if self.normalize else x

    def __call__(self, texts: str | Sequence[str]) -> np.ndarray:
        """The vectors of texts [texts, width], or of one text [width]."""
        given, single = listed(texts, "embedding")
        if not given:
            raise InvalidArgument("[task] embedding needs at least one text")
        columns, fill = self.text.columns(self.text.encoded(given))
        rows = run_rows(self._run, columns, fill, self.text.longest)
        found = np.stack([r[0] for r in rows])
        return found[0] if single else found

    def counts(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text are read, special ones included."""
        return [len(e.ids) for e in self.text.encoded(texts)]

    def similarity(self, texts: str | Sequence[str], others: str | Sequence[str]) -> np.ndarray:
        """The cosines of texts' vectors and others' [texts, others]."""
        a, b = (np.atleast_2d(self(t)) for t in (texts, others))
        a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
        return a @ b.T


def _poolings(config: dict[str, Any], path: str) -> list[str]:
    short = config.get("pooling_mode")
    if isinstance(short, str):
        found = [_SHORT.get(short, short)]
    else:
        found = [how for key, how in _POOLINGS.items() if config.get(key)]
    unknown = [k for k in config if k.startswith("pooling_mode_") and config[k]]
    unknown = [k for k in unknown if k not in _POOLINGS]
    if unknown or not found or set(found) - set(_POOLINGS.values()):
        raise FileFormatError(f"[task] {path!r} pools in a way that is not known: {config}")
    return found


def _dense(path: str) -> tuple[nn.Linear, Any]:
    config = read_json_of(path, "config.json") or {}
    act = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    act = act.rpartition(".")[2]
    if act not in _ACTIVATIONS:
        raise FileFormatError(f"[task] {path!r} has the activation {act!r}, which is not known")
    tensors = mapped_safetensors(os.path.join(path, "model.safetensors"))
    weight = tensors["linear.weight"].read().T
    bias = tensors["linear.bias"].read() if "linear.bias" in tensors else None
    layer = nn.Linear(*weight.shape, bias_attr=None if bias is not None else False)
    layer.weight.set_value(np.ascontiguousarray(weight, np.float32))
    if bias is not None:
        layer.bias.set_value(np.ascontiguousarray(bias, np.float32))
    return layer, _ACTIVATIONS[act]


class Similarity(Embedding):
    """How alike texts are: `similar(pairs)` gives the cosine of each pair's vectors."""

    def __call__(self, pairs: Pair | Sequence[Pair]) -> float | list[float]:  # pyright: ignore[reportIncompatibleMethodOverride]
        single = len(pairs) == 2 and all(isinstance(t, str) for t in pairs)
        given: list[Any] = [pairs] if single else list(pairs)
        vectors = super().__call__([t for pair in given for t in pair])
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        found = (vectors[::2] * vectors[1::2]).sum(1).tolist()
        return found[0] if single else found


class Rerank:
    """Texts in the order in which they fit a question: `rank(question, texts)` gives
    [{"index", "text", "score"}], the best first.

    The model is one that reads question and text together, with one score.
    """

    def __init__(self, model: str | os.PathLike[str], *, max_length: int | None = None):
        self.text = TextModel(model, "classifier", max_length)
        if self.text.config.num_labels != 1:
            raise InvalidArgument(
                "[task] rerank needs a model with one score. This one has "
                f"{self.text.config.num_labels} classes; task('embedding', ...).similarity ranks "
                "by vectors"
            )
        text = self.text
        self._run = Compiled(text.model, lambda *a: text.call(text.model, a))

    def __call__(self, question: str, texts: Sequence[str]) -> list[dict[str, Any]]:
        given, _ = listed(texts, "rerank")
        columns, fill = self.text.columns(self.text.encoded([(question, t) for t in given]))
        rows = run_rows(self._run, columns, fill, self.text.longest)
        scores = [float(r[0][0]) for r in rows]
        order = sorted(range(len(given)), key=lambda i: -scores[i])
        return [{"index": i, "text": given[i], "score": scores[i]} for i in order]
