"""The workloads in PyTorch: eager as users write it, and with `torch.compile` on model and loss."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from bench.torch_images import MobileNetV3, Net
from bench.workloads import (
    AUTOCAST,
    LSTM,
    MLP,
    Arrays,
    Encoder,
    MobileNet,
    ResNet,
    Size,
    UNet,
    make_batches,
    make_weights,
    resnet_blocks,
)


class Perceptron(nn.Module):
    def __init__(self, size: MLP):
        super().__init__()
        self.hidden = nn.ModuleList(
            [nn.Linear(size.width, size.width) for _ in range(size.depth - 1)]
        )
        self.output = nn.Linear(size.width, size.width)

    def forward(self, x):
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.output(x)


class TokenClassifier(nn.Module):
    def __init__(self, size: Encoder):
        super().__init__()
        self.token = nn.Embedding(size.vocabulary, size.width)
        self.position = nn.Embedding(size.tokens, size.width)
        layer = nn.TransformerEncoderLayer(
            size.width,
            size.heads,
            size.feed_forward,
            dropout=size.dropout,
            activation="gelu",
            batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, size.layers)
        self.head = nn.Linear(size.width, size.vocabulary)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.encoder(x))


class BasicBlock(nn.Module):
    def __init__(self, n_in: int, n_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.projects = stride != 1 or n_in != n_out
        if self.projects:
            self.short_conv = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
            self.short_bn = nn.BatchNorm2d(n_out)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.projects:
            x = self.short_bn(self.short_conv(x))
        return F.relu(y + x)


class ResNet18(nn.Module):
    def __init__(self, size: ResNet):
        super().__init__()
        self.conv1 = nn.Conv2d(3, size.channels[0], 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(size.channels[0])
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.blocks = nn.Sequential(
            *[BasicBlock(n_in, n_out, stride) for _, n_in, n_out, stride in resnet_blocks(size)]
        )
        self.average = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(size.channels[-1], size.classes)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.average(self.blocks(x)), 1))


class SequenceClassifier(nn.Module):
    def __init__(self, size: LSTM):
        super().__init__()
        self.lstm = nn.LSTM(size.width, size.width, num_layers=size.layers, batch_first=True)
        self.head = nn.Linear(size.width, size.classes)

    def forward(self, x):
        _, (hidden, _) = self.lstm(x)
        return self.head(hidden[-1])


def _token_loss(logits, labels):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def _build(size: Size, dtype: torch.dtype) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    rate = size.learning_rate
    if isinstance(size, MLP):
        model = Perceptron(size).to(dtype)
        return model, torch.optim.SGD(model.parameters(), lr=rate), F.mse_loss
    if isinstance(size, Encoder):
        model = TokenClassifier(size).to(dtype)
        return model, torch.optim.AdamW(model.parameters(), lr=rate), _token_loss
    if isinstance(size, ResNet | MobileNet | UNet):
        made: dict[type, Any] = {ResNet: ResNet18, MobileNet: MobileNetV3, UNet: Net}
        model = made[type(size)](size).to(dtype)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=rate, momentum=size.momentum, weight_decay=size.weight_decay
        )
        return model, optimizer, F.cross_entropy
    model = SequenceClassifier(size).to(dtype)
    return model, torch.optim.Adam(model.parameters(), lr=rate), F.cross_entropy


def _from_paddle_layout(model: nn.Module, weights: Arrays) -> dict[str, torch.Tensor]:
    """Rename the weights, transpose those of linear layers and stack the attention inputs."""
    linear = {name for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    rename = {"_mean": "running_mean", "_variance": "running_var"}
    state: Arrays = {}
    for name, array in weights.items():
        owner, kind = name.rsplit(".", 1)
        projection = owner.rsplit(".", 1)[-1]
        if projection in ("q_proj", "k_proj", "v_proj"):
            key = f"{owner.rsplit('.', 1)[0]}.in_proj_{kind}"
            part = array.T if kind == "weight" else array
            # q, k, v come in this order, which is torch's order too.
            state[key] = np.concatenate([state[key], part]) if key in state else part
        elif kind == "weight" and owner in linear:
            state[name] = array.T
        else:
            state[f"{owner}.{rename.get(kind, kind)}"] = array
    return {name: torch.tensor(array) for name, array in state.items()}


def _as(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype) if x.is_floating_point() else x


class TorchTrainer:
    """The training loop's body as a PyTorch user writes it."""

    def __init__(
        self,
        size: Size,
        weights: Arrays | None = None,
        compiled: bool = False,
        dtype: torch.dtype = torch.float32,
    ):
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
        torch.manual_seed(7)
        self.model, self.optimizer, self.loss = _build(size, dtype)
        weights = make_weights(size) if weights is None else weights
        state = _from_paddle_layout(self.model, weights)
        unknown = self.model.load_state_dict(state, strict=False)
        missing = [k for k in unknown.missing_keys if not k.endswith("num_batches_tracked")]
        if missing or unknown.unexpected_keys:
            raise RuntimeError(f"weights do not fit: {missing}, {unknown.unexpected_keys}")
        self.model.train()
        forward = self._in_half_precision if AUTOCAST else self._forward
        self.forward = torch.compile(forward) if compiled else forward
        self.batches = [
            (_as(torch.tensor(x), dtype), _as(torch.tensor(y), dtype))
            for x, y in make_batches(size)
        ]

    def _forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.loss(self.model(x), y)

    def _in_half_precision(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self._forward(x, y)

    def step(self, i: int) -> torch.Tensor:
        return self._train(*self.batches[i % len(self.batches)])

    def step_of_length(self, length: int) -> torch.Tensor:
        x, y = self.batches[0]
        return self._train(x[:, :length], y[:, :length])

    def _train(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = self.forward(x, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def read(self, loss: torch.Tensor) -> float:
        return loss.item()

    def settle(self) -> bool:
        return False


def torch_trainer(size: Size, weights: Arrays | None = None) -> TorchTrainer:
    return TorchTrainer(size, weights)


def compiled_trainer(size: Size, weights: Arrays | None = None) -> TorchTrainer:
    return TorchTrainer(size, weights, compiled=True)


def double_trainer(size: Size, weights: Arrays | None = None) -> TorchTrainer:
    return TorchTrainer(size, weights, dtype=torch.float64)
