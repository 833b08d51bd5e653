"""Encoders in BERT's manner: norms after residuals, learnt or turned positions, one pooler.

bert, ernie, roberta, xlm-roberta, camembert, distilbert, albert, electra, mpnet, nomic_bert: what
differs is a row of `KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
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
from bireme.zoo.models.positions import RelativeBias
from bireme.zoo.models.transformer import (
    Attention,
    Block,
    Feed,
    TurnedAttention,
    added,
    keep_mask,
)
from bireme.zoo.names import Names, fused
from bireme.zoo.rope import Rope, read_rope


@dataclass(frozen=True)
class Kind:
    """How one model type differs from BERT."""

    base: str
    layer: Mapping[str, str]  # the parts of a layer: our path: their path
    masked: Mapping[str, str]  # the parts of the head for masked words
    decoder: str  # the output layer that a file may hold besides the embeddings
    classify: Mapping[str, str]  # the parts of the head for classes
    embeddings: Mapping[str, str] = field(default_factory=dict)
    pooler: str = "pooler.dense"  # its path; empty: there is none
    act: str = ""  # of the head for classes; empty: the pooler's result goes to the classes
    masked_act: str = ""  # of the head for masked words; empty: the config's
    types: bool = True  # whether there are embeddings of token types
    padded: bool = False  # whether positions count from the padding's number on
    pad: int | None = None  # the padding's number, where the config's is not read


_EMBEDDINGS = {
    "embeddings.words": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    "embeddings.tasks": "embeddings.task_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
}
_LAYER = {
    "layers.*.attention.q": "encoder.layer.*.attention.self.query",
    "layers.*.attention.k": "encoder.layer.*.attention.self.key",
    "layers.*.attention.v": "encoder.layer.*.attention.self.value",
    "layers.*.attention.o": "encoder.layer.*.attention.output.dense",
    "layers.*.norm1": "encoder.layer.*.attention.output.LayerNorm",
    "layers.*.feed.up": "encoder.layer.*.intermediate.dense",
    "layers.*.feed.down": "encoder.layer.*.output.dense",
    "layers.*.norm2": "encoder.layer.*.output.LayerNorm",
}
_MASKED = {
    "lm_head.dense": "cls.predictions.transform.dense",
    "lm_head.norm": "cls.predictions.transform.LayerNorm",
    "lm_head.bias": "cls.predictions.bias",
}
_LM_HEAD = {
    "lm_head.dense": "lm_head.dense",
    "lm_head.norm": "lm_head.layer_norm",
    "lm_head.bias": "lm_head.bias",
}
_OUT = {"classifier.dense": "classifier.dense", "classifier.out": "classifier.out_proj"}
_ALBERT = "encoder.albert_layer_groups.*.albert_layers.*"
_BERT = Kind("bert", _LAYER, _MASKED, "cls.predictions.decoder", {"classifier.out": "classifier"})
_ROBERTA = Kind(
    "roberta", _LAYER, _LM_HEAD, "lm_head.decoder", _OUT, act="tanh", masked_act="gelu", padded=True
)

KINDS: dict[str, Kind] = {
    "bert": _BERT,
    "ernie": Kind("ernie", _LAYER, _MASKED, "cls.predictions.decoder", _BERT.classify),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Kind(
        "distilbert",
        {
            "layers.*.attention.q": "transformer.layer.*.attention.q_lin",
            "layers.*.attention.k": "transformer.layer.*.attention.k_lin",
            "layers.*.attention.v": "transformer.layer.*.attention.v_lin",
            "layers.*.attention.o": "transformer.layer.*.attention.out_lin",
            "layers.*.norm1": "transformer.layer.*.sa_layer_norm",
            "layers.*.feed.up": "transformer.layer.*.ffn.lin1",
            "layers.*.feed.down": "transformer.layer.*.ffn.lin2",
            "layers.*.norm2": "transformer.layer.*.output_layer_norm",
        },
        {
            "lm_head.dense": "vocab_transform",
            "lm_head.norm": "vocab_layer_norm",
            "lm_head.bias": "vocab_projector.bias",
        },
        "vocab_projector",
        {"classifier.dense": "pre_classifier", "classifier.out": "classifier"},
        pooler="",
        act="relu",
        types=False,
    ),
    "albert": Kind(
        "albert",
        {
            **{
                f"groups.*.*.attention.{ours}": f"{_ALBERT}.attention.{theirs}"
                for ours, theirs in zip("qkvo", ("query", "key", "value", "dense"), strict=True)
            },
            "groups.*.*.norm1": f"{_ALBERT}.attention.LayerNorm",
            "groups.*.*.feed.up": f"{_ALBERT}.ffn",
            "groups.*.*.feed.down": f"{_ALBERT}.ffn_output",
            "groups.*.*.norm2": f"{_ALBERT}.full_layer_layer_norm",
        },
        {
            "lm_head.dense": "predictions.dense",
            "lm_head.norm": "predictions.LayerNorm",
            "lm_head.bias": "predictions.bias",
        },
        "predictions.decoder",
        _BERT.classify,
        {"embeddings.project": "encoder.embedding_hidden_mapping_in"},
        pooler="pooler",
    ),
    "electra": Kind(
        "electra",
        _LAYER,
        {
            "lm_head.dense": "generator_predictions.dense",
            "lm_head.norm": "generator_predictions.LayerNorm",
            "lm_head.bias": "generator_lm_head.bias",
        },
        "generator_lm_head",
        _OUT,
        {"embeddings.project": "embeddings_project"},
        pooler="",
        act="gelu",
        masked_act="gelu",
    ),
    "mpnet": Kind(
        "mpnet",
        {
            **_LAYER,
            **{f"layers.*.attention.{n}": f"encoder.layer.*.attention.attn.{n}" for n in "qkvo"},
            "layers.*.norm1": "encoder.layer.*.attention.LayerNorm",
        },
        _LM_HEAD,
        "lm_head.decoder",
        _OUT,
        {"bias.weight": "encoder.relative_attention_bias.weight"},
        act="tanh",
        masked_act="gelu",
        types=False,
        padded=True,
        pad=1,
    ),
    "nomic_bert": Kind(
        "nomic_bert",
        {
            "layers.*.attention.o": "encoder.layers.*.attn.out_proj",
            "layers.*.feed.up": "encoder.layers.*.mlp.fc11",
            "layers.*.feed.gate": "encoder.layers.*.mlp.fc12",
            "layers.*.feed.down": "encoder.layers.*.mlp.fc2",
            "layers.*": "encoder.layers.*",
        },
        {**_MASKED, "lm_head.norm": "cls.predictions.transform.layer_norm"},
        "cls.predictions.decoder",
        _BERT.classify,
        {"embeddings.norm": "emb_ln"},
        pooler="",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Config(ModelConfig):
    """An encoder of any type in `KINDS`."""

    words: int
    width: int
    layers: int
    heads: int
    inner: int
    act: str
    epsilon: float
    positions: int  # how many are learnt; 0: none
    types: int
    tasks: int  # ERNIE's task types; 0: none
    embedding: int  # the width of the embeddings
    groups: int  # ALBERT's groups of shared layers; 0: every layer has its own
    group_size: int
    buckets: int  # MPNet's relative positions; 0: none
    rope: Rope | None  # NomicBERT's
    pad: int
    tied: bool
    dropout: float
    attention_dropout: float

    @property
    def kind(self) -> Kind:
        """The row of `KINDS`."""
        return KINDS[self.model_type]

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Config:
        """The config in the dictionary of a config.json."""
        keys = Keys(raw, _DEFAULTS.get(str(raw.get("model_type")), {}))
        kind = KINDS[keys.model_type]
        keys.only("position_embedding_type", "absolute")
        keys.only("is_decoder", False)
        keys.only("add_cross_attention", False)
        keys.only("chunk_size_feed_forward", 0)
        keys.ignore("sinusoidal_pos_embds")  # the positions are in the file either way
        keys.ignore("net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor")
        keys.ignore("summary_type", "summary_use_proj", "summary_activation")
        keys.ignore("summary_last_dropout", "pooler_num_fc_layers", "pooler_size_per_head")
        keys.ignore("pooler_fc_size", "pooler_num_attention_heads", "pooler_type", "directionality")
        width = keys.number("hidden_size", 768, "dim")
        heads = keys.number("num_attention_heads", 12, "n_heads")
        if not heads or width % heads:
            raise keys.bad("num_attention_heads", heads, f"a divisor of {width}")
        rotary = keys.model_type == "nomic_bert"
        limit = keys.number("max_position_embeddings", 512)
        grouped = keys.model_type == "albert"
        size = width // heads
        if rotary and keys.take("head_dim", None) not in (None, size):
            raise keys.bad("head_dim", keys.take("head_dim"), f"{size} (hidden_size by heads)")
        config = cls(
            model_type=keys.model_type,
            raw=raw,
            words=keys.number("vocab_size"),
            width=width,
            layers=keys.number("num_hidden_layers", 12, "n_layers"),
            heads=heads,
            inner=keys.number("intermediate_size", 4 * width, "hidden_dim"),
            act=str(keys.take("hidden_act", "gelu", "activation")),
            epsilon=keys.real("layer_norm_eps", 1e-12),
            positions=0 if rotary else limit,
            types=keys.number("type_vocab_size", 2) if kind.types else 0,
            tasks=_tasks(keys),
            embedding=keys.number("embedding_size", width),
            groups=keys.number("num_hidden_groups", 1) if grouped else 0,
            group_size=keys.number("inner_group_num", 1) if grouped else 1,
            buckets=keys.number("relative_attention_num_buckets", 32)
            if keys.model_type == "mpnet"
            else 0,
            rope=read_rope(keys, size, limit, 1000.0) if rotary else None,
            pad=kind.pad if kind.pad is not None else int(keys.take("pad_token_id", 0) or 0),
            tied=keys.flag("tie_word_embeddings", True),
            dropout=keys.real("hidden_dropout_prob", 0.1, "dropout"),
            attention_dropout=keys.real("attention_probs_dropout_prob", 0.1, "attention_dropout"),
        )
        keys.done()
        return config


_DEFAULTS: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 128, "hidden_act": "gelu_new"},
    "electra": {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4},
    "roberta": {"pad_token_id": 1},
    "xlm-roberta": {"pad_token_id": 1},
    "camembert": {"pad_token_id": 1},
    "nomic_bert": {"hidden_act": "silu", "max_position_embeddings": 2048},
}


def _tasks(keys: Keys) -> int:
    if keys.model_type != "ernie":
        return 0
    count = keys.number("task_type_vocab_size", 3)
    return count if keys.flag("use_task_id", False) else 0


class Embeddings(nn.Layer):
    """Words, positions and token types, added and normed."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.embedding
        self.padded = config.pad if config.kind.padded else None
        self.words = nn.Embedding(config.words, width)
        self.positions = nn.Embedding(config.positions, width) if config.positions else None
        self.types = nn.Embedding(config.types, width) if config.types else None
        self.tasks = nn.Embedding(config.tasks, width) if config.tasks else None
        self.norm = nn.LayerNorm(width, epsilon=config.epsilon)
        self.dropout = nn.Dropout(config.dropout)
        projected = width != config.width or config.groups > 0
        self.project = linear(width, config.width) if projected else None

    def forward(self, ids: Tensor, types: Tensor | None, tasks: Tensor | None) -> Tensor:
        x = self.words(ids)
        if self.types is not None:
            # Of one row for all tokens, a sum with a vector.
            x = x + (self.types.weight[0] if types is None else self.types(types))
        if self.positions is not None:
            x = x + self._placed(ids, self.positions)
        if self.tasks is not None:
            x = x + (self.tasks.weight[0] if tasks is None else self.tasks(tasks))
        x = self.dropout(self.norm(x))
        return x if self.project is None else self.project(x)

    def _placed(self, ids: Tensor, table: nn.Embedding) -> Tensor:
        rows = ids.shape[1]
        if self.padded is None:
            return table.weight[:rows]
        # Padding has the place `padded`, the other tokens are counted from the next one on.
        real = (ids != self.padded).astype("int64")
        return table(real.cumsum(1) * real + self.padded)


class Model(nn.Layer):
    """An encoder: hidden states [batch, tokens, width] of tokens."""

    def __init__(self, config: Config, pooler: bool = True) -> None:
        super().__init__()
        kind = config.kind
        self.count = config.layers
        self.embeddings = Embeddings(config)
        grouped = config.groups > 0
        made = [
            nn.LayerList([_block(config) for _ in range(config.group_size)])
            for _ in range(config.groups)
        ]
        self.groups = nn.LayerList(made) if grouped else None
        blocks = [] if grouped else [_block(config) for _ in range(config.layers)]
        self.layers = None if grouped else nn.LayerList(blocks)
        self.bias = RelativeBias(config.buckets, config.heads) if config.buckets else None
        self.pooler = linear(config.width, config.width) if pooler and kind.pooler else None

    @property
    def embedding(self) -> Tensor:
        """The table of words."""
        return self.embeddings.words.weight

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        task_type_ids: Tensor | None = None,
    ) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids, task_type_ids)
        mask = keep_mask(attention_mask)
        if self.bias is not None:
            mask = added(mask, self.bias(input_ids.shape[1]))
        for block in self._blocks():
            x = block(x, mask)
        return x

    def _blocks(self) -> list[Any]:
        if self.layers is not None:
            return list(self.layers)
        groups: list[Any] = list(self.groups or [])
        order = [i * len(groups) // self.count for i in range(self.count)]
        return [block for i in order for block in groups[i]]

    def pooled(self, hidden: Tensor) -> Tensor:
        """One vector per sample, of its first token: [batch, width]."""
        if self.pooler is None:
            raise InvalidArgument(
                "[zoo] this encoder has no pooler: its files have none. Take the first token's "
                "vector or the mean of all"
            )
        return F.tanh(self.pooler(hidden[:, 0]))


def _block(config: Config) -> Block:
    gated = config.rope is not None
    settings: dict[str, Any] = {"dropout": config.attention_dropout}
    if config.rope is None:
        attention = Attention(config.width, config.heads, **settings)
    else:
        plain = (False, False, False, False)
        attention = TurnedAttention(config.rope, config.width, config.heads, bias=plain, **settings)
    feed = Feed(config.width, config.inner, activation(config.act), gated=gated, bias=not gated)
    return Block(
        attention,
        feed,
        lambda: nn.LayerNorm(config.width, epsilon=config.epsilon),
        before=False,
        dropout=config.dropout,
    )


def _masked(config: Config) -> MaskedLM:
    act = activation(config.kind.masked_act or config.act)
    # Only ALBERT's and ELECTRA's embeddings have a width of their own.
    head = MaskedHead(
        config.width,
        config.embedding,
        config.words,
        act,
        lambda: nn.LayerNorm(config.embedding, epsilon=config.epsilon),
        tied=config.tied,
    )
    return MaskedLM(Model(config, pooler=False), head)


def _classifier(config: Config) -> SequenceClassifier:
    act = config.kind.act
    head = ClassHead(
        config.width,
        config.num_labels,
        act=activation(act) if act else None,
        dropout=config.dropout,
    )
    pooled = not act and bool(config.kind.pooler)
    return SequenceClassifier(Model(config, pooler=pooled), head, "pooler" if pooled else "first")


def _tokens(config: Config) -> TokenClassifier:
    head = ClassHead(config.width, config.num_labels, dropout=config.dropout)
    return TokenClassifier(Model(config, pooler=False), head)


def _answers(config: Config) -> QuestionAnswerer:
    return QuestionAnswerer(Model(config, pooler=False), ClassHead(config.width, 2))


TASKS = {
    "base": Model,
    "masked_lm": _masked,
    "classifier": _classifier,
    "token_classifier": _tokens,
    "question_answering": _answers,
}


def names(config: Config, task: str) -> Names:
    """The names of a type's tensors."""
    kind = config.kind
    words = f"{kind.base}.embeddings.word_embeddings.weight"
    masked = dict(kind.masked)
    bias = masked["lm_head.bias"]
    copies: dict[str, str] = {}
    if config.tied:
        copies[f"{kind.decoder}.weight"] = words
        if bias != f"{kind.decoder}.bias":
            copies[f"{kind.decoder}.bias"] = bias
    else:
        masked = {"lm_head.words": kind.decoder, **masked, "lm_head.bias": f"{kind.decoder}.bias"}
    qkv = tuple(f"layers.*.attention.{n}.weight" for n in "qkv")
    one = fused(qkv, "encoder.layers.*.attn.Wqkv.weight", (config.width,) * 3)
    return Names(
        base=kind.base,
        rules=() if config.rope is None else (one,),
        layers={
            **_EMBEDDINGS,
            **kind.embeddings,
            **kind.layer,
            "pooler": kind.pooler,
            **masked,
            **kind.classify,
            "token_classifier.out": "classifier",
            "qa_outputs.out": "qa_outputs",
        },
        ignored=(
            "embeddings.position_ids",
            "embeddings.token_type_ids",
            # Of heads and poolers that a checkpoint has and the wanted model does not.
            "cls.seq_relationship.weight",
            "cls.seq_relationship.bias",
            "sop_classifier.classifier.weight",
            "sop_classifier.classifier.bias",
            f"{kind.pooler or 'pooler'}.weight",
            f"{kind.pooler or 'pooler'}.bias",
            *(() if config.tied else (bias,)),
        ),
        copies=copies,
        optional={"pooler": ""},
    )
