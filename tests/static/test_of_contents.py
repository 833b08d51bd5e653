"""Functions of programs whose results depend on contents or on sizes that are open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme

RNG = np.random.default_rng(3)


def fetched(module: Any, feed: dict[str, np.ndarray], make: Callable[..., Any],
            sizes: dict[str, list[int]]) -> list[np.ndarray]:  # fmt: skip
    module.enable_static()
    try:
        with module.static.program_guard(module.static.Program(), module.static.Program()):
            given = [
                module.static.data(n, sizes.get(n, list(a.shape)), str(a.dtype))
                for n, a in feed.items()
            ]
            made = make(module, *given)
            outs = list(made) if isinstance(made, list | tuple) else [made]
            return module.static.Executor().run(feed=feed, fetch_list=outs)
    finally:
        module.disable_static()


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
def test_least_squares(driver: str | None, paddle: Any) -> None:
    feed = {"x": RNG.random((5, 2)), "y": RNG.random((5, 3))}

    def make(p: Any, x: Any, y: Any) -> Any:
        return p.linalg.lstsq(x, y, driver=driver)

    for mine, want in zip(fetched(bireme, feed, make, {}), fetched(paddle, feed, make, {}),
                          strict=True):  # fmt: skip
        assert (mine.dtype, mine.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(mine, want, rtol=1e-9)


def test_matrices_without_full_rank_have_no_residuals() -> None:
    feed = {"x": np.ones((3, 2)), "y": np.ones((3, 1))}
    got = fetched(bireme, feed, lambda p, x, y: p.linalg.lstsq(x, y, driver="gelss"), {})
    assert got[1].shape == (0,)
    assert got[2] == 1


@pytest.mark.parametrize("rows", [2, 3])
def test_the_axis_of_a_cross_product_may_be_open(rows: int, paddle: Any) -> None:
    feed = {n: RNG.random((rows, 3)).astype("float32") for n in "xy"}
    open_rows = {n: [-1, 3] for n in "xy"}

    def make(p: Any, x: Any, y: Any) -> Any:
        return p.cross(x, y)

    (mine,) = fetched(bireme, feed, make, open_rows)
    (want,) = fetched(paddle, feed, make, open_rows)
    np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-6)


def test_einsum_of_open_sizes(paddle: Any) -> None:
    feed = {"x": RNG.random((3, 2, 4)), "y": RNG.random((3, 4, 5))}
    sizes = {"x": [-1, 2, -1], "y": [-1, -1, 5]}
    for equation in ("bij,bjk->bik", "...ij,...jk->...ik"):

        def make(p: Any, x: Any, y: Any, equation: str = equation) -> Any:
            made = p.einsum(equation, x, y)
            assert made.shape == [-1, 2, 5]
            return made

        (mine,) = fetched(bireme, feed, make, sizes)
        (want,) = fetched(paddle, feed, make, sizes)
        np.testing.assert_allclose(mine, want, rtol=1e-12)


def test_a_size_that_is_read_may_be_one_that_is_known() -> None:
    feed = {"x": np.ones((4, 3), "float32"), "s": np.array([4, 3])}
    (got,) = fetched(bireme, feed, lambda p, x, s: p.expand(x, s), {})
    assert got.shape == (4, 3)
