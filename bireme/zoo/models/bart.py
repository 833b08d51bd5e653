"""BART and its kin: encoders and decoders with biases everywhere and positions at the bottom.

bart, mbart, marian, pegasus, m2m_100 (NLLB's too); what differs is a row of `KINDS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.generation.memory import MemoryCache
from bireme.zoo.blocks import activation, linear
from bireme.zoo.config import Keys, ModelConfig
from bireme.zoo.models.positions import sines
from bireme.zoo.models.transformer import Attention, Block, Feed, keep_mask
from bireme.zoo.names import Names


@dataclass(frozen=True)
class Kind:
    """How one model type differs."""

    before: bool  # whether norms stand before attention and products
    first: bool  # whether the embeddings are normed
    last: bool  # whether the last hidden states are
    positions: str  # "learnt", "sines" or "counted" (sines, from the padding's number on)
    bias: bool  # whether the scores of words have a bias
    act: str = "gelu"
    scaled: bool = False


KINDS = {
    "bart": Kind(False, True, False, "learnt", True),
    "mbart": Kind(True, True, True, "learnt", True),
    "marian": Kind(False, False, False, "sines", True),
    "pegasus": Kind(True, False, True, "sines", True),
    "m2m_100": Kind(True, False, True, "counted", False, "relu", True),
}
_OFFSET = 2  # rows of learnt positions that no token has


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """A model of BART's shape."""

    words: int
    decoder_words: int
    width: int
    layers: tuple[int, int]  # of the encoder and of the decoder
    heads: tuple[int, int]
    inner: tuple[int, int]
    act: str
    positions: int
    scale: float  # of the embeddings
    pad: int
    shared: bool  # whether encoder and decoder have one table of words
    tied: bool
    dropout: float
    attention_dropout: float
    activation_dropout: float

    @property
    def kind(self) -> Kind:
        """The row of `KINDS`."""
        return KINDS[self.model_type]

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in the dictionary of a config.json."""
        keys = Keys(raw)
        kind = KINDS[keys.model_type]
        keys.only("is_decoder", False)
        keys.only("add_cross_attention", False)
        # These repeat what the type says, or are other names of keys that are read.
        keys.ignore(
            "num_hidden_layers", "hidden_size", "add_bias_logits", "static_position_embeddings"
        )
        keys.ignore(
            "extra_pos_embeddings",
            "classif_dropout",
            "num_attention_heads",
            "force_bos_token_to_be_generated",
        )
        keys.ignore("max_length_", "gradient_checkpointing", "normalize_embedding", "save_step")
        keys.only("normalize_before", kind.before)
        keys.only("add_final_layer_norm", kind.last)
        words = keys.number("vocab_size")
        width = keys.number("d_model", 1024)
        scaled = keys.flag("scale_embedding", kind.scaled)
        tied = keys.flag("tie_word_embeddings", True)

        def both(name: str, default: int) -> tuple[int, int]:
            return keys.number(f"encoder_{name}", default), keys.number(f"decoder_{name}", default)

        config = cls(
            model_type=keys.model_type,
            raw=raw,
            words=words,
            decoder_words=keys.take("decoder_vocab_size", None) or words,
            width=width,
            layers=both("layers", 12),
            heads=both("attention_heads", 16),
            inner=both("ffn_dim", 4096),
            act=str(keys.take("activation_function", kind.act)),
            positions=keys.number("max_position_embeddings", 1024),
            scale=math.sqrt(width) if scaled else 1.0,
            pad=int(keys.take("pad_token_id", 1) or 0),
            shared=keys.flag("share_encoder_decoder_embeddings", True) and tied,
            tied=tied,
            dropout=keys.real("dropout", 0.1),
            attention_dropout=keys.real("attention_dropout", 0.0),
            activation_dropout=keys.real("activation_dropout", 0.0),
        )
        if any(width % h for h in config.heads):
            raise keys.bad("encoder_attention_heads", config.heads, f"divisors of {width}")
        keys.done()
        return config


def _counted_sines(count: int, width: int, pad: int) -> np.ndarray:
    """The table that M2M100 was trained with: periods in steps of half - 1, no place for padding.
    In float32, as there: far places depend on it."""
    half = width // 2
    step = np.float32(math.log(10000) / (half - 1))
    periods = np.exp(np.arange(half, dtype=np.float32) * -step)
    angles = np.arange(count, dtype=np.float32)[:, None] * periods[None]
    table = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    table = np.pad(table, [(0, 0), (0, width % 2)])
    table[pad] = 0
    return table.astype(np.float32)


class Positions(nn.Layer):
    """What is added to the embeddings of tokens at their places."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.kind, self.pad = config.kind.positions, config.pad
        count, width = config.positions, config.width
        if self.kind == "learnt":
            self.weight = self.create_parameter([count + _OFFSET, width])
        else:
            made = sines(count, width)
            if self.kind == "counted":
                made = _counted_sines(count + _OFFSET, width, self.pad)
            # Some files have the table of sines, and then it is theirs that counts.
            in_files = self.kind == "sines"
            self.register_buffer("table", paddle.to_tensor(made), persistable=in_files)

    def forward(self, ids: Tensor, cache: MemoryCache | None) -> Tensor:
        rows = ids.shape[1]
        if self.kind == "counted":
            real = (ids != self.pad).astype("int64")
            before = 0
            if cache is not None and cache.place is not None:
                before = cache.place.unsqueeze(-1)
            return self.table[(real.cumsum(1) + before) * real + self.pad]
        offset = _OFFSET if self.kind == "learnt" else 0
        table = self.weight if self.kind == "learnt" else self.table
        if cache is None or cache.place is None:
            return table[offset : offset + rows]
        return table[cache.places(ids.shape[0], rows) + offset]


class Stack(nn.Layer):
    """The encoder or the decoder."""

    def __init__(self, config: Config, decoder: bool) -> None:
        super().__init__()
        c, side = config, int(decoder)
        self.decoder, self.scale = decoder, c.scale
        self.positions = Positions(c)
        self.norm_first = nn.LayerNorm(c.width) if c.kind.first else None
        self.layers = nn.LayerList([_block(c, i, side) for i in range(c.layers[side])])
        self.norm_last = nn.LayerNorm(c.width) if c.kind.last else None
        self.dropout = nn.Dropout(c.dropout)

    def forward(
        self,
        ids: Tensor,
        table: nn.Embedding,
        mask: Tensor | None,
        memory: Tensor | None = None,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        """`mask` is of the encoder's tokens, which the decoder reads as `memory`."""
        x = table(ids)
        x = x * self.scale if self.scale != 1.0 else x
        x = x + self.positions(ids, cache)
        x = self.dropout(x if self.norm_first is None else self.norm_first(x))
        for block in self.layers:
            if self.decoder:
                x = block(x, causal=True, memory=memory, memory_mask=mask, cache=cache)
            else:
                x = block(x, mask)
        return x if self.norm_last is None else self.norm_last(x)


def _block(config: Config, index: int, side: int) -> Block:
    c = config

    def attention() -> Attention:
        return Attention(c.width, c.heads[side], dropout=c.attention_dropout, index=index)

    feed = Feed(c.width, c.inner[side], activation(c.act), dropout=c.activation_dropout)
    return Block(
        attention(),
        feed,
        lambda: nn.LayerNorm(c.width),
        before=c.kind.before,
        cross=attention() if side else None,
        dropout=c.dropout,
    )


class Model(nn.Layer):
    """Encoder and decoder: the decoder's hidden states [batch, tokens, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.shared = nn.Embedding(c.words, c.width)
        self.decoder_words = None if c.shared else nn.Embedding(c.decoder_words, c.width)
        self.encoder = Stack(c, decoder=False)
        self.decoder = Stack(c, decoder=True)

    @property
    def output_words(self) -> Tensor:
        """The table of words that the decoder reads and, where they are tied, writes."""
        table = self.shared if self.decoder_words is None else self.decoder_words
        return table.weight

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The encoder's hidden states."""
        return self.encoder(input_ids, self.shared, keep_mask(attention_mask))

    def decode(
        self,
        decoder_input_ids: Tensor,
        memory: Tensor | None,
        attention_mask: Tensor | None = None,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        """The decoder's hidden states."""
        table = self.shared if self.decoder_words is None else self.decoder_words
        return self.decoder(decoder_input_ids, table, keep_mask(attention_mask), memory, cache)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
    ) -> Tensor:
        memory = self.encode(input_ids, attention_mask)
        decoded = input_ids if decoder_input_ids is None else decoder_input_ids
        return self.decode(decoded, memory, attention_mask)


class Seq2SeqLM(nn.Layer):
    """Scores [batch, tokens, words] of the decoder's next token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.model = Model(c)
        self.lm_head = None if c.tied else linear(c.width, c.decoder_words, False)
        bias = paddle.zeros([1, c.decoder_words]) if c.kind.bias else None
        self.register_buffer("final_logits_bias", bias)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The encoder's hidden states."""
        return self.model.encode(input_ids, attention_mask)

    def decode(
        self,
        decoder_input_ids: Tensor,
        memory: Tensor | None,
        attention_mask: Tensor | None = None,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        """Scores after each of the decoder's tokens."""
        x = self.model.decode(decoder_input_ids, memory, attention_mask, cache)
        head = self.lm_head
        scores = F.linear(x, self.model.output_words.t()) if head is None else head(x)
        return scores if self.final_logits_bias is None else scores + self.final_logits_bias

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
    ) -> Tensor:
        memory = self.encode(input_ids, attention_mask)
        decoded = input_ids if decoder_input_ids is None else decoder_input_ids
        return self.decode(decoded, memory, attention_mask)


TASKS = {"base": Model, "seq2seq": Seq2SeqLM}


def layer_names(cross: bool, part: str) -> dict[str, str]:
    """The names of the parts of a layer, as BART and Whisper have them."""
    inner = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
    found = {}
    for ours, theirs in inner.items():
        found[f"{part}.layers.*.attention.{ours}"] = f"{part}.layers.*.self_attn.{theirs}"
        if cross:
            found[f"{part}.layers.*.cross.{ours}"] = f"{part}.layers.*.encoder_attn.{theirs}"
    return found | {
        f"{part}.layers.*.norm1": f"{part}.layers.*.self_attn_layer_norm",
        f"{part}.layers.*.norm_cross": f"{part}.layers.*.encoder_attn_layer_norm",
        f"{part}.layers.*.norm2": f"{part}.layers.*.final_layer_norm",
        f"{part}.layers.*.feed.up": f"{part}.layers.*.fc1",
        f"{part}.layers.*.feed.down": f"{part}.layers.*.fc2",
        f"{part}.norm_first": f"{part}.layernorm_embedding",
        f"{part}.norm_last": f"{part}.layer_norm",
        f"{part}.positions.table": f"{part}.embed_positions.weight",
        f"{part}.positions": f"{part}.embed_positions",
    }


def names(config: Config, task: str) -> Names:
    """The names of a type's tensors."""
    c = config
    words = "model.shared.weight" if c.shared else "model.decoder.embed_tokens.weight"
    copies = {"lm_head.weight": words} if c.tied else {}
    if c.shared:
        for part in ("encoder", "decoder"):
            copies[f"model.{part}.embed_tokens.weight"] = words
    return Names(
        base="model",
        layers={
            **layer_names(False, "encoder"),
            **layer_names(True, "decoder"),
            "decoder_words": "decoder.embed_tokens",
            **({} if c.shared else {"shared": "encoder.embed_tokens"}),
        },
        ignored=(
            *(
                ()
                if c.kind.positions == "learnt"
                else ("embed_positions.weight", "embed_positions.weights")
            ),
            *(() if c.shared else ("model.shared.weight",)),
        ),
        copies=copies,
        optional={
            "final_logits_bias": "",
            "encoder.positions.table": "",
            "decoder.positions.table": "",
        },
    )
