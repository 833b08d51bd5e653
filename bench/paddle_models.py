"""The workloads as plain Paddle user code, written once and run on Paddle and on Bireme.

Every function takes the module it is to run on as `paddle`; nothing here knows which one it is.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from bench.paddle_images import build_mobilenet, build_unet
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


def build_mlp(paddle: ModuleType, size: MLP) -> tuple[Any, Any, Any]:
    nn, F = paddle.nn, paddle.nn.functional

    class Perceptron(nn.Layer):
        def __init__(self):
            super().__init__()
            self.hidden = nn.LayerList(
                [nn.Linear(size.width, size.width) for _ in range(size.depth - 1)]
            )
            self.output = nn.Linear(size.width, size.width)

        def forward(self, x):
            for layer in self.hidden:
                x = F.relu(layer(x))
            return self.output(x)

    model = Perceptron()
    optimizer = paddle.optimizer.SGD(size.learning_rate, parameters=model.parameters())
    return model, optimizer, F.mse_loss


def build_encoder(paddle: ModuleType, size: Encoder) -> tuple[Any, Any, Any]:
    nn, F = paddle.nn, paddle.nn.functional

    class TokenClassifier(nn.Layer):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(size.vocabulary, size.width)
            self.position = nn.Embedding(size.tokens, size.width)
            layer = nn.TransformerEncoderLayer(
                size.width, size.heads, size.feed_forward, dropout=size.dropout, activation="gelu"
            )
            self.encoder = nn.TransformerEncoder(layer, size.layers)
            self.head = nn.Linear(size.width, size.vocabulary)

        def forward(self, tokens):
            x = self.token(tokens) + self.position(paddle.arange(tokens.shape[1]))
            return self.head(self.encoder(x))

    def loss(logits, labels):
        return F.cross_entropy(logits.reshape([-1, size.vocabulary]), labels.reshape([-1]))

    model = TokenClassifier()
    optimizer = paddle.optimizer.AdamW(
        size.learning_rate, parameters=model.parameters(), weight_decay=0.01
    )
    return model, optimizer, loss


def build_resnet(paddle: ModuleType, size: ResNet) -> tuple[Any, Any, Any]:
    nn, F = paddle.nn, paddle.nn.functional

    class BasicBlock(nn.Layer):
        def __init__(self, n_in, n_out, stride):
            super().__init__()
            self.conv1 = nn.Conv2D(n_in, n_out, 3, stride, padding=1, bias_attr=False)
            self.bn1 = nn.BatchNorm2D(n_out)
            self.conv2 = nn.Conv2D(n_out, n_out, 3, padding=1, bias_attr=False)
            self.bn2 = nn.BatchNorm2D(n_out)
            self.projects = stride != 1 or n_in != n_out
            if self.projects:
                self.short_conv = nn.Conv2D(n_in, n_out, 1, stride, bias_attr=False)
                self.short_bn = nn.BatchNorm2D(n_out)

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            if self.projects:
                x = self.short_bn(self.short_conv(x))
            return F.relu(y + x)

    class ResNet18(nn.Layer):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2D(3, size.channels[0], 7, 2, padding=3, bias_attr=False)
            self.bn1 = nn.BatchNorm2D(size.channels[0])
            self.pool = nn.MaxPool2D(3, 2, padding=1)
            self.blocks = nn.Sequential(
                *[BasicBlock(n_in, n_out, stride) for _, n_in, n_out, stride in resnet_blocks(size)]
            )
            self.average = nn.AdaptiveAvgPool2D(1)
            self.fc = nn.Linear(size.channels[-1], size.classes)

        def forward(self, x):
            x = self.pool(F.relu(self.bn1(self.conv1(x))))
            x = self.average(self.blocks(x))
            return self.fc(paddle.flatten(x, 1))

    model = ResNet18()
    optimizer = paddle.optimizer.Momentum(
        size.learning_rate,
        size.momentum,
        parameters=model.parameters(),
        weight_decay=size.weight_decay,
    )
    return model, optimizer, F.cross_entropy


def build_lstm(paddle: ModuleType, size: LSTM) -> tuple[Any, Any, Any]:
    nn, F = paddle.nn, paddle.nn.functional

    class SequenceClassifier(nn.Layer):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(size.width, size.width, num_layers=size.layers)
            self.head = nn.Linear(size.width, size.classes)

        def forward(self, x):
            _, (hidden, _) = self.lstm(x)
            return self.head(hidden[-1])

    model = SequenceClassifier()
    optimizer = paddle.optimizer.Adam(size.learning_rate, parameters=model.parameters())
    return model, optimizer, F.cross_entropy


_BUILDERS: dict[type, Any] = {
    MLP: build_mlp,
    Encoder: build_encoder,
    ResNet: build_resnet,
    MobileNet: build_mobilenet,
    UNet: build_unet,
    LSTM: build_lstm,
}


class PaddleTrainer:
    """The training loop's body as a Paddle user writes it."""

    def __init__(
        self,
        paddle: ModuleType,
        size: Size,
        weights: Arrays | None = None,
        dtype: str = "float32",
    ):
        paddle.seed(7)
        paddle.set_default_dtype(dtype)
        self.paddle, self.dtype = paddle, dtype
        self.model, self.optimizer, self.loss = _BUILDERS[type(size)](paddle, size)
        self._load(make_weights(size) if weights is None else weights)
        self.model.train()
        self.batches = [(self._tensor(x), self._tensor(y)) for x, y in make_batches(size)]
        self.forward = self._in_half_precision if AUTOCAST else self._forward

    def _forward(self, x: Any, y: Any) -> Any:
        return self.loss(self.model(x), y)

    def _in_half_precision(self, x: Any, y: Any) -> Any:
        with self.paddle.amp.auto_cast(dtype="bfloat16"):
            return self._forward(x, y)

    def _cast(self, array: np.ndarray) -> np.ndarray:
        return array.astype(self.dtype) if array.dtype.kind == "f" else array

    def _tensor(self, array: np.ndarray) -> Any:
        return self.paddle.to_tensor(self._cast(array))

    def _load(self, weights: Arrays) -> None:
        # One by one instead of set_state_dict: a name that is missing must not pass silently.
        state = self.model.state_dict()
        for name, array in weights.items():
            state[name].set_value(self._cast(array))

    def step(self, i: int) -> Any:
        return self._train(*self.batches[i % len(self.batches)])

    def step_of_length(self, length: int) -> Any:
        x, y = self.batches[0]
        return self._train(x[:, :length], y[:, :length])

    def _train(self, x: Any, y: Any) -> Any:
        loss = self.forward(x, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.clear_grad()
        return loss

    def read(self, loss: Any) -> float:
        return float(loss)

    def settle(self) -> bool:
        return False


class BiremeTrainer(PaddleTrainer):
    """The same loop; only waiting for the compiler is Bireme's own."""

    compiled = 0

    def settle(self) -> bool:
        from bireme.core.executor import wait_for_compilation
        from bireme.core.stats import compile_count
        from bireme.host import config

        config.compile_mode = "sync"  # steady steps are timed; by itself it compiles what pays
        wait_for_compilation()
        before, self.compiled = self.compiled, compile_count()
        return self.compiled != before


def paddle_trainer(size: Size, weights: Arrays | None = None) -> PaddleTrainer:
    import paddle

    return PaddleTrainer(paddle, size, weights)


def bireme_trainer(size: Size, weights: Arrays | None = None) -> BiremeTrainer:
    import bireme

    return BiremeTrainer(bireme, size, weights)


def double_trainer(size: Size, weights: Arrays | None = None) -> BiremeTrainer:
    import bireme

    return BiremeTrainer(bireme, size, weights, dtype="float64")
