"""Generative models: a GAN, a variational autoencoder, a small diffusion U-Net."""

from __future__ import annotations

from typing import Any


def gan(paddle: Any, steps: int = 150) -> float:
    """Two networks that train in turns."""
    nn = paddle.nn
    maker = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh())
    judge = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    by_maker = paddle.optimizer.Adam(2e-4, parameters=maker.parameters())
    by_judge = paddle.optimizer.Adam(2e-4, parameters=judge.parameters())
    loss = nn.BCEWithLogitsLoss()
    lost = 0.0
    for _ in range(steps):
        real, noise = paddle.randn([32, 64]), paddle.randn([32, 16])
        made = maker(noise)
        on_real = loss(judge(real), paddle.ones([32, 1]))
        on_made = loss(judge(made.detach()), paddle.zeros([32, 1]))
        (on_real + on_made).backward()
        by_judge.step()
        by_judge.clear_grad()
        fooled = loss(judge(made), paddle.ones([32, 1]))
        fooled.backward()
        by_maker.step()
        by_maker.clear_grad()
        by_judge.clear_grad()
        lost = float(fooled)
    return lost


def vae(paddle: Any, steps: int = 120) -> float:
    """An encoder, a drawn code, a decoder."""
    nn, F = paddle.nn, paddle.nn.functional
    encoder = nn.Sequential(nn.Linear(196, 128), nn.ReLU(), nn.Linear(128, 32))
    decoder = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 196))
    both = [*encoder.parameters(), *decoder.parameters()]
    optimizer = paddle.optimizer.Adam(1e-3, parameters=both)
    data = paddle.rand([512, 196])
    lost = 0.0
    for i in range(steps):
        x = data[(i * 64) % 512 : (i * 64) % 512 + 64]
        mean, log_variance = paddle.chunk(encoder(x), 2, axis=1)
        code = mean + paddle.exp(0.5 * log_variance) * paddle.randn(mean.shape)
        back = F.binary_cross_entropy_with_logits(decoder(code), x, reduction="sum")
        prior = -0.5 * (1 + log_variance - mean**2 - paddle.exp(log_variance)).sum()
        loss = (back + prior) / 64
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = loss.item()
    return lost


def unet_layer(paddle: Any, width: int = 32) -> Any:
    """Two scales of pictures, joined."""
    nn, F = paddle.nn, paddle.nn.functional

    class Block(nn.Layer):
        def __init__(self, inner: int, outer: int):
            super().__init__()
            self.first = nn.Conv2D(inner, outer, 3, padding=1)
            self.norm = nn.GroupNorm(8, outer)
            self.second = nn.Conv2D(outer, outer, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return F.silu(self.second(F.silu(self.norm(self.first(x)))))

    class Net(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.middle = Block(3, width), Block(width, 2 * width)
            self.widen = nn.Conv2DTranspose(2 * width, width, 2, stride=2)
            self.up, self.out = Block(2 * width, width), nn.Conv2D(width, 3, 1)

        def forward(self, x: Any) -> Any:
            wide = self.down(x)
            low = self.middle(F.max_pool2d(wide, 2))
            return self.out(self.up(paddle.concat([self.widen(low), wide], axis=1)))

    return Net()


def unet(paddle: Any, steps: int = 14, sizes: tuple[int, ...] = (32,)) -> float:
    """Noise is predicted from noisy images."""
    F = paddle.nn.functional
    net = unet_layer(paddle)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=net.parameters())
    lost = 0.0
    for i in range(steps):
        size = sizes[i % len(sizes)]
        clean, noise = paddle.rand([8, 3, size, size]), paddle.randn([8, 3, size, size])
        share = paddle.rand([8, 1, 1, 1])
        loss = F.mse_loss(net(clean * share + noise * (1 - share)), noise)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def unet_sizes(paddle: Any, steps: int = 14) -> float:
    """The same with images of changing sizes."""
    return unet(paddle, steps, tuple(range(16, 48, 4)))


def flow(paddle: Any, steps: int = 60) -> float:
    """A normalising flow: coupling layers, the exact likelihood of points."""
    nn, F = paddle.nn, paddle.nn.functional
    nets = [nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 2)) for _ in range(6)]
    every = [p for net in nets for p in net.parameters()]
    optimizer = paddle.optimizer.Adam(1e-3, parameters=every)
    lost = 0.0
    for _ in range(steps):
        angle = paddle.rand([256]) * 6.28
        points = paddle.stack([paddle.cos(angle), paddle.sin(angle)], axis=1)
        z, volume = points + 0.05 * paddle.randn([256, 2]), paddle.zeros([256])
        for i, net in enumerate(nets):
            fixed, moved = z[:, i % 2 : i % 2 + 1], z[:, 1 - i % 2 : 2 - i % 2]
            scale, shift = paddle.split(net(fixed), 2, axis=1)
            scale = F.tanh(scale)
            moved = moved * paddle.exp(scale) + shift
            z = paddle.concat([fixed, moved] if i % 2 == 0 else [moved, fixed], axis=1)
            volume = volume + scale.squeeze(1)
        loss = -(-0.5 * (z**2).sum(1) + volume).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost
