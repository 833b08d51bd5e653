"""ResNet, ResNeXt and wide ResNet."""

from __future__ import annotations

from os import PathLike
from typing import Any

import bireme
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.vision.models.parts import with_weights

_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}


class BasicBlock(nn.Layer):
    """Two 3 x 3 convolutions and a shortcut."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Layer | None = None,
        groups: int = 1,
        base_width: int = 64,
    ):
        super().__init__()
        if groups != 1 or base_width != 64:
            raise InvalidArgument(
                "[BasicBlock] groups and width belong to networks of depth 50 and more. "
                f"Received: groups={groups}, width={base_width}"
            )
        self.conv1 = nn.Conv2D(inplanes, planes, 3, stride, padding=1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(planes)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2D(planes, planes, 3, padding=1, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(planes)
        self.downsample = downsample

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(out + shortcut)


class BottleneckBlock(nn.Layer):
    """A 3 x 3 convolution between two 1 x 1 ones, and a shortcut."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Layer | None = None,
        groups: int = 1,
        base_width: int = 64,
    ):
        super().__init__()
        width = int(planes * (base_width / 64)) * groups
        out = planes * self.expansion
        self.conv1 = nn.Conv2D(inplanes, width, 1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(width)
        self.conv2 = nn.Conv2D(width, width, 3, stride, padding=1, groups=groups, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(width)
        self.conv3 = nn.Conv2D(width, out, 1, bias_attr=False)
        self.bn3 = nn.BatchNorm2D(out)
        self.relu = nn.ReLU()
        self.downsample = downsample

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(out + shortcut)


class ResNet(nn.Layer):
    """Four stages of residual blocks; `num_classes <= 0` leaves the classifier out."""

    def __init__(
        self,
        block: type[BasicBlock | BottleneckBlock],
        depth: int = 50,
        width: int = 64,
        num_classes: int = 1000,
        with_pool: bool = True,
        groups: int = 1,
    ):
        super().__init__()
        if depth not in _BLOCKS:
            raise InvalidArgument(
                f"[ResNet] depth must be one of {list(_BLOCKS)}. Received: {depth}"
            )
        self.groups = groups
        self.base_width = width
        self.num_classes = num_classes
        self.with_pool = with_pool
        self.inplanes = 64
        self.conv1 = nn.Conv2D(3, 64, kernel_size=7, stride=2, padding=3, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2D(kernel_size=3, stride=2, padding=1)
        counts = _BLOCKS[depth]
        self.layer1 = self._stage(block, 64, counts[0], 1)
        self.layer2 = self._stage(block, 128, counts[1], 2)
        self.layer3 = self._stage(block, 256, counts[2], 2)
        self.layer4 = self._stage(block, 512, counts[3], 2)
        if with_pool:
            self.avgpool = nn.AdaptiveAvgPool2D((1, 1))
        if num_classes > 0:
            self.fc = nn.Linear(512 * block.expansion, num_classes)

    def _stage(
        self, block: type[BasicBlock | BottleneckBlock], planes: int, count: int, stride: int
    ) -> nn.Sequential:
        out = planes * block.expansion
        downsample = None
        if stride != 1 or self.inplanes != out:
            downsample = nn.Sequential(
                nn.Conv2D(self.inplanes, out, 1, stride=stride, bias_attr=False),
                nn.BatchNorm2D(out),
            )
        layers = [block(self.inplanes, planes, stride, downsample, self.groups, self.base_width)]
        self.inplanes = out
        for _ in range(1, count):
            layers.append(block(out, planes, 1, None, self.groups, self.base_width))
        return nn.Sequential(*layers)

    def forward(self, x: bireme.Tensor) -> bireme.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        if self.with_pool:
            x = self.avgpool(x)
        return self.fc(bireme.flatten(x, 1)) if self.num_classes > 0 else x


def resnet18(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNet with 18 layers; `pretrained` may be a file of weights, as in all of these."""
    return with_weights(ResNet(BasicBlock, 18, **kwargs), pretrained)


def resnet34(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNet with 34 layers."""
    return with_weights(ResNet(BasicBlock, 34, **kwargs), pretrained)


def resnet50(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNet with 50 layers."""
    return with_weights(ResNet(BottleneckBlock, 50, **kwargs), pretrained)


def resnet101(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNet with 101 layers."""
    return with_weights(ResNet(BottleneckBlock, 101, **kwargs), pretrained)


def resnet152(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNet with 152 layers."""
    return with_weights(ResNet(BottleneckBlock, 152, **kwargs), pretrained)


def _resnext(
    depth: int, groups: int, pretrained: bool | str | PathLike[str], kwargs: dict[str, Any]
) -> ResNet:
    model = ResNet(BottleneckBlock, depth, **{**kwargs, "groups": groups, "width": 4})
    return with_weights(model, pretrained)


def resnext50_32x4d(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNeXt with 50 layers in 32 groups of width 4."""
    return _resnext(50, 32, pretrained, kwargs)


def resnext50_64x4d(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNeXt with 50 layers in 64 groups of width 4."""
    return _resnext(50, 64, pretrained, kwargs)


def resnext101_32x4d(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNeXt with 101 layers in 32 groups of width 4."""
    return _resnext(101, 32, pretrained, kwargs)


def resnext101_64x4d(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNeXt with 101 layers in 64 groups of width 4."""
    return _resnext(101, 64, pretrained, kwargs)


def resnext152_32x4d(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNeXt with 152 layers in 32 groups of width 4."""
    return _resnext(152, 32, pretrained, kwargs)


def resnext152_64x4d(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNeXt with 152 layers in 64 groups of width 4."""
    return _resnext(152, 64, pretrained, kwargs)


def wide_resnet50_2(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNet with 50 layers, twice as wide inside its blocks."""
    return with_weights(ResNet(BottleneckBlock, 50, **{**kwargs, "width": 128}), pretrained)


def wide_resnet101_2(pretrained: bool | str | PathLike[str] = False, **kwargs: Any) -> ResNet:
    """ResNet with 101 layers, twice as wide inside its blocks."""
    return with_weights(ResNet(BottleneckBlock, 101, **{**kwargs, "width": 128}), pretrained)
