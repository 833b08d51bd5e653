"""Words, users and graphs: tagging, recommendations, a search of settings, a citation graph."""

from __future__ import annotations

import random
from typing import Any


def crf(paddle: Any, steps: int = 25) -> float:
    """A linear-chain conditional random field over sentences of changing lengths."""
    nn = paddle.nn
    embed, read = nn.Embedding(200, 32), nn.Linear(32, 9)
    moves = paddle.create_parameter([9, 9], "float32")
    every = [*embed.parameters(), *read.parameters(), moves]
    optimizer = paddle.optimizer.Adam(1e-2, parameters=every)
    lengths = random.Random(2)
    lost = 0.0
    for _ in range(steps):
        words = paddle.randint(0, 200, [8, lengths.randint(6, 20)])
        tags, emitted = words % 9, read(embed(words))
        score = paddle.take_along_axis(emitted, tags.unsqueeze(-1), axis=-1).squeeze(-1).sum(1)
        score = score + paddle.gather_nd(
            moves, paddle.stack([tags[:, :-1], tags[:, 1:]], axis=-1)
        ).sum(1)
        total = emitted[:, 0]
        for t in range(1, words.shape[1]):
            total = paddle.logsumexp(total.unsqueeze(2) + moves, axis=1) + emitted[:, t]
        loss = (paddle.logsumexp(total, axis=1) - score).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def recommender(paddle: Any, steps: int = 60) -> float:
    """Sparse features: a factorisation machine beside a small network."""
    nn, F = paddle.nn, paddle.nn.functional
    factors, weights = nn.Embedding(5000, 16, sparse=True), nn.Embedding(5000, 1, sparse=True)
    deep = nn.Sequential(nn.Linear(160, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    every = [p for layer in (factors, weights, deep) for p in layer.parameters()]
    optimizer = paddle.optimizer.Adam(1e-3, parameters=every, lazy_mode=True)
    lost = 0.0
    for _ in range(steps):
        items = paddle.randint(0, 5000, [128, 10])
        clicked = (items[:, :1] % 2).astype("float32")
        found = factors(items)
        pairs = 0.5 * (found.sum(1) ** 2 - (found**2).sum(1)).sum(1, keepdim=True)
        logits = weights(items).sum(1) + pairs + deep(found.flatten(1))
        loss = F.binary_cross_entropy_with_logits(logits, clicked)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def settings(paddle: Any, trials: int = 10) -> float:
    """A search: each trial has another width, batch size and optimizer."""
    nn, F = paddle.nn, paddle.nn.functional
    draw, best = random.Random(3), 1e9
    x = paddle.randn([400, 20])
    y = paddle.sin(x.sum(1, keepdim=True))
    for _ in range(trials):
        width, batch = draw.randint(16, 96), draw.choice([20, 40, 50, 80])
        net = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, 1))
        kind = draw.choice([paddle.optimizer.SGD, paddle.optimizer.Adam, paddle.optimizer.RMSProp])
        optimizer = kind(10 ** draw.uniform(-3, -2), parameters=net.parameters())
        for at in range(0, 400, batch):
            loss = F.mse_loss(net(x[at : at + batch]), y[at : at + batch])
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        with paddle.no_grad():
            best = min(best, float(F.mse_loss(net(x), y)))
    return best


def citations(paddle: Any, steps: int = 20) -> float:
    """A graph convolution of the size of Cora: 2,708 texts, 1,433 words, 10,556 citations."""
    nn, F = paddle.nn, paddle.nn.functional
    texts, words, edges = 2708, 1433, 10556
    first, second = nn.Linear(words, 16), nn.Linear(16, 7)
    every = [*first.parameters(), *second.parameters()]
    optimizer = paddle.optimizer.Adam(1e-2, parameters=every, weight_decay=5e-4)
    x = (paddle.rand([texts, words]) < 0.012).astype("float32")
    labels = paddle.randint(0, 7, [texts])
    source, target = paddle.randint(0, texts, [edges]), paddle.randint(0, texts, [edges])
    degree = paddle.bincount(target, minlength=texts).astype("float32")
    norm = (degree.clip(min=1.0) ** -0.5).unsqueeze(-1)
    lost = 0.0
    for _ in range(steps):
        h = F.dropout(x, 0.5)
        h = F.relu(
            paddle.geometric.send_u_recv(first(h) * norm, source, target, "sum", texts) * norm
        )
        out = paddle.geometric.send_u_recv(
            second(F.dropout(h, 0.5)) * norm, source, target, "sum", texts
        )
        loss = F.cross_entropy((out * norm)[:140], labels[:140])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def q_learning(paddle: Any, steps: int = 120) -> float:
    """A network plays, remembers, and learns from what it remembers."""
    import numpy as np

    nn, F = paddle.nn, paddle.nn.functional
    make = lambda: nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))  # noqa: E731
    net, target = make(), make()
    target.set_state_dict(net.state_dict())
    optimizer = paddle.optimizer.Adam(1e-3, parameters=net.parameters())
    draw, memory, total = random.Random(4), [], 0.0
    at = np.zeros(4, "float32")
    for i in range(steps):
        with paddle.no_grad():
            best = net(paddle.to_tensor(at).unsqueeze(0)).argmax(-1).item()
        action = draw.randint(0, 1) if draw.random() < 0.2 else best
        after = (at * 0.9 + (0.1 if action else -0.1)).astype("float32")
        memory.append((at, action, float(-abs(after[0])), after))
        total, at = total + memory[-1][2], after
        if len(memory) < 16:
            continue
        batch = draw.sample(memory, 16)
        seen, then = (paddle.to_tensor(np.stack([m[k] for m in batch])) for k in (0, 3))
        done = paddle.to_tensor([m[1] for m in batch]).unsqueeze(-1)
        gains = paddle.to_tensor([m[2] for m in batch], dtype="float32")
        with paddle.no_grad():
            goal = gains + 0.9 * target(then).max(1)
        worth = paddle.take_along_axis(net(seen), done, axis=1).squeeze(1)
        loss = F.smooth_l1_loss(worth, goal)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if i % 20 == 0:
            target.set_state_dict(net.state_dict())
    return total
