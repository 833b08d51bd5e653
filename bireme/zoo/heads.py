"""Heads of decoder models, for every family whose base is `Base(config)(ids, mask, places, cache)`.

TASKS = decoder_tasks(Decoder)
"""

from __future__ import annotations

from typing import Any, Protocol

import bireme as paddle
from bireme import nn
from bireme.core.tensor import Tensor
from bireme.nn.generation import KVCache
from bireme.zoo.blocks import last_tokens, linear
from bireme.zoo.kept import KeptEmbedding


class DecoderConfig(Protocol):
    """What heads read of a family's config."""

    @property
    def output_size(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def num_labels(self) -> int: ...
    @property
    def tied(self) -> bool: ...
    @property
    def head_bias(self) -> bool: ...
    @property
    def logits_scale(self) -> float: ...
    @property
    def logits_cap(self) -> float: ...


class Bias(nn.Layer):
    """What a tied output layer has of its own."""

    def __init__(self, size: int):
        super().__init__()
        self.bias = self.create_parameter([size], is_bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


def output_scores(x: Tensor, words: nn.Layer) -> Tensor:
    """x by every vector of an embedding, to which an output layer is tied."""
    if isinstance(words, KeptEmbedding):
        return words.scores(x)
    return paddle.matmul(x, words.weight, transpose_y=True)


class CausalLM(nn.Layer):
    """Scores of the next token: [batch, tokens, vocabulary]; with a cache of the last one only."""

    base: Any

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.model = type(self).base(config)
        self._tied, self._config = config.tied, config
        if not config.tied:
            self.lm_head = linear(config.output_size, config.vocab_size, config.head_bias)
        elif config.head_bias:
            self.lm_head = Bias(config.vocab_size)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        h = self.model(input_ids, attention_mask, position_ids, cache)
        if cache is not None:
            h = cache.last(h)
        if self._tied:
            logits = output_scores(h, self.model.embed_tokens)
            logits = self.lm_head(logits) if self._config.head_bias else logits
        else:
            logits = self.lm_head(h)
        return self._scaled(logits)

    def _scaled(self, logits: Tensor) -> Tensor:
        config = self._config
        if config.logits_scale != 1.0:
            logits = logits * config.logits_scale
        if config.logits_cap:
            logits = paddle.tanh(logits / config.logits_cap) * config.logits_cap
        return logits


class SequenceClassifier(nn.Layer):
    """Scores of the classes [batch, classes], from the last token."""

    base: Any

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.model = type(self).base(config)
        self.score = linear(config.output_size, config.num_labels, False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        h = self.model(input_ids, attention_mask)
        return self.score(last_tokens(h, attention_mask))


class TokenClassifier(nn.Layer):
    """Scores of the classes of every token [batch, tokens, classes]."""

    base: Any

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.model = type(self).base(config)
        self.score = linear(config.output_size, config.num_labels, True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.score(self.model(input_ids, attention_mask))


class QuestionAnswering(nn.Layer):
    """Scores of every token as the answer's first and as its last: two of [batch, tokens]."""

    base: Any

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.model = type(self).base(config)
        self.qa_outputs = linear(config.output_size, 2, True)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        start, end = paddle.unbind(self.qa_outputs(self.model(input_ids, attention_mask)), -1)
        return start, end


_HEADS = {
    "causal_lm": CausalLM,
    "classifier": SequenceClassifier,
    "token_classifier": TokenClassifier,
    "question_answering": QuestionAnswering,
}


def decoder_tasks(base: type[nn.Layer]) -> dict[str, type[nn.Layer]]:
    """The classes by task of a family with this base."""
    made = {
        task: type(head.__name__, (head,), {"base": base, "__module__": base.__module__})
        for task, head in _HEADS.items()
    }
    return {"base": base, **made}
