"""Models for first steps, each written once for Paddle's API and for torch.

A `Kit` has the few names in which the two differ; sizes are those of `bench.gpu.first`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Kit:
    """A framework by neutral names."""

    framework: ModuleType
    base: type
    layers: Any  # nn.LayerList or nn.ModuleList
    conv: Callable[..., Any]
    linear: Callable[..., Any]
    group_norm: Callable[..., Any]
    layer_norm: Callable[..., Any]
    lstm: Callable[..., Any]
    embedding: Callable[..., Any]
    concat: Callable[..., Any]
    attention: Callable[..., Any]  # of [batch, length, heads, width]
    upsample: Callable[..., Any]
    functional: Any
    array: Callable[[np.ndarray], Any]
    optimizer: Callable[[Any], Any]
    clear: Callable[[Any], None]
    autocast: Callable[[], Any]


def paddle_kit() -> Kit:
    import bireme as paddle

    nn, F = paddle.nn, paddle.nn.functional
    return Kit(
        paddle, nn.Layer, nn.LayerList,
        lambda i, o, k, stride=1, padding=0: nn.Conv2D(i, o, k, stride, padding),
        nn.Linear, nn.GroupNorm, nn.LayerNorm,
        lambda i, h, n: nn.LSTM(i, h, n), nn.Embedding,
        lambda xs, axis: paddle.concat(xs, axis),
        lambda q, k, v, causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        F, paddle.to_tensor,
        lambda net: paddle.optimizer.AdamW(3e-4, parameters=net.parameters()),
        lambda optimizer: optimizer.clear_grad(),
        lambda: paddle.amp.auto_cast(level="O1", dtype="bfloat16"),
    )  # fmt: skip


def torch_kit() -> Kit:
    import torch

    nn, F = torch.nn, torch.nn.functional

    def attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
        heads_first = [x.transpose(1, 2) for x in (q, k, v)]
        return F.scaled_dot_product_attention(*heads_first, is_causal=causal).transpose(1, 2)

    return Kit(
        torch, nn.Module, nn.ModuleList,
        lambda i, o, k, stride=1, padding=0: nn.Conv2d(i, o, k, stride, padding),
        nn.Linear, nn.GroupNorm, nn.LayerNorm,
        lambda i, h, n: nn.LSTM(i, h, n, batch_first=True), nn.Embedding,
        lambda xs, axis: torch.cat(xs, axis),
        attention,
        lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        F, lambda a: torch.tensor(a, device="cuda"),
        lambda net: torch.optim.AdamW(net.parameters(), 3e-4, fused=True),
        lambda optimizer: optimizer.zero_grad(set_to_none=True),
        lambda: torch.autocast("cuda", torch.bfloat16),
    )  # fmt: skip


def vit(kit: Kit, small: bool) -> tuple[Any, Iterator[tuple[Any, Any]]]:
    """ViT-B/16 on 64 images of 224 x 224."""
    width, heads, depth, batch, size = (64, 2, 2, 2, 32) if small else (768, 12, 12, 64, 224)
    patches = (size // 16) ** 2

    class Block(kit.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = kit.layer_norm(width), kit.layer_norm(width)
            self.qkv, self.mix = kit.linear(width, 3 * width), kit.linear(width, width)
            self.up, self.down = kit.linear(width, 4 * width), kit.linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            n = x.shape[0]
            q, k, v = self.qkv(self.norm1(x)).reshape([n, patches, 3, heads, -1]).unbind(2)
            x = x + self.mix(kit.attention(q, k, v, False).reshape([n, patches, width]))
            return x + self.down(kit.functional.gelu(self.up(self.norm2(x))))

    class ViT(kit.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patch = kit.conv(3, width, 16, 16)
            self.position = kit.embedding(patches, width)
            self.blocks = kit.layers([Block() for _ in range(depth)])
            self.norm, self.head = kit.layer_norm(width), kit.linear(width, 1000)
            self.places = kit.array(np.arange(patches))

        def forward(self, x: Any, y: Any) -> Any:
            x = self.patch(x).flatten(2)
            x = kit.framework.transpose(x, *(([0, 2, 1],) if "bireme" in str(kit.base) else (1, 2)))
            x = x + self.position(self.places)
            for block in self.blocks:
                x = block(x)
            return kit.functional.cross_entropy(self.head(self.norm(x).mean(1)), y)

    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, 3, size, size)).astype("float32")
    y = rng.integers(0, 1000, batch)
    return ViT(), repeat((x, y))


def unet(kit: Kit, small: bool) -> tuple[Any, Iterator[tuple[Any, Any]]]:
    """A diffusion U-Net with GroupNorm, SiLU and attention on 32 arrays of 3 x 64 x 64."""
    widths, batch, size = ((32, 64), 2, 16) if small else ((128, 256, 384), 32, 64)
    silu = kit.functional.silu

    class Residual(kit.base):  # type: ignore[misc, name-defined]
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = kit.group_norm(32, i), kit.group_norm(32, o)
            self.conv1, self.conv2 = kit.conv(i, o, 3, 1, 1), kit.conv(o, o, 3, 1, 1)
            self.time = kit.linear(64, o)
            self.skip = kit.conv(i, o, 1) if i != o else None

        def forward(self, x: Any, t: Any) -> Any:
            h = self.conv1(silu(self.norm1(x)))
            h = h + self.time(silu(t)).reshape([x.shape[0], -1, 1, 1])
            h = self.conv2(silu(self.norm2(h)))
            return h + (x if self.skip is None else self.skip(x))

    class Attend(kit.base):  # type: ignore[misc, name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = kit.group_norm(32, width)
            self.qkv, self.mix = kit.conv(width, 3 * width, 1), kit.conv(width, width, 1)

        def forward(self, x: Any) -> Any:
            n, c, h, w = x.shape
            heads = c // 32
            q, k, v = self.qkv(self.norm(x)).reshape([n, 3, heads, 32, h * w]).unbind(1)
            by_place = [kit.framework.moveaxis(a, 3, 1) for a in (q, k, v)]
            out = kit.framework.moveaxis(kit.attention(*by_place, False), 1, 3)
            return x + self.mix(out.reshape([n, c, h, w]))

    class UNet(kit.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = kit.conv(3, widths[0], 3, 1, 1)
            self.time = kit.linear(1, 64)
            ins = (widths[0], *widths[:-1])
            self.down = kit.layers([Residual(i, o) for i, o in zip(ins, widths, strict=True)])
            self.shrink = kit.layers([kit.conv(w, w, 3, 2, 1) for w in widths[:-1]])
            self.middle, self.attend = Residual(widths[-1], widths[-1]), Attend(widths[-1])
            back = [(2 * o, i) for i, o in zip(ins, widths, strict=True)]
            self.up = kit.layers([Residual(i, o) for i, o in reversed(back)])
            self.norm, self.last = kit.group_norm(32, widths[0]), kit.conv(widths[0], 3, 3, 1, 1)

        def forward(self, x: Any, target: Any) -> Any:
            t = self.time(target.mean([1, 2, 3]).reshape([-1, 1]))
            kept, h = [], self.first(x)
            for i, block in enumerate(self.down):
                h = block(h, t)
                kept.append(h)
                h = self.shrink[i](h) if i < len(self.shrink) else h
            h = self.attend(self.middle(h, t))
            for i, block in enumerate(self.up):
                h = kit.upsample(h) if i > 0 else h
                h = block(kit.concat([h, kept[-1 - i]], 1), t)
            return kit.functional.mse_loss(self.last(silu(self.norm(h))), target)

    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, batch, 3, size, size)).astype("float32")
    return UNet(), repeat((x[0], x[1]))


def lstm(kit: Kit, small: bool) -> tuple[Any, Iterator[tuple[Any, Any]]]:
    """Two LSTM layers of 512 over 64 rows of 128 tokens."""
    width, rows, length, words = (16, 2, 8, 50) if small else (512, 64, 128, 10000)

    class Language(kit.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token = kit.embedding(words, width)
            self.rnn, self.head = kit.lstm(width, width, 2), kit.linear(width, words)

        def forward(self, x: Any, y: Any) -> Any:
            h, _ = self.rnn(self.token(x))
            return kit.functional.cross_entropy(self.head(h).reshape([-1, words]), y.reshape([-1]))

    tokens = np.random.default_rng(0).integers(0, words, (rows, length + 1))
    return Language(), repeat((tokens[:, :-1].copy(), tokens[:, 1:].copy()))


def gpt_lengths(kit: Kit, small: bool) -> tuple[Any, Iterator[tuple[Any, Any]]]:
    """GPT-2 on batches of 8 texts; each of 24 lengths comes up again and again, in another
    order."""
    lengths = [8 + i for i in range(4)] if small else [int(200 + i * 823 / 23) for i in range(24)]
    return _gpt(kit, small, lengths)


def gpt_new_lengths(kit: Kit, small: bool) -> tuple[Any, Iterator[tuple[Any, Any]]]:
    """The same on 824 lengths, of which none comes back before all were there."""
    return _gpt(kit, small, list(range(8, 40) if small else range(200, 1024)))


def _gpt(kit: Kit, small: bool, lengths: list[int]) -> tuple[Any, Iterator[tuple[Any, Any]]]:
    width, heads, depth, words = (64, 2, 2, 97) if small else (768, 12, 12, 50257)

    class Block(kit.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = kit.layer_norm(width), kit.layer_norm(width)
            self.qkv, self.mix = kit.linear(width, 3 * width), kit.linear(width, width)
            self.up, self.down = kit.linear(width, 4 * width), kit.linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            n, length = x.shape[0], x.shape[1]
            q, k, v = self.qkv(self.norm1(x)).reshape([n, length, 3, heads, -1]).unbind(2)
            x = x + self.mix(kit.attention(q, k, v, True).reshape([n, length, width]))
            return x + self.down(kit.functional.gelu(self.up(self.norm2(x))))

    class GPT(kit.base):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = kit.embedding(words, width), kit.embedding(1024, width)
            self.blocks = kit.layers([Block() for _ in range(depth)])
            self.norm, self.head = kit.layer_norm(width), kit.linear(width, words)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.token(x) + self.place(kit.array(np.arange(x.shape[1])))
            for block in self.blocks:
                h = block(h)
            logits = self.head(self.norm(h)).reshape([-1, words])
            return kit.functional.cross_entropy(logits, y.reshape([-1]))

    def batches() -> Iterator[tuple[Any, Any]]:
        rng = np.random.default_rng(0)
        while True:
            for length in rng.permutation(lengths):
                tokens = rng.integers(0, words, (8, int(length) + 1))
                yield tokens[:, :-1].copy(), tokens[:, 1:].copy()

    return GPT(), batches()


def repeat(batch: Any) -> Iterator[Any]:
    while True:
        yield batch


MODELS = {
    "vit": vit, "unet": unet, "lstm": lstm, "gpt_lengths": gpt_lengths,
    "gpt_new_lengths": gpt_new_lengths,
}  # fmt: skip


def stepper(kit: Kit, name: str, small: bool = False) -> Callable[[], Any]:
    """A function that trains one step on the next batch and returns the loss."""
    net, data = MODELS[name](kit, small)
    if kit.framework.__name__ == "torch":
        net = net.cuda()
    optimizer = kit.optimizer(net)

    def step() -> Any:
        x, y = next(data)
        with kit.autocast():
            loss = net(kit.array(x), kit.array(y))
        loss.backward()
        optimizer.step()
        kit.clear(optimizer)
        return loss

    return step
