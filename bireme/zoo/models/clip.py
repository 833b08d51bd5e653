"""Two towers, one for texts and one for images, whose vectors can be compared: clip, siglip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.zoo.blocks import activation, linear
from bireme.zoo.config import Keys, ModelConfig
from bireme.zoo.models.patches import Patches, image_sizes
from bireme.zoo.models.transformer import Attention, Block, Feed, keep_mask
from bireme.zoo.names import Names, fused


@dataclass(frozen=True, kw_only=True)
class Tower:
    """One of the two transformers."""

    width: int
    layers: int
    heads: int
    inner: int
    act: str
    epsilon: float
    out: int  # the width of its vectors
    words: int = 0  # of texts
    positions: int = 0
    end: int | None = None  # the token whose vector stands for a text; None: the largest one
    image: tuple[int, int] = (0, 0)
    patch: tuple[int, int] = (0, 0)
    channels: int = 3
    head: bool = True  # SigLIP's, that attends to all patches


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """Two towers, or one of them."""

    siglip: bool
    text: Tower | None
    vision: Tower | None

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in the dictionary of a config.json."""
        keys = Keys(raw)
        siglip = keys.model_type.startswith("siglip")
        one = keys.model_type.partition("_")[2]  # "text_model" or "vision_model" of one tower
        if one:
            text = _text(keys, siglip, None) if one == "text_model" else None
            vision = _vision(keys, siglip, None) if one == "vision_model" else None
            keys.done()
            return cls(model_type=keys.model_type, raw=raw, siglip=siglip, text=text, vision=vision)
        out = None if siglip else keys.number("projection_dim", 512)
        keys.ignore("logit_scale_init_value")
        towers = []
        for name, make in (("text_config", _text), ("vision_config", _vision)):
            inner = keys.take(name, {}) or {}
            # Older files hold each tower's config twice, the other one without its defaults.
            keys.ignore(f"{name}_dict")
            part = Keys({"model_type": keys.model_type, **inner})
            towers.append(make(part, siglip, out))
            part.done()
        keys.done()
        return cls(
            model_type=keys.model_type, raw=raw, siglip=siglip, text=towers[0], vision=towers[1]
        )


def _tower(keys: Keys, siglip: bool, out: int | None, width: int, **rest: Any) -> Tower:
    width = keys.number("hidden_size", width)
    heads = keys.number("num_attention_heads", 12 if siglip else width // 64)
    if not heads or width % heads:
        raise keys.bad("num_attention_heads", heads, f"a divisor of {width}")
    given = keys.take("projection_size" if siglip else "projection_dim", None)
    return Tower(
        width=width,
        layers=keys.number("num_hidden_layers", 12),
        heads=heads,
        inner=keys.number("intermediate_size", 4 * width),
        act=str(keys.take("hidden_act", "gelu_pytorch_tanh" if siglip else "quick_gelu")),
        epsilon=keys.real("layer_norm_eps", 1e-6 if siglip else 1e-5),
        out=out or given or (width if siglip else 512),
        **rest,
    )


def _text(keys: Keys, siglip: bool, out: int | None) -> Tower:
    end = keys.take("eos_token_id", 49407)
    return _tower(
        keys,
        siglip,
        out,
        768 if siglip else 512,
        words=keys.number("vocab_size", 32000 if siglip else 49408),
        positions=keys.number("max_position_embeddings", 64 if siglip else 77),
        # 2 is what older files say by mistake: their end is the largest number of a text.
        end=None if end == 2 or end is None else int(end),
    )


def _vision(keys: Keys, siglip: bool, out: int | None) -> Tower:
    image, patch = image_sizes(keys, 224, 16 if siglip else 32)
    return _tower(
        keys,
        siglip,
        out,
        768,
        image=image,
        patch=patch,
        channels=keys.number("num_channels", 3),
        head=siglip and keys.flag("vision_use_head", True),
    )


def _blocks(tower: Tower) -> nn.LayerList:
    t = tower
    return nn.LayerList(
        [
            Block(
                Attention(t.width, t.heads),
                Feed(t.width, t.inner, activation(t.act)),
                lambda: nn.LayerNorm(t.width, epsilon=t.epsilon),
                before=True,
            )
            for _ in range(t.layers)
        ]
    )


class TextTower(nn.Layer):
    """Hidden states and one vector per text."""

    def __init__(self, tower: Tower, siglip: bool) -> None:
        super().__init__()
        self.siglip, self.end = siglip, tower.end
        self.words = nn.Embedding(tower.words, tower.width)
        self.positions = nn.Embedding(tower.positions, tower.width)
        self.layers = _blocks(tower)
        self.norm = nn.LayerNorm(tower.width, epsilon=tower.epsilon)
        self.head = linear(tower.width, tower.out) if siglip else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """One vector per text: [batch, width]. CLIP's tokens read what stands before them."""
        x = self.words(input_ids) + self.positions.weight[: input_ids.shape[1]]
        mask = keep_mask(attention_mask)
        for block in self.layers:
            x = block(x, mask) if self.siglip else block(x, causal=True)
        x = self.norm(x)
        if self.head is not None:
            return self.head(x[:, -1])
        # The first end token: padding may be written with the same one.
        found = input_ids if self.end is None else (input_ids == self.end).astype("int64")
        at = found.argmax(1).reshape([-1, 1, 1]).expand([x.shape[0], 1, x.shape[2]])
        return paddle.take_along_axis(x, at, 1).squeeze(1)


class AttentionPool(nn.Layer):
    """SigLIP's pooler: one learnt query attends to all patches."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        t = tower
        self.probe = self.create_parameter([1, 1, t.width])
        self.attention = Attention(t.width, t.heads)
        self.norm = nn.LayerNorm(t.width, epsilon=t.epsilon)
        self.feed = Feed(t.width, t.inner, activation(t.act))

    def forward(self, x: Tensor) -> Tensor:
        probe = self.probe.expand([x.shape[0], 1, x.shape[2]])
        found = self.attention.read(probe, x)
        return (found + self.feed(self.norm(found)))[:, 0]


class VisionTower(nn.Layer):
    """Hidden states and one vector per image."""

    def __init__(self, tower: Tower, siglip: bool) -> None:
        super().__init__()
        t = tower
        names = () if siglip else ("class_embedding",)
        self.patches = Patches(
            t.width, t.channels, t.image, t.patch, names=names, token=(t.width,), bias=siglip
        )
        self.norm_first = None if siglip else nn.LayerNorm(t.width, epsilon=t.epsilon)
        self.layers = _blocks(t)
        self.norm = nn.LayerNorm(t.width, epsilon=t.epsilon)
        self.head = AttentionPool(t) if t.head else None
        self.siglip = siglip

    def forward(self, pixel_values: Tensor) -> Tensor:
        """One vector per image: [batch, width]."""
        x = self.patches(pixel_values)
        x = x if self.norm_first is None else self.norm_first(x)
        for block in self.layers:
            x = block(x)
        if not self.siglip:
            return self.norm(x[:, 0])
        x = self.norm(x)
        return x.mean(1) if self.head is None else self.head(x)


class Model(nn.Layer):
    """Both towers: how well each text fits each image, [texts, images]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.text is None or config.vision is None:
            raise InvalidArgument("[zoo] the config is of one tower: give task='text' or 'image'")
        text, vision, siglip = config.text, config.vision, config.siglip
        self.text_model = TextTower(text, siglip)
        self.vision_model = VisionTower(vision, siglip)
        self.text_projection = None if siglip else linear(text.width, text.out, False)
        self.visual_projection = None if siglip else linear(vision.width, vision.out, False)
        self.logit_scale = self.create_parameter([1] if siglip else [])
        self.logit_bias = self.create_parameter([1]) if siglip else None

    def embed_text(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """One vector of length 1 per text."""
        x = self.text_model(input_ids, attention_mask)
        x = x if self.text_projection is None else self.text_projection(x)
        return F.normalize(x, axis=-1)

    def embed_image(self, pixel_values: Tensor) -> Tensor:
        """One vector of length 1 per image."""
        x = self.vision_model(pixel_values)
        x = x if self.visual_projection is None else self.visual_projection(x)
        return F.normalize(x, axis=-1)

    def forward(
        self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        texts, images = self.embed_text(input_ids, attention_mask), self.embed_image(pixel_values)
        scores = paddle.matmul(texts, images, transpose_y=True) * self.logit_scale.exp()
        return scores if self.logit_bias is None else scores + self.logit_bias


class TextEmbedder(nn.Layer):
    """The tower for texts with its projection: [batch, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.text is None:
            raise InvalidArgument("[zoo] the config is of a tower for images")
        self.text_model = TextTower(config.text, config.siglip)
        plain = config.siglip
        self.text_projection = None if plain else linear(config.text.width, config.text.out, False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.text_model(input_ids, attention_mask)
        return x if self.text_projection is None else self.text_projection(x)


class ImageEmbedder(nn.Layer):
    """The tower for images with its projection: [batch, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        vision = config.vision
        if vision is None:
            raise InvalidArgument("[zoo] the config is of a tower for texts")
        self.vision_model = VisionTower(vision, config.siglip)
        plain = config.siglip
        self.visual_projection = None if plain else linear(vision.width, vision.out, False)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.vision_model(pixel_values)
        return x if self.visual_projection is None else self.visual_projection(x)


TASKS = {"base": Model, "text": TextEmbedder, "image": ImageEmbedder}


def names(config: Config, task: str) -> Names:
    """The names of a type's tensors."""
    layers: dict[str, str] = {}
    parts = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
    for tower in ("text_model", "vision_model"):
        ours, theirs = f"{tower}.layers.*", f"{tower}.encoder.layers.*"
        for a, b in parts.items():
            layers[f"{ours}.attention.{a}"] = f"{theirs}.self_attn.{b}"
        layers[f"{ours}.feed.up"] = f"{theirs}.mlp.fc1"
        layers[f"{ours}.feed.down"] = f"{theirs}.mlp.fc2"
        layers[f"{ours}.norm1"] = f"{theirs}.layer_norm1"
        layers[f"{ours}.norm2"] = f"{theirs}.layer_norm2"
    pool = "vision_model.head"
    width = config.vision.width if config.vision else 0
    rules = tuple(
        fused(
            tuple(f"{pool}.attention.{n}.{kind}" for n in "qkv"),
            f"{pool}.attention.in_proj_{kind}",
            (width,) * 3,
            turned=kind == "weight",
        )
        for kind in ("weight", "bias")
    )
    return Names(
        base="",
        layers={
            "text_model.words": "text_model.embeddings.token_embedding",
            "text_model.positions": "text_model.embeddings.position_embedding",
            "text_model.norm": "text_model.final_layer_norm",
            "vision_model.patches.project": "vision_model.embeddings.patch_embedding",
            "vision_model.patches.positions": "vision_model.embeddings.position_embedding.weight",
            "vision_model.patches.class_embedding": "vision_model.embeddings.class_embedding",
            "vision_model.norm_first": "vision_model.pre_layrnorm",
            "vision_model.norm": "vision_model.post_layernorm",
            f"{pool}.attention.o": f"{pool}.attention.out_proj",
            f"{pool}.norm": f"{pool}.layernorm",
            f"{pool}.feed.up": f"{pool}.mlp.fc1",
            f"{pool}.feed.down": f"{pool}.mlp.fc2",
            **layers,
        },
        rules=rules if config.siglip else (),
        ignored=("embeddings.position_ids",),
    )
