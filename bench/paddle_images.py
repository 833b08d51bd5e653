"""MobileNetV3-small and a U-Net as plain Paddle user code, for Paddle and Bireme."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from bench.workloads import Inverted, MobileNet, UNet


def build_mobilenet(paddle: ModuleType, size: MobileNet) -> tuple[Any, Any, Any]:
    nn, F = paddle.nn, paddle.nn.functional

    class ConvNorm(nn.Layer):
        def __init__(self, n_in, n_out, kernel, stride=1, groups=1):
            super().__init__()
            self.conv = nn.Conv2D(
                n_in, n_out, kernel, stride, padding=kernel // 2, groups=groups, bias_attr=False
            )
            self.norm = nn.BatchNorm2D(n_out)

        def forward(self, x):
            return self.norm(self.conv(x))

    class Block(nn.Layer):
        def __init__(self, b: Inverted):
            super().__init__()
            self.adds = b.stride == 1 and b.n_in == b.n_out
            self.activate = F.hardswish if b.smooth else F.relu
            self.expands, self.excites = b.inner != b.n_in, b.excite
            if self.expands:
                self.expand = ConvNorm(b.n_in, b.inner, 1)
            self.depthwise = ConvNorm(b.inner, b.inner, b.kernel, b.stride, b.inner)
            if self.excites:
                self.average = nn.AdaptiveAvgPool2D(1)
                self.squeeze = nn.Conv2D(b.inner, b.squeezed, 1)
                self.excite = nn.Conv2D(b.squeezed, b.inner, 1)
            self.project = ConvNorm(b.inner, b.n_out, 1)

        def forward(self, x):
            y = self.activate(self.expand(x)) if self.expands else x
            y = self.activate(self.depthwise(y))
            if self.excites:
                factor = self.excite(F.relu(self.squeeze(self.average(y))))
                # Paddle's own slope is 0.1666667, another function than the other peers'.
                y = y * F.hardsigmoid(factor, slope=1 / 6)
            y = self.project(y)
            return x + y if self.adds else y

    class MobileNetV3(nn.Layer):
        def __init__(self):
            super().__init__()
            self.stem = ConvNorm(3, size.first, 3, 2)
            self.blocks = nn.Sequential(*[Block(b) for b in size.blocks()])
            self.last = ConvNorm(size.rows[-1][2], size.last, 1)
            self.average = nn.AdaptiveAvgPool2D(1)
            self.hidden = nn.Linear(size.last, size.hidden)
            self.fc = nn.Linear(size.hidden, size.classes)

        def forward(self, x):
            x = self.blocks(F.hardswish(self.stem(x)))
            x = self.average(F.hardswish(self.last(x)))
            return self.fc(F.hardswish(self.hidden(paddle.flatten(x, 1))))

    return _with_momentum(paddle, MobileNetV3(), size, F.cross_entropy)


def build_unet(paddle: ModuleType, size: UNet) -> tuple[Any, Any, Any]:
    nn, F = paddle.nn, paddle.nn.functional

    class ConvNorm(nn.Layer):
        def __init__(self, n_in, n_out):
            super().__init__()
            self.conv = nn.Conv2D(n_in, n_out, 3, padding=1, bias_attr=False)
            self.norm = nn.BatchNorm2D(n_out)

        def forward(self, x):
            return F.relu(self.norm(self.conv(x)))

    class Double(nn.Layer):
        def __init__(self, n_in, n_out):
            super().__init__()
            self.first, self.second = ConvNorm(n_in, n_out), ConvNorm(n_out, n_out)

        def forward(self, x):
            return self.second(self.first(x))

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            parts = {"down": [], "up": []}
            for name, n_in, n_out in size.doubles():
                parts[name.split(".")[0]].append(Double(n_in, n_out))
            self.down, self.up = nn.LayerList(parts["down"]), nn.LayerList(parts["up"])
            narrow = reversed(size.channels[:-1])
            self.grow = nn.LayerList([nn.Conv2DTranspose(2 * n, n, 2, 2) for n in narrow])
            self.pool = nn.MaxPool2D(2)
            self.head = nn.Conv2D(size.channels[0], size.classes, 1)

        def forward(self, x):
            seen = []
            for i, double in enumerate(self.down):
                x = double(self.pool(x) if i else x)
                seen.append(x)
            seen.pop()
            for grow, double in zip(self.grow, self.up, strict=True):
                x = double(paddle.concat([seen.pop(), grow(x)], 1))
            return self.head(x)

    def loss(logits, labels):
        return F.cross_entropy(logits, labels, axis=1)

    return _with_momentum(paddle, Net(), size, loss)


def _with_momentum(paddle: ModuleType, model: Any, size: Any, loss: Any) -> tuple[Any, Any, Any]:
    optimizer = paddle.optimizer.Momentum(
        size.learning_rate,
        size.momentum,
        parameters=model.parameters(),
        weight_decay=size.weight_decay,
    )
    return model, optimizer, loss
