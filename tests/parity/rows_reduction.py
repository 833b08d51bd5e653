"""Reductions, scans, statistics, searches and sorts."""

from tests.parity.table import B, I, T, V, case, case_fn, half, method

# ---------------------------------------------------------------------------------- reductions

for name in ("sum", "mean", "prod", "max", "min", "amax", "amin", "logsumexp"):
    case(name, T(3, 4, 2))
    case(name, T(3, 4, 2), axis=1)
    case(name, T(3, 4, 2), axis=-1, keepdim=True)
    case(name, T(3, 4, 2), axis=[0, 2])
    case(name, T(3, 4, 2), axis=[-1, 0], keepdim=True)
    case(name, T())
    case(name, T(3, 4, dtype="float64"), axis=0)
    method(name, T(3, 4), axis=1)
for name in ("std", "var"):
    case(name, T(3, 4, 2))
    case(name, T(3, 4, 2), axis=1)
    case(name, T(3, 4, 2), axis=[0, 2], keepdim=True)
    case(name, T(3, 4, 2), axis=1, unbiased=False)
    method(name, T(3, 4))
for name in ("sum", "mean", "nansum", "nanmean"):
    case(name, T(3, 4), axis=())
    case(name, T(2, 0, 3), axis=0)
for name in ("sum", "prod"):
    case(name, T(2, 0, 3), axis=1)
    case(name, T(0))
    case(name, I(3, 4))
    case(name, I(3, 4, dtype="int32"), axis=0)
    case(name, I(3, 4), axis=1, dtype="float64")
case("sum", B(3, 4))
case("sum", B(3, 4), axis=0)
case("sum", T(3, 4), dtype="float64")
case("sum", T(3, 4, dtype="complex64"), axis=0)
case("mean", T(3, 4, dtype="complex64"), axis=0)
case("mean", I(3, 4), axis=0)
case("mean", B(3))
half("sum", T(3, 4), axis=0)
half("mean", T(3, 4))
half("max", T(3, 4), axis=1)
for name in ("max", "min"):
    case(name, I(3, 4), axis=1)
    case(name, I(3, 4, dtype="int32"))
    case(name, V([1.0, 3.0, 3.0, 2.0], grad=True), _finite_difference=False)
for name in ("amax", "amin"):
    case(name, V([[1.0, 3.0, 3.0], [2.0, 1.0, 1.0]], grad=True), axis=1, _finite_difference=False)
case("max", V([1.0, float("nan"), 3.0]))
case("sum", V([1.0, float("inf"), float("-inf")]))
case("logsumexp", V([1000.0, 1000.0]))
for name in ("nansum", "nanmean"):
    case(name, V([[1.0, float("nan")], [2.0, 3.0]]))
    case(name, V([[1.0, float("nan")], [2.0, 3.0]]), axis=0, keepdim=True)
    case(name, T(3, 4), axis=1)
for name in ("all", "any"):
    case(name, B(3, 4))
    case(name, B(3, 4), axis=1)
    case(name, B(3, 4), axis=[0, 1], keepdim=True)
    case(name, B(2, 0, 3), axis=1)
    case(name, B())
    method(name, B(3, 4), axis=0)
case("count_nonzero", I(3, 4, high=2))
case("count_nonzero", I(3, 4, high=2), axis=1, keepdim=True)
case("reduce_as", T(3, 4), T(4))
case("numel", T(3, 4))
case("median", T(5))
case("median", T(3, 4), axis=1, _finite_difference=False)
case("median", T(3, 5), axis=1, keepdim=True)
case("median", T(3, 4), axis=1, mode="min", _finite_difference=False)
case("nanmedian", V([[1.0, float("nan"), 3.0], [2.0, 5.0, 4.0]]), axis=1)
case("nanmedian", V([[1.0, float("nan"), 3.0], [2.0, 5.0, 4.0]]), axis=[0, 1], mode="min")
case("nanmedian", V([[1.0, float("nan"), 3.0], [2.0, 5.0, 4.0]]), axis=0, mode="min")
case("quantile", T(3, 4), 0.3, axis=1)
case("quantile", T(3, 4), [0.25, 0.75], axis=0, keepdim=True)
case("quantile", T(3, 4), 0.5, axis=1, interpolation="lower")
case("nanquantile", V([[1.0, float("nan"), 3.0], [2.0, 5.0, 4.0]]), 0.5, axis=1)
case("mode", V([[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]]), axis=1)
case("trapezoid", T(3, 4))
case("trapezoid", T(3, 4), dx=0.5, axis=0)
case("cumulative_trapezoid", T(3, 4))

# --------------------------------------------------------------------------------------- scans

for name in ("cumsum", "logcumsumexp"):
    case(name, T(3, 4))
    case(name, T(3, 4), axis=0)
    case(name, T(3, 4), axis=-1)
    case(name, T(2, 0), axis=0)
case("cumsum", I(3, 4), axis=1)
case("cumsum", T(3, 4), axis=1, dtype="float64")
case("cumsum", T())
case("cumprod", T(3, 4), dim=1)
case("cumprod", T(3, 4), dim=-2)
case("cumprod", V([[2.0, 0.0, 3.0, 4.0]], grad=True), dim=1, _finite_difference=False)
for name in ("cummax", "cummin"):
    case(name, T(3, 4), axis=1)
    case(name, T(3, 4))
    case(name, V([1.0, 3.0, 3.0, 2.0, 5.0]), axis=0)
case("diff", T(3, 4))
case("diff", T(3, 4), n=2, axis=0)
case("diff", T(3, 4), prepend=T(3, 1), append=T(3, 2))

# --------------------------------------------------------------------------- search and sorting

for name in ("argmax", "argmin"):
    case(name, T(3, 4))
    case(name, T(3, 4), axis=1)
    case(name, T(3, 4), axis=-2, keepdim=True)
    case(name, V([[1.0, 3.0, 3.0]]), axis=1)
    case(name, I(3, 4, high=100), axis=0, dtype="int32")
    method(name, T(3, 4), axis=1)
for name in ("sort", "argsort"):
    case(name, T(3, 4))
    case(name, T(3, 4), axis=0, descending=True)
    case(name, I(8, high=1000))
    case(name, T(2, 0))
    case(name, T())
    case(name, V([2.0, 1.0, 2.0, 1.0]), stable=True)
case("topk", T(3, 5), 2)
case("topk", T(3, 5), 2, axis=0, largest=False)
case("topk", T(3, 5), k=5)
case("topk", I(3, 5, high=1000), 3)
case("kthvalue", T(3, 5), 2)
case("kthvalue", T(3, 5), 1, axis=0, keepdim=True)
case("msort", T(3, 4))
case("searchsorted", V([1.0, 3.0, 5.0, 7.0]), T(2, 3, low=0, high=9))
case("searchsorted", V([1.0, 3.0, 5.0, 7.0]), V([3.0, 7.0]), right=True)
case("searchsorted", V([[1, 3, 5], [2, 4, 6]], "int64"), V([[3], [4]], "int64"), out_int32=True)
case("bucketize", T(2, 3, low=0, high=9), V([1.0, 3.0, 5.0, 7.0]))
case("unique", V([3, 1, 2, 3, 1], "int64"))
case("unique", V([3, 1, 2, 3, 1], "int64"), return_index=True, return_inverse=True,
     return_counts=True)  # fmt: skip
case("unique", V([[1, 2], [1, 2], [0, 3]], "int64"), axis=0)
case("unique_consecutive", V([1, 1, 2, 2, 1], "int64"), return_inverse=True, return_counts=True)
case("nonzero", V([[1, 0], [0, 2]], "int64"))
case("nonzero", V([[1, 0], [0, 2]], "int64"), as_tuple=True)
case("nonzero", V([0.0, 0.0]))
case("bincount", V([0, 1, 1, 3], "int64"))
case("bincount", V([0, 1, 1, 3], "int64"), minlength=6)
case("bincount", V([0, 1, 1, 3], "int64"), V([0.5, 1.0, 1.0, 2.0]))
case("histogram", T(20, grad=False), bins=5, min=-2, max=2)
case("histogram", I(20), bins=4)

case_fn("mean-of-squares", lambda p, x: (x**2).mean(), T(3, 4))
case_fn("softmax-by-hand", lambda p, x: p.exp(x - x.max(axis=1, keepdim=True)) /
        p.exp(x - x.max(axis=1, keepdim=True)).sum(axis=1, keepdim=True), T(3, 4))  # fmt: skip
case_fn("normalise-by-hand", lambda p, x: (x - x.mean(0)) / (x.var(0,
     unbiased=False) + 1e-5).sqrt(),
        T(5, 3))  # fmt: skip

case("searchsorted", V([5.0, 1.0, 3.0]), V([2.0, 4.0]), sorter=V([1, 2, 0], "int64"))
