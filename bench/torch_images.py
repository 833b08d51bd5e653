"""MobileNetV3-small and a U-Net in PyTorch, as users write them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench.workloads import Inverted, MobileNet, UNet


class ConvNorm(nn.Module):
    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int = 1, groups: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(n_out)

    def forward(self, x):
        return self.norm(self.conv(x))


class Block(nn.Module):
    def __init__(self, b: Inverted):
        super().__init__()
        self.adds = b.stride == 1 and b.n_in == b.n_out
        self.activate: Any = F.hardswish if b.smooth else F.relu
        self.expands, self.excites = b.inner != b.n_in, b.excite
        if self.expands:
            self.expand = ConvNorm(b.n_in, b.inner, 1)
        self.depthwise = ConvNorm(b.inner, b.inner, b.kernel, b.stride, b.inner)
        if self.excites:
            self.average = nn.AdaptiveAvgPool2d(1)
            self.squeeze = nn.Conv2d(b.inner, b.squeezed, 1)
            self.excite = nn.Conv2d(b.squeezed, b.inner, 1)
        self.project = ConvNorm(b.inner, b.n_out, 1)

    def forward(self, x):
        y = self.activate(self.expand(x)) if self.expands else x
        y = self.activate(self.depthwise(y))
        if self.excites:
            y = y * F.hardsigmoid(self.excite(F.relu(self.squeeze(self.average(y)))))
        y = self.project(y)
        return x + y if self.adds else y


class MobileNetV3(nn.Module):
    def __init__(self, size: MobileNet):
        super().__init__()
        self.stem = ConvNorm(3, size.first, 3, 2)
        self.blocks = nn.Sequential(*[Block(b) for b in size.blocks()])
        self.last = ConvNorm(size.rows[-1][2], size.last, 1)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.hidden = nn.Linear(size.last, size.hidden)
        self.fc = nn.Linear(size.hidden, size.classes)

    def forward(self, x):
        x = self.blocks(F.hardswish(self.stem(x)))
        x = self.average(F.hardswish(self.last(x)))
        return self.fc(F.hardswish(self.hidden(torch.flatten(x, 1))))


class Double(nn.Module):
    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.first, self.second = ConvNorm(n_in, n_out, 3), ConvNorm(n_out, n_out, 3)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))))


class Net(nn.Module):
    def __init__(self, size: UNet):
        super().__init__()
        down, up = nn.ModuleList(), nn.ModuleList()
        for name, n_in, n_out in size.doubles():
            (down if name.startswith("down") else up).append(Double(n_in, n_out))
        self.down, self.up = down, up
        narrow = reversed(size.channels[:-1])
        self.grow = nn.ModuleList([nn.ConvTranspose2d(2 * n, n, 2, 2) for n in narrow])
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(size.channels[0], size.classes, 1)

    def forward(self, x):
        seen = []
        for i, double in enumerate(self.down):
            x = double(self.pool(x) if i else x)
            seen.append(x)
        seen.pop()
        for grow, double in zip(self.grow, self.up, strict=True):
            x = double(torch.cat([seen.pop(), grow(x)], 1))
        return self.head(x)
