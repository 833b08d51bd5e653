"""A tiny transformer encoder learns a synthetic task: is the first token repeated later on?

python examples/transformer_encoder.py
"""

from __future__ import annotations

import numpy as np

import bireme as paddle
from bireme import nn

VOCABULARY, LENGTH, WIDTH = 16, 8, 32


class Encoder(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=64, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.classifier = nn.Linear(WIDTH, 2)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:  # [batch, time]
        places = paddle.arange(LENGTH).unsqueeze(0)
        x = self.tokens(tokens) + self.positions(places)  # [batch, time, width]
        return self.classifier(self.encoder(x)[:, 0])


def batch(rng: np.random.Generator, size: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Random tokens, half of the rows with their first token repeated."""
    tokens = rng.integers(1, VOCABULARY, (size, LENGTH))
    first, rest = tokens[:, :1], tokens[:, 1:]
    rest[rest == first] = 0
    repeated = rng.random(size) < 0.5
    rest[repeated, rng.integers(0, LENGTH - 1, repeated.sum())] = first[repeated, 0]
    return paddle.to_tensor(tokens), paddle.to_tensor(repeated.astype("int64"))


def main(steps: int = 400) -> float:
    paddle.seed(0)
    rng = np.random.default_rng(0)
    model = Encoder()
    optimizer = paddle.optimizer.AdamW(learning_rate=2e-3, parameters=model.parameters())
    for step in range(steps):
        tokens, repeated = batch(rng, 64)
        loss = nn.functional.cross_entropy(model(tokens), repeated)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    tokens, repeated = batch(rng, 500)
    with paddle.no_grad():
        score = float((model(tokens).numpy().argmax(1) == repeated.numpy()).mean())
    print(f"accuracy on new rows: {score:.3f}")
    return score


if __name__ == "__main__":
    main()
