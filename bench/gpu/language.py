"""Language models for the GPU: sizes, work counted, and one model for Paddle's API and torch."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Transformer:
    """A decoder. `kv_heads` of 0 means GPT-2's block, otherwise Llama's."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    vocabulary: int
    batch: int
    tokens: int
    kv_heads: int = 0
    learning_rate: float = 3e-4

    @property
    def is_llama(self) -> bool:
        return self.kv_heads > 0

    def parameters(self) -> int:
        """Weights that take part in products, the tied embedding once."""
        d = self.width
        if not self.is_llama:
            each = d * 3 * d + d * d + 2 * d * self.feed_forward
        else:
            head = d // self.heads
            each = 2 * d * d + 2 * d * head * self.kv_heads + 3 * d * self.feed_forward
        return self.layers * each + self.vocabulary * d

    def flops(self) -> float:
        """Of one training step: 6 per weight and token, and causal attention."""
        tokens = self.batch * self.tokens
        attention = 6 * self.layers * tokens * self.tokens * self.width
        return 6.0 * self.parameters() * tokens + attention


SIZES = {
    "gpt2": Transformer(12, 768, 12, 3072, 50257, batch=16, tokens=1024),
    "llama1b": Transformer(22, 2048, 32, 5632, 32000, batch=4, tokens=4096, kv_heads=4),
    "gpt2_tiny": Transformer(2, 32, 2, 64, 97, batch=2, tokens=16),
    "llama_tiny": Transformer(2, 32, 4, 64, 97, batch=2, tokens=16, kv_heads=2),
}


def batches(size: Transformer, count: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, size.vocabulary, (size.batch, size.tokens + 1)) for _ in range(count)]


def weights(size: Transformer) -> dict[str, np.ndarray]:
    """GPT-2's starting weights, by the names that both models give them; linears are [in, out]."""
    rng = np.random.default_rng(1)
    d, f = size.width, size.feed_forward

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape, np.float32) * 0.02).astype("float32")

    made = {"token": normal(size.vocabulary, d), "place": normal(size.tokens, d)}
    for i in range(size.layers):
        for name, (n_in, n_out) in {
            "qkv": (d, 3 * d), "mix": (d, d), "up": (d, f), "down": (f, d)
        }.items():  # fmt: skip
            made[f"{i}.{name}"] = normal(n_in, n_out)
    return made


def build(paddle: ModuleType, size: Transformer) -> Any:
    """The model in Paddle's API; its forward gives the mean loss of predicting the next token."""
    return _llama(paddle, size) if size.is_llama else _gpt(paddle, size)


def _gpt(paddle: ModuleType, size: Transformer) -> Any:
    nn, F = paddle.nn, paddle.nn.functional
    d, heads = size.width, size.heads

    class Block(nn.Layer):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.mix = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, size.feed_forward), nn.Linear(size.feed_forward, d)

        def forward(self, x):
            batch, tokens, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape([batch, tokens, 3, heads, -1]).unbind(2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.mix(y.reshape([batch, tokens, d]))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=True))

    class GPT(nn.Layer):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(size.vocabulary, d)
            self.place = nn.Embedding(size.tokens, d)
            self.blocks = nn.LayerList([Block() for _ in range(size.layers)])
            self.norm = nn.LayerNorm(d)

        def forward(self, tokens, targets):
            x = self.token(tokens) + self.place(paddle.arange(size.tokens))
            for block in self.blocks:
                x = block(x)
            logits = paddle.matmul(self.norm(x), self.token.weight, transpose_y=True)
            return F.cross_entropy(logits.reshape([-1, size.vocabulary]), targets.reshape([-1]))

    model = GPT()
    for name, array in weights(size).items():
        owner: Any = model
        if name[0].isdigit():
            index, name = name.split(".")
            owner = model.blocks[int(index)]
        getattr(owner, name).weight.set_value(array)
    return model


def _llama(paddle: ModuleType, size: Transformer) -> Any:
    nn, F = paddle.nn, paddle.nn.functional
    d, heads, kv, half = size.width, size.heads, size.kv_heads, size.width // size.heads // 2
    angles = np.outer(np.arange(size.tokens), 10000.0 ** (-np.arange(half) / half))
    cos = paddle.to_tensor(np.cos(angles)[None, :, None, :].astype("float32"))
    sin = paddle.to_tensor(np.sin(angles)[None, :, None, :].astype("float32"))
    start = paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, 0.02))

    def linear(n_in, n_out):
        return nn.Linear(n_in, n_out, weight_attr=start, bias_attr=False)

    def rotated(x):
        a, b = x[..., :half].astype("float32"), x[..., half:].astype("float32")
        return paddle.concat([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)

    class Block(nn.Layer):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
            self.q, self.mix = linear(d, d), linear(d, d)
            self.k, self.v = linear(d, 2 * half * kv), linear(d, 2 * half * kv)
            self.gate, self.up = linear(d, size.feed_forward), linear(d, size.feed_forward)
            self.down = linear(size.feed_forward, d)

        def forward(self, x):
            batch, tokens, _ = x.shape
            h = self.norm1(x)
            q = rotated(self.q(h).reshape([batch, tokens, heads, 2 * half]))
            k = rotated(self.k(h).reshape([batch, tokens, kv, 2 * half]))
            v = self.v(h).reshape([batch, tokens, kv, 2 * half])
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.mix(y.reshape([batch, tokens, d]))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Layer):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(size.vocabulary, d, weight_attr=start)
            self.blocks = nn.LayerList([Block() for _ in range(size.layers)])
            self.norm = nn.RMSNorm(d)

        def forward(self, tokens, targets):
            x = self.token(tokens)
            for block in self.blocks:
                x = block(x)
            logits = paddle.matmul(self.norm(x), self.token.weight, transpose_y=True)
            return F.cross_entropy(logits.reshape([-1, size.vocabulary]), targets.reshape([-1]))

    return Llama()


def build_torch(torch: ModuleType, size: Transformer) -> Any:
    """The same model in torch, on the GPU."""
    return _torch_llama(torch, size) if size.is_llama else _torch_gpt(torch, size)


def _torch_gpt(torch: Any, size: Transformer) -> Any:
    nn, F = torch.nn, torch.nn.functional
    d, heads = size.width, size.heads

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.mix = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, size.feed_forward), nn.Linear(size.feed_forward, d)

        def forward(self, x):
            batch, tokens, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, heads, -1).unbind(2)
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.mix(y.transpose(1, 2).reshape(batch, tokens, d))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(size.vocabulary, d)
            self.place = nn.Embedding(size.tokens, d)
            self.blocks = nn.ModuleList([Block() for _ in range(size.layers)])
            self.norm = nn.LayerNorm(d)

        def forward(self, tokens, targets):
            x = self.token(tokens) + self.place(torch.arange(size.tokens, device=tokens.device))
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.token.weight)
            return F.cross_entropy(logits.view(-1, size.vocabulary), targets.reshape(-1))

    model = GPT()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.bias.zero_()
        for name, array in weights(size).items():
            owner: Any = model
            if name[0].isdigit():
                index, name = name.split(".")
                owner = model.blocks[int(index)]
            linear = isinstance(getattr(owner, name), nn.Linear)
            getattr(owner, name).weight.copy_(torch.from_numpy(array.T if linear else array))
    return model.cuda()


def _torch_llama(torch: Any, size: Transformer) -> Any:
    nn, F = torch.nn, torch.nn.functional
    d, heads, kv, half = size.width, size.heads, size.kv_heads, size.width // size.heads // 2
    angles = np.outer(np.arange(size.tokens), 10000.0 ** (-np.arange(half) / half))
    cos = torch.tensor(np.cos(angles)[None, :, None, :], dtype=torch.float32, device="cuda")
    sin = torch.tensor(np.sin(angles)[None, :, None, :], dtype=torch.float32, device="cuda")

    def linear(n_in, n_out):
        return nn.Linear(n_in, n_out, bias=False)

    def rotated(x):
        a, b = x[..., :half].float(), x[..., half:].float()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
            self.q, self.mix = linear(d, d), linear(d, d)
            self.k, self.v = linear(d, 2 * half * kv), linear(d, 2 * half * kv)
            self.gate, self.up = linear(d, size.feed_forward), linear(d, size.feed_forward)
            self.down = linear(size.feed_forward, d)

        def forward(self, x):
            batch, tokens, _ = x.shape
            h = self.norm1(x)
            q = rotated(self.q(h).view(batch, tokens, heads, 2 * half)).transpose(1, 2)
            k = rotated(self.k(h).view(batch, tokens, kv, 2 * half)).transpose(1, 2)
            v = self.v(h).view(batch, tokens, kv, 2 * half).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.mix(y.transpose(1, 2).reshape(batch, tokens, d))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(size.vocabulary, d)
            self.blocks = nn.ModuleList([Block() for _ in range(size.layers)])
            self.norm = nn.RMSNorm(d)

        def forward(self, tokens, targets):
            x = self.token(tokens)
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.token.weight)
            return F.cross_entropy(logits.view(-1, size.vocabulary), targets.reshape(-1))

    with torch.device("cuda"):
        model = Llama()
        with torch.no_grad():
            for p in model.parameters():
                if p.ndim > 1:
                    p.normal_(0.0, 0.02)
    return model
