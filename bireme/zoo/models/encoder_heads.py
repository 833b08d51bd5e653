"""Tasks on top of an encoder: one small layer each, whatever the encoder is.

An encoder is a layer `model(input_ids, attention_mask, token_type_ids)` that returns hidden states
[batch, tokens, width]; `model.embedding` is its table of words, `model.pooled` its pooler.
"""

from __future__ import annotations

from collections.abc import Callable

from bireme import nn
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.zoo.blocks import linear

Activation = Callable[[Tensor], Tensor]


class MaskedHead(nn.Layer):
    """Scores of all words for every token: a product, an activation, a norm, and the embeddings
    that the model shares with its output layer."""

    def __init__(
        self,
        width: int,
        inner: int,
        words: int,
        act: Activation,
        norm: Callable[[], nn.Layer],
        *,
        bias: bool = True,
        words_bias: bool = True,
        tied: bool = True,
    ) -> None:
        super().__init__()
        self.dense = linear(width, inner, bias)
        self.act = act
        self.norm = norm()
        self.words = None if tied else nn.Embedding(words, inner)
        self.bias = self.create_parameter([words], is_bias=True) if words_bias else None

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        weight = embedding if self.words is None else self.words.weight
        return F.linear(self.norm(self.act(self.dense(hidden))), weight.t(), self.bias)


class ClassHead(nn.Layer):
    """Scores of classes for a vector; with `act`, a product and this activation come first, with
    `norm` a norm after them."""

    def __init__(
        self,
        width: int,
        classes: int,
        *,
        act: Activation | None = None,
        norm: Callable[[], nn.Layer] | None = None,
        dense_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.act = act
        self.dense = linear(width, width, dense_bias) if act is not None else None
        self.norm = None if norm is None else norm()
        self.out = linear(width, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.dense is not None and self.act is not None:
            x = self.act(self.dense(x))
            if self.norm is not None:
                x = self.norm(x)
        return self.out(self.dropout(x))


class MaskedLM(nn.Layer):
    """An encoder that says which words stood at masked places: scores [batch, tokens, words]."""

    def __init__(self, model: nn.Layer, head: MaskedHead) -> None:
        super().__init__()
        self.model = model
        self.lm_head = head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        hidden = self.model(input_ids, attention_mask, token_type_ids)
        return self.lm_head(hidden, self.model.embedding)


class SequenceClassifier(nn.Layer):
    """An encoder that sorts texts into classes: scores [batch, classes].

    `pool` says what stands for a text: "pooler" (the encoder's own), "first" (its first token) or
    "mean" (of all that are no padding).
    """

    def __init__(self, model: nn.Layer, head: ClassHead, pool: str) -> None:
        super().__init__()
        self.model = model
        self.classifier = head
        self.pool = pool

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        hidden = self.model(input_ids, attention_mask, token_type_ids)
        if self.pool == "pooler":
            return self.classifier(self.model.pooled(hidden))
        first = self.pool == "first"
        return self.classifier(hidden[:, 0] if first else mean_of(hidden, attention_mask))


class TokenClassifier(nn.Layer):
    """An encoder that sorts every token into classes: scores [batch, tokens, classes]."""

    def __init__(self, model: nn.Layer, head: ClassHead) -> None:
        super().__init__()
        self.model = model
        self.token_classifier = head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        return self.token_classifier(self.model(input_ids, attention_mask, token_type_ids))


class QuestionAnswerer(nn.Layer):
    """An encoder that finds an answer in a text: (scores of its start, of its end), both
    [batch, tokens]."""

    def __init__(self, model: nn.Layer, head: ClassHead) -> None:
        super().__init__()
        self.model = model
        self.qa_outputs = head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        scores = self.qa_outputs(self.model(input_ids, attention_mask, token_type_ids))
        return scores[:, :, 0], scores[:, :, 1]


def mean_of(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The mean of the tokens [batch, tokens, width] that are no padding: [batch, width]."""
    if attention_mask is None:
        return hidden.mean(1)
    weights = attention_mask.astype(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(1) / weights.sum(1).clip(1e-9)
