"""Loops that draw text or pictures: one word or one denoising step at a time, in plain Python."""

from __future__ import annotations

from typing import Any

from bench.short.generative import unet_layer

WORDS = 64


def _attention(paddle: Any, q: Any, k: Any, v: Any, heads: int) -> Any:
    """Attention over [batch, time, width], by products as packages write it."""
    F = paddle.nn.functional

    def split(x: Any) -> Any:
        return x.reshape([x.shape[0], x.shape[1], heads, -1]).transpose([0, 2, 1, 3])

    q, k, v = split(q), split(k), split(v)
    scores = paddle.matmul(q * q.shape[-1] ** -0.5, k, transpose_y=True)
    if q.shape[2] > 1:
        scores = scores + paddle.tensor.triu(paddle.ones(scores.shape[-2:]) * -1e4, diagonal=1)
    mixed = paddle.matmul(F.softmax(scores, axis=-1), v).transpose([0, 2, 1, 3])
    return mixed.reshape([mixed.shape[0], mixed.shape[1], -1])


def _with_past(paddle: Any, past: Any, k: Any, v: Any) -> Any:
    if past is None:
        return k, v
    return paddle.concat([past[0], k], axis=1), paddle.concat([past[1], v], axis=1)


def _gpt_block(paddle: Any, width: int, heads: int) -> Any:
    nn, F = paddle.nn, paddle.nn.functional

    class Block(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, past: Any) -> Any:
            q, k, v = paddle.chunk(self.qkv(self.before(x)), 3, axis=-1)
            k, v = _with_past(paddle, past, k, v)
            x = x + self.out(_attention(paddle, q, k, v, heads))
            return x + self.down(F.gelu(self.up(self.between(x)))), (k, v)

    return Block()


def gpt(paddle: Any, words: int = WORDS, width: int = 128, heads: int = 4) -> float:
    """Greedy search with a small GPT and a cache that grows by concatenation."""
    nn = paddle.nn
    embed, places = nn.Embedding(500, width), nn.Embedding(256, width)
    blocks = nn.LayerList([_gpt_block(paddle, width, heads) for _ in range(4)])
    norm = nn.LayerNorm(width)
    text = paddle.randint(0, 500, [2, 7])
    new, past = text, [None] * len(blocks)
    with paddle.no_grad():
        for _ in range(words):
            begin = text.shape[1] - new.shape[1]
            x = embed(new) + places(paddle.arange(begin, text.shape[1]))
            for i, block in enumerate(blocks):
                x, past[i] = block(x, past[i])
            logits = paddle.matmul(norm(x[:, -1]), embed.weight, transpose_y=True)
            new = paddle.argmax(logits, axis=-1, keepdim=True)
            text = paddle.concat([text, new], axis=1)
            if bool((new == 499).all()):
                break
    return float(text.astype("float32").mean())


def _llama_block(paddle: Any, width: int, heads: int) -> Any:
    nn, F = paddle.nn, paddle.nn.functional

    class Norm(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            one = nn.initializer.Constant(1.0)
            self.weight = self.create_parameter([width], default_initializer=one)

        def forward(self, x: Any) -> Any:
            variance = x.astype("float32").pow(2).mean(-1, keepdim=True)
            return self.weight * (x * paddle.rsqrt(variance + 1e-6))

    def turned(x: Any) -> Any:
        half = x.shape[-1] // 2
        return paddle.concat([-x[..., half:], x[..., :half]], axis=-1)

    class Block(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = Norm(), Norm()
            self.q, self.k, self.v, self.o = (
                nn.Linear(width, width, bias_attr=False) for _ in "qkvo"
            )
            self.gate, self.up = (nn.Linear(width, 3 * width, bias_attr=False) for _ in "gu")
            self.down = nn.Linear(3 * width, width, bias_attr=False)

        def forward(self, x: Any, cos: Any, sin: Any, past: Any) -> Any:
            h = self.before(x)
            q, k, v = self.q(h), self.k(h), self.v(h)
            q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
            k, v = _with_past(paddle, past, k, v)
            x = x + self.o(_attention(paddle, q, k, v, heads))
            h = self.between(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h)), (k, v)

    return Block()


def llama(paddle: Any, words: int = WORDS, width: int = 128, heads: int = 4) -> float:
    """Sampling from the most probable words with a small Llama."""
    nn, F = paddle.nn, paddle.nn.functional
    embed, head = nn.Embedding(500, width), nn.Linear(width, 500, bias_attr=False)
    blocks = nn.LayerList([_llama_block(paddle, width, heads) for _ in range(4)])
    speeds = 10000.0 ** (-paddle.arange(0, width, 2, dtype="float32") / width)
    text = paddle.randint(0, 500, [1, 9])
    new, past = text, [None] * len(blocks)
    with paddle.no_grad():
        for _ in range(words):
            begin = text.shape[1] - new.shape[1]
            at = paddle.arange(begin, text.shape[1]).astype("float32").unsqueeze(-1) * speeds
            at = paddle.concat([at, at], axis=-1)
            x, cos, sin = embed(new), paddle.cos(at), paddle.sin(at)
            for i, block in enumerate(blocks):
                x, past[i] = block(x, cos, sin, past[i])
            logits = head(x)[:, -1] / 0.8
            top, _ = paddle.topk(logits, 50)
            logits = paddle.where(logits < top[:, -1:], paddle.full_like(logits, -1e4), logits)
            chances = F.softmax(logits, axis=-1)
            ordered, order = paddle.sort(chances, descending=True), paddle.argsort(-chances)
            kept = ordered * ((paddle.cumsum(ordered, axis=-1) - ordered) < 0.9).astype("float32")
            new = paddle.take_along_axis(order, paddle.multinomial(kept, 1), axis=-1)
            text = paddle.concat([text, new], axis=1)
    return float(text.astype("float32").mean())


def beam_search(paddle: Any, words: int = WORDS, width: int = 64, beams: int = 4) -> float:
    """An encoder and a decoder: four candidates, whose caches are reordered at each word."""
    nn, F = paddle.nn, paddle.nn.functional
    embed = nn.Embedding(300, width)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0), 2)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(width, 4, 128, dropout=0.0), 2)
    encoder.eval()
    decoder.eval()
    with paddle.no_grad():
        memory = encoder(embed(paddle.randint(0, 300, [1, 12]))).tile([beams, 1, 1])
        cache = decoder.gen_cache(memory)
        text = paddle.zeros([beams, 1], dtype="int64")
        scores = paddle.to_tensor([0.0] + [-1e9] * (beams - 1)).unsqueeze(-1)
        for _ in range(words):
            out, cache = decoder(embed(text[:, -1:]), memory, cache=cache)
            logits = paddle.matmul(out[:, -1], embed.weight, transpose_y=True)
            total = (scores + F.log_softmax(logits, axis=-1)).reshape([-1])
            scores, chosen = paddle.topk(total, beams)
            scores, source = scores.unsqueeze(-1), chosen // 300
            text = paddle.concat([text.index_select(source), (chosen % 300).unsqueeze(-1)], axis=1)
            reordered = []
            for grown, fixed in cache:
                k, v = (paddle.index_select(t, source) for t in (grown.k, grown.v))
                reordered.append((type(grown)(k, v), fixed))
            cache = reordered
    return float(scores.max())


def ddpm(paddle: Any, steps: int = 20, pictures: int = 2) -> float:
    """Pictures from noise, a small U-Net at each step."""
    net = unet_layer(paddle)
    net.eval()
    betas = paddle.linspace(1e-4, 0.2, steps)
    kept = paddle.cumprod(1 - betas, dim=0)
    mean = 0.0
    with paddle.no_grad():
        for _ in range(pictures):
            x = paddle.randn([1, 3, 32, 32])
            for t in reversed(range(steps)):
                noise = net(x)
                x = (x - betas[t] / paddle.sqrt(1 - kept[t]) * noise) / paddle.sqrt(1 - betas[t])
                if t > 0:
                    x = x + paddle.sqrt(betas[t]) * paddle.randn(x.shape)
                x = x.clip(-3, 3)
            mean += float(x.mean())
    return mean
