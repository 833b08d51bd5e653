"""Sequences: recurrent networks, truncated backpropagation, translation, forecasts."""

from __future__ import annotations

import random
from typing import Any


def lstm_lengths(paddle: Any, steps: int = 60) -> float:
    """A classifier of sequences, each batch of another length."""
    nn, F = paddle.nn, paddle.nn.functional
    embed, lstm, head = nn.Embedding(100, 32), nn.LSTM(32, 64), nn.Linear(64, 5)
    every = [*embed.parameters(), *lstm.parameters(), *head.parameters()]
    optimizer = paddle.optimizer.Adam(1e-3, parameters=every)
    lengths = random.Random(0)
    lost = 0.0
    for _ in range(steps):
        words = paddle.randint(0, 100, [16, lengths.randint(8, 60)])
        out, _ = lstm(embed(words))
        loss = F.cross_entropy(head(out[:, -1]), words[:, 0] % 5)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def truncated_bptt(paddle: Any, steps: int = 80) -> float:
    """One long sequence in pieces; the state goes on, the gradient does not."""
    nn, F = paddle.nn, paddle.nn.functional
    embed, gru, head = nn.Embedding(50, 32), nn.GRU(32, 64), nn.Linear(64, 50)
    every = [*embed.parameters(), *gru.parameters(), *head.parameters()]
    clip = nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.Adam(2e-3, parameters=every, grad_clip=clip)
    text = paddle.randint(0, 50, [8, 20 * steps + 1])
    state, lost = None, 0.0
    for i in range(steps):
        piece = text[:, 20 * i : 20 * i + 21]
        out, state = gru(embed(piece[:, :-1]), state)
        loss = F.cross_entropy(head(out).reshape([-1, 50]), piece[:, 1:].reshape([-1]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        state = state.detach()
        lost = float(loss)
    return lost


def seq2seq(paddle: Any, steps: int = 30) -> float:
    """A decoder that is written step by step, with attention over the encoder."""
    nn, F = paddle.nn, paddle.nn.functional
    embed, encoder = nn.Embedding(40, 32), nn.GRU(32, 48)
    cell, head = nn.GRUCell(32 + 48, 48), nn.Linear(48, 40)
    layers = (embed, encoder, cell, head)
    every = [p for layer in layers for p in layer.parameters()]
    optimizer = paddle.optimizer.Adam(1e-3, parameters=every)
    lengths = random.Random(1)
    lost = 0.0
    for _ in range(steps):
        source = paddle.randint(0, 40, [16, lengths.randint(5, 14)])
        target = paddle.flip(source, axis=[1])
        memory, last = encoder(embed(source))
        state, word, losses = last[0], paddle.zeros([16], "int64"), []
        for t in range(target.shape[1]):
            weights = F.softmax((memory * state.unsqueeze(1)).sum(-1), axis=-1)
            context = (memory * weights.unsqueeze(-1)).sum(1)
            _, state = cell(paddle.concat([embed(word), context], axis=-1), state)
            losses.append(F.cross_entropy(head(state), target[:, t]))
            word = target[:, t]
        loss = paddle.stack(losses).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def forecast(paddle: Any, steps: int = 50) -> float:
    """A transformer reads windows of a time series."""
    nn, F = paddle.nn, paddle.nn.functional
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1)
    read, encoder, head = nn.Linear(4, 64), nn.TransformerEncoder(layer, 2), nn.Linear(64, 4)
    every = [*read.parameters(), *encoder.parameters(), *head.parameters()]
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=every)
    series = paddle.sin(paddle.arange(2000, dtype="float32").unsqueeze(-1) * paddle.rand([1, 4]))
    lost = 0.0
    for i in range(steps):
        at = [(37 * i + 61 * k) % 1900 for k in range(16)]
        window = paddle.stack([series[a : a + 49] for a in at])
        guess = head(encoder(read(window[:, :-1])))
        loss = F.mse_loss(guess, window[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def decode(paddle: Any, steps: int = 48) -> float:
    """Text from a small transformer whose cache of keys grows by a word a step."""
    nn, F = paddle.nn, paddle.nn.functional
    embed, project, head = nn.Embedding(200, 64), nn.Linear(64, 192), nn.Linear(64, 200)
    words = paddle.randint(0, 200, [2, 5])
    keys = values = None
    with paddle.no_grad():
        new = words
        for _ in range(steps):
            q, k, v = paddle.chunk(project(embed(new)), 3, axis=-1)
            keys = k if keys is None else paddle.concat([keys, k], axis=1)
            values = v if values is None else paddle.concat([values, v], axis=1)
            weights = F.softmax(paddle.matmul(q, keys, transpose_y=True) / 8.0, axis=-1)
            logits = head(paddle.matmul(weights, values)[:, -1])
            new = paddle.argmax(logits, axis=-1, keepdim=True)
            words = paddle.concat([words, new], axis=1)
    return float(words.astype("float32").mean())
