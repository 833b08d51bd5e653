"""`python -m bench.gpu.decode`: tokens per second of a Llama-style model at batch 1, in bf16.

Bireme's `nn.generation` beside torch with a static cache and torch.compile(mode="reduce-overhead"),
each in a process of its own. Every token reads all weights and the cache once, so the bytes read
per second are set against what the memory gives. `--size tiny` runs the Bireme half anywhere.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.gpu.peer import GpuPeer, PeerError

PEERS = ("bireme", "torch")
MEMORY_CEILING = 4.3e12  # bytes per second that this GPU's memory gives to a large copy


@dataclass(frozen=True)
class Size:
    """A Llama-style decoder and what is asked of it."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    prompt: int = 100
    tokens: int = 256
    length: int = 512  # of the cache
    dtype: str = "bfloat16"
    base: float = 10000.0  # of the rotary embedding

    @property
    def head(self) -> int:
        return self.width // self.heads

    def bytes_per_token(self) -> int:
        """Weights of all products once (the embedding is one row) and the whole cache."""
        d, kv = self.width, self.kv_heads * self.head
        each = 2 * d * d + 2 * d * kv + 3 * d * self.feed_forward + 2 * d
        weights = self.layers * each + d + self.vocabulary * d
        cache = 2 * self.layers * self.length * kv
        return (weights + cache) * (2 if self.dtype == "bfloat16" else 4)


SIZES = {
    "1.1b": Size(22, 2048, 32, 4, 5632, 32000),
    "tiny": Size(2, 64, 4, 2, 128, 256, prompt=10, tokens=40, length=64, dtype="float32"),
}


def tables(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of rotary embeddings, [length, head]: halves, not pairs, are turned."""
    half = size.head // 2
    angles = np.outer(np.arange(size.length), size.base ** (-np.arange(half) / half))
    angles = np.concatenate([angles, angles], -1)
    return np.cos(angles).astype("float32"), np.sin(angles).astype("float32")


def build(paddle: Any, size: Size) -> Any:
    """The model in Paddle's API: plain layers, and a cache where one is given."""
    nn, F = paddle.nn, paddle.nn.functional
    d, kv = size.width, size.kv_heads * size.head
    start = paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, 0.02))

    def linear(n_in: int, n_out: int) -> Any:
        return nn.Linear(n_in, n_out, weight_attr=start, bias_attr=False)

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        a, b = paddle.chunk(x, 2, -1)
        return x * cos + paddle.concat([-b, a], -1) * sin

    class Block(nn.Layer):
        def __init__(self, index: int):
            super().__init__()
            self.index = index
            self.norm1, self.norm2 = nn.RMSNorm(d, 1e-5), nn.RMSNorm(d, 1e-5)
            self.q, self.mix = linear(d, d), linear(d, d)
            self.k, self.v = linear(d, kv), linear(d, kv)
            self.gate, self.up = linear(d, size.feed_forward), linear(d, size.feed_forward)
            self.down = linear(size.feed_forward, d)

        def forward(self, x, cos, sin, cache):
            batch, rows, _ = x.shape
            h = self.norm1(x)
            q = turned(self.q(h).reshape([batch, rows, size.heads, size.head]), cos, sin)
            k = turned(self.k(h).reshape([batch, rows, size.kv_heads, size.head]), cos, sin)
            v = self.v(h).reshape([batch, rows, size.kv_heads, size.head])
            if cache is None:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = cache.attend(self.index, q, k, v)
            x = x + self.mix(y.reshape([batch, rows, d]))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Layer):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(size.vocabulary, d, weight_attr=start)
            self.blocks = nn.LayerList([Block(i) for i in range(size.layers)])
            self.norm, self.head = nn.RMSNorm(d, 1e-5), linear(d, size.vocabulary)
            cos, sin = (paddle.to_tensor(t) for t in tables(size))
            self.register_buffer("cos", cos, persistable=False)
            self.register_buffer("sin", sin, persistable=False)

        def forward(self, ids, cache=None):
            batch, rows = ids.shape
            x = self.token(ids)
            if cache is None:
                places = paddle.arange(rows).reshape([1, rows])
            else:
                places = cache.places(batch, rows)
            cos = F.embedding(places, self.cos).unsqueeze(2).astype(x.dtype)
            sin = F.embedding(places, self.sin).unsqueeze(2).astype(x.dtype)
            for block in self.blocks:
                x = block(x, cos, sin, cache)
            x = x if cache is None else cache.last(x)
            return self.head(self.norm(x))

    model = Llama()
    model.eval()
    if size.dtype != "float32":
        model.to(dtype=size.dtype)
    return model


def bireme(size: Size) -> Any:
    import bireme as paddle
    from bireme.nn.generation import generate

    if size.dtype == "bfloat16":
        paddle.set_device("gpu")
    paddle.seed(0)
    model = build(paddle, size)
    prompt = _prompt(size)

    def run(tokens: int) -> Any:
        return generate(model, prompt, tokens, cache_length=size.length).numpy()

    return run


def torch(size: Size) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_float32_matmul_precision("high")
    device, dtype = "cuda", getattr(torch, size.dtype)
    d, kv = size.width, size.kv_heads * size.head

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(d, 1e-5), nn.RMSNorm(d, 1e-5)
            self.q, self.mix = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
            self.k, self.v = nn.Linear(d, kv, bias=False), nn.Linear(d, kv, bias=False)
            self.gate = nn.Linear(d, size.feed_forward, bias=False)
            self.up = nn.Linear(d, size.feed_forward, bias=False)
            self.down = nn.Linear(size.feed_forward, d, bias=False)
            shape = (1, size.kv_heads, size.length, size.head)
            self.register_buffer("keys", torch.zeros(shape))
            self.register_buffer("values", torch.zeros(shape))

        def forward(self, x, cos, sin, places, mask):
            batch, rows, _ = x.shape
            h = self.norm1(x)
            q = self.q(h).view(batch, rows, size.heads, size.head).transpose(1, 2)
            k = self.k(h).view(batch, rows, size.kv_heads, size.head).transpose(1, 2)
            v = self.v(h).view(batch, rows, size.kv_heads, size.head).transpose(1, 2)
            q, k = turned(q, cos, sin), turned(k, cos, sin)
            self.keys.index_copy_(2, places, k)
            self.values.index_copy_(2, places, v)
            y = F.scaled_dot_product_attention(
                q, self.keys, self.values, attn_mask=mask, enable_gqa=True
            )
            x = x + self.mix(y.transpose(1, 2).reshape(batch, rows, d))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(size.vocabulary, d)
            self.blocks = nn.ModuleList([Block() for _ in range(size.layers)])
            self.norm, self.head = nn.RMSNorm(d, 1e-5), nn.Linear(d, size.vocabulary, bias=False)
            cos, sin = (torch.from_numpy(t) for t in tables(size))
            self.register_buffer("cos", cos)
            self.register_buffer("sin", sin)

        def forward(self, ids, places):
            x = self.token(ids)
            cos, sin = self.cos[places].to(x.dtype), self.sin[places].to(x.dtype)
            mask = torch.arange(size.length, device=ids.device)[None] <= places[:, None]
            for block in self.blocks:
                x = block(x, cos, sin, places, mask)
            return self.head(self.norm(x[:, -1:])).argmax(-1)

    model = Llama().to(device=device, dtype=dtype).eval()
    step = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    prompt = torch.from_numpy(_prompt(size)).to(device)

    @torch.no_grad()
    def run(tokens: int) -> Any:
        made = [model(prompt, torch.arange(size.prompt, device=device)).clone()]
        places = torch.tensor([size.prompt], device=device)
        for _ in range(tokens - 1):
            torch.compiler.cudagraph_mark_step_begin()
            made.append(step(made[-1], places).clone())
            places = places + 1
        return torch.cat(made, 1).cpu().numpy()

    return run


def _prompt(size: Size) -> np.ndarray:
    return np.random.default_rng(0).integers(0, size.vocabulary, (1, size.prompt))


def prepare(peer: str, size: Size | str) -> Callable[[], dict[str, Any]]:
    """Build, compile and warm up; what is returned then measures."""
    size = SIZES[size] if isinstance(size, str) else size
    run = (bireme if peer == "bireme" else torch)(size)
    short = size.tokens // 4
    for _ in range(2):
        run(short)

    def measure() -> dict[str, Any]:
        """Seconds per token from the difference of a long and a short run: no prompt, no start."""
        best = {short: float("inf"), size.tokens: float("inf")}
        for _ in range(3):
            for count in best:
                start = time.perf_counter()
                tokens = run(count)
                best[count] = min(best[count], time.perf_counter() - start)
        each = (best[size.tokens] - best[short]) / (size.tokens - short)
        return {
            "tokens_per_s": 1 / each, "ms": each * 1e3,
            "bytes_per_token": size.bytes_per_token(),
            "of_ceiling": size.bytes_per_token() / each / MEMORY_CEILING,
            "first_tokens": tokens[0, :8].tolist(),
        }  # fmt: skip

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="1.1b")
    parser.add_argument("--peers", default=None)
    parser.add_argument("--out", help="write the figures here")
    options = parser.parse_args()
    peers = options.peers or ("bireme" if options.size == "tiny" else ",".join(PEERS))
    results: dict[str, Any] = {"size": asdict(SIZES[options.size])}
    for peer in peers.split(","):
        try:
            with GpuPeer("decode", peer, "decode", {"size": options.size}) as worker:
                row = results[peer] = worker.prepare() | worker.measure()
        except PeerError as e:
            print(f"{peer} failed: {e}", flush=True)
            continue
        print(
            f"{peer:8} {row['tokens_per_s']:8.1f} tokens/s  {row['ms']:7.3f} ms  "
            f"{row['bytes_per_token'] / 1e9:.3f} GB per token  "
            f"{100 * row['of_ceiling']:5.1f} % of {MEMORY_CEILING / 1e12:.1f} TB/s  "
            f"ready after {row['ready_s']:.0f} s",
            flush=True,
        )
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
