"""One convolutional network and one transformer, small, for all tests of captured graphs."""

from __future__ import annotations

import bireme as paddle
from bireme import nn
from bireme.nn import functional as F


class SmallCNN(nn.Layer):
    """Convolution, batch norm, pooling, a linear head with softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(3, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2D(8)
        self.pool = nn.MaxPool2D(2, 2)
        self.conv2 = nn.Conv2D(8, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16 * 2 * 2, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.norm1(self.conv1(x))))
        x = F.relu(self.conv2(x))
        x = paddle.flatten(x, 1)
        return F.softmax(self.head(x))


class SmallTransformer(nn.Layer):
    """Token and position embeddings, one pre-norm block, a projection to the vocabulary."""

    def __init__(self, vocabulary: int = 50, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(12, width)
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiHeadAttention(width, 4, dropout=dropout)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        places = paddle.arange(8, dtype="int64")
        x = self.tokens(ids) + self.positions(places)
        h = self.norm1(x)
        x = x + self.attention(h, h, h)
        h = self.narrow(F.gelu(self.wide(self.norm2(x))))
        return self.head(x + self.dropout(h))
