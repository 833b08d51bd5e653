"""Products, decompositions and solvers."""

from tests.parity.table import I, T, V, case, case_fn, half, method, raises, raises_fn


def _positive_definite(p, x):
    return x @ x.transpose([*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]) + 2 * p.eye(
        x.shape[-1], dtype=x.dtype
    )


def _lower(p, x):
    return p.linalg.cholesky(_positive_definite(p, x))


# ------------------------------------------------------------------------------------- products

for shapes in (
    ((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((0, 3), (3, 4)),
    ((2, 0), (0, 4)), ((2, 3), (3, 0)),
):  # fmt: skip
    case("matmul", T(*shapes[0]), T(*shapes[1]))
case("matmul", T(3, 2), T(3, 4), transpose_x=True)
case("matmul", T(2, 3), T(4, 3), transpose_y=True)
case("matmul", T(5, 3, 2), T(5, 4, 3), transpose_x=True, transpose_y=True)
case("matmul", T(2, 3, dtype="float64"), T(3, 4, dtype="float64"))
case("matmul", T(2, 3, dtype="complex64"), T(3, 4, dtype="complex64"), _rtol=5e-5)
case("matmul", T(2, 1, 2, 3), T(4, 3, 2), _check_grad=False)  # Paddle's gradient fails
case("matmul", I(2, 3), I(3, 4))
half("matmul", T(2, 3), T(3, 4))
case("mm", T(2, 3), T(3, 4))
case("bmm", T(5, 2, 3), T(5, 3, 4))
case("mv", T(2, 3), T(3))
case("dot", T(3), T(3))
case("dot", T(2, 3), T(2, 3))
case("dot", I(3), I(3))
case("inner", T(2, 3), T(4, 3))
case("inner", T(), T(3))
case("inner", T(1), T(3, 2))
case("inner", T(3, 1), T(1, 1))
case("outer", T(2), T(3))
case("outer", T(2, 2), T(3))
case("kron", T(2, 2), T(2, 3))
case("addmm", T(2, 4), T(2, 3), T(3, 4), beta=0.5, alpha=2.0)
case("addmm", T(4), T(2, 3), T(3, 4))
case("baddbmm", T(5, 2, 4), T(5, 2, 3), T(5, 3, 4), beta=0.5, alpha=2.0)
case("cross", T(2, 3), T(2, 3))
case("cross", T(3, 2), T(3, 2), axis=0)
case("tensordot", T(2, 3, 4), T(3, 4, 5), 2)
case("tensordot", T(2, 3, 4), T(4, 3), [[1, 2], [1, 0]])
case("einsum", "ij,jk->ik", T(2, 3), T(3, 4))
case("einsum", "bij,bjk->bik", T(5, 2, 3), T(5, 3, 4))
case("einsum", "ii->i", T(3, 3))
case("einsum", "ij->", T(3, 4))
case("einsum", "ij->ji", T(3, 4))
case("einsum", "...ij,...jk->...ik", T(2, 2, 3), T(2, 3, 4))
case("einsum", "i,j->ij", T(3), T(4))
case("einsum", "bhqd,bhkd->bhqk", T(2, 2, 3, 4), T(2, 2, 5, 4))
case("vecdot", T(2, 3), T(2, 3))
case("linalg.multi_dot", [T(2, 3), T(3, 4), T(4, 2)])
case("linalg.matrix_power", T(3, 3), 3, _rtol=1e-4, _atol=1e-4)
case("linalg.matrix_power", V([[2.0, 1.0], [1.0, 3.0]]), -2)
case("linalg.matrix_power", T(3, 3), 0, _check_grad=False)
method("matmul", T(2, 3), T(3, 4))
method("dot", T(3), T(3))
method("mm", T(2, 3), T(3, 4))
case("trace", T(3, 4))
case("trace", T(2, 3, 4), offset=1, axis1=1, axis2=2)
case("matrix_transpose", T(2, 3, 4))

# ---------------------------------------------------------------------------------------- norms

for order in (None, 1, 2, 0, float("inf"), float("-inf"), 3.0):
    case("linalg.norm", T(3, 4), p=order, axis=1, _finite_difference=order not in (0,))
for order in ("fro", 1, float("inf"), float("-inf")):
    case("linalg.norm", T(3, 4), p=order, axis=[0, 1])
case("linalg.norm", T(3, 4))
case("linalg.norm", T(3, 4), keepdim=True)
case("linalg.norm", T(2, 3, 4), p="fro", axis=[1, 2], keepdim=True)
case("linalg.norm", T(3, 4), p="nuc", axis=[0, 1], _rtol=1e-4, _atol=1e-4)
case("linalg.vector_norm", T(3, 4), 3.0, axis=1)
case("linalg.vector_norm", T(3, 4))
case("linalg.matrix_norm", T(3, 4), "fro")
case("linalg.cond", V([[2.0, 1.0], [1.0, 3.0]]), _rtol=1e-4)
method("norm", T(3, 4), p=2, axis=1)
case("cdist", T(3, 4), T(2, 4), _rtol=1e-4, _atol=1e-4)
case("cdist", T(3, 4), T(2, 4), p=1.0)
case("pdist", T(4, 3), _rtol=1e-4)

# ------------------------------------------------------------------------------- decompositions

case_fn("cholesky", lambda p, x: p.linalg.cholesky(_positive_definite(p, x)), T(3, 3), _rtol=1e-4,
        _atol=1e-4)  # fmt: skip
case_fn("cholesky-upper", lambda p, x: p.linalg.cholesky(_positive_definite(p, x), upper=True),
        T(2, 3, 3), _rtol=1e-4, _atol=1e-4)  # fmt: skip
case_fn("cholesky_solve", lambda p, x, b: p.linalg.cholesky_solve(b, _lower(p, x)), T(3, 3), T(3,
     2),
        _rtol=1e-3, _atol=1e-3)  # fmt: skip
case("linalg.inv", V([[2.0, 1.0], [1.0, 3.0]], grad=True))
case("linalg.inv", T(2, 3, 3, dtype="float64"), _rtol=1e-4)
case("linalg.det", T(3, 3), _rtol=1e-4)
case("linalg.det", T(2, 3, 3), _rtol=1e-4)
case("linalg.slogdet", T(3, 3), _rtol=1e-4, _check_grad=False)
case("linalg.solve", V([[2.0, 1.0], [1.0, 3.0]], grad=True), T(2, 3))
case("linalg.solve", V([[2.0, 1.0], [1.0, 3.0]], grad=True), T(2))
case("linalg.triangular_solve", V([[2.0, 1.0], [0.0, 3.0]], grad=True), T(2, 3))
case("linalg.triangular_solve", V([[2.0, 0.0], [1.0, 3.0]], grad=True), T(2, 3), upper=False)
case("linalg.triangular_solve", V([[2.0, 1.0], [0.0, 3.0]], grad=True), T(2, 3), transpose=True)
case("linalg.pinv", T(3, 2), _rtol=1e-3, _atol=1e-4, _check_grad=False)
case("linalg.matrix_rank", V([[1.0, 2.0], [2.0, 4.0]]))
case("linalg.matrix_rank", T(3, 3))
case("linalg.eigvalsh", V([[2.0, 1.0], [1.0, 3.0]]))
case_fn("eigh-rebuilds", lambda p, x: _rebuild_eigh(p, _positive_definite(p, x)), T(3, 3),
        _rtol=1e-4, _atol=1e-4, _check_grad=False)  # fmt: skip
case_fn("svd-rebuilds", lambda p, x: _rebuild_svd(p, x), T(4, 3), _rtol=1e-4, _atol=1e-4,
        _check_grad=False)  # fmt: skip
case("linalg.svdvals", T(4, 3), _rtol=1e-4, _check_grad=False)
case_fn("qr-rebuilds", lambda p, x: _rebuild_qr(p, x), T(4, 3), _rtol=1e-4, _atol=1e-4,
        _check_grad=False)  # fmt: skip
case("linalg.qr", T(3, 3), mode="r", _check_grad=False, _rtol=1e-4, _atol=1e-4,
     _post=lambda p, r: r.abs())  # fmt: skip
case("linalg.eigvals", V([[2.0, 1.0], [1.0, 3.0]]), _post=lambda p, v: p.sort(v.real()))
case("linalg.lstsq", T(4, 2, grad=False), T(4, 1, grad=False), _rtol=1e-3, _atol=1e-3,
     _post=lambda p, r: r[0])  # fmt: skip
case("linalg.lu", T(3, 3, grad=False), _rtol=1e-4, _atol=1e-4, _post=lambda p, r: r[0])
case("linalg.cov", T(3, 5), _rtol=1e-4)
case("linalg.corrcoef", T(3, 5), _rtol=1e-4, _check_grad=False)
case("linalg.matrix_exp", T(2, 2, low=-0.5, high=0.5), _rtol=1e-4, _check_grad=False)
case("linalg.householder_product", T(4, 2, grad=False), T(2, grad=False), _rtol=1e-4)


def _rebuild_eigh(p, x):
    values, vectors = p.linalg.eigh(x)
    return values, (vectors * values) @ vectors.T


def _rebuild_svd(p, x):
    u, s, vh = p.linalg.svd(x)
    return s, (u * s) @ vh


def _rebuild_qr(p, x):
    q, r = p.linalg.qr(x)
    return q @ r, q.T @ q


case_fn("attention-by-hand", lambda p, q, k, v: p.nn.functional.softmax(
    p.matmul(q, k, transpose_y=True) / 2.0) @ v, T(2, 3, 4), T(2, 5, 4), T(2, 5, 4))  # fmt: skip
case_fn("bilinear-form", lambda p, x, a: x @ a @ x, T(3), T(3, 3))

case("cdist", T(3, 4), T(2, 4), compute_mode="use_mm_for_euclid_dist", _rtol=1e-3, _atol=1e-3)
case_fn("lu_unpack", lambda p, x: p.linalg.lu_unpack(*p.linalg.lu(x)), T(3, 3, grad=False),
     _rtol=1e-4,
        _atol=1e-4)  # fmt: skip

# The gradient is symmetric, though one triangle alone is read.
case_fn("eigh-gradient", lambda p, x: [r.abs() for r in p.linalg.eigh(x)], T(3, 3),
        _rtol=1e-3, _atol=1e-3, _finite_difference=False)  # fmt: skip
# One matrix: the wheel's gradient of a stack is not that of each matrix of it.
case_fn("eigvalsh-upper", lambda p, x: p.linalg.eigvalsh(x, "U"), T(3, 3),
        _rtol=1e-3, _atol=1e-3, _finite_difference=False)  # fmt: skip
case("linalg.lstsq", T(4, 2, grad=False), T(4, 3, grad=False), _rtol=1e-3, _atol=1e-4)
case("linalg.lstsq", T(4, 2, grad=False), T(4, 3, grad=False), driver="gelss",
     _rtol=1e-3, _atol=1e-4)  # fmt: skip
raises("linalg.lstsq", T(3, 2), T(4, 2))
raises("linalg.lstsq", T(3, 2), T(3))
raises("linalg.lstsq", T(2, 3, 2), T(3, 2))
raises("linalg.householder_product", T(4, 2), T(3))
raises("linalg.cholesky_inverse", T(2))
raises("linalg.matrix_rank", T(3, 3), tol=0.1, rtol=0.1)
raises("linalg.multi_dot", [T(2, 2), 10])
raises_fn("svd_lowrank-niter", lambda p, x: p.linalg.svd_lowrank(x, niter=-1), T(3, 3))
case("einsum", "i->ii", T(3))
case("einsum", "i,j->iij", T(3), T(2), _paddle_grad=False)
case("einsum", "...ij,...jk->...ik", T(5, 2, 3), T(1, 3, 2))
raises("einsum", "ij->ik", T(2, 3))
raises("einsum", "ij,jk->ik", T(2, 3), T(4, 2))
