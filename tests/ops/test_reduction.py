"""Reductions, scans, order statistics and sorting against the real paddle."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from tests.ops.table_oracle import A, N, V, check_cold, check_compiled, row

x = A(3, 4, 5)
ties = V([[1, 3, 3], [2, 2, 2]])
holes = V([[1, np.nan, 3], [2, 2, 1]])

# fmt: off
REDUCTIONS = (
    "sum", "mean", "max", "min", "amax", "amin", "prod", "logsumexp", "std", "var", "nansum",
    "nanmean",
)
AXES = (None, 1, -1, [0, 2], (0, 1), [])
SCANS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")

ROWS = [
    *[row(f, x, axis=a) for f in REDUCTIONS for a in AXES if not (f == "logsumexp" and a == [])],
    *[row(f, x, 1, keepdim=True) for f in REDUCTIONS],
    *[row(f, V(3.0)) for f in ("sum", "mean", "max", "prod", "logsumexp")],
    *[row(f, A(2, 3, dtype="float64")) for f in REDUCTIONS],
    *[row(f, ties, a) for f in ("max", "min", "amax", "amin") for a in (None, 1)],
    *[row(f, N(2, 3, dtype=d)) for f in ("sum", "prod", "max", "mean") for d in ("int32", "int64")],
    row("sum", V([1, 0, 1], "bool")), row("sum", x, dtype="float64"),
    row("sum", N(2, 3), 0, "int32"),
    row("sum", A(2, 3, dtype="complex64"), 1), row("mean", A(2, 3, dtype="complex64")),
    row("prod", A(3, 2, low=0.5), 0, dtype="float64"), row("prod", V([[1, 2, 3], [4, 5, 6]]), 1),
    row("nansum", holes, 1), row("nanmean", holes, 1),
    *[row(f, V([[1, 0], [1, 1]], "bool"), a) for f in ("all", "any") for a in (None, 1, [0, 1])],
    *[row(f, V([[1, 0], [1, 1]]), 1, True) for f in ("all", "any", "count_nonzero")],
    row("count_nonzero", V([[1, 0], [1, 1]])),
    row("logsumexp", V([[-np.inf, 1.0], [1000.0, 1000.0]]), 1),
    row("var", x, 1, False), row("std", x, [0, 1], False, True),
    *[row(f, x, axis=a) for f in ("argmax", "argmin") for a in (None, 0, -1)],
    row("argmax", ties, 1, True, "int32"), row("argmax", x, keepdim=True), row("argmin", N(5)),
    row("reduce_as", A(3, 4, 5), A(4, 1)),
    # scans
    *[row(f, A(3, 4), a) for f in SCANS for a in (0, -1)],
    *[row(f, A(3, 4)) for f in SCANS],
    *[row(f, ties, 1) for f in ("cummax", "cummin")],
    row("cumsum", N(4, dtype="int32")), row("cumsum", A(3, 4), 0, "float64"),
    row("cumprod", N(4, dtype="int32"), 0), row("cumprod", V([[0, 2, 3], [0, 0, 1]]), 1),
    row("diff", A(3, 5)), row("diff", A(3, 5), 2, 0),
    row("diff", A(3, 5), 1, 1, A(3, 1), A(3, 2)),
    row("trapezoid", A(3, 5)), row("trapezoid", A(3, 5), A(5, seed=1)),
    row("trapezoid", A(3, 5), None, 0.5, 0), row("cumulative_trapezoid", A(3, 5), None, 2.0),
    # order statistics
    *[row("median", A(3, 4), a) for a in (None, 0, 1)], row("median", A(5)),
    row("median", A(4), 0, True),
    row("median", holes, 1), row("nanmedian", holes, 1), row("nanmedian", holes),
    row("median", A(5), 0, mode="min"), row("median", N(4)), row("nanmedian", holes, 1, mode="min"),
    row("quantile", A(3, 4), 0.3, 1), row("quantile", A(3, 4), [0.1, 0.5], 0, True),
    row("quantile", A(7), 0.25, interpolation="lower"), row("quantile", holes, 0.5, 1, grads=False),
    row("quantile", A(7), 0.25, interpolation="midpoint"), row("nanquantile", holes, 0.4, 1),
    row("bincount", N(6), minlength=12), row("bincount", N(6), A(6), grads=False),
    row("histogram", A(30), 5), row("histogram", A(30), 4, -1.0, 1.0),
    row("histogram", A(30), 4, density=True), row("histogram_bin_edges", A(30), 4),
    row("linalg.cov", A(3, 6)), row("linalg.cov", A(6, 3), False, False),
    row("linalg.corrcoef", A(3, 6)),
    # sorting and searching
    row("sort", A(3, 4)), row("sort", A(3, 4), 0, True), row("argsort", A(3, 4), 1, True),
    row("argsort", V([1, 3, 2, 2]), descending=True), row("msort", A(3, 4)),
    row("topk", A(3, 5), 2), row("topk", A(3, 5), 2, 0, False), row("kthvalue", A(3, 5), 2),
    row("kthvalue", A(3, 5), 2, 0, True), row("mode", V([[3, 1, 1], [2, 2, 3]])),
    row("mode", V([[3, 1, 1], [2, 2, 3]]), 0, True),
    row("searchsorted", V([1, 3, 5], "int64"), V([2, 3], "int64")),
    row("searchsorted", V([1, 3, 5], "int64"), V([2, 3], "int64"), True, True),
    row("searchsorted", V([[1, 3, 5], [0, 2, 4]]), V([[3, 4], [3, 4]]), grads=False),
    row("bucketize", V([2, 3], "int64"), V([1, 3, 5], "int64")),
    row("where", V([1, 0, 1], "bool"), A(3), A(3, seed=1)),
    row("where", V([[1], [0]], "bool"), A(3), A(2, 3)), row("where", V([1, 0], "bool"), 1.0, 2.0),
    row("where", V([1, 0], "bool")), row("nonzero", V([[1, 0], [0, 1]])),
    row("nonzero", V([[1, 0], [0, 1]]), True), row("masked_select", A(2, 3), V([1, 0, 1], "bool")),
    row("unique", V([3, 1, 1], "int64"), True, True, True),
    row("unique", V([[1, 2], [1, 2], [3, 4]], "int64"), axis=0),
    row("unique_consecutive", V([1, 1, 2, 2, 1], "int64"), True, True),
]
# fmt: on


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_numpy_tier(case):
    check_cold(case)


def test_compiled_tier():
    check_compiled(ROWS)


def T(value):
    return bireme.to_tensor(np.asarray(value))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: bireme.sum(T(np.ones((2, 3))), 2), ValueError, r"\[-2, 1\]"),
        (lambda: bireme.mean(T(np.ones((2, 3))), [0, 0]), ValueError, "twice"),
        (lambda: bireme.max(T(np.ones((0, 3))), 0), ValueError, "no elements"),
        (lambda: bireme.max(T(np.ones(3, complex))), TypeError, "order"),
        (lambda: bireme.argmax(T(np.ones(3)), dtype="float32"), TypeError, "int32"),
        (lambda: bireme.cumsum(T(np.ones((2, 3))), 5), IndexError, "axis"),
        (lambda: bireme.median(T(np.ones(3)), mode="max"), ValueError, "mode"),
        (lambda: bireme.quantile(T(np.ones(3)), 1.5), ValueError, r"\[0, 1\]"),
        (lambda: bireme.topk(T(np.ones(3)), 4), ValueError, "length 3"),
        (lambda: bireme.where(T([1, 0]), T([1.0]), T([1.0])), ValueError, "bool"),
        (lambda: bireme.masked_select(T([1.0]), T([1])), TypeError, "bool"),
        (lambda: bireme.bincount(T([-1])), ValueError, "not negative"),
    ],
)
def test_errors_say_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_product_with_a_zero_has_a_finite_gradient():
    x = bireme.to_tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 1.0]], stop_gradient=False)
    bireme.prod(x, 1).sum().backward()
    assert x.grad.tolist() == [[6.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_second_derivatives():
    x = bireme.to_tensor([1.0, 2.0], stop_gradient=False)
    (first,) = bireme.grad(bireme.logsumexp(x), [x], create_graph=True)
    (second,) = bireme.grad(first[0], [x])
    p = np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum()
    np.testing.assert_allclose(second.numpy(), [p[0] * (1 - p[0]), -p[0] * p[1]], rtol=1e-5)


def test_topk_names_its_results():
    def both(x):
        return bireme.topk(x, 2)

    x = T(np.array([1.0, 3.0, 2.0]))
    for found in (both(x), x.topk(2), bireme.jit.to_static(both)(x)):
        assert found.values.tolist() == [3.0, 2.0]
        assert found.indices.tolist() == [1, 2]
        values, indices = found
        assert (values is found.values, indices is found.indices) == (True, True)
