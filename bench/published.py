"""Plans for published models on simulated clusters, beside the layouts that were published.

    python -m bench.published [gpt3 llama3 mixtral]

Both are predicted by the same cost model; a published layout is a plan with its degrees given.
Nothing is measured, so any machine prints the same table.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import bireme as paddle
from bireme import distributed as dist
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.distributed.planner import Cluster, Plan
from bireme.incubate.distributed.models import moe
from bireme.nn import functional as F
from bireme.static import InputSpec
from bireme.zoo.auto import AutoConfig, AutoModelForCausalLM

LLAMA = {
    "model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248,
    "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8,
    "vocab_size": 128256, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
    "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


class GPT3(nn.Layer):
    """GPT-3 175B: 96 layers of width 12,288."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(51200, 12288), nn.Embedding(2048, 12288)
        block = nn.TransformerEncoderLayer(
            12288, 96, 49152, dropout=0.0, activation="gelu", normalize_before=True
        )
        self.blocks = nn.TransformerEncoder(block, 96)
        self.head = nn.Linear(12288, 51200, bias_attr=False)

    def forward(self, ids: Any) -> Any:
        places = paddle.arange(ids.shape[1]).unsqueeze(0)
        return self.head(self.blocks(self.words(ids) + self.places(places)))


class MixtralBlock(nn.Layer):
    """Grouped-query attention and 8 experts, of which a token takes two."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(4096), nn.RMSNorm(4096)
        self.q, self.o = (nn.Linear(4096, 4096, bias_attr=False) for _ in range(2))
        self.k, self.v = (nn.Linear(4096, 1024, bias_attr=False) for _ in range(2))
        gate = moe.GShardGate(4096, 8, 1, capacity=(0.3125, 0.3125), random_routing=False)
        experts = moe.StackedExperts(8, 4096, 14336, act="silu", gated=True)
        self.mixture = moe.MoELayer(4096, experts, gate)

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        q, k, v = (
            layer(h).reshape([0, 0, heads, 128])
            for layer, heads in ((self.q, 32), (self.k, 8), (self.v, 8))
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(seen.reshape([0, 0, 4096]))
        return x + self.mixture(self.second(x))


def _mixtral() -> nn.Layer:
    return nn.Sequential(
        nn.Embedding(32000, 4096), *[MixtralBlock() for _ in range(32)], nn.RMSNorm(4096),
        nn.Linear(4096, 32000, bias_attr=False),
    )  # fmt: skip


def _llama() -> nn.Layer:
    return AutoModelForCausalLM.from_config(AutoConfig.from_dict(LLAMA), dtype="bfloat16")


# name: how it is made, words of a sequence, devices with rows of a batch, published degrees.
MODELS: dict[str, Any] = {
    "gpt3": (
        GPT3, 2048, {8: 64, 384: 1536, 768: 1536, 1536: 1536, 16384: 4096},
        {"Megatron-LM (2021)": {"mp": 8, "pp": 12}, "Megatron-Core": {"mp": 4, "pp": 8}},
    ),
    "llama3": (
        _llama, 8192, {8: 64, 512: 256, 8192: 2048, 16384: 2048},
        {"Meta": {"mp": 8, "pp": 16}},
    ),
    "mixtral": (
        _mixtral, 4096, {8: 256, 64: 1024, 128: 256, 1024: 1024, 16384: 16384},
        {"Megatron-Core": {"mp": 1, "pp": 4, "ep": 8}},
    ),
}  # fmt: skip


def lazily(build: Any) -> nn.Layer:
    before = paddle.get_default_dtype()
    paddle.set_default_dtype("bfloat16")
    try:
        with paddle.LazyGuard():
            return build()
    finally:
        paddle.set_default_dtype(before)


def row(model: nn.Layer, words: int, count: int, batch: int, degrees: Any) -> tuple[Plan, float]:
    start = time.process_time()
    found = dist.plan(
        model, [InputSpec([2, words], "int64")], Cluster.h100(count), batch_size=batch,
        degrees=degrees,
    )  # fmt: skip
    return found, time.process_time() - start


def main(names: list[str]) -> None:
    print("| model | H100s | batch | whose | dp | mp | pp | ep | ZeRO | MFU | GB | CPU s to plan |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name in names or MODELS:
        build, words, sizes, published = MODELS[name]
        model = lazily(build)
        for count, batch in sizes.items():
            for who, degrees in {"planner": None, **published}.items():
                head = f"| {name} | {count} | {batch} | {who} |"
                try:
                    plan, seconds = row(model, words, count, batch, degrees)
                except InvalidArgument as e:
                    print(f"{head} {str(e).partition(';')[0]} |", flush=True)
                    continue
                d = plan.degrees
                print(
                    f"{head} {d.dp} | {d.mp} | {d.pp} | {d.ep} | {d.zero} | {plan.mfu:.1%} | "
                    f"{plan.memory / 1e9:.0f} | {seconds:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
