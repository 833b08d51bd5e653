"""ResNet-50 for the GPU: the model of paddle.vision and of torchvision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Images:
    batch: int = 256
    pixels: int = 224
    classes: int = 1000
    learning_rate: float = 0.01

    def flops(self) -> float:
        """4.1 G multiply-adds an image forward, twice that backward."""
        return 3 * 2 * 4.1e9 * self.batch


SIZES = {"resnet50": Images()}


def _batch(size: Images) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((size.batch, 3, size.pixels, size.pixels), np.float32)
    return images, rng.integers(0, size.classes, size.batch)


def paddle(paddle: Any, size: Images) -> Any:
    net = paddle.vision.models.resnet50()
    loss = paddle.nn.functional.cross_entropy
    optimizer = paddle.optimizer.Momentum(size.learning_rate, 0.9, parameters=net.parameters())
    x, y = _batch(size)
    data = [(paddle.to_tensor(x), paddle.to_tensor(y))]
    return lambda x, y: loss(net(x), y), optimizer, data


def torch(torch: Any, size: Images) -> Any:
    from torchvision.models import resnet50  # type: ignore[import-not-found]

    net = resnet50().cuda().to(memory_format=torch.channels_last)
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
