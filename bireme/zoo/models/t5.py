"""T5 and its kin: relative positions as a bias of scores, RMS norms, no biases, scores unscaled.

t5, mt5, umt5 (whose every layer has positions of its own); flan-t5 and byt5 are t5 or mt5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.generation.memory import MemoryCache
from bireme.zoo.blocks import activation, linear
from bireme.zoo.config import Keys, ModelConfig
from bireme.zoo.models.positions import RelativeBias
from bireme.zoo.models.transformer import Attention, Block, Feed, added, keep_mask
from bireme.zoo.names import Names


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """A model of T5's shape."""

    words: int
    width: int
    heads: int
    size: int  # of a head
    inner: int
    layers: int
    decoder_layers: int
    act: str
    gated: bool
    epsilon: float
    buckets: int
    longest: int
    each: bool  # whether every layer has positions of its own
    tied: bool  # whether the output layer is the embeddings, as far as the config says
    scaled: bool  # whether hidden states are scaled before the output layer
    dropout: float

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in the dictionary of a config.json."""
        keys = Keys(raw, {"d_kv": 64, "num_layers": 6, "num_heads": 8})
        newer = keys.model_type != "t5"
        given = str(keys.take("feed_forward_proj", "gated-gelu" if newer else "relu"))
        gated, act = given.startswith("gated-"), given.removeprefix("gated-")
        # The same gelu whichever name a file gives it: the gated ones were trained with tanh's.
        act = "gelu_new" if given == "gated-gelu" else act
        # Both follow from feed_forward_proj.
        keys.ignore("dense_act_fn", "is_gated_act", "n_positions", "output_past")
        layers = keys.number("num_layers")
        tied = raw.get("tie_word_embeddings") is not False
        keys.ignore("tie_word_embeddings")
        scaled = keys.take("scale_decoder_outputs", tied) is not False
        config = cls(
            model_type=keys.model_type,
            raw=raw,
            words=keys.number("vocab_size"),
            width=keys.number("d_model"),
            heads=keys.number("num_heads"),
            size=keys.number("d_kv"),
            inner=keys.number("d_ff"),
            layers=layers,
            decoder_layers=keys.take("num_decoder_layers", None) or layers,
            act=act,
            gated=gated,
            epsilon=keys.real("layer_norm_epsilon", 1e-6),
            buckets=keys.number("relative_attention_num_buckets", 32),
            longest=keys.number("relative_attention_max_distance", 128),
            each=keys.model_type == "umt5",
            tied=tied,
            scaled={"t5": scaled, "mt5": False}.get(keys.model_type, True),
            dropout=keys.real("dropout_rate", 0.1),
        )
        keys.done()
        return config


class Stack(nn.Layer):
    """The encoder or the decoder: blocks and a last norm."""

    def __init__(self, config: Config, decoder: bool) -> None:
        super().__init__()
        c = config
        self.decoder = decoder
        count = c.decoder_layers if decoder else c.layers
        self.blocks = nn.LayerList([_block(c, i, decoder) for i in range(count)])
        self.biases = nn.LayerList(
            [
                RelativeBias(c.buckets, c.heads, longest=c.longest, both=not decoder)
                for _ in range(count if c.each else 1)
            ]
        )
        self.norm = nn.RMSNorm(c.width, c.epsilon)
        self.dropout = nn.Dropout(c.dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        memory: Tensor | None = None,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        """`mask` is of the encoder's tokens, which the decoder reads as `memory`."""
        x = self.dropout(x)
        rows, places = x.shape[1], None
        if cache is not None and cache.place is not None:
            places, rows = cache.places(x.shape[0], rows), cache.length
        biases = [bias(rows, places) for bias in self.biases]
        for i, block in enumerate(self.blocks):
            bias = biases[i % len(biases)]
            if not self.decoder:
                x = block(x, added(mask, bias))
            else:
                x = block(
                    x,
                    bias if cache is not None else added(_causal(rows), bias),
                    memory=memory,
                    memory_mask=mask,
                    cache=cache,
                )
        return self.dropout(self.norm(x))


def _causal(rows: int) -> Tensor:
    import bireme as paddle

    columns = paddle.arange(rows)
    return columns.unsqueeze(0) <= columns.unsqueeze(1)


def _block(config: Config, index: int, decoder: bool) -> Block:
    c = config

    def attention() -> Attention:
        plain = (False, False, False, False)
        return Attention(
            c.width, c.heads, size=c.size, bias=plain, scale=1.0, dropout=c.dropout, index=index
        )

    feed = Feed(c.width, c.inner, activation(c.act), bias=False, gated=c.gated, dropout=c.dropout)
    return Block(
        attention(),
        feed,
        lambda: nn.RMSNorm(c.width, c.epsilon),
        before=True,
        cross=attention() if decoder else None,
        dropout=c.dropout,
    )


class Encoder(nn.Layer):
    """The encoder alone: hidden states [batch, tokens, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.shared = nn.Embedding(config.words, config.width)
        self.encoder = Stack(config, decoder=False)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        if token_type_ids is not None:
            raise InvalidArgument("[zoo] T5 has no token types: leave token_type_ids out")
        return self.encoder(self.shared(input_ids), keep_mask(attention_mask))


class Model(Encoder):
    """Encoder and decoder: the decoder's hidden states [batch, tokens, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.decoder = Stack(config, decoder=True)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The encoder's hidden states."""
        return self.encoder(self.shared(input_ids), keep_mask(attention_mask))

    def decode_hidden(
        self,
        decoder_input_ids: Tensor,
        memory: Tensor | None,
        attention_mask: Tensor | None = None,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        """The decoder's hidden states."""
        return self.decoder(
            self.shared(decoder_input_ids), keep_mask(attention_mask), memory, cache
        )

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
    ) -> Tensor:
        memory = self.encode(input_ids, attention_mask)
        decoded = input_ids if decoder_input_ids is None else decoder_input_ids
        return self.decode_hidden(decoded, memory, attention_mask)


class Seq2SeqLM(Model):
    """Scores [batch, tokens, words] of the decoder's next token."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.scale = config.width**-0.5 if config.scaled else 1.0
        # Which it is, the files say: newer T5s have an output layer of their own.
        self.lm_head = linear(config.width, config.words, False)

    def decode(
        self,
        decoder_input_ids: Tensor,
        memory: Tensor | None,
        attention_mask: Tensor | None = None,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        """Scores after each of the decoder's tokens."""
        x = self.decode_hidden(decoder_input_ids, memory, attention_mask, cache)
        x = x * self.scale if self.scale != 1.0 else x
        if self.lm_head is None:
            return F.linear(x, self.shared.weight.t())
        return self.lm_head(x)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
    ) -> Tensor:
        memory = self.encode(input_ids, attention_mask)
        decoded = input_ids if decoder_input_ids is None else decoder_input_ids
        return self.decode(decoded, memory, attention_mask)


TASKS = {"base": Model, "encoder": Encoder, "seq2seq": Seq2SeqLM}


def names(config: Config, task: str) -> Names:
    """The names of a type's tensors."""
    layers: dict[str, str] = {}
    for part, cross in (("encoder", False), ("decoder", True)):
        ours, theirs = f"{part}.blocks.*", f"{part}.block.*.layer"
        last = 2 if cross else 1
        for n in "qkvo":
            layers[f"{ours}.attention.{n}"] = f"{theirs}.0.SelfAttention.{n}"
            layers[f"{ours}.cross.{n}"] = f"{theirs}.1.EncDecAttention.{n}"
        up = (
            {"gate": "wi_0", "up": "wi_1", "down": "wo"}
            if config.gated
            else {"up": "wi", "down": "wo"}
        )
        for ours_name, theirs_name in up.items():
            layers[f"{ours}.feed.{ours_name}"] = f"{theirs}.{last}.DenseReluDense.{theirs_name}"
        layers[f"{ours}.norm1"] = f"{theirs}.0.layer_norm"
        layers[f"{ours}.norm_cross"] = f"{theirs}.1.layer_norm"
        layers[f"{ours}.norm2"] = f"{theirs}.{last}.layer_norm"
        bias = f"{part}.block.*.layer.0.SelfAttention.relative_attention_bias"
        layers[f"{part}.biases.*"] = bias
        layers[f"{part}.norm"] = f"{part}.final_layer_norm"
    return Names(
        base="",
        layers=layers,
        ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
        copies={
            "encoder.embed_tokens.weight": "shared.weight",
            "decoder.embed_tokens.weight": "shared.weight",
        },
        optional={"lm_head": "shared.weight"},
    )
