"""Pictures and fields: style transfer, detection, contrast, distillation, rendered rays."""

from __future__ import annotations

from typing import Any


def style_transfer(paddle: Any, steps: int = 25) -> float:
    """A picture is changed until its features correlate like another's."""
    nn, F = paddle.nn, paddle.nn.functional
    layers = [nn.Conv2D(3, 16, 3, padding=1), nn.Conv2D(16, 32, 3, padding=1, stride=2),
              nn.Conv2D(32, 32, 3, padding=1)]  # fmt: skip

    def features(x: Any) -> list[Any]:
        found = []
        for layer in layers:
            x = F.relu(layer(x))
            found.append(x)
        return found

    def gram(x: Any) -> Any:
        flat = x.reshape([x.shape[1], -1])
        return paddle.matmul(flat, flat, transpose_y=True) / flat.shape[1]

    with paddle.no_grad():
        content = features(paddle.rand([1, 3, 64, 64]))[-1]
        style = [gram(f) for f in features(paddle.rand([1, 3, 48, 80]))]
    picture = paddle.create_parameter([1, 3, 64, 64], "float32")
    optimizer = paddle.optimizer.Adam(0.02, parameters=[picture])
    lost = 0.0
    for _ in range(steps):
        found = features(picture)
        loss = F.mse_loss(found[-1], content)
        for f, wanted in zip(found, style, strict=True):
            loss = loss + 10 * F.mse_loss(gram(f), wanted)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def detection(paddle: Any, steps: int = 20) -> float:
    """Boxes at the places that a mask chooses: another number of them in each picture."""
    nn, F = paddle.nn, paddle.nn.functional
    body = nn.Sequential(
        nn.Conv2D(3, 16, 3, stride=2, padding=1), nn.BatchNorm2D(16), nn.ReLU(),
        nn.Conv2D(16, 32, 3, stride=2, padding=1), nn.BatchNorm2D(32), nn.ReLU(),
    )  # fmt: skip
    score, box = nn.Conv2D(32, 1, 1), nn.Conv2D(32, 3, 1)
    every = [p for layer in (body, score, box) for p in layer.parameters()]
    optimizer = paddle.optimizer.Momentum(0.01, parameters=every)
    lost = 0.0
    for i in range(steps):
        image = paddle.rand([4, 3, 64, 64])
        wanted = (paddle.rand([4, 1, 16, 16]) < 0.05 + 0.01 * (i % 7)).astype("float32")
        found = body(image)
        scores, boxes = score(found), box(found).transpose([0, 2, 3, 1])
        loss = F.binary_cross_entropy_with_logits(scores, wanted)
        inside = paddle.nonzero(wanted[:, 0])
        if inside.shape[0]:
            loss = loss + F.smooth_l1_loss(
                paddle.gather_nd(boxes, inside), inside.astype("float32")
            )
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    with paddle.no_grad():
        corners = paddle.rand([200, 2])
        kept = paddle.vision.ops.nms(
            paddle.concat([corners, corners + 0.2], 1), 0.5, scores.flatten()[:200]
        )
    return lost + len(kept)


def contrastive(paddle: Any, steps: int = 30) -> float:
    """Two views of each picture find each other among those of all others."""
    nn, F = paddle.nn, paddle.nn.functional
    net = nn.Sequential(
        nn.Conv2D(3, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2D(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2D(1), nn.Flatten(),
        nn.Linear(32, 32),
    )  # fmt: skip
    optimizer = paddle.optimizer.Adam(1e-3, parameters=net.parameters())
    lost = 0.0
    for _ in range(steps):
        images = paddle.rand([16, 3, 32, 32])
        views = [paddle.flip(images, [3]) * 0.9, images + 0.1 * paddle.randn(images.shape)]
        codes = F.normalize(net(paddle.concat(views)), axis=1)
        alike = paddle.matmul(codes, codes, transpose_y=True) / 0.2 - 1e9 * paddle.eye(32)
        partner = paddle.concat([paddle.arange(16, 32), paddle.arange(16)])
        loss = F.cross_entropy(alike, partner)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def distillation(paddle: Any, steps: int = 60) -> float:
    """A small network learns the soft answers of a large one."""
    nn, F = paddle.nn, paddle.nn.functional
    teacher = nn.Sequential(
        nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)
    )
    student = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    teacher.eval()
    rate = paddle.optimizer.lr.CosineAnnealingDecay(1e-2, steps)
    optimizer = paddle.optimizer.AdamW(rate, parameters=student.parameters(), weight_decay=0.01)
    lost = 0.0
    for _ in range(steps):
        x, y = paddle.randn([64, 64]), paddle.randint(0, 10, [64])
        with paddle.no_grad():
            soft = F.softmax(teacher(x) / 4, axis=-1)
        answer = student(x)
        close = F.kl_div(F.log_softmax(answer / 4, axis=-1), soft, reduction="batchmean") * 16
        loss = close + 0.5 * F.cross_entropy(answer, y)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        rate.step()
        lost = float(loss)
    return lost


def nerf(paddle: Any, steps: int = 20) -> float:
    """Colours and densities along rays, summed up to pixels."""
    nn, F = paddle.nn, paddle.nn.functional
    net = nn.Sequential(
        nn.Linear(39, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )
    optimizer = paddle.optimizer.Adam(5e-4, parameters=net.parameters())
    depths = paddle.linspace(2.0, 6.0, 24)
    lost = 0.0
    for _ in range(steps):
        start, way = paddle.randn([128, 3]), F.normalize(paddle.randn([128, 3]), axis=1)
        points = start.unsqueeze(1) + way.unsqueeze(1) * depths.reshape([1, -1, 1])
        waves = [f(points * 2.0**k) for k in range(6) for f in (paddle.sin, paddle.cos)]
        raw = net(paddle.concat([points, *waves], axis=-1))
        opaque = 1 - paddle.exp(-F.relu(raw[..., 3]) * (4.0 / 24))
        clear = paddle.cumprod(1 - opaque + 1e-10, dim=-1)
        weights = opaque * paddle.concat([paddle.ones([128, 1]), clear[:, :-1]], axis=-1)
        pixels = (weights.unsqueeze(-1) * F.sigmoid(raw[..., :3])).sum(1)
        loss = F.mse_loss(pixels, F.sigmoid(start))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost


def pinn(paddle: Any, steps: int = 40) -> float:
    """A network that solves a differential equation: second derivatives in the loss."""
    nn = paddle.nn
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = paddle.optimizer.Adam(1e-3, parameters=net.parameters())
    lost = 0.0
    for _ in range(steps):
        x, t = paddle.rand([200, 1]), paddle.rand([200, 1])
        x.stop_gradient = t.stop_gradient = False
        u = net(paddle.concat([x, t], axis=1))
        u_t, u_x = paddle.grad(u, [t, x], create_graph=True)
        (u_xx,) = paddle.grad(u_x, [x], create_graph=True)
        begin = paddle.concat([x.detach(), paddle.zeros_like(t)], axis=1)
        loss = ((u_t + u * u_x - 0.01 * u_xx) ** 2).mean()
        loss = loss + ((net(begin) + paddle.sin(3.1416 * x.detach())) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        lost = float(loss)
    return lost
