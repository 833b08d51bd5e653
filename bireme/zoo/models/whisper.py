"""Whisper: an encoder of log-mel spectrograms and a decoder that writes what was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bireme import nn
from bireme.core.errors import ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.generation.memory import MemoryCache
from bireme.zoo.blocks import activation, linear
from bireme.zoo.config import Keys, ModelConfig
from bireme.zoo.models.bart import layer_names
from bireme.zoo.models.transformer import Attention, Block, Feed
from bireme.zoo.names import Names


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """A Whisper of any size."""

    words: int
    bands: int  # of the spectrogram
    width: int
    layers: tuple[int, int]  # of the encoder and of the decoder
    heads: tuple[int, int]
    inner: tuple[int, int]
    act: str
    places: int  # of the encoder: frames of 20 ms
    positions: int  # of the decoder
    tied: bool
    dropout: float

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in the dictionary of a config.json."""
        keys = Keys(raw)
        width = keys.number("d_model", 384)

        def both(name: str, default: int) -> tuple[int, int]:
            return keys.number(f"encoder_{name}", default), keys.number(f"decoder_{name}", default)

        config = cls(
            model_type=keys.model_type,
            raw=raw,
            words=keys.number("vocab_size", 51865),
            bands=keys.number("num_mel_bins", 80),
            width=width,
            layers=both("layers", 4),
            heads=both("attention_heads", 6),
            inner=both("ffn_dim", 4 * width),
            act=str(keys.take("activation_function", "gelu")),
            places=keys.number("max_source_positions", 1500),
            positions=keys.number("max_target_positions", 448),
            tied=keys.flag("tie_word_embeddings", True),
            dropout=keys.real("dropout", 0.0),
        )
        if any(width % h for h in config.heads):
            raise keys.bad("encoder_attention_heads", config.heads, f"divisors of {width}")
        keys.only("use_weighted_layer_sum", False)
        keys.only("apply_spec_augment", False)
        # Of training, of classifying sounds, and of aligning words with sounds.
        keys.ignore("classifier_proj_size", "median_filter_width", "num_hidden_layers")
        keys.ignore(*(k for k in raw if k.startswith(("mask_time_", "mask_feature_"))))
        # The decoder's embeddings are not scaled, whatever this key says.
        keys.ignore("alignment_heads", "max_length", "scale_embedding")
        keys.done()
        return config


def _block(config: Config, index: int, side: int) -> Block:
    c = config

    def attention() -> Attention:
        keys_without = (True, False, True, True)
        return Attention(c.width, c.heads[side], bias=keys_without, index=index)

    return Block(
        attention(),
        Feed(c.width, c.inner[side], activation(c.act)),
        lambda: nn.LayerNorm(c.width),
        before=True,
        cross=attention() if side else None,
        dropout=c.dropout,
    )


class Encoder(nn.Layer):
    """Spectrograms [batch, bands, 2 * places] as hidden states [batch, places, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.bands, self.places = c.bands, c.places
        self.conv1 = nn.Conv1D(c.bands, c.width, 3, padding=1)
        self.conv2 = nn.Conv1D(c.width, c.width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(c.places, c.width)
        self.layers = nn.LayerList([_block(c, i, 0) for i in range(c.layers[0])])
        self.norm_last = nn.LayerNorm(c.width)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim != 3 or features.shape[1:] != [self.bands, 2 * self.places]:
            raise ShapeMismatch(
                f"[zoo] Whisper reads spectrograms [batch, {self.bands}, {2 * self.places}] of "
                f"30 seconds, padded or cut. Received: {features.shape}"
            )
        x = F.gelu(self.conv2(F.gelu(self.conv1(features))))
        x = self.dropout(x.transpose([0, 2, 1]) + self.embed_positions.weight)
        for block in self.layers:
            x = block(x)
        return self.norm_last(x)


class Decoder(nn.Layer):
    """Hidden states of the tokens written so far."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.embed_tokens = nn.Embedding(c.words, c.width)
        self.embed_positions = nn.Embedding(c.positions, c.width)
        self.layers = nn.LayerList([_block(c, i, 1) for i in range(c.layers[1])])
        self.norm_last = nn.LayerNorm(c.width)
        self.dropout = nn.Dropout(c.dropout)

    def forward(
        self, ids: Tensor, memory: Tensor | None, cache: MemoryCache | None = None
    ) -> Tensor:
        x = self.embed_tokens(ids)
        if cache is None or cache.place is None:
            x = x + self.embed_positions.weight[: ids.shape[1]]
        else:
            x = x + self.embed_positions(cache.places(ids.shape[0], ids.shape[1]))
        x = self.dropout(x)
        for block in self.layers:
            x = block(x, causal=True, memory=memory, cache=cache)
        return self.norm_last(x)


class Model(nn.Layer):
    """Encoder and decoder: the decoder's hidden states."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> Tensor:
        return self.decoder(decoder_input_ids, self.encoder(input_features))


class Seq2SeqLM(nn.Layer):
    """Scores [batch, tokens, words] of the next token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = Model(config)
        self.proj_out = None if config.tied else linear(config.width, config.words, False)

    def encode(self, inputs: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The encoder's hidden states; a spectrogram has no padding that would be masked."""
        if attention_mask is not None:
            raise ShapeMismatch("[zoo] Whisper's spectrograms have no mask: leave it out")
        return self.model.encoder(inputs)

    def decode(
        self,
        decoder_input_ids: Tensor,
        memory: Tensor | None,
        attention_mask: Tensor | None = None,
        cache: MemoryCache | None = None,
    ) -> Tensor:
        """Scores after each of the decoder's tokens."""
        x = self.model.decoder(decoder_input_ids, memory, cache)
        if self.proj_out is None:
            return F.linear(x, self.model.decoder.embed_tokens.weight.t())
        return self.proj_out(x)

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> Tensor:
        return self.decode(decoder_input_ids, self.encode(input_features))


TASKS = {"base": Model, "seq2seq": Seq2SeqLM}


def names(config: Config, task: str) -> Names:
    """The names of a type's tensors."""
    return Names(
        base="model",
        layers={**layer_names(False, "encoder"), **layer_names(True, "decoder")},
        copies={"proj_out.weight": "model.decoder.embed_tokens.weight"} if config.tied else {},
    )
