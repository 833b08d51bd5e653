"""Vision transformers: vit, deit (with a token for distillation), dinov2 (with scaled layers)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bireme as paddle
from bireme import nn
from bireme.core.tensor import Tensor
from bireme.zoo.blocks import activation, linear
from bireme.zoo.config import Keys, ModelConfig
from bireme.zoo.models.patches import Patches, image_sizes
from bireme.zoo.models.transformer import Attention, Block, Feed
from bireme.zoo.names import Names, fused


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """A vision transformer."""

    width: int
    layers: int
    heads: int
    inner: int
    act: str
    gated: bool
    epsilon: float
    image: tuple[int, int]
    patch: tuple[int, int]
    channels: int
    bias: bool  # of queries, keys and values
    pooled: int  # the width of the pooler's result
    pooler_act: str
    scaled: bool  # whether what a layer adds is scaled, element by element
    dropout: float

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in the dictionary of a config.json."""
        keys = Keys(raw)
        dino = keys.model_type == "dinov2"
        image, patch = image_sizes(keys, 224, 14 if dino else 16)
        width, heads = keys.number("hidden_size", 768), keys.number("num_attention_heads", 12)
        if not heads or width % heads:
            raise keys.bad("num_attention_heads", heads, f"a divisor of {width}")
        gated = dino and keys.flag("use_swiglu_ffn", False)
        inner = int(width * keys.real("mlp_ratio", 4)) if dino else 0
        # Two thirds of the inner width, so that three products cost as much as two.
        inner = (int(inner * 2 / 3) + 7) // 8 * 8 if gated else inner
        # For image modelling and backbones, which are other models.
        keys.ignore("encoder_stride", "out_features", "out_indices", "stage_names")
        keys.ignore("apply_layernorm", "reshape_hidden_states", "use_mask_token", "drop_path_rate")
        keys.ignore("layerscale_value", "_out_features", "_out_indices")
        config = cls(
            model_type=keys.model_type,
            raw=raw,
            width=width,
            layers=keys.number("num_hidden_layers", 12),
            heads=heads,
            inner=inner or keys.number("intermediate_size", 4 * width),
            act=str(keys.take("hidden_act", "gelu")),
            gated=gated,
            epsilon=keys.real("layer_norm_eps", 1e-6 if dino else 1e-12),
            image=image,
            patch=patch,
            channels=keys.number("num_channels", 3),
            bias=keys.flag("qkv_bias", True),
            pooled=0 if dino else keys.take("pooler_output_size", None) or width,
            pooler_act=str(keys.take("pooler_act", "tanh")),
            scaled=dino,
            dropout=keys.real("hidden_dropout_prob", 0.0),
        )
        keys.done()
        return config


class Scale(nn.Layer):
    """A factor for every element of a vector."""

    def __init__(self, inner: nn.Layer, width: int) -> None:
        super().__init__()
        self.inner = inner
        self.scale = self.create_parameter([width])

    def forward(self, x: Tensor, *arguments: Any, **settings: Any) -> Tensor:
        return self.inner(x, *arguments, **settings) * self.scale


class Model(nn.Layer):
    """Hidden states [batch, tokens, width] of images [batch, channels, height, width]; the first
    token stands for the image."""

    def __init__(self, config: Config, pooler: bool = True) -> None:
        super().__init__()
        c = config
        names = ("cls_token", "distillation_token") if c.model_type == "deit" else ("cls_token",)
        self.patches = Patches(
            c.width,
            c.channels,
            c.image,
            c.patch,
            names=names,
            token=(1, 1, c.width),
            positions=(1,),
        )
        self.layers = nn.LayerList([_block(c) for _ in range(c.layers)])
        self.norm = nn.LayerNorm(c.width, epsilon=c.epsilon)
        self.pooler = linear(c.width, c.pooled) if pooler and c.pooled else None
        self.act = activation(c.pooler_act)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.dropout(self.patches(pixel_values))
        for block in self.layers:
            x = block(x)
        return self.norm(x)

    def pooled(self, hidden: Tensor) -> Tensor:
        """One vector per image: [batch, width]."""
        first = hidden[:, 0]
        return first if self.pooler is None else self.act(self.pooler(first))


def _block(config: Config) -> Block:
    c = config
    attention: nn.Layer = Attention(c.width, c.heads, bias=(c.bias, c.bias, c.bias, True))
    feed: nn.Layer = Feed(c.width, c.inner, activation("silu" if c.gated else c.act), gated=c.gated)
    if c.scaled:
        attention, feed = Scale(attention, c.width), Scale(feed, c.width)
    return Block(
        attention,
        feed,
        lambda: nn.LayerNorm(c.width, epsilon=c.epsilon),
        before=True,
        dropout=c.dropout,
    )


class ImageClassifier(nn.Layer):
    """Scores of classes [batch, classes]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.model = Model(c, pooler=False)
        self.both = c.model_type == "dinov2"
        self.classifier = linear(c.width * (1 + self.both), c.num_labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        hidden = self.model(pixel_values)
        if not self.both:
            return self.classifier(hidden[:, 0])
        return self.classifier(paddle.concat([hidden[:, 0], hidden[:, 1:].mean(1)], 1))


class DistilledClassifier(nn.Layer):
    """The mean of the scores of two heads, one on the token for distillation."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = Model(config, pooler=False)
        self.cls_classifier = linear(config.width, config.num_labels)
        self.distillation_classifier = linear(config.width, config.num_labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        hidden = self.model(pixel_values)
        first = self.cls_classifier(hidden[:, 0])
        return (first + self.distillation_classifier(hidden[:, 1])) / 2


TASKS = {
    "base": Model,
    "image_classifier": ImageClassifier,
    "distilled_image_classifier": DistilledClassifier,
}


def names(config: Config, task: str) -> Names:
    """The names of a type's tensors."""
    dino = config.scaled
    layer = "encoder.layer.*"
    inside = "layers.*.attention.inner" if dino else "layers.*.attention"
    feed = "layers.*.feed.inner" if dino else "layers.*.feed"
    up, down = ("mlp.fc1", "mlp.fc2") if dino else ("intermediate.dense", "output.dense")
    down = "mlp.weights_out" if config.gated else down
    rules = tuple(
        fused(
            (f"{feed}.gate.{n}", f"{feed}.up.{n}"),
            f"{layer}.mlp.weights_in.{n}",
            (config.inner, config.inner),
            turned=n == "weight",
        )
        for n in ("weight", "bias")
        if config.gated
    )
    return Names(
        base=config.model_type,
        layers={
            "patches.project": "embeddings.patch_embeddings.projection",
            "patches.positions": "embeddings.position_embeddings",
            "patches": "embeddings",
            f"{inside}.q": f"{layer}.attention.attention.query",
            f"{inside}.k": f"{layer}.attention.attention.key",
            f"{inside}.v": f"{layer}.attention.attention.value",
            f"{inside}.o": f"{layer}.attention.output.dense",
            "layers.*.attention.scale": f"{layer}.layer_scale1.lambda1",
            "layers.*.feed.scale": f"{layer}.layer_scale2.lambda1",
            f"{feed}.up": f"{layer}.{up}",
            f"{feed}.down": f"{layer}.{down}",
            "layers.*.norm1": f"{layer}.norm1" if dino else f"{layer}.layernorm_before",
            "layers.*.norm2": f"{layer}.norm2" if dino else f"{layer}.layernorm_after",
            "norm": "layernorm",
            "pooler": "pooler.dense",
        },
        rules=rules,
        ignored=("embeddings.mask_token", "pooler.dense.weight", "pooler.dense.bias"),
        optional={"pooler": ""},
    )
