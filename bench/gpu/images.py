"""ResNet-50 for the GPU: the model of paddle.vision and of torchvision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Images:
    layers: int = 50
    batch: int = 256
    pixels: int = 224
    classes: int = 1000
    learning_rate: float = 0.01

    def flops(self) -> float:
        """4.1 G multiply-adds of ResNet-50 (1.8 of ResNet-18) for an image of 224 x 224 pixels
        forward, twice that backward."""
        each = {50: 4.1e9, 18: 1.8e9}[self.layers] * (self.pixels / 224) ** 2
        return 3 * 2 * each * self.batch


SIZES = {
    "resnet50": Images(),
    "resnet_tiny": Images(layers=18, batch=2, pixels=32, classes=10),
}


def _batch(size: Images) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((size.batch, 3, size.pixels, size.pixels), np.float32)
    return images, rng.integers(0, size.classes, size.batch)


def paddle(paddle: Any, size: Images) -> Any:
    net = getattr(paddle.vision.models, f"resnet{size.layers}")()
    loss = paddle.nn.functional.cross_entropy
    optimizer = paddle.optimizer.Momentum(size.learning_rate, 0.9, parameters=net.parameters())
    x, y = _batch(size)
    data = [(paddle.to_tensor(x), paddle.to_tensor(y))]
    return lambda x, y: loss(net(x), y), optimizer, data


def torch(torch: Any, size: Images) -> Any:
    from torchvision import models  # type: ignore[import-not-found]

    net = getattr(models, f"resnet{size.layers}")().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), size.learning_rate, momentum=0.9, fused=True)

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, y):
            return torch.nn.functional.cross_entropy(self.net(x), y)

    x, y = _batch(size)
    x = torch.tensor(x, device="cuda").to(memory_format=torch.channels_last)
    return WithLoss(), optimizer, [(x, torch.tensor(y, device="cuda"))]
