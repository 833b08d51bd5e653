"""Programs with sizes that depend on contents: a run is cut where they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import InvalidArgument

F = paddle.nn.functional
X = np.array([[3, 0, 3, 1], [0, 2, 2, 5]], "float32")


@pytest.fixture(autouse=True)
def static_mode() -> Iterator[None]:
    paddle.enable_static()
    try:
        yield
    finally:
        paddle.disable_static()


def both(build: Callable[..., Any], **feeds: np.ndarray) -> None:
    """The same function eagerly and in a program, whose feeds have open first sizes."""
    program = paddle.static.Program()
    with paddle.static.program_guard(program):
        data = {
            n: paddle.static.data(n, [-1, *a.shape[1:]] if a.ndim else [], str(a.dtype))
            for n, a in feeds.items()
        }
        outs = build(**data)
        flat = list(outs) if isinstance(outs, list | tuple) else [outs]
    got = paddle.static.Executor().run(program, dict(feeds), flat)
    paddle.disable_static()
    want = build(**{n: paddle.to_tensor(a) for n, a in feeds.items()})
    paddle.enable_static()
    for w, g, declared in zip(
        want if isinstance(want, list | tuple) else [want], got, flat, strict=True
    ):
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-6)
        assert g.dtype == w.numpy().dtype
        assert all(d in (-1, n) for d, n in zip(declared.shape._plain(), g.shape, strict=True))


@pytest.mark.parametrize(
    "build",
    [
        lambda x: paddle.nonzero(x) * 2,
        lambda x: paddle.nonzero(x, as_tuple=True),
        lambda x: paddle.masked_select(x, x > 1) + 1,
        lambda x: paddle.unique(x, return_index=True, return_inverse=True, return_counts=True),
        lambda x: paddle.unique(x, axis=1),
        lambda x: paddle.unique_consecutive(x, return_inverse=True, return_counts=True),
        lambda x: paddle.bincount(x.astype("int64").reshape([-1]), minlength=3),
        lambda x: paddle.histogramdd(x, bins=3)[0],
        lambda x: paddle.quantile(x, x.mean() / 10, axis=1),
        lambda x: F.sequence_mask(x.astype("int64")),
        lambda x: F.one_hot(x.astype("int64")),
        lambda x: paddle.nonzero(paddle.masked_select(x, x > 1) > 2).sum(),
    ],
)  # fmt: skip
def test_results_whose_size_depends_on_contents(build: Callable[..., Any]) -> None:
    both(build, x=X)


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, "int32")


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (lambda x, s: x.reshape([s, -1]) * 2, np.array(4, "int32")),
        (lambda x, s: paddle.expand(x.sum(), [s, 2]), np.array(3, "int32")),
        (lambda x, s: paddle.full([s, 2], 1.5) + x.sum(), np.array(2, "int32")),
        (lambda x, s: paddle.arange(0, s, 1), np.array(5, "int64")),
        (lambda x, s: paddle.linspace(0, 1, s), np.array(5, "int32")),
        (lambda x, s: paddle.tile(x, [s, 1]), np.array(2, "int32")),
        (lambda x, s: paddle.slice(x, [1], [s], [4]), np.array(1, "int32")),
    ],
)
def test_sizes_that_are_fed(build: Callable[..., Any], sizes: np.ndarray) -> None:
    both(build, x=X, s=sizes)


def test_sizes_in_one_tensor_change_from_run_to_run() -> None:
    program = paddle.static.Program()
    with paddle.static.program_guard(program):
        x = paddle.static.data("x", [2, 4])
        x.stop_gradient = False
        shape = paddle.static.data("shape", [2], "int32")
        y = x.reshape(shape)
        (grad,) = paddle.static.gradients((y * y).sum(), [x])
        other = x.sum()
    exe = paddle.static.Executor()
    for want in ((4, 2), (1, 8)):
        got = exe.run(program, {"x": X, "shape": _ints(*want)}, [y, grad])
        assert got[0].shape == want
        np.testing.assert_array_equal(got[1], 2 * X)
    assert exe.run(program, {"x": X}, [other])[0] == X.sum()  # needs no sizes
    with pytest.raises(InvalidArgument, match="must not be negative"):
        exe.run(program, {"x": X, "shape": _ints(-1, 2)}, [y])


def test_gradients_and_updates_through_a_call() -> None:
    program, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(program, startup):
        x = paddle.static.data("x", [-1, 4])
        w = paddle.create_parameter(
            [4], "float32", default_initializer=paddle.nn.initializer.Constant(1.0)
        )
        chosen = paddle.masked_select(x * w, x > 1)
        loss = (chosen * chosen).sum()
        paddle.optimizer.SGD(0.01).minimize(loss)
    exe = paddle.static.Executor()
    exe.run(startup)
    (first,) = exe.run(program, {"x": X}, [loss])
    np.testing.assert_allclose(first, (X[X > 1] ** 2).sum())
    after = paddle.static.global_scope().find_var(w.name).get_tensor()
    np.testing.assert_allclose(
        np.array(after), 1 - 0.02 * np.where(X > 1, X * X, 0).sum(0), rtol=1e-6
    )


def test_samples_of_a_graph() -> None:
    row, colptr = _ints(1, 2, 0, 2, 0), _ints(0, 2, 4, 5)

    def build(row: Any, colptr: Any, nodes: Any) -> Any:
        found, count = paddle.geometric.sample_neighbors(row, colptr, nodes)
        return [found, count, *paddle.geometric.reindex_graph(nodes, found, count)]

    both(build, row=row, colptr=colptr, nodes=_ints(0, 2))
    both(lambda x, ids: paddle.geometric.segment_sum(x, ids), x=X, ids=np.array([0, 1], "int64"))
