"""Lazy mode: rows of a table that no gradient reached stay as they are, with their moments.

The moments are compared with the wheel's. The weights are not, since its sparse kernel corrects the
bias of step t as if it were step t + 1, nor is `padding_idx`, whose row has a gradient there.
Both are compared with the formula, row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.host import config
from bireme.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")

ROWS, WIDTH = 6, 2
STEPS = [[0, 1], [1, 2, 2], [3, 1], [2, 0], [0, 0]]
START = np.arange(12, dtype="float32").reshape(ROWS, WIDTH) / 10 + 1


def table(lib: Any, dtype: str = "float32") -> Any:
    made = lib.create_parameter([ROWS, WIDTH], dtype)
    made.set_value(START.astype(dtype))
    return made


def slopes(count: int, step: int) -> np.ndarray:
    """The gradient of each row that is read: it does not depend on the weights."""
    return np.random.default_rng(step).standard_normal((count, WIDTH)).astype("float32")


def train(
    lib: Any,
    name: str = "Adam",
    steps: list[list[int]] = STEPS,
    padding_idx: int | None = None,
    dtype: str = "float32",
    clip: Any = None,
    accumulate: int = 1,
    other: str | None = None,
    clear: str = "optimizer",
    **options: Any,
) -> tuple[Any, Any]:
    read = lib.nn.functional.embedding
    w = table(lib, dtype)
    if clip is not None:
        options["grad_clip"] = getattr(lib.nn, clip)(0.5)
    optimizer = getattr(lib.optimizer, name)(0.1, parameters=[w], lazy_mode=True, **options)
    for i, ids in enumerate(steps):
        rows = read(lib.to_tensor(np.array(ids)), w, sparse=True, padding_idx=padding_idx)
        loss = (rows * lib.to_tensor(slopes(len(ids), i).astype(dtype))).sum()
        read(lib.to_tensor(np.array([4])), w, sparse=True)  # looked up, and not in the loss
        if other == "sparse":
            loss = loss + read(lib.to_tensor(np.array([5])), w, sparse=True).sum()
        if other == "dense":
            loss = loss + (w * lib.to_tensor(START.astype(dtype))).sum()
        loss.backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            if clear == "optimizer":
                optimizer.clear_grad()
            else:
                w.clear_gradient()
    return w, optimizer


def moments(optimizer: Any) -> list[np.ndarray]:
    return [v.numpy() for k, v in optimizer.state_dict().items() if "_moment" in k]


CASES: list[dict[str, Any]] = [
    {},
    {"dtype": "float64"},
    {"amsgrad": True},
    {"clip": "ClipGradByGlobalNorm"},
    {"clip": "ClipGradByNorm"},
    {"accumulate": 5},
    {"accumulate": 2},
    {"other": "sparse"},
    {"other": "dense"},
    {"multi_precision": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_moments_are_the_wheels(paddle: Any, tier: str, case: dict[str, Any]) -> None:
    _, reference = train(paddle, **case)
    _, optimizer = train(bireme, **case)
    want, got = moments(reference), moments(optimizer)
    assert len(want) == len(got)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-9)


def by_hand(decay: float, steps: list[list[int]], padding_idx: int | None = None) -> np.ndarray:
    w, m, v = START.astype("float64"), np.zeros((ROWS, WIDTH)), np.zeros((ROWS, WIDTH))
    for i, ids in enumerate(steps):
        grad, read = np.zeros((ROWS, WIDTH)), sorted({k for k in ids if k != padding_idx})
        for row, slope in zip(ids, slopes(len(ids), i), strict=True):
            grad[row] += slope
        m[read] = 0.9 * m[read] + 0.1 * grad[read]
        v[read] = 0.999 * v[read] + 0.001 * grad[read] ** 2
        corrected = (m / (1 - 0.9 ** (i + 1)), v / (1 - 0.999 ** (i + 1)))
        change = 0.1 * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
        w[read] = w[read] * (1 - 0.1 * decay) - change[read]
    return w


@pytest.mark.parametrize("clear", ["optimizer", "parameter"])
@pytest.mark.parametrize("padding_idx", [None, 1])
@pytest.mark.parametrize(("name", "decay"), [("Adam", 0.0), ("AdamW", 0.0), ("AdamW", 0.3)])
def test_weights_of_rows_that_were_read(
    tier: str, name: str, decay: float, padding_idx: int | None, clear: str
) -> None:
    options: dict[str, Any] = {"weight_decay": decay} if name == "AdamW" else {}
    w, _ = train(bireme, name, padding_idx=padding_idx, clear=clear, **options)
    want = by_hand(decay, STEPS, padding_idx)
    np.testing.assert_allclose(w.numpy(), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(w.numpy()[4:], START[4:])


def test_a_scaler_skips_whole_steps() -> None:
    w = table(bireme)
    optimizer = bireme.optimizer.Adam(0.1, parameters=[w], lazy_mode=True)
    scaler = bireme.amp.GradScaler(init_loss_scaling=4.0)
    for i, factor in enumerate([1.0, float("inf"), 1.0]):
        rows = F.embedding(bireme.to_tensor([i]), w, sparse=True)
        scaler.scale((rows * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
    changed = (w.numpy() != START).any(axis=1)
    assert changed.tolist() == [True, False, True, False, False, False]


def test_in_a_captured_step() -> None:
    def run(wrap: Any) -> np.ndarray:
        layer = bireme.nn.Embedding(ROWS, WIDTH, sparse=True)
        layer.weight.set_value(START)
        optimizer = bireme.optimizer.Adam(0.1, parameters=layer.parameters(), lazy_mode=True)

        def step(ids: Any) -> Any:
            loss = (layer(ids) ** 2).sum()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            return loss

        wrapped = wrap(step)
        for ids in ([0, 1], [1, 2], [3, 3], [0, 1], [5, 1]):
            wrapped(bireme.to_tensor(ids))
        return layer.weight.numpy()

    plain, captured = run(lambda f: f), run(bireme.jit.to_static)
    np.testing.assert_allclose(captured, plain, rtol=1e-6)
    np.testing.assert_array_equal(captured[4], START[4])


def test_an_ordinary_weight_is_updated_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lazy mode is about sparse gradients; a row of zeros in a dense one still moves."""
    monkeypatch.setattr(config, "compile_mode", "never")  # bits are compared: one tier for both
    results = []
    for lazy in (False, True):
        w = table(bireme)
        optimizer = bireme.optimizer.Adam(0.1, parameters=[w], lazy_mode=lazy)
        for i in (0, 1):
            F.embedding(bireme.to_tensor([i]), w).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        results.append(w.numpy())
    np.testing.assert_array_equal(*results)
    assert results[0][0, 0] < START[0, 0] - 0.15  # moved twice, on momentum the second time


def test_penalties_are_refused_as_by_the_wheel(paddle: Any) -> None:
    with pytest.raises(RuntimeError):
        train(paddle, weight_decay=0.1)
    with pytest.raises(RuntimeError, match="weight_decay") as caught:
        train(bireme, weight_decay=0.1)
    assert isinstance(caught.value, BiremeError)


def test_rows_that_nobody_counted_are_an_error() -> None:
    w = table(bireme)
    hook = w.register_hook(lambda grad: grad * 2.0)  # all of the gradient is in one tensor then
    F.embedding(bireme.to_tensor([1]), w, sparse=True).sum().backward()
    optimizer = bireme.optimizer.Adam(0.1, parameters=[w], lazy_mode=True)
    with pytest.raises(InvalidArgument, match="before the optimizer knew"):
        optimizer.step()
    optimizer.clear_grad()
    for remove in (False, True):
        if remove:
            hook.remove()
        before = w.numpy()
        F.embedding(bireme.to_tensor([2]), w, sparse=True).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        changed = (w.numpy() != before).any(axis=1).tolist()
        assert changed == [False, False, True, False, False, False]


def test_an_optimizer_that_is_made_after_the_backward_pass() -> None:
    w = table(bireme)
    F.embedding(bireme.to_tensor([1, 5, 1]), w, sparse=True).sum().backward()
    bireme.optimizer.Adam(0.1, parameters=[w], lazy_mode=True).step()
    assert (w.numpy() != START).any(axis=1).tolist() == [False, True, False, False, False, True]
