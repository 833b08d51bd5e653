"""LeNet for 28 x 28 digits."""

from __future__ import annotations

import bireme
from bireme import nn


class LeNet(nn.Layer):
    """Two convolutions, three linear layers; `num_classes <= 0` leaves the latter out."""

    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.num_classes = num_classes
        self.features = nn.Sequential(
            nn.Conv2D(1, 6, 3, stride=1, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(2, 2),
            nn.Conv2D(6, 16, 5, stride=1, padding=0),
            nn.ReLU(),
            nn.MaxPool2D(2, 2),
        )
        if num_classes > 0:
            self.fc = nn.Sequential(
                nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, num_classes)
            )

    def forward(self, inputs: bireme.Tensor) -> bireme.Tensor:
        x = self.features(inputs)  # [n, 16, 5, 5]
        return self.fc(bireme.flatten(x, 1)) if self.num_classes > 0 else x
