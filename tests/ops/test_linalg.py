"""Products, norms and decompositions against the real Paddle."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from tests.ops.table_oracle import A, N, V, check_cold, check_compiled, row


def posdef(*shape, dtype="float32"):
    m = A(*shape, dtype=dtype).astype("float64")
    return (m @ np.swapaxes(m, -1, -2) + 2 * np.eye(shape[-1])).astype(dtype)


square = posdef(3, 3)
batch = posdef(2, 3, 3)
# fmt: off
ROWS = [
    row("matmul", A(3, 4), A(4, 5)), row("matmul", A(4), A(4)), row("matmul", A(3, 4), A(4)),
    row("matmul", A(4), A(4, 5)), row("matmul", A(2, 3, 4), A(4, 5)),
    row("matmul", A(2, 3, 4), A(4)),
    row("matmul", A(4), A(2, 4, 5)), row("matmul", A(2, 3, 4), A(2, 4, 5)),
    row("matmul", A(6, 1, 3, 4), A(1, 2, 4, 5)), row("matmul", A(3, 4), A(2, 4, 5)),
    row("matmul", A(4, 3), A(4, 5), True), row("matmul", A(3, 4), A(5, 4), False, True),
    row("matmul", A(4, 3), A(5, 4), True, True), row("matmul", A(2, 4, 3), A(4, 5), True),
    row("matmul", A(2, 3, 4), A(5, 4), False, True),
    row("matmul", A(2, 4, 3), A(2, 5, 4), True, True),
    row("matmul", A(4), A(5, 4), False, True), row("matmul", A(4, 3), A(4), True),
    row("matmul", A(0, 4), A(4, 5)), row("matmul", N(2, 3), N(3, 2)),
    row("matmul", A(2, 3, dtype="complex64"), A(3, 2, dtype="complex64")),
    row("matmul", A(2, 3, dtype="float64"), A(3, 2, dtype="float64")),
    row("mm", A(3, 4), A(4, 5)), row("bmm", A(2, 3, 4), A(2, 4, 5)), row("mv", A(3, 4), A(4)),
    row("dot", A(4), A(4, seed=1)), row("dot", A(2, 4), A(2, 4, seed=1)), row("t", A(3, 4)),
    row("addmm", A(3, 5), A(3, 4), A(4, 5), 0.5, 2.0), row("addmm", A(5), A(3, 4), A(4, 5)),
    row("baddbmm", A(2, 3, 5), A(2, 3, 4), A(2, 4, 5), beta=0.5, alpha=2.0),
    row("linalg.multi_dot", [A(3, 4), A(4, 2), A(2, 5)]),
    row("linalg.multi_dot", [A(4), A(4, 2), A(2)]),
    row("einsum", "ij,jk->ik", A(3, 4), A(4, 5)),
    row("einsum", "bij,bjk->bik", A(2, 3, 4), A(2, 4, 5)),
    row("einsum", "ij->i", A(3, 4)), row("einsum", "ij->ji", A(3, 4)),
    row("einsum", "ij,ij->", A(3, 4), A(3, 4, seed=1)),
    row("einsum", "i,j->ij", A(3), A(4)),
    row("einsum", "bhqd,bhkd->bhqk", A(2, 2, 3, 4), A(2, 2, 5, 4)),
    row("einsum", "...ij,...jk->...ik", A(2, 3, 4), A(2, 4, 5)),
    row("einsum", "ij,jk", A(3, 4), A(4, 5)),
    row("einsum", "ii->i", A(3, 3)), row("einsum", "ij,jk,kl->il", A(2, 3), A(3, 4), A(4, 2)),
    row("tensordot", A(2, 3, 4), A(3, 4, 5)), row("tensordot", A(2, 3, 4), A(4, 5), 1),
    row("tensordot", A(2, 3, 4), A(4, 2, 5), [[0, 2], [1, 0]]),
    row("tensordot", A(2, 3), A(2, 3), [0, 1]),
    row("inner", A(2, 3), A(4, 3)), row("outer", A(2, 3), A(4)), row("kron", A(2, 3), A(2, 2)),
    row("cross", A(2, 3), A(2, 3, seed=1)), row("cross", A(3, 2), A(3, 2, seed=1), 0),
    row("linalg.vecdot", A(2, 3), A(2, 3, seed=1)),
    row("trace", A(3, 4)), row("trace", A(2, 3, 4), 1, 1, 2), row("diagonal", A(2, 3, 4), -1, 0, 2),
    row("diagonal", A(4, 3), 2),
    # norms
    row("linalg.norm", A(3, 4)), row("linalg.norm", A(3, 4), 2, 1),
    row("linalg.norm", A(3, 4), "fro", [0, 1]),
    row("linalg.norm", A(3, 4), "nuc", [0, 1], rtol=1e-4), row("linalg.norm", A(3, 4), 1, 0),
    *[row("linalg.norm", A(3, 4), p, 0) for p in (np.inf, -np.inf, 0, 3)],
    *[row("linalg.norm", A(3, 4), p, [0, 1], rtol=1e-4) for p in (1, -1, 2, np.inf)],
    row("linalg.norm", A(3, 4), 3, 1, True), row("linalg.norm", A(3, 4), 1), row("norm", A(5)),
    row("linalg.vector_norm", A(3, 4), 2.0, [0, 1]), row("linalg.matrix_norm", A(2, 3, 4)),
    row("linalg.matrix_norm", A(2, 3, 4), 1, keepdim=True), row("dist", A(2, 3), A(3, seed=1), 3),
    row("dist", A(2, 3), A(2, 3, seed=1)), row("cdist", A(3, 4), A(5, 4)),
    row("cdist", A(3, 4), A(5, 4), 1.0),
    row("cdist", A(30, 4), A(5, 4), rtol=1e-3, atol=1e-4), row("pdist", A(4, 3)),
    row("renorm", V([[3, 4], [1, 0.1]]), 2.0, 0, 1.0, rtol=1e-4),
    row("linalg.cond", square, rtol=1e-3),
    row("linalg.cond", square, "fro", rtol=1e-3),
    # solutions and decompositions
    row("linalg.inv", square, rtol=1e-4), row("linalg.inv", batch, rtol=1e-4),
    row("linalg.det", batch, rtol=1e-4),
    row("linalg.slogdet", batch, rtol=1e-4), row("linalg.solve", square, A(3, 2), rtol=1e-4),
    row("linalg.solve", square, A(3), rtol=1e-4), row("linalg.solve", batch, A(2, 3, 2), rtol=1e-4),
    row("linalg.triangular_solve", square, A(3, 2), rtol=1e-4),
    row("linalg.triangular_solve", square, A(3, 2), False, True, True, grads=False),
    row("linalg.cholesky", square, rtol=1e-4, grads=False),
    row("linalg.cholesky", batch, True, rtol=1e-4, grads=False),
    row("linalg.cholesky_solve", A(3, 2), np.tril(square), grads=False, rtol=1e-4),
    row("linalg.svdvals", A(3, 4), rtol=1e-4),
    row("linalg.eigvalsh", square, rtol=1e-4, grads=False),
    row("linalg.pinv", A(4, 3), rtol=1e-3, atol=1e-5),
    row("linalg.pinv", square, hermitian=True, rtol=1e-3, grads=False),
    row("linalg.matrix_power", square, 3, rtol=1e-4),
    row("linalg.matrix_power", square, -2, rtol=1e-3),
    row("linalg.matrix_power", square, 0, grads=False),
    row("linalg.matrix_rank", A(4, 3), grads=False),
    row("linalg.matrix_rank", V([[1, 2], [2, 4]]), grads=False),
    row("linalg.matrix_exp", A(3, 3), grads=False, rtol=1e-4),
    row("linalg.lu", square, grads=False, rtol=1e-4),
    row("linalg.qr", A(4, 3), "r", grads=False, rtol=1e-4),
    row("linalg.eigvals", V([[2, 0], [0, 3]]), grads=False),
]
# fmt: on


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_numpy_tier(case):
    check_cold(case)


def test_compiled_tier():
    check_compiled(ROWS)


def T(value, grad=False):
    return bireme.to_tensor(np.asarray(value), stop_gradient=not grad)


def test_factors_multiply_back(both_tiers):
    m, wide = A(4, 3), A(3, 3, seed=2)

    def rebuilt():
        L = bireme.linalg
        u, s, vh = L.svd(T(m))
        q, r = L.qr(T(m))
        values, vectors = L.eigh(T(square))
        packed, pivots = L.lu(T(wide))
        p, lower, upper = L.lu_unpack(packed, pivots)
        w, v = L.eig(T(wide))
        return [
            u @ bireme.diag(s) @ vh,
            q @ r,
            vectors @ bireme.diag(values) @ vectors.T,
            p @ lower @ upper,
            L.lu_solve(T(wide) @ T(A(3, 2)), packed, pivots),
            bireme.real(v @ bireme.diag(w) @ L.inv(v)),
        ]

    for got, want in zip(rebuilt(), [m, m, square, wide, A(3, 2), wide], strict=True):
        np.testing.assert_allclose(got.numpy(), want, atol=2e-4)
    both_tiers(lambda: rebuilt()[:5], rtol=1e-3, atol=1e-4)


def test_gradients_of_decompositions_by_differences():
    def loss(x):
        s = bireme.linalg.svd(x)[1]
        lower = bireme.linalg.cholesky(x @ x.T + T(np.eye(3)))
        values = bireme.linalg.eigvalsh(x + x.T)
        return (s * T([1.0, 2.0, 3.0])).sum() + lower.sum() + (values * T([1.0, 2.0, 0.5])).sum()

    at = A(3, 3, dtype="float64")
    x = T(at, grad=True)
    loss(x).backward()
    numeric = np.zeros_like(at)
    for i in np.ndindex(3, 3):
        step = np.zeros_like(at)
        step[i] = 1e-6
        numeric[i] = (loss(T(at + step)).item() - loss(T(at - step)).item()) / 2e-6
    np.testing.assert_allclose(x.grad.numpy(), numeric, atol=1e-5)


def test_a_batch_with_a_singular_matrix_is_refused(tier):
    batch = np.stack([np.eye(2), np.zeros((2, 2))]).astype("float32")
    with pytest.raises(ValueError, match="singular"):
        bireme.linalg.inv(T(batch)).numpy()


@pytest.mark.parametrize("upper", [True, False])
def test_a_singular_root_has_no_inverse(tier, paddle, upper):
    root = np.array([[1.0, 0.0], [2.0, 0.0]], "float32")
    root = root.T.copy() if upper else root
    with pytest.raises(ValueError, match="singular"):
        bireme.linalg.cholesky_inverse(T(root), upper).numpy()
    with pytest.raises(ValueError, match="pivot"):
        paddle.linalg.cholesky_inverse(paddle.to_tensor(root), upper)


@pytest.mark.parametrize("name", ["svd", "svdvals", "matrix_rank", "cond"])
def test_what_is_not_a_number_has_no_singular_values(tier, paddle, name):
    x = np.array([[1.0, np.nan], [2.0, 0.0]], "float32")
    with pytest.raises(ValueError, match="NaN"):
        bireme.utils.flatten(getattr(bireme.linalg, name)(T(x)))[0].numpy()
    with pytest.raises(ValueError, match="illegal value"):
        getattr(paddle.linalg, name)(paddle.to_tensor(x))


def test_an_inverse_of_nan_is_nan(tier, paddle):
    x = np.array([[1.0, np.nan], [2.0, 0.0]], "float32")
    assert np.isnan(bireme.linalg.inv(T(x)).numpy()).all()
    assert np.isnan(paddle.linalg.inv(paddle.to_tensor(x)).numpy()).all()


def test_least_squares(paddle):
    a, b = A(5, 2), A(5, 1, seed=1)
    got = bireme.linalg.lstsq(T(a), T(b), driver="gelsd")
    want = paddle.linalg.lstsq(paddle.to_tensor(a), paddle.to_tensor(b), driver="gelsd")
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: bireme.matmul(T(A(2, 3)), T(A(2, 3))), ValueError, "transpose_y=True would fit"),
        (lambda: bireme.matmul(T(A(2, 2, 3)), T(A(3, 3, 4))), ValueError, "do not broadcast"),
        (lambda: bireme.matmul(T(np.float32(1)), T(A(2))), ValueError, "0-d"),
        (lambda: bireme.bmm(T(A(2, 3)), T(A(3, 2))), ValueError, "3-d"),
        (lambda: bireme.dot(T(A(2)), T(A(3))), ValueError, "same shape"),
        (lambda: bireme.mv(T(A(2, 3)), T(A(2))), ValueError, "rows of y"),
        (lambda: bireme.einsum("ij,jk->ik", T(A(2, 3))), ValueError, "operands"),
        (lambda: bireme.einsum("ijk->i", T(A(2, 3))), ValueError, "letters"),
        (lambda: bireme.linalg.inv(T(A(2, 3))), ValueError, "square"),
        (lambda: bireme.linalg.norm(T(A(2, 3)), "nuc"), ValueError, "two axes"),
        (lambda: bireme.linalg.qr(T(A(2, 3)), "full"), ValueError, "mode"),
        (lambda: bireme.cross(T(A(2, 2)), T(A(2, 2))), ValueError, "size 3"),
    ],
)
def test_errors_say_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("upper", [True, False])
def test_a_singular_triangle_is_solved_as_far_as_it_goes(tier, paddle, upper):
    x = np.array([[0.0, 0.5], [0.5, 2.0]], "float32")
    if not upper:
        x = x[::-1, ::-1].copy()
    y = np.ones((2, 1), "float32")
    ours = bireme.linalg.triangular_solve(bireme.to_tensor(x), bireme.to_tensor(y), upper=upper)
    theirs = paddle.linalg.triangular_solve(paddle.to_tensor(x), paddle.to_tensor(y), upper=upper)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_float32_exponentials_of_matrices_have_all_digits() -> None:
    from scipy.linalg import expm

    x = (np.random.default_rng(0).random((4, 4)) * 3).astype("float32")
    got = bireme.linalg.matrix_exp(bireme.to_tensor(x)).numpy()
    np.testing.assert_allclose(got, expm(x.astype("float64")), rtol=2e-7)


def test_ranks_for_several_limits() -> None:
    limits = bireme.to_tensor([0.1, 2.0])
    for found in (
        bireme.linalg.matrix_rank(bireme.eye(10), tol=limits),
        bireme.linalg.matrix_rank(bireme.eye(10), atol=limits),
        bireme.linalg.matrix_rank(bireme.eye(10), rtol=limits),
    ):
        assert found.shape == [2]
        np.testing.assert_array_equal(found.numpy(), [10, 0])
