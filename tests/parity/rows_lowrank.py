"""Low-rank factorisations (random: what they reconstruct is compared) and Householder products."""

from tests.parity.table import T, case, case_fn, method, raises

# Paddle's householder_product has no gradient, and its check of y fits square x only.
ORMQR = {"_rtol": 1e-4, "_atol": 1e-4, "_paddle_grad": False}
case("linalg.ormqr", T(4, 3), T(3), T(3, 2), **ORMQR)
case("linalg.ormqr", T(4, 3), T(3), T(4, 2), True, True, **ORMQR)
case("linalg.ormqr", T(2, 3, 3), T(2, 3), T(2, 2, 3), left=False, **ORMQR)
case("linalg.ormqr", T(3, 3), T(3), T(2, 3), left=False, transpose=True, **ORMQR)
method("cond", T(3, 3), _rtol=1e-3, _check_grad=False)
case("linalg.norm", T(3, 4), None, None, False, None, "float64")
raises("linalg.ormqr", T(4, 3), T(2), T(3, 2))
raises("linalg.ormqr", T(4, 3), T(3), T(4, 2))
raises("linalg.svd_lowrank", T(4, 3), q=4)
raises("linalg.svd_lowrank", T(4, 3), q=2, niter=-1)
raises("linalg.pca_lowrank", T(4, 3), q=-1)


def _again(parts):
    u, s, v = parts
    return s, (u * s.unsqueeze(-2)) @ v.transpose([*range(v.ndim - 2), v.ndim - 1, v.ndim - 2])


def _rank_two(p, x):
    return x[..., :2] @ p.ones([2, 6], x.dtype).cumsum(-1)


OPTIONS = {"_rtol": 1e-3, "_atol": 1e-3, "_check_grad": False}
case_fn("svd_lowrank", lambda p, x: _again(p.linalg.svd_lowrank(x, 3)), T(5, 3), **OPTIONS)
case_fn("svd_lowrank-wide", lambda p, x: _again(p.linalg.svd_lowrank(x)), T(3, 5), **OPTIONS)
case_fn("svd_lowrank-batch", lambda p, x: _again(p.linalg.svd_lowrank(_rank_two(p, x), 3))[1],
        T(2, 5, 3), **OPTIONS)  # fmt: skip
case_fn("svd_lowrank-M", lambda p, x, m: _again(p.linalg.svd_lowrank(x, 4, M=m)), T(5, 4), T(5, 4),
        **OPTIONS)  # fmt: skip
case_fn("pca_lowrank", lambda p, x: _again(p.linalg.pca_lowrank(x, 3)), T(6, 3), **OPTIONS)
case_fn("pca_lowrank-raw", lambda p, x: _again(x.pca_lowrank(3, center=False)), T(6, 3), **OPTIONS)
