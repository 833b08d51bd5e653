"""What is measured: sizes, data and starting weights, made by NumPy and loaded by every peer.

Weights are named and laid out as in Paddle's `state_dict` (linear weights are [in, out]).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Arrays = dict[str, np.ndarray]
Batch = tuple[np.ndarray, np.ndarray]

# Set for the peers by `bench eager --autocast`: bfloat16 autocast around model and loss.
AUTOCAST = os.environ.get("BENCH_AUTOCAST") == "1"
# Set for torch by `bench curves`: which of the float32 weights next to the true ones to start from.
NUDGE = int(os.environ.get("BENCH_NUDGE", "0"))
BATCHES = 4  # batches that a timed loop cycles through


@dataclass(frozen=True)
class MLP:
    depth: int
    width: int
    batch: int
    learning_rate: float = 0.01


@dataclass(frozen=True)
class Encoder:
    layers: int = 4
    width: int = 256
    heads: int = 4
    feed_forward: int = 1024
    vocabulary: int = 1000
    batch: int = 8
    tokens: int = 128
    dropout: float = 0.1
    learning_rate: float = 1e-4


@dataclass(frozen=True)
class ResNet:
    """ResNet-18: four stages of two basic blocks."""

    channels: tuple[int, ...] = (64, 128, 256, 512)
    blocks: int = 2
    classes: int = 1000
    batch: int = 8
    pixels: int = 112
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class Inverted:
    """A block of MobileNetV3: expand, depthwise, (squeeze and excite), project."""

    name: str
    n_in: int
    kernel: int
    inner: int
    n_out: int
    excite: bool
    smooth: bool  # hardswish instead of relu
    stride: int

    @property
    def squeezed(self) -> int:
        """A quarter of the inner channels, as a multiple of 8 that keeps nine tenths."""
        quarter = self.inner / 4
        near = max(8, int(quarter + 4) // 8 * 8)
        return near + 8 if near < 0.9 * quarter else near


@dataclass(frozen=True)
class MobileNet:
    """MobileNetV3-small without dropout."""

    # Kernel, inner channels, output channels, excitation, hardswish, stride.
    rows: tuple[tuple[int, int, int, bool, bool, int], ...] = (
        (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
        (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
        (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
        (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
    )  # fmt: skip
    first: int = 16
    last: int = 576
    hidden: int = 1024
    classes: int = 1000
    batch: int = 8
    pixels: int = 112
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4

    def blocks(self) -> list[Inverted]:
        before = [self.first, *(row[2] for row in self.rows)]
        return [
            Inverted(f"blocks.{i}", n, *row)
            for i, (n, row) in enumerate(zip(before, self.rows, strict=False))
        ]


@dataclass(frozen=True)
class UNet:
    """A U-Net with two classes for every pixel."""

    channels: tuple[int, ...] = (16, 32, 64, 128)
    classes: int = 2
    batch: int = 4
    pixels: int = 96
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4

    def doubles(self) -> list[tuple[str, int, int]]:
        """Name, input and output channels of each pair of convolutions, downwards and upwards."""
        down = [
            (f"down.{i}", n_in, n_out)
            for i, (n_in, n_out) in enumerate(zip((1, *self.channels), self.channels, strict=False))
        ]
        return down + [(f"up.{i}", 2 * n, n) for i, n in enumerate(reversed(self.channels[:-1]))]


@dataclass(frozen=True)
class LSTM:
    layers: int = 2
    width: int = 128
    batch: int = 16
    steps: int = 64
    classes: int = 10
    learning_rate: float = 1e-3


Size = MLP | Encoder | ResNet | MobileNet | UNet | LSTM

WORKLOADS: dict[str, Size] = {
    "mlp_tiny": MLP(depth=20, width=32, batch=16),
    "mlp_wide": MLP(depth=10, width=512, batch=256),
    "encoder": Encoder(),
    "resnet18": ResNet(),
    "mobilenet": MobileNet(),
    "unet": UNet(),
    "lstm": LSTM(),
}

DESCRIPTIONS = {
    "mlp_tiny": "20 linear layers, 32 wide, batch 16, SGD",
    "mlp_wide": "10 linear layers, 512 wide, batch 256, SGD",
    "encoder": "4 transformer encoder layers, width 256, 8x128 tokens, dropout 0.1, AdamW",
    "resnet18": "ResNet-18, 8x3x112x112, momentum, batch norm in training mode",
    "mobilenet": "MobileNetV3-small, 8x3x112x112, momentum, batch norm in training mode",
    "unet": "U-Net of 4 levels from 16 channels, 4x1x96x96, momentum, batch norm in training mode",
    "lstm": "2 LSTM layers, width 128, batch 16, 64 steps, Adam",
}


def has_dropout(size: Size) -> bool:
    return isinstance(size, Encoder) and size.dropout > 0


def without_dropout(size: Size) -> Size:
    """The same workload, deterministic: what the agreement check runs."""
    if isinstance(size, Encoder):
        return Encoder(**{**size.__dict__, "dropout": 0.0})
    return size


def make_batches(size: Size, seed: int = 1) -> list[Batch]:
    rng = np.random.default_rng(seed)
    return [_BATCH[type(size)](size, rng) for _ in range(BATCHES)]


def make_weights(size: Size, seed: int = 0) -> Arrays:
    weights = _WEIGHTS[type(size)](size, np.random.default_rng(seed))
    return nudged(weights, NUDGE) if NUDGE else weights


def nudged(weights: Arrays, seed: int) -> Arrays:
    """Every weight as it is or the next float32 above or below, at random; zeros stay."""
    rng = np.random.default_rng(seed)

    def moved(array: np.ndarray) -> np.ndarray:
        towards = rng.integers(-1, 2, array.shape)
        ends = np.where(towards > 0, np.inf, -np.inf).astype(array.dtype)
        return np.where((towards == 0) | (array == 0), array, np.nextafter(array, ends))

    return {name: moved(array) for name, array in weights.items()}


def _normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def _linear(rng: np.random.Generator, name: str, n_in: int, n_out: int, gain: float) -> Arrays:
    return {
        f"{name}.weight": _normal(rng, n_in, n_out, scale=(gain / n_in) ** 0.5),
        f"{name}.bias": _normal(rng, n_out, scale=0.01),
    }


def _scale_and_shift(name: str, width: int) -> Arrays:
    return {
        f"{name}.weight": np.ones(width, np.float32),
        f"{name}.bias": np.zeros(width, np.float32),
    }


def _mlp_batch(size: MLP, rng: np.random.Generator) -> Batch:
    return _normal(rng, size.batch, size.width), _normal(rng, size.batch, size.width)


def _mlp_weights(size: MLP, rng: np.random.Generator) -> Arrays:
    weights: Arrays = {}
    for i in range(size.depth - 1):
        weights |= _linear(rng, f"hidden.{i}", size.width, size.width, gain=2.0)
    return weights | _linear(rng, "output", size.width, size.width, gain=1.0)


def _encoder_batch(size: Encoder, rng: np.random.Generator) -> Batch:
    shape = (size.batch, size.tokens)
    return rng.integers(0, size.vocabulary, shape), rng.integers(0, size.vocabulary, shape)


def _encoder_weights(size: Encoder, rng: np.random.Generator) -> Arrays:
    width, inner = size.width, size.feed_forward
    weights = {
        "token.weight": _normal(rng, size.vocabulary, width, scale=0.1),
        "position.weight": _normal(rng, size.tokens, width, scale=0.1),
    }
    for i in range(size.layers):
        name = f"encoder.layers.{i}"
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            weights |= _linear(rng, f"{name}.self_attn.{projection}", width, width, gain=1.0)
        weights |= _linear(rng, f"{name}.linear1", width, inner, gain=1.0)
        weights |= _linear(rng, f"{name}.linear2", inner, width, gain=1.0)
        weights |= _scale_and_shift(f"{name}.norm1", width)
        weights |= _scale_and_shift(f"{name}.norm2", width)
    return weights | _linear(rng, "head", width, size.vocabulary, gain=1.0)


def _resnet_batch(size: ResNet | MobileNet, rng: np.random.Generator) -> Batch:
    images = _normal(rng, size.batch, 3, size.pixels, size.pixels)
    return images, rng.integers(0, size.classes, size.batch)


def _kernels(rng: np.random.Generator, name: str, shape: tuple[int, ...], fan_in: int) -> Arrays:
    return {f"{name}.weight": _normal(rng, *shape, scale=(2.0 / fan_in) ** 0.5)}


def _conv_and_norm(
    rng: np.random.Generator, conv: str, norm: str, n_in: int, n_out: int, kernel: int
) -> Arrays:
    """A convolution (`n_in`: channels that one kernel sees) and its batch norm."""
    return {
        **_kernels(rng, conv, (n_out, n_in, kernel, kernel), n_in * kernel * kernel),
        **_scale_and_shift(norm, n_out),
        f"{norm}._mean": np.zeros(n_out, np.float32),
        f"{norm}._variance": np.ones(n_out, np.float32),
    }


def _resnet_weights(size: ResNet, rng: np.random.Generator) -> Arrays:
    weights: Arrays = {}

    def conv_and_norm(conv: str, norm: str, n_in: int, n_out: int, kernel: int) -> None:
        weights.update(_conv_and_norm(rng, conv, norm, n_in, n_out, kernel))

    conv_and_norm("conv1", "bn1", 3, size.channels[0], 7)
    for name, n_in, n_out, stride in resnet_blocks(size):
        conv_and_norm(f"{name}.conv1", f"{name}.bn1", n_in, n_out, 3)
        conv_and_norm(f"{name}.conv2", f"{name}.bn2", n_out, n_out, 3)
        if stride != 1 or n_in != n_out:
            conv_and_norm(f"{name}.short_conv", f"{name}.short_bn", n_in, n_out, 1)
    return weights | _linear(rng, "fc", size.channels[-1], size.classes, gain=1.0)


def resnet_blocks(size: ResNet) -> list[tuple[str, int, int, int]]:
    """Name, input channels, output channels and stride of each basic block."""
    blocks = []
    n_in = size.channels[0]
    for stage, n_out in enumerate(size.channels):
        for i in range(size.blocks):
            stride = 2 if stage > 0 and i == 0 else 1
            blocks.append((f"blocks.{len(blocks)}", n_in, n_out, stride))
            n_in = n_out
    return blocks


def _mobilenet_weights(size: MobileNet, rng: np.random.Generator) -> Arrays:
    weights = _conv_and_norm(rng, "stem.conv", "stem.norm", 3, size.first, 3)

    def add(name: str, n_in: int, n_out: int, kernel: int) -> None:
        weights.update(_conv_and_norm(rng, f"{name}.conv", f"{name}.norm", n_in, n_out, kernel))

    for b in size.blocks():
        if b.inner != b.n_in:
            add(f"{b.name}.expand", b.n_in, b.inner, 1)
        add(f"{b.name}.depthwise", 1, b.inner, b.kernel)
        if b.excite:
            for name, n_in, n_out in (
                ("squeeze", b.inner, b.squeezed),
                ("excite", b.squeezed, b.inner),
            ):
                weights.update(_kernels(rng, f"{b.name}.{name}", (n_out, n_in, 1, 1), n_in))
                weights[f"{b.name}.{name}.bias"] = _normal(rng, n_out, scale=0.01)
        add(f"{b.name}.project", b.inner, b.n_out, 1)
    add("last", size.rows[-1][2], size.last, 1)
    weights |= _linear(rng, "hidden", size.last, size.hidden, gain=2.0)
    return weights | _linear(rng, "fc", size.hidden, size.classes, gain=1.0)


def _unet_batch(size: UNet, rng: np.random.Generator) -> Batch:
    images = _normal(rng, size.batch, 1, size.pixels, size.pixels)
    return images, (images[:, 0] > 0.3).astype(np.int64)


def _unet_weights(size: UNet, rng: np.random.Generator) -> Arrays:
    weights: Arrays = {}
    for name, outer, n_out in size.doubles():
        for part, n_in in ((f"{name}.first", outer), (f"{name}.second", n_out)):
            weights |= _conv_and_norm(rng, f"{part}.conv", f"{part}.norm", n_in, n_out, 3)
    for i, n_out in enumerate(reversed(size.channels[:-1])):
        weights |= _kernels(rng, f"grow.{i}", (2 * n_out, n_out, 2, 2), 2 * n_out)
        weights[f"grow.{i}.bias"] = _normal(rng, n_out, scale=0.01)
    weights |= _kernels(rng, "head", (size.classes, size.channels[0], 1, 1), size.channels[0])
    return weights | {"head.bias": np.zeros(size.classes, np.float32)}


def _lstm_batch(size: LSTM, rng: np.random.Generator) -> Batch:
    sequences = _normal(rng, size.batch, size.steps, size.width)
    return sequences, rng.integers(0, size.classes, size.batch)


def _lstm_weights(size: LSTM, rng: np.random.Generator) -> Arrays:
    weights: Arrays = {}
    scale = size.width**-0.5
    for i in range(size.layers):
        for kind in ("ih", "hh"):
            weights[f"lstm.weight_{kind}_l{i}"] = _normal(
                rng, 4 * size.width, size.width, scale=scale
            )
            weights[f"lstm.bias_{kind}_l{i}"] = _normal(rng, 4 * size.width, scale=scale)
    return weights | _linear(rng, "head", size.width, size.classes, gain=1.0)


_BATCH: dict[type, Callable[..., Batch]] = {
    MLP: _mlp_batch,
    Encoder: _encoder_batch,
    ResNet: _resnet_batch,
    MobileNet: _resnet_batch,
    UNet: _unet_batch,
    LSTM: _lstm_batch,
}
_WEIGHTS: dict[type, Callable[..., Arrays]] = {
    MLP: _mlp_weights,
    Encoder: _encoder_weights,
    ResNet: _resnet_weights,
    MobileNet: _mobilenet_weights,
    UNet: _unet_weights,
    LSTM: _lstm_weights,
}
