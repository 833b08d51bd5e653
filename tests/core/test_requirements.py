"""Requirements on contents are checked inside branches and loops, too."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme import jit
from bireme.core import stats
from bireme.core.errors import InvalidArgument, PositionOutOfRange
from bireme.host import config
from bireme.nn import functional as F
from bireme.static.nn import cond, while_loop

TABLE = np.arange(10, dtype="float32").reshape(5, 2)


def _rows(ids, table):
    """Rows of a table. Nobody knows before the run where these ids lie."""
    return F.embedding((ids * 1.0).astype("int64"), table)


def in_a_branch(ids, table):
    return cond(ids.sum() > 3, lambda: _rows(ids, table).sum(), lambda: table.sum())


def in_the_other_branch(ids, table):
    return cond(ids.sum() <= 3, lambda: table.sum(), lambda: _rows(ids, table).sum())


def in_a_loop(ids, table):
    i, total = paddle.zeros([], "int64"), paddle.zeros([])
    while i < 3:
        total = total + _rows(ids[:1] + i, table).sum() * (ids.sum() > 3).astype("float32")
        i = i + 1
    return total


def in_a_test(ids, table):
    def test(i, at):
        return (i < 3).logical_and(_rows(at, table).sum() >= 0)

    return while_loop(
        test, lambda i, at: (i + 1, ids), [paddle.zeros([], "int64"), paddle.zeros_like(ids)]
    )[1].sum()


def in_a_scan(ids, table):
    total = paddle.zeros([])
    for one in ids:
        total = total + _rows(one, table).sum()
    return total


def in_a_branch_of_a_loop(ids, table):
    i, total = paddle.zeros([], "int64"), paddle.zeros([])
    while i < 2:
        if ids.sum() > 3:
            total = total + _rows(ids, table).sum()
        i = i + 1
    return total


def behind_a_branch(ids, table):
    """The requirement behind has a number after those of both branches."""
    return in_a_branch(ids * 0 + 2, table) + _rows(ids, table).sum()


inner = jit.to_static(in_a_branch_of_a_loop, full_graph=True)


def in_a_captured_function(ids, table):
    return inner(ids, table) + 1


PLACES = [
    in_a_branch, in_the_other_branch, in_a_loop, in_a_test, in_a_scan, in_a_branch_of_a_loop,
    behind_a_branch, in_a_captured_function,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")  # one line, many programs
@pytest.mark.parametrize("mode", ["never", "always"])
@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("function", PLACES)
def test_bad_ids_raise_in_both_tiers(monkeypatch, mode, differentiated, function):
    monkeypatch.setattr(config, "compile_mode", mode)
    captured = jit.to_static(function, full_graph=True)
    table = paddle.to_tensor(TABLE, stop_gradient=not differentiated)

    def run(ids):
        out = captured(paddle.to_tensor(np.array(ids, "int64")), table)
        if differentiated and not out.stop_gradient:
            out.backward()
        return float(out)

    for _ in range(2):
        np.testing.assert_allclose(
            run([1, 4, 2]), float(function(paddle.to_tensor([1, 4, 2]), paddle.to_tensor(TABLE)))
        )
        with pytest.raises(PositionOutOfRange, match=r"\[embedding\].*out of range"):
            run([4, 5, 3])
    assert table.grad is None or np.isfinite(table.grad.numpy()).all()


def test_nan_is_no_probability(tier):
    nan = paddle.to_tensor([0.5, np.nan])
    for x in (nan, nan * 1, F.sigmoid(nan), nan.clip(0.0, 1.0), nan.reshape([2, 1])):
        with pytest.raises(PositionOutOfRange, match="holds nan"):
            paddle.bernoulli(x).numpy()


def test_nan_passes_through_a_loss(tier):
    nan, ones = paddle.to_tensor([0.5, np.nan]), paddle.ones([2])
    for x in (nan, nan * 1, F.sigmoid(nan)):
        assert np.isnan(F.binary_cross_entropy(x, ones).item())
    with pytest.raises(PositionOutOfRange, match=r"holds 1\.5"):
        F.binary_cross_entropy(nan + 1, ones).item()


def test_nan_is_no_class(tier):
    with pytest.raises(PositionOutOfRange):
        F.cross_entropy(paddle.ones([2, 3]), paddle.to_tensor([1.0, np.nan])).item()


DIVISIONS = [
    paddle.floor_divide, paddle.remainder,
    lambda x, y: paddle.divide(x, y, rounding_mode="trunc"),
]  # fmt: skip


@pytest.mark.parametrize("divide", DIVISIONS)
def test_integers_are_not_divided_by_zero(tier, divide):
    x, zero = paddle.to_tensor([3, -4]), paddle.to_tensor([2, 0])
    for y in (zero, zero * 1, 0, paddle.zeros([2], "int64")):
        with pytest.raises(InvalidArgument, match="divided by zero"):
            divide(x, y).numpy()
    assert not np.isfinite(divide(x.astype("float32"), zero.astype("float32")).numpy()).all()
    assert divide(x[:0], 0).shape == [0]


def test_divisors_of_the_host_are_proved_and_nothing_is_collected(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "always")
    evidence = []
    monkeypatch.setattr("bireme.core.proofs.look", lambda *given: evidence.append(given))
    x = paddle.to_tensor([7, -7])
    for y in (2, -3, paddle.to_tensor([2, 5]), paddle.arange(1, 3), x.shape[0]):
        (x // y).numpy(), (x % y).numpy()
    assert [len(given[1]) for given in evidence] in ([], [1, 1])  # of arange, which has no range


@pytest.mark.parametrize("function", [in_a_branch, in_the_other_branch, in_a_branch_of_a_loop])
def test_what_does_not_run_is_not_checked(monkeypatch, function):
    monkeypatch.setattr(config, "compile_mode", "always")
    captured = jit.to_static(function, full_graph=True)
    ids, table = paddle.to_tensor([-7, 5]), paddle.to_tensor(TABLE)
    assert float(captured(ids, table)) == float(function(ids, table))


def test_ids_of_the_host_are_proved_and_nothing_is_collected(monkeypatch):
    """An operand of a branch is what was given outside."""
    monkeypatch.setattr(config, "compile_mode", "always")

    @jit.to_static(full_graph=True)
    def function(ids, table):
        return cond(ids.sum() > 3, lambda: F.embedding(ids, table).sum(), lambda: table.sum())

    table = paddle.to_tensor(TABLE)
    evidence = []
    monkeypatch.setattr("bireme.core.proofs.look", lambda *given: evidence.append(given))
    with stats.count_compiles() as compiles:
        for ids in ([1, 4], [2, 3], [0, 4]):
            function(paddle.to_tensor(ids), table).numpy()
    assert compiles == [1]
    assert not evidence


BAD_CONTENTS = {
    "gamma": (lambda: paddle.standard_gamma(paddle.to_tensor([-1.0, 2.0])), "'x' holds -1"),
    "binomial counts": (
        lambda: paddle.binomial(paddle.to_tensor([3.0, -2.0]), paddle.to_tensor([0.5, 0.5])),
        "'count' holds -2",
    ),
    "binomial probabilities": (
        lambda: paddle.binomial(paddle.to_tensor([3.0]), paddle.to_tensor([1.5])),
        "'prob' holds 1.5",
    ),
    "viterbi": (
        lambda: paddle.text.viterbi_decode(
            paddle.ones([2, 3, 4]), paddle.ones([4, 4]), paddle.to_tensor([4, 2])
        )[0],
        "'lengths' holds 4",
    ),
    **{
        name: (
            lambda pool=pool: pool(
                paddle.ones([2, 4, 8, 8]),
                paddle.to_tensor([[0.0, 0.0, 4.0, 4.0]]),
                paddle.to_tensor([1, 1], dtype="int32"),
                2,
            ),
            "its sum must be the number of boxes",
        )
        for name, pool in (
            ("roi_align", paddle.vision.ops.roi_align),
            ("roi_pool", paddle.vision.ops.roi_pool),
            ("psroi_pool", paddle.vision.ops.psroi_pool),
        )
    },
}


@pytest.mark.parametrize("case", BAD_CONTENTS)
def test_contents_that_have_no_result(tier, case):
    compute, message = BAD_CONTENTS[case]
    with pytest.raises(ValueError, match=message):
        compute().numpy()


def test_a_gamma_number_of_shape_zero_is_as_small_as_can_be(tier):
    drawn = paddle.standard_gamma(paddle.zeros([5])).numpy()
    np.testing.assert_array_equal(drawn, np.finfo("float32").tiny)
