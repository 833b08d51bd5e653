"""Training loops that are not the plain one: loaders, accumulation, sizes that never return."""

from __future__ import annotations

from typing import Any


def loader(paddle: Any, epochs: int = 3) -> float:
    """A small CNN on a dataset of pictures."""
    nn, F = paddle.nn, paddle.nn.functional
    images, labels = paddle.rand([640, 1, 28, 28]).numpy(), (paddle.rand([640]).numpy() * 10)

    class Pictures(paddle.io.Dataset):
        def __getitem__(self, i: int) -> Any:
            return images[i], labels[i : i + 1].astype("int64")

        def __len__(self) -> int:
            return 640

    net = nn.Sequential(
        nn.Conv2D(1, 16, 3, padding=1), nn.BatchNorm2D(16), nn.ReLU(), nn.MaxPool2D(2),
        nn.Conv2D(16, 32, 3, padding=1), nn.BatchNorm2D(32), nn.ReLU(), nn.MaxPool2D(2),
        nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    optimizer = paddle.optimizer.Momentum(0.01, parameters=net.parameters())
    lost = 0.0
    for _ in range(epochs):
        for x, y in paddle.io.DataLoader(Pictures(), batch_size=32, shuffle=True):
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            lost = float(loss)
    return lost


def accumulation(paddle: Any, steps: int = 80) -> float:
    """Gradients of four batches at a time, and a slow copy of the weights."""
    nn, F = paddle.nn, paddle.nn.functional
    net = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(),
                        nn.Linear(128, 4))  # fmt: skip
    slow = {name: p.clone().detach() for name, p in net.named_parameters()}
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=net.parameters())
    lost = 0.0
    for i in range(steps):
        x = paddle.randn([16, 32])
        loss = F.mse_loss(net(x), x[:, :4]) / 4
        loss.backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.clear_grad()
            with paddle.no_grad():
                for name, p in net.named_parameters():
                    slow[name] = slow[name] * 0.99 + p * 0.01
        lost = float(loss)
    return lost + float(slow["0.weight"].mean())


def batch_sizes(paddle: Any, steps: int = 120) -> float:
    """A batch size that never comes back."""
    nn, F = paddle.nn, paddle.nn.functional
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                        nn.Linear(64, 1))  # fmt: skip
    optimizer = paddle.optimizer.Adam(1e-3, parameters=net.parameters())
    lost = 0.0
    for i in range(steps):
        x = paddle.randn([8 + i, 32])
        loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def policy_gradient(paddle: Any, episodes: int = 30) -> float:
    """REINFORCE on a walk along a line: a network is asked step by step."""
    nn, F = paddle.nn, paddle.nn.functional
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = paddle.optimizer.Adam(1e-2, parameters=net.parameters())
    total = 0.0
    for episode in range(episodes):
        at, logs = 0.0, []
        for t in range(10 + episode % 7):
            seen = paddle.to_tensor([[at, t / 16]], dtype="float32")
            chances = F.log_softmax(net(seen), axis=-1)[0]
            step = paddle.multinomial(paddle.exp(chances), 1).item()
            logs.append(chances[step])
            at += 0.1 if step else -0.1
        loss = -paddle.stack(logs).sum() * at
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        total += at
    return total


def maml(paddle: Any, steps: int = 40) -> float:
    """Gradients through an inner step of learning."""
    F = paddle.nn.functional
    make = paddle.create_parameter
    weights = [make([1, 40], "float32"), make([40], "float32", is_bias=True),
               make([40, 1], "float32"), make([1], "float32", is_bias=True)]  # fmt: skip
    optimizer = paddle.optimizer.Adam(1e-3, parameters=weights)

    def net(x: Any, w: Any) -> Any:
        return paddle.matmul(F.relu(paddle.matmul(x, w[0]) + w[1]), w[2]) + w[3]

    lost = 0.0
    for _ in range(steps):
        losses = []
        for _ in range(4):
            phase, x = paddle.rand([1]) * 3, paddle.rand([20, 1]) * 6 - 3
            y = paddle.sin(x + phase)
            inner = F.mse_loss(net(x[:10], weights), y[:10])
            grads = paddle.grad(inner, weights, create_graph=True)
            fast = [w - 0.01 * g for w, g in zip(weights, grads, strict=True)]
            losses.append(F.mse_loss(net(x[10:], fast), y[10:]))
        loss = paddle.stack(losses).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def graph_network(paddle: Any, steps: int = 60) -> float:
    """Messages along the edges of a graph."""
    nn, F = paddle.nn, paddle.nn.functional
    first, second = nn.Linear(64, 32), nn.Linear(32, 7)
    every = [*first.parameters(), *second.parameters()]
    optimizer = paddle.optimizer.Adam(1e-2, parameters=every)
    features, labels = paddle.randn([500, 64]), paddle.randint(0, 7, [500])
    source, target = paddle.randint(0, 500, [2000]), paddle.randint(0, 500, [2000])

    def spread(x: Any) -> Any:
        return paddle.geometric.send_u_recv(x, source, target, "mean", out_size=500)

    lost = 0.0
    for _ in range(steps):
        hidden = F.dropout(F.relu(first(spread(features))), 0.5)
        loss = F.cross_entropy(second(spread(hidden)), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost
