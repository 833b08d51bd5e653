"""DeBERTa v2 and v3: scores of attention from contents and from distances, each on its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.core.tensor import Tensor
from bireme.zoo.blocks import activation, linear
from bireme.zoo.config import Keys, ModelConfig
from bireme.zoo.models.encoder_heads import (
    ClassHead,
    MaskedHead,
    MaskedLM,
    QuestionAnswerer,
    SequenceClassifier,
    TokenClassifier,
)
from bireme.zoo.models.transformer import Attention, Block, Feed, added, keep_mask
from bireme.zoo.names import Names


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """A DeBERTa of the second or third version."""

    words: int
    width: int
    layers: int
    heads: int
    inner: int
    act: str
    epsilon: float
    positions: int  # learnt ones; 0: none
    types: int
    embedding: int
    relative: bool
    kinds: tuple[str, ...]  # of "c2p" and "p2c": contents to distances, distances to contents
    buckets: int  # of distances on each side; 0: each has its own
    longest: int
    normed: bool  # whether the table of distances is normed
    shared: bool  # whether distances use the products of contents
    kernel: int  # of the convolution after the first layer; 0: none
    conv_act: str
    conv_groups: int
    pooler_act: str
    legacy: bool
    dropout: float
    attention_dropout: float

    @property
    def span(self) -> int:
        """How many distances there are on each side."""
        return self.buckets or self.longest

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in the dictionary of a config.json."""
        keys = Keys(raw)
        width, heads = keys.number("hidden_size", 1536), keys.number("num_attention_heads", 24)
        if not heads or width % heads:
            raise keys.bad("num_attention_heads", heads, f"a divisor of {width}")
        keys.only("attention_head_size", width // heads, None)
        keys.only("pooler_hidden_size", width)
        keys.only("tie_word_embeddings", True)
        limit = keys.number("max_position_embeddings", 512)
        kinds = keys.take("pos_att_type", None) or []
        kinds = kinds.lower().split("|") if isinstance(kinds, str) else kinds
        kinds = tuple(str(k).strip() for k in kinds)
        if set(kinds) - {"c2p", "p2c"}:
            raise keys.bad("pos_att_type", kinds, "made of 'c2p' and 'p2c'")
        longest, buckets = (
            keys.take(name, -1) for name in ("max_relative_positions", "position_buckets")
        )
        normed = str(keys.take("norm_rel_ebd", "none") or "none")
        config = cls(
            model_type=keys.model_type,
            raw=raw,
            words=keys.number("vocab_size"),
            width=width,
            layers=keys.number("num_hidden_layers", 24),
            heads=heads,
            inner=keys.number("intermediate_size", 4 * width),
            act=str(keys.take("hidden_act", "gelu")),
            epsilon=keys.real("layer_norm_eps", 1e-7),
            positions=limit if keys.flag("position_biased_input", True) else 0,
            types=keys.number("type_vocab_size", 0),
            embedding=keys.number("embedding_size", width),
            relative=keys.flag("relative_attention", False),
            kinds=kinds,
            buckets=max(int(buckets), 0),
            longest=int(longest) if int(longest) > 0 else limit,
            normed="layer_norm" in [n.strip() for n in normed.lower().split("|")],
            shared=keys.flag("share_att_key", False),
            kernel=keys.number("conv_kernel_size", 0),
            conv_act=str(keys.take("conv_act", "tanh")),
            conv_groups=keys.number("conv_groups", 1),
            pooler_act=str(keys.take("pooler_hidden_act", "gelu")),
            legacy=keys.flag("legacy", True),
            dropout=keys.real("hidden_dropout_prob", 0.1),
            attention_dropout=keys.real("attention_probs_dropout_prob", 0.1),
        )
        keys.ignore("cls_dropout")
        keys.done()
        return config


def distances(tokens: int, buckets: int, longest: int) -> np.ndarray:
    """Query's place less key's [tokens, tokens]; beyond half of the buckets in logarithmic ones."""
    places = np.arange(tokens)
    found = places[:, None] - places[None, :]
    if buckets <= 0:
        return found
    middle = buckets // 2
    near = (found < middle) & (found > -middle)
    size = np.where(near, middle - 1, np.abs(found)).astype(np.float32)
    # In float32, as where the models come from: the limits of buckets depend on it.
    spread = np.log(np.float32((longest - 1) / middle))
    far = np.ceil(np.log(size / np.float32(middle)) / spread * np.float32(middle - 1)) + middle
    return np.where(size <= middle, found, far * np.sign(found)).astype(np.int64)


class DistanceAttention(Attention):
    """Attention with scores from distances too; `settings` are those of `Attention`."""

    def __init__(self, config: Config) -> None:
        c = config
        parts = 1 + len(set(c.kinds))
        super().__init__(
            c.width,
            c.heads,
            scale=1 / math.sqrt(c.width // c.heads * parts),
            dropout=c.attention_dropout,
        )
        own = c.relative and not c.shared
        self.kinds, self.relative = c.kinds, c.relative
        self.place_k = linear(c.width, c.width) if own and "c2p" in c.kinds else None
        self.place_q = linear(c.width, c.width) if own and "p2c" in c.kinds else None

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Tensor, mask: Any = None, *, causal: bool = False, cache: Any = None
    ) -> Tensor:
        """`mask` is (the mask of keys, the table of distances, the distances' rows in it)."""
        keep, table, rows = mask
        query, key, value = self._heads(self.q(x)), self._heads(self.k(x)), self._heads(self.v(x))
        scores = added(keep, self._distant(query, key, table, rows)) if self.relative else keep
        found = self.mix(query, key, value, scores, causal)
        return self.o(found.reshape([x.shape[0], x.shape[1], -1]))

    def _distant(self, query: Tensor, key: Tensor, table: Tensor, rows: Tensor) -> Tensor:
        """Scores [batch, heads, queries, keys] of distances; `rows` [queries, keys]."""
        batch, tokens = query.shape[:2]
        wanted = [batch, self.heads, tokens, tokens]
        total: Any = 0.0
        if "c2p" in self.kinds:
            places = self._table(self.place_k or self.k, table)
            scores = paddle.matmul(query.transpose([0, 2, 1, 3]), places)
            total = paddle.take_along_axis(scores, rows.expand(wanted), 3) * self.scale
        if "p2c" in self.kinds:
            places = self._table(self.place_q or self.q, table)
            scores = paddle.matmul(key.transpose([0, 2, 1, 3]), places)
            # Of a key, the distance to a query: the same rows with queries and keys exchanged.
            found = paddle.take_along_axis(scores, rows.t().expand(wanted), 3)
            total = total + found.transpose([0, 1, 3, 2]) * self.scale
        return total

    def _table(self, product: Any, table: Tensor) -> Tensor:
        return product(table).reshape([-1, self.heads, self.size]).transpose([1, 2, 0])


class Conv(nn.Layer):
    """The convolution over the embeddings that is added to the first layer's result."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.conv = nn.Conv1D(
            c.width, c.width, c.kernel, padding=(c.kernel - 1) // 2, groups=c.conv_groups
        )
        self.norm = nn.LayerNorm(c.width, epsilon=c.epsilon)
        self.act = activation(c.conv_act)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x: Tensor, first: Tensor, real: Tensor | None) -> Tensor:
        found = self.conv(x.transpose([0, 2, 1])).transpose([0, 2, 1])
        found = found if real is None else found * real
        out = self.norm(first + self.act(self.dropout(found)))
        return out if real is None else out * real


class Model(nn.Layer):
    """Hidden states [batch, tokens, width] of tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.span, self.buckets, self.longest = c.span, c.buckets, c.longest
        self.words = nn.Embedding(c.words, c.embedding)
        self.positions = nn.Embedding(c.positions, c.embedding) if c.positions else None
        self.types = nn.Embedding(c.types, c.embedding) if c.types else None
        other = c.embedding != c.width
        self.project = linear(c.embedding, c.width, False) if other else None
        self.norm = nn.LayerNorm(c.width, epsilon=c.epsilon)
        self.dropout = nn.Dropout(c.dropout)
        self.places = nn.Embedding(2 * c.span, c.width) if c.relative else None
        normed = c.relative and c.normed
        self.places_norm = nn.LayerNorm(c.width, epsilon=c.epsilon) if normed else None
        self.layers = nn.LayerList([_block(c) for _ in range(c.layers)])
        self.conv = Conv(c) if c.kernel else None
        self.context = None

    @property
    def embedding(self) -> Tensor:
        """The table of words."""
        return self.words.weight

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        tokens = input_ids.shape[1]
        x = self.words(input_ids)
        if self.positions is not None:
            x = x + self.positions.weight[:tokens]
        if self.types is not None:
            kinds = self.types.weight[0] if token_type_ids is None else self.types(token_type_ids)
            x = x + kinds
        x = x if self.project is None else self.project(x)
        x = self.norm(x)
        real = None
        if attention_mask is not None:
            real = attention_mask.astype(x.dtype).unsqueeze(-1)
            x = x * real
        x = start = self.dropout(x)
        mask = (keep_mask(attention_mask), *self._placed(tokens))
        for i, block in enumerate(self.layers):
            x = block(x, mask)
            if i == 0 and self.conv is not None:
                x = self.conv(start, x, real)
        return x

    def _placed(self, tokens: int) -> tuple[Any, Any]:
        if self.places is None:
            return None, None
        table: Any = self.places.weight
        table = table if self.places_norm is None else self.places_norm(table)
        rows = distances(tokens, self.buckets, self.longest) + self.span
        rows = np.clip(rows, 0, 2 * self.span - 1)
        return self.dropout(table), paddle.to_tensor(rows)


def _block(config: Config) -> Block:
    return Block(
        DistanceAttention(config),
        Feed(config.width, config.inner, activation(config.act)),
        lambda: nn.LayerNorm(config.width, epsilon=config.epsilon),
        before=False,
        dropout=config.dropout,
    )


def _masked(config: Config) -> MaskedLM:
    c = config
    inner = c.embedding if c.legacy else c.width
    head = MaskedHead(
        c.width, inner, c.words, activation(c.act), lambda: nn.LayerNorm(inner, epsilon=c.epsilon)
    )
    return MaskedLM(Model(c), head)


def _classifier(config: Config) -> SequenceClassifier:
    act = activation(config.pooler_act)
    head = ClassHead(config.width, config.num_labels, act=act, dropout=config.dropout)
    return SequenceClassifier(Model(config), head, "first")


def _tokens(config: Config) -> TokenClassifier:
    head = ClassHead(config.width, config.num_labels, dropout=config.dropout)
    return TokenClassifier(Model(config), head)


def _answers(config: Config) -> QuestionAnswerer:
    return QuestionAnswerer(Model(config), ClassHead(config.width, 2))


TASKS = {
    "base": Model,
    "masked_lm": _masked,
    "classifier": _classifier,
    "token_classifier": _tokens,
    "question_answering": _answers,
}


def names(config: Config, task: str) -> Names:
    """The names of a type's tensors."""
    layer = "encoder.layer.*"
    if config.legacy:
        masked = {
            "lm_head.dense": "cls.predictions.transform.dense",
            "lm_head.norm": "cls.predictions.transform.LayerNorm",
            "lm_head.bias": "cls.predictions.bias",
        }
    else:
        masked = {
            "lm_head.dense": "lm_predictions.lm_head.dense",
            "lm_head.norm": "lm_predictions.lm_head.LayerNorm",
            "lm_head.bias": "lm_predictions.lm_head.bias",
        }
    return Names(
        base="deberta",
        layers={
            "words": "embeddings.word_embeddings",
            "positions": "embeddings.position_embeddings",
            "types": "embeddings.token_type_embeddings",
            "project": "embeddings.embed_proj",
            "norm": "embeddings.LayerNorm",
            "places": "encoder.rel_embeddings",
            "places_norm": "encoder.LayerNorm",
            "conv.norm": "encoder.conv.LayerNorm",
            "conv": "encoder.conv",
            "layers.*.attention.q": f"{layer}.attention.self.query_proj",
            "layers.*.attention.k": f"{layer}.attention.self.key_proj",
            "layers.*.attention.v": f"{layer}.attention.self.value_proj",
            "layers.*.attention.place_k": f"{layer}.attention.self.pos_key_proj",
            "layers.*.attention.place_q": f"{layer}.attention.self.pos_query_proj",
            "layers.*.attention.o": f"{layer}.attention.output.dense",
            "layers.*.norm1": f"{layer}.attention.output.LayerNorm",
            "layers.*.feed.up": f"{layer}.intermediate.dense",
            "layers.*.feed.down": f"{layer}.output.dense",
            "layers.*.norm2": f"{layer}.output.LayerNorm",
            **masked,
            "classifier.dense": "pooler.dense",
            "classifier.out": "classifier",
            "token_classifier.out": "classifier",
            "qa_outputs.out": "qa_outputs",
        },
        ignored=(
            "embeddings.position_ids",
            *(() if config.positions else ("embeddings.position_embeddings.weight",)),
            *(
                f"mask_predictions.{n}"
                for n in (
                    "dense.weight",
                    "dense.bias",
                    "LayerNorm.weight",
                    "LayerNorm.bias",
                    "classifier.weight",
                    "classifier.bias",
                )
            ),
        ),
        copies={
            "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
    )
