"""ModernBERT: norms before, turned positions, layers with a window between those without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.zoo.blocks import activation, norm
from bireme.zoo.config import Keys, ModelConfig
from bireme.zoo.models.encoder_heads import (
    ClassHead,
    MaskedHead,
    MaskedLM,
    QuestionAnswerer,
    SequenceClassifier,
    TokenClassifier,
)
from bireme.zoo.models.transformer import Block, Feed, TurnedAttention, keep_mask
from bireme.zoo.names import Names, fused
from bireme.zoo.rope import Rope, make_rope


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """A ModernBERT."""

    words: int
    width: int
    heads: int
    inner: int
    act: str
    epsilon: float
    windowed: tuple[bool, ...]  # of each layer
    window: int  # how many tokens on each side such a layer sees
    ropes: tuple[Rope, Rope]  # of layers without and with a window
    norm_bias: bool
    bias: bool
    feed_bias: bool
    head_bias: bool
    words_bias: bool
    head_act: str
    pool: str
    tied: bool
    dropout: float
    attention_dropout: float

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in the dictionary of a config.json."""
        keys = Keys(raw)
        width, heads = keys.number("hidden_size", 768), keys.number("num_attention_heads", 12)
        layers = keys.number("num_hidden_layers", 22)
        if not heads or width % heads:
            raise keys.bad("num_attention_heads", heads, f"a divisor of {width}")
        limit = keys.number("max_position_embeddings", 8192)
        every = keys.number("global_attn_every_n_layers", 3)
        kinds = keys.take("layer_types", None)
        if kinds is None:
            kinds = [
                "sliding_attention" if every and i % every else "full_attention"
                for i in range(layers)
            ]
        known = {"full_attention", "sliding_attention"}
        if not isinstance(kinds, list) or len(kinds) != layers or set(kinds) - known:
            raise keys.bad("layer_types", kinds, f"{layers} of {sorted(known)}")
        config = cls(
            model_type=keys.model_type,
            raw=raw,
            words=keys.number("vocab_size"),
            width=width,
            heads=heads,
            inner=keys.number("intermediate_size", 1152),
            act=str(keys.take("hidden_activation", "gelu")),
            epsilon=keys.real("norm_eps", 1e-5),
            windowed=tuple(k == "sliding_attention" for k in kinds),
            window=keys.number("local_attention", 128) // 2,
            ropes=_ropes(keys, width // heads, limit),
            norm_bias=keys.flag("norm_bias", False),
            bias=keys.flag("attention_bias", False),
            feed_bias=keys.flag("mlp_bias", False),
            head_bias=keys.flag("classifier_bias", False),
            words_bias=keys.flag("decoder_bias", True),
            head_act=str(keys.take("classifier_activation", "gelu")),
            pool=str(keys.take("classifier_pooling", "cls")),
            tied=keys.flag("tie_word_embeddings", True),
            dropout=keys.real("mlp_dropout", 0.0),
            attention_dropout=keys.real("attention_dropout", 0.0),
        )
        if config.pool not in ("cls", "mean"):
            raise keys.bad("classifier_pooling", config.pool, "'cls' or 'mean'")
        # How transformers computes and trains, not what.
        keys.ignore("deterministic_flash_attn", "reference_compile", "repad_logits_with_grad")
        keys.ignore("sparse_prediction", "sparse_pred_ignore_index", "embedding_dropout")
        keys.ignore("position_embedding_type", "layer_norm_eps", "sliding_window")
        keys.done()
        return config


def _ropes(keys: Keys, size: int, limit: int) -> tuple[Rope, Rope]:
    given = keys.take("rope_parameters", None) or {}
    scaling = keys.take("rope_scaling", None) or {}
    found = []
    for kind, old, theta in (
        ("full_attention", "global_rope_theta", 160000.0),
        ("sliding_attention", "local_rope_theta", 10000.0),
    ):
        theta = keys.real(old, theta)
        settings = {**scaling, **(given.get(kind) or {})}
        found.append(make_rope(keys, settings, size, limit, theta))
    return found[0], found[1]


class Model(nn.Layer):
    """Hidden states [batch, tokens, width] of tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.window = c.window
        self.windowed = c.windowed
        self.words = nn.Embedding(c.words, c.width)
        self.norm_first = norm("layer", c.width, c.epsilon, c.norm_bias)
        self.layers = nn.LayerList([_block(c, i) for i in range(len(c.windowed))])
        self.norm_last = norm("layer", c.width, c.epsilon, c.norm_bias)

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
        if token_type_ids is not None:
            raise InvalidArgument("[zoo] ModernBERT has no token types: leave token_type_ids out")
        x = self.norm_first(self.words(input_ids))
        full = keep_mask(attention_mask)
        near = self._near(input_ids.shape[1], full)
        for windowed, block in zip(self.windowed, self.layers, strict=True):
            x = block(x, near if windowed else full)
        return self.norm_last(x)

    def _near(self, tokens: int, full: Tensor | None) -> Tensor:
        places = paddle.arange(tokens)
        far = (places.unsqueeze(0) - places.unsqueeze(1)).abs()
        if full is None:
            return far <= self.window
        # Padding among padding sees itself: of nothing there is no mean.
        return (far <= self.window) & full | (far == 0)


def _block(config: Config, index: int) -> Block:
    c = config
    attention = TurnedAttention(
        c.ropes[c.windowed[index]],
        c.width,
        c.heads,
        bias=(c.bias,) * 4,
        dropout=c.attention_dropout,
    )
    feed = Feed(
        c.width, c.inner, activation(c.act), bias=c.feed_bias, gated=True, dropout=c.dropout
    )
    block = Block(
        attention, feed, lambda: norm("layer", c.width, c.epsilon, c.norm_bias), before=True
    )
    if index == 0:
        block.norm1 = nn.Identity()  # the embeddings are normed already
    return block


def _norm(config: Config) -> nn.Layer:
    return norm("layer", config.width, config.epsilon, config.norm_bias)


def _masked(config: Config) -> MaskedLM:
    c = config
    head = MaskedHead(
        c.width,
        c.width,
        c.words,
        activation(c.head_act),
        lambda: _norm(c),
        bias=c.head_bias,
        words_bias=c.words_bias,
        tied=c.tied,
    )
    return MaskedLM(Model(c), head)


def _head(config: Config, classes: int) -> ClassHead:
    c = config
    act = activation(c.head_act)
    return ClassHead(c.width, classes, act=act, norm=lambda: _norm(c), dense_bias=c.head_bias)


def _classifier(config: Config) -> SequenceClassifier:
    pool = "first" if config.pool == "cls" else "mean"
    return SequenceClassifier(Model(config), _head(config, config.num_labels), pool)


def _tokens(config: Config) -> TokenClassifier:
    return TokenClassifier(Model(config), _head(config, config.num_labels))


def _answers(config: Config) -> QuestionAnswerer:
    return QuestionAnswerer(Model(config), _head(config, 2))


TASKS = {
    "base": Model,
    "masked_lm": _masked,
    "classifier": _classifier,
    "token_classifier": _tokens,
    "question_answering": _answers,
}


def names(config: Config, task: str) -> Names:
    """The names of a type's tensors."""
    heads = {}
    for part in ("lm_head", "classifier", "token_classifier", "qa_outputs"):
        heads[f"{part}.dense"], heads[f"{part}.norm"] = "head.dense", "head.norm"
        heads[f"{part}.out"] = "classifier"
    qkv = "layers.*.attn.Wqkv"
    feed = ("layers.*.feed.gate", "layers.*.feed.up")
    rules = []
    for kind in ("weight", "bias"):
        if kind == "weight" or config.bias:
            ours = tuple(f"layers.*.attention.{n}.{kind}" for n in "qkv")
            rules.append(fused(ours, f"{qkv}.{kind}", (config.width,) * 3, kind == "weight"))
        if kind == "weight" or config.feed_bias:
            ours = tuple(f"{n}.{kind}" for n in feed)
            sizes = (config.inner,) * 2
            rules.append(fused(ours, f"layers.*.mlp.Wi.{kind}", sizes, kind == "weight"))
    return Names(
        base="model",
        layers={
            "words": "embeddings.tok_embeddings",
            "norm_first": "embeddings.norm",
            "norm_last": "final_norm",
            "layers.*.attention.o": "layers.*.attn.Wo",
            "layers.*.feed.down": "layers.*.mlp.Wo",
            "layers.*.norm1": "layers.*.attn_norm",
            "layers.*.norm2": "layers.*.mlp_norm",
            **heads,
            "lm_head.bias": "decoder.bias",
            "lm_head.words": "decoder",
        },
        rules=tuple(rules),
        copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"} if config.tied else {},
    )
