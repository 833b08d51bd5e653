"""Gradients of some rows: optimizers touch those alone, and the values are those of the whole.

Paddle's optimizers are the oracle where they take sparse gradients (SGD and Adagrad), and the same
training with a gradient of the whole table everywhere.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme
from bireme import nn
from bireme.core import stats
from bireme.core.errors import IndexOutOfRange
from bireme.host import config
from bireme.nn import functional as F
from bireme.ops.row_gradients import RowGradient

pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")

ROWS, WIDTH = 9, 3
START = np.linspace(-1, 1, ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
STEPS = [[[1, 3], [3, 0]], [[1, 5], [5, 5]], [[8, 8], [8, 8]], [[0, 1], [2, 3]]]


def train(
    lib: Any,
    name: str,
    sparse: bool = True,
    steps: Any = STEPS,
    *,
    clip: tuple[str, float] | None = None,
    lookups: int = 1,
    accumulate: int = 1,
    tied: bool = False,
    scaled: bool = False,
    read_loss: bool = False,
    padding_idx: int | None = None,
    twice: bool = False,
    **options: Any,
) -> list[np.ndarray]:
    """The table and the optimizer's state after some steps."""
    w = lib.create_parameter([ROWS, WIDTH], "float32")
    w.set_value(START)
    if clip is not None:
        options["grad_clip"] = getattr(lib.nn, clip[0])(clip[1])
    optimizer = getattr(lib.optimizer, name)(learning_rate=0.1, parameters=[w], **options)
    scaler = lib.amp.GradScaler(init_loss_scaling=8.0, enable=scaled)
    read = lib.nn.functional.embedding
    for i, ids in enumerate(steps):
        x = lib.to_tensor(np.array(ids, "int64"))
        loss = sum(
            ((read((x + k) % ROWS, w, sparse=sparse, padding_idx=padding_idx) + 1) ** 2).sum()
            for k in range(lookups)
        )
        if tied:
            loss = loss + (w * w).sum()
        loss = scaler.scale(loss)
        loss.backward(retain_graph=twice)
        if twice:
            loss.backward()
        if read_loss:
            float(loss)
        if (i + 1) % accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.clear_grad()
    state = optimizer.state_dict()
    return [w.numpy()] + [v.numpy() for k, v in state.items() if hasattr(v, "numpy")]


CASES: list[dict[str, Any]] = [
    {},
    {"read_loss": True},
    {"weight_decay": 0.1},
    {"clip": ("ClipGradByGlobalNorm", 0.5)},
    {"clip": ("ClipGradByNorm", 0.5)},
    {"clip": ("ClipGradByGlobalNorm", 0.5), "weight_decay": 0.1},
    {"lookups": 3},
    {"accumulate": 2},
    {"accumulate": 4, "lookups": 3, "read_loss": True},
    {"tied": True},
]


@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_in_paddle(paddle: Any, tier: str, name: str, case: dict[str, Any]) -> None:
    for want, got in zip(train(paddle, name, **case), train(bireme, name, **case), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adam", "AdamW", "Momentum", "RMSProp", "Lamb"])
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"padding_idx": 1},
        {"padding_idx": 3, "lookups": 2, "clip": ("ClipGradByGlobalNorm", 0.5)},
        {"clip": ("ClipGradByValue", 0.5)},
        {"twice": True},
        {"scaled": True},
        {"scaled": True, "clip": ("ClipGradByGlobalNorm", 0.5), "lookups": 2},
    ],
    ids=str,
)
def test_as_with_the_whole_gradient(tier: str, name: str, case: dict[str, Any]) -> None:
    want, got = train(bireme, name, sparse=False, **case), train(bireme, name, **case)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, ROWS - 1), min_size=n, max_size=n), min_size=1, max_size=4
        )
    ),
    st.sampled_from(["SGD", "Adagrad"]),
    st.integers(1, 12),
    st.sampled_from([None, 0, ROWS - 1]),
)
def test_any_ids(steps: list[list[int]], name: str, lookups: int, padding: int | None) -> None:
    """More lookups than rows, too, and more terms than are kept apart."""
    case: dict[str, Any] = {"steps": steps, "lookups": lookups, "padding_idx": padding}
    want, got = train(bireme, name, sparse=False, **case), train(bireme, name, **case)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def looked_up(ids: Any = (1, 3, 1), sparse: bool = True) -> tuple[Any, Any]:
    w = bireme.create_parameter([ROWS, WIDTH], "float32")
    w.set_value(START)
    out = F.embedding(bireme.to_tensor(np.array(ids)), w, sparse=sparse)
    return w, out


def test_the_gradient_reads_as_the_whole() -> None:
    w, out = looked_up()
    out.sum().backward()
    want = np.zeros((ROWS, WIDTH), "float32")
    want[1], want[3] = 2, 1
    assert isinstance(w.grad, bireme.Tensor)
    assert w.grad.shape == [ROWS, WIDTH]
    assert w.grad.dtype == bireme.float32
    np.testing.assert_array_equal(w.grad.numpy(), want)
    np.testing.assert_array_equal((w.grad * 2).numpy(), want * 2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(w.grad)).numpy(), want)
    np.testing.assert_array_equal(copy.deepcopy(w.grad).numpy(), want)
    assert type(copy.deepcopy(w.grad)) is bireme.Tensor


def test_what_somebody_writes_into_the_gradient_counts() -> None:
    w, out = looked_up()
    out.sum().backward()
    w.grad.set_value(np.ones((ROWS, WIDTH), "float32"))
    bireme.optimizer.SGD(0.5, parameters=[w]).step()
    np.testing.assert_allclose(w.numpy(), START - 0.5, rtol=1e-6)


@pytest.mark.parametrize("clip", ["clip_grad_norm_", "clip_grad_value_"])
def test_clipping_in_place(tier: str, clip: str) -> None:
    got = []
    for sparse in (True, False):
        w, out = looked_up(sparse=sparse)
        (out**2).sum().backward()
        getattr(nn.utils, clip)([w], 0.3)
        kept = w.grad.numpy()
        bireme.optimizer.SGD(0.5, parameters=[w]).step()
        got.append((kept, w.numpy()))
    for a, b in zip(*got, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_gradients_of_gradients_and_of_chosen_tensors() -> None:
    found = []
    for sparse in (True, False):
        w, out = looked_up(sparse=sparse)
        first: Any = bireme.grad((out**3).sum(), w, create_graph=True)[0]
        second: Any = bireme.grad(first.sum(), w)[0]
        found.append((first.numpy(), second.numpy()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_hooks_see_and_change_the_whole() -> None:
    w, out = looked_up()
    seen: list[np.ndarray] = []
    w.register_hook(lambda grad: (seen.append(grad.numpy()), grad * 10.0)[1])
    out.sum().backward()
    assert w.grad is not None
    assert seen[0].shape == (ROWS, WIDTH)
    np.testing.assert_array_equal(w.grad.numpy(), seen[0] * 10)


def test_tables_that_are_computed() -> None:
    base: Any = bireme.create_parameter([ROWS, WIDTH], "float32")
    out = F.embedding(bireme.to_tensor([1, 1, 2]), base * 2.0, sparse=True)
    out.sum().backward()
    np.testing.assert_array_equal(base.grad.numpy().sum(1), [0, 12, 6, 0, 0, 0, 0, 0, 0])


def test_only_rows_are_kept_between_passes() -> None:
    w, out = looked_up()
    float(out.sum())  # the tape is from before a flush
    out.sum().backward()
    assert isinstance(w.grad, RowGradient)
    assert w.grad._dense is None
    for _ in range(40):
        F.embedding(bireme.to_tensor([7, 2]), w, sparse=True).sum().backward()
    assert w.grad._dense is None
    assert len(w.grad._terms) <= 8
    assert sum(t.rows.aval.size for t in w.grad._terms) <= 9 * ROWS * WIDTH
    np.testing.assert_array_equal(w.grad.numpy()[:, 0], [0, 2, 40, 1, 0, 0, 0, 40, 0])


def test_nothing_is_compiled_as_batches_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_mode", "always")
    table = nn.Embedding(1000, 4, sparse=True)
    optimizer = bireme.optimizer.Adam(0.1, parameters=table.parameters(), lazy_mode=True)
    counts = []
    for seed in range(6):
        ids = np.random.default_rng(seed).integers(0, 10 ** (seed % 3 + 1), (8, 5))
        table(bireme.to_tensor(ids)).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        counts.append(stats.compile_count())
    assert counts[1:] == counts[:1] * 5


def test_a_row_beyond_the_table_changes_nothing(tier: str) -> None:
    w, _ = looked_up()
    optimizer = bireme.optimizer.Adagrad(0.1, parameters=[w])
    F.embedding(bireme.to_tensor([1]), w, sparse=True).sum().backward()
    optimizer.step()
    optimizer.clear_grad()
    before = w.numpy()

    def beyond() -> None:
        F.embedding(bireme.to_tensor([2, ROWS]), w, sparse=True).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        w.numpy()

    with pytest.raises(IndexOutOfRange):
        beyond()
    np.testing.assert_array_equal(w.numpy(), before)
    F.embedding(bireme.to_tensor([2]), w, sparse=True).sum().backward()
    optimizer.step()
    assert (w.numpy() != before).any(1).tolist() == [False] * 2 + [True] + [False] * 6


def test_an_overflow_skips_the_rows_too(tier: str) -> None:
    w, out = looked_up()
    optimizer = bireme.optimizer.Adam(0.1, parameters=[w], lazy_mode=True)
    scaler = bireme.amp.GradScaler(init_loss_scaling=2.0)
    scaler.scale((out * np.float32("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.clear_grad()
    np.testing.assert_array_equal(w.numpy(), START)


@pytest.mark.parametrize("inside", ["forward", "backward", "all"])
@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
def test_captured(name: str, inside: str) -> None:
    """A captured function may hold the lookup, the backward pass, or the step as well."""
    found = []
    for sparse in (False, True):
        w, _ = looked_up()
        optimizer = getattr(bireme.optimizer, name)(0.1, parameters=[w])
        captured = {inside: bireme.jit.to_static} if sparse else {}
        found.append(_trained(w, optimizer, sparse, captured))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_captured_in_lazy_mode() -> None:
    found = []
    for captured in ({}, {"all": bireme.jit.to_static}):
        w, _ = looked_up()
        optimizer = bireme.optimizer.Adam(0.1, parameters=[w], lazy_mode=True)
        found.append(_trained(w, optimizer, True, captured))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


def _trained(w: Any, optimizer: Any, sparse: bool, captured: dict[str, Any]) -> np.ndarray:
    def forward(x: Any) -> Any:
        return ((F.embedding(x, w, sparse=sparse) + 1) ** 2).sum()

    def backward(x: Any) -> None:
        parts["forward"](x).backward()

    def whole(x: Any) -> None:
        parts["backward"](x)
        optimizer.step()
        optimizer.clear_grad()

    parts = {"forward": forward, "backward": backward, "all": whole}
    for part, capture in captured.items():
        parts[part] = capture(parts[part])
    for ids in ([1, 3, 1], [2, 3, 3], [0, 0, 8], [1, 2, 3]):
        parts["all"](bireme.to_tensor(np.array(ids)))
    return w.numpy()
