"""Programs that differ in one size share a compiled program. On a CPU every size has the cold tier,
so the tests ask for what happens on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import nn, profiler
from bireme.capture import varying
from bireme.core import executor
from bireme.host import config
from bireme.nn import functional as F
from bireme.profiler import count_compiles


@pytest.fixture
def padded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Switches between the reference (interpreted) and padded programs for all but tiny ones."""
    executor.clear_programs()

    def switch(on: bool) -> None:
        varying._families.clear()
        monkeypatch.setattr(config, "compile_mode", "auto" if on else "never")
        monkeypatch.setattr(executor, "stand_in", varying.stand_in)
        monkeypatch.setattr(varying, "applies", lambda program: on and program.size > 8)

    yield switch
    varying._families.clear()
    executor.clear_programs()


def train(net: nn.Layer, batches: Sequence[tuple[np.ndarray, ...]]) -> list[float]:
    optimizer = paddle.optimizer.Adam(1e-2, parameters=net.parameters())
    losses = []
    for batch in batches:
        loss = net(*[paddle.to_tensor(a) for a in batch])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    return losses


class Reader(nn.Layer):
    """Attention with dropout, the last token, and what pools a text."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(30, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.2, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(16, 30)

    def forward(self, x: Any, y: Any) -> Any:
        h = self.encoder(self.token(x))
        places = paddle.arange(x.shape[1]).unsqueeze(0) < x[:, :1] + 2
        mask = places.astype("float32").unsqueeze(-1)
        pooled = (h * mask).sum(1) / mask.sum(1) + h.max(1) + h[:, -1]
        largest = paddle.topk(h, 2, axis=1)[0].mean() + paddle.sort(h, 1)[:, :2].mean()
        loss = F.cross_entropy(self.head(h).reshape([-1, 30]), y.reshape([-1]))
        return loss + pooled.square().mean() + 0.1 * largest + (x[:, 1:] == x[:, :-1]).mean()


class Picture(nn.Layer):
    """Convolutions, running statistics, pooling, and back to the full size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8)
        self.down = nn.Conv2D(8, 8, 3, stride=2, padding=1)
        self.up, self.last = nn.Conv2DTranspose(8, 8, 2, stride=2), nn.Conv2D(16, 3, 1)

    def forward(self, x: Any) -> Any:
        h = F.silu(self.norm(self.first(x)))
        d = self.down(h)
        d = d + F.interpolate(F.max_pool2d(d, 2), scale_factor=2, mode="bilinear")
        return F.mse_loss(self.last(paddle.concat([self.up(d), h], 1)), x)


class Recurrent(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(4, 6, direction="bidirect"), nn.Linear(12, 3)

    def forward(self, x: Any, y: Any) -> Any:
        return F.cross_entropy(self.head(self.cells(x)[0][:, 0]), y)


LENGTHS = (9, 12, 10, 15, 11)


def texts(rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    return [(rng.integers(0, 30, (4, n)), rng.integers(0, 30, (4, n))) for n in LENGTHS]


def pictures(rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    return [(rng.normal(size=(2, 3, 4 * n, 4 * n)).astype("float32"),) for n in (3, 5, 4, 6)]


def series(rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    return [(rng.normal(size=(4, n, 4)).astype("float32"), rng.integers(0, 3, 4)) for n in LENGTHS]


@pytest.mark.parametrize(
    ("make", "draw"), [(Reader, texts), (Picture, pictures), (Recurrent, series)]
)
def test_training_gives_the_losses_of_exact_programs(
    padded: Callable[[bool], None], make: Any, draw: Any
) -> None:
    losses = []
    for on in (False, True):
        padded(on)
        paddle.seed(3)
        batches = draw(np.random.default_rng(0))
        with count_compiles() as compiles:
            losses.append(train(make(), batches))
    exact, found = losses
    assert exact == pytest.approx(found, rel=2e-5)
    # One for all sizes but the first, which the cold tier had.
    assert compiles[0] == 1
    (family,) = [f for f in varying.families() if f.programs]
    assert family.refused is None
    assert sum(w.runs for w in family.programs) == len(batches) - 1
    assert [p.compiled_runs for p in profiler.programs() if p.bound] == [len(batches) - 1]


def test_results_that_vary_have_their_exact_sizes(padded: Callable[[bool], None]) -> None:
    weight = paddle.to_tensor(np.random.default_rng(1).normal(size=(6, 6)).astype("float32"))

    def run(n: int) -> np.ndarray:
        x = paddle.to_tensor(np.random.default_rng(n).normal(size=(n, 6)).astype("float32"))
        for _ in range(4):
            x = paddle.tanh(x @ weight) + x.mean() * x
        return x.numpy()

    sizes = (40, 55, 33, 64)
    padded(False)
    exact = [run(n) for n in sizes]
    padded(True)
    for n, want in zip(sizes, exact, strict=True):
        found = run(n)
        assert found.shape == (n, 6)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert [w.runs for f in varying.families() for w in f.programs] == [3]


def test_a_larger_size_gets_a_larger_bound(padded: Callable[[bool], None]) -> None:
    padded(True)
    for n in (20, 30, 70, 25):
        x = paddle.ones([n, 4])
        for i in range(10):
            x = x + i
        assert float(x.sum()) == n * 4 * 46
    assert [w.sizes.high for f in varying.families() for w in f.programs] == [32, 128]


def test_programs_that_differ_otherwise_keep_their_own(padded: Callable[[bool], None]) -> None:
    padded(True)
    # Two sizes that have nothing to do with each other, and a size of 1, which broadcasts.
    for rows, columns in ((20, 30), (24, 50), (26, 37), (1, 30), (20, 1)):
        x, y = paddle.ones([rows, 1]), paddle.ones([1, columns])
        for i in range(6):
            x, y = x + i, y * 2
        assert float((x + y).sum()) == rows * columns * (1 + 15 + 64)


def test_the_contents_of_the_padding_are_never_taken(padded: Callable[[bool], None]) -> None:
    """Where the padding is divided by, there is no number; a maximum and a product see none."""
    padded(True)
    for n in (5, 9, 7, 16):
        x = paddle.arange(1, n + 1).astype("float32")
        y = 1.0 / x
        z = paddle.log(x) / x + y / y
        found = [z.sum(), y.max(), (y * y).prod(), paddle.dot(y, 1 / y), paddle.logsumexp(-y, 0)]
        numbers = np.arange(1, n + 1, dtype="float32")
        inverse = 1 / numbers
        expected = [
            (np.log(numbers) / numbers + 1).sum(), 1.0, (inverse**2).prod(), n,
            np.log(np.exp(-inverse).sum()),
        ]  # fmt: skip
        assert [float(f) for f in found] == pytest.approx(expected, rel=1e-5)


def test_a_bound_is_the_closest_power_of_two_or_the_middle_of_two() -> None:
    assert [varying._closest(n) for n in (2, 8, 9, 12, 13, 300, 512, 700, 1000)] == [
        6, 8, 12, 12, 16, 384, 512, 768, 1024,
    ]  # fmt: skip


def test_a_closer_bound_is_compiled_once_it_would_often_do(
    padded: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(varying, "_CLOSER", 3)
    padded(True)

    def run(n: int) -> None:
        x = paddle.ones([n, 4])
        for i in range(10):
            x = x + i
        assert float(x.sum()) == n * 4 * 46

    for n in (250, 200, 30, 28, 26):
        run(n)
    (family,) = [f for f in varying.families() if f.programs]
    assert family._next is not None
    assert family._next.future is not None
    family._next.future.result()
    for n in (30, 200, 24):
        run(n)
    assert [(w.sizes.high, w.runs) for w in family.programs] == [(32, 2), (256, 5)]
