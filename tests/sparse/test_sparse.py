"""Sparse tensors where the wheel's CPU has no kernel, or a wrong one: dense arithmetic decides."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme
import bireme as paddle
from bireme import sparse
from bireme.core.errors import BiremeError, TypeMismatch

# One line of `check` compiles a program for each call.
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")


def holes(*shape: int, seed: int = 0, share: float = 0.4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * (rng.random(shape) < share)).astype(np.float32)


def tensor(array: np.ndarray) -> Any:
    return paddle.to_tensor(array, stop_gradient=False)


def made(x: Any, layout: str) -> Any:
    return x.to_sparse_csr() if layout == "csr" else x.to_sparse_coo(x.ndim)


def dense(x: Any) -> Any:
    return x.to_dense() if x.is_sparse() else x


def check(f: Any, g: Any, *arrays: np.ndarray, rtol: float = 1e-4) -> None:
    """f (sparse) and g (dense) agree in value and in the gradients by all inputs."""
    results, gradients = [], []
    for function in (f, g):
        inputs = [tensor(a) for a in arrays]
        out = dense(function(*inputs))
        weight = np.random.default_rng(1).normal(size=out.shape).astype(np.float32)
        (out * paddle.to_tensor(weight)).sum().backward()
        results.append(out.numpy())
        gradients.append([None if i.grad is None else i.grad.numpy() for i in inputs])
    np.testing.assert_allclose(results[0], results[1], rtol=rtol, atol=1e-5)
    for a, mine, want in zip(arrays, *gradients, strict=True):
        stored = a != 0 if mine is not None else slice(None)
        if mine is not None and want is not None:
            np.testing.assert_allclose(mine[stored], want[stored], rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("layout", ["coo", "csr"])
class TestProducts:
    def test_matmul_dense(self, layout: str) -> None:
        a, b = holes(4, 5), holes(5, 3, seed=1, share=1)
        check(lambda x, y: sparse.matmul(made(x, layout), y), paddle.matmul, a, b)

    def test_matmul_batch(self, layout: str) -> None:
        a, b = holes(2, 4, 5), holes(2, 5, 3, seed=1, share=1)
        check(lambda x, y: sparse.matmul(made(x, layout), y), paddle.matmul, a, b)

    def test_matmul_sparse(self, layout: str) -> None:
        a, b = holes(4, 5), holes(5, 3, seed=1)
        check(lambda x, y: sparse.matmul(made(x, layout), made(y, layout)), paddle.matmul, a, b)
        product = made(tensor(a), layout) @ made(tensor(b), layout)
        assert product.is_sparse_csr() == (layout == "csr")

    def test_matmul_sparse_batch(self, layout: str) -> None:
        a, b = holes(2, 4, 5), holes(2, 5, 3, seed=1)
        check(lambda x, y: sparse.matmul(made(x, layout), made(y, layout)), paddle.matmul, a, b)

    def test_dense_by_sparse(self, layout: str) -> None:
        a, b = holes(4, 5, share=1), holes(5, 3, seed=1)
        check(lambda x, y: sparse.matmul(x, made(y, layout)), paddle.matmul, a, b)

    def test_mv(self, layout: str) -> None:
        a, b = holes(4, 5), holes(5, seed=1, share=1)
        check(lambda x, y: sparse.mv(made(x, layout), y), paddle.mv, a, b)

    def test_addmm(self, layout: str) -> None:
        c, a, b = holes(4, 3, share=1), holes(4, 5), holes(5, 3, seed=1, share=1)
        check(
            lambda i, x, y: sparse.addmm(i, made(x, layout), y, 0.5, 2.0),
            lambda i, x, y: paddle.addmm(i, x, y, 0.5, 2.0),
            c, a, b,
        )  # fmt: skip
        c = holes(4, 3)
        check(
            lambda i, x, y: sparse.addmm(made(i, layout), made(x, layout), made(y, layout)),
            lambda i, x, y: i + x @ y,
            c, a, holes(5, 3, seed=1),
        )  # fmt: skip

    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_masked_matmul(self, layout: str, batch: tuple[int, ...]) -> None:
        a, b = holes(*batch, 4, 5, share=1), holes(*batch, 5, 3, seed=1, share=1)
        mask = (holes(*batch, 4, 3, seed=2) != 0).astype(np.float32)
        pattern = made(paddle.to_tensor(mask), layout)
        check(
            lambda x, y: sparse.masked_matmul(x, y, pattern),
            lambda x, y: (x @ y) * paddle.to_tensor(mask),
            a, b,
        )  # fmt: skip

    def test_sum_and_softmax(self, layout: str) -> None:
        a = holes(4, 5)
        axes: tuple[Any, ...] = (0, 1, None)
        for axis in axes:
            check(
                lambda x, n=axis: dense(sparse.sum(made(x, layout), n)).reshape([-1]),
                lambda x, n=axis: x.sum(n).reshape([-1]),
                a,
            )

        def among_stored(x: Any) -> Any:
            hidden = paddle.where(x == 0, paddle.full_like(x, -1e9), x)
            return paddle.nn.functional.softmax(hidden) * (x != 0).astype("float32")

        check(lambda x: sparse.nn.functional.softmax(made(x, layout)), among_stored, a)

    def test_second_derivative(self, layout: str) -> None:
        x = tensor(holes(4, 5))
        y = sparse.matmul(sparse.square(made(x, layout)), paddle.ones([5, 2])).sum()
        [first] = paddle.grad(y, [x], create_graph=True)
        [second] = paddle.grad(first.sum(), [x])
        np.testing.assert_allclose(second.numpy(), 4 * (x.numpy() != 0))


def test_attention_equals_masked_dense_attention() -> None:
    rng = np.random.default_rng(0)
    shape = (2, 3, 4, 5)
    q, k, v = (rng.normal(size=shape).astype(np.float32) for _ in range(3))
    mask = rng.random((6, 4, 4)) < 0.6
    mask[:, np.arange(4), 0] = True
    keys = np.array([[1, 1, 1, 0], [1, 1, 0, 1]], np.float32)
    pairs = np.ones((4, 4), np.float32)
    pairs[1, 2] = pairs[3, 1] = 0
    pattern = paddle.to_tensor(mask.astype(np.float32)).to_sparse_csr()
    allowed = mask.reshape(2, 3, 4, 4) & (keys[:, None, None] != 0) & (pairs != 0)
    bias = paddle.to_tensor(np.where(allowed, 0, -1e9).astype(np.float32))

    def plain(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose([0, 1, 3, 2]) / np.sqrt(5) + bias
        return paddle.nn.functional.softmax(scores) @ v

    check(
        lambda q, k, v: sparse.nn.functional.attention(
            q, k, v, pattern, paddle.to_tensor(keys), paddle.to_tensor(pairs)
        ),
        plain, q, k, v,
    )  # fmt: skip


def test_gradients_reach_dense_and_sparse_leaves() -> None:
    x = sparse.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], [2, 2], stop_gradient=False)
    sparse.square(x).to_dense().sum().backward()
    assert x.grad.is_sparse_coo()
    np.testing.assert_allclose(x.grad.values().numpy(), [4, 6])
    values = tensor(np.array([1.0, 2.0], np.float32))
    x = sparse.sparse_coo_tensor([[0, 1], [1, 0]], values, [2, 2], stop_gradient=False)
    out = sparse.sin(x)
    out.backward(out)
    assert values.grad is not None
    np.testing.assert_allclose(values.grad.numpy(), np.sin([1, 2]) * np.cos([1, 2]), rtol=1e-5)


def test_repeated_places_add_up() -> None:
    x = sparse.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], [1.0, 2.0, 3.0], [2, 2])
    assert not x.is_coalesced()
    np.testing.assert_allclose(x.to_dense().numpy(), [[0, 3], [3, 0]])
    once = x.coalesce()
    assert once.is_coalesced()
    assert once.nnz() == 2
    assert once.coalesce() is once


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000), st.sampled_from(["coo", "csr"]))
def test_any_pattern(rows: int, columns: int, seed: int, layout: str) -> None:
    a, b = holes(rows, columns, seed=seed), holes(rows, columns, seed=seed + 1)
    x, y = made(paddle.to_tensor(a), layout), made(paddle.to_tensor(b), layout)
    np.testing.assert_array_equal(x.to_dense().numpy(), a)
    for name, function in {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}.items():
        found = getattr(sparse, name)(x, y)
        np.testing.assert_allclose(found.to_dense().numpy(), function(a, b), rtol=1e-6)
        assert found.nnz() == ((a != 0) | (b != 0)).sum()
    np.testing.assert_array_equal(sparse.transpose(x, [1, 0]).to_dense().numpy(), a.T)
    flat = sparse.reshape(x, [columns, rows])
    np.testing.assert_array_equal(flat.to_dense().numpy(), a.reshape(columns, rows))
    cut = sparse.slice(x, [0, 1], [0, 0], [rows - 1 or 1, columns])
    np.testing.assert_array_equal(cut.to_dense().numpy(), a[: rows - 1 or 1])


def test_hybrid_tensors_keep_their_dense_dimensions() -> None:
    a = holes(3, 4, 2)
    x = paddle.to_tensor(a).to_sparse_coo(2)
    assert (x.sparse_dim(), x.dense_dim()) == (2, 1)
    np.testing.assert_allclose(sparse.sum(x, 0).to_dense().numpy(), a.sum(0), rtol=1e-5)
    np.testing.assert_allclose(sparse.sum(x, 2).to_dense().numpy(), a.sum(2), rtol=1e-5)
    np.testing.assert_allclose(
        sparse.sum(x, [0, 1]).to_dense().numpy(), a.sum((0, 1)), rtol=1e-5, atol=1e-6
    )
    turned = sparse.transpose(x, [1, 0, 2]).to_dense().numpy()
    np.testing.assert_array_equal(turned, a.transpose(1, 0, 2))
    np.testing.assert_array_equal(sparse.reshape(x, [12, 2]).to_dense().numpy(), a.reshape(12, 2))
    cut = sparse.slice(x, [1, 2], [1, 0], [3, 1]).to_dense().numpy()
    np.testing.assert_array_equal(cut, a[:, 1:3, :1])
    with pytest.raises(BiremeError, match="change places"):
        sparse.transpose(x, [2, 0, 1])
    np.testing.assert_array_equal(x.to_sparse_coo(3).to_dense().numpy(), a)


def test_a_dense_function_refuses_a_sparse_tensor() -> None:
    x = paddle.to_tensor(holes(3, 3)).to_sparse_coo(2)
    with pytest.raises(TypeMismatch, match="to_dense"):
        paddle.exp(x)
    with pytest.raises(TypeMismatch, match="sparse tensors only"):
        paddle.ones([2]).indices()
    assert isinstance(x, paddle.Tensor)
    assert paddle.is_tensor(x)


def test_operators_printing_and_copies() -> None:
    x = sparse.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, -2.0], [2, 2])
    np.testing.assert_allclose((x + x - x * 3).to_dense().numpy(), [[0, -1], [2, 0]])
    np.testing.assert_allclose((-x / 2).values().numpy(), [-0.5, 1])
    np.testing.assert_array_equal(x.T.to_dense().numpy(), x.to_dense().numpy().T)
    assert "indices=[[0, 1]" in str(x)
    assert "crows=[0, 1, 2]" in str(x.to_sparse_csr())
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), x.detach()):
        np.testing.assert_array_equal(again.to_dense().numpy(), x.to_dense().numpy())
    assert x.astype("float64").dtype == paddle.float64


def test_printing_is_the_wheels(paddle: Any) -> None:
    dense = np.array([[np.nan, 0, 1.25], [0, 0, np.inf], [3, -1000.5, 0]], np.float32)
    for make in (
        lambda p: p.to_tensor(dense).to_sparse_coo(2),
        lambda p: p.to_tensor(dense).to_sparse_coo(1),
        lambda p: p.to_tensor(dense).to_sparse_csr(),
        lambda p: p.to_tensor(np.eye(40) * 0.3).to_sparse_coo(2),
    ):
        assert str(make(bireme)) == str(make(paddle))


def test_pca_lowrank_finds_the_leading_components() -> None:
    paddle.seed(0)
    a = holes(30, 8, share=0.5)
    u, s, v = sparse.pca_lowrank(paddle.to_tensor(a).to_sparse_coo(2), q=8, niter=4)
    middle = a - a.mean(0)
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(middle)[1], rtol=1e-3)
    np.testing.assert_allclose((u * s @ v.T).numpy(), middle, atol=1e-4)


def test_a_captured_function_may_use_a_sparse_matrix() -> None:
    matrix = holes(3, 4)
    x = paddle.to_tensor(matrix).to_sparse_coo(2)
    spec = [paddle.static.InputSpec([4, None])]
    captured = paddle.jit.to_static(lambda y: sparse.matmul(x, y), input_spec=spec)
    for n in (2, 5):
        y = holes(4, n, seed=n, share=1)
        found = captured(paddle.to_tensor(y)).numpy()
        np.testing.assert_allclose(found, matrix @ y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_gradients_are_kept_of_sparse_tensors(layout: str) -> None:
    dense = paddle.to_tensor([[0.0, 1.0], [2.0, 0.0]], stop_gradient=False)
    x = dense.to_sparse_coo(2) if layout == "coo" else dense.to_sparse_csr()
    x.retain_grads()
    paddle.sparse.square(x).backward(x.detach())
    np.testing.assert_array_equal(x.grad.to_dense().numpy(), [[0, 2], [8, 0]])
    np.testing.assert_array_equal(dense.grad.numpy(), [[0, 2], [8, 0]])


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_copying_takes_over_pattern_and_values(layout: str) -> None:
    def made(rows: list[list[float]]) -> paddle.Tensor:
        x = paddle.to_tensor(rows)
        return x.to_sparse_coo(2) if layout == "coo" else x.to_sparse_csr()

    x, y = made([[0.0, 1.0], [2.0, 0.0]]), made([[3.0, 1.0], [2.0, 0.0]])
    assert y.copy_(x, True) is y
    np.testing.assert_array_equal(y.to_dense().numpy(), [[0, 1], [2, 0]])
    assert y.nnz() == 2
    with pytest.raises(TypeError, match="layout"):
        y.copy_(paddle.ones([2, 2]), True)
