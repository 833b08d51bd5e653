"""In-place forms in a static program: as in Paddle they give their result and change nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import bireme

FORMS: dict[str, tuple[Any, ...]] = {
    "exp_": (), "sqrt_": (), "tanh_": (), "add_": (2.0,), "scale_": (3.0,), "clip_": (0.3, 0.5),
    "reshape_": ([4],), "flatten_": (), "unsqueeze_": (0,), "squeeze_": (), "transpose_": ([1, 0],),
    "t_": (), "cast_": ("float64",), "cumsum_": (), "cumprod_": (0,), "tril_": (),
}  # fmt: skip
X = np.array([[0.3, 0.5], [0.7, 0.2]], "float32")


def of_a_program(module: Any, name: str) -> list[Any]:
    """What a program fetches: the variable after the call, and the call's result."""
    module.enable_static()
    try:
        with module.static.program_guard(module.static.Program(), module.static.Program()):
            x = module.static.data("x", [2, 2], "float32") * 1.0
            given = [
                module.full([2, 2], a, "float32") if name == "add_" else a for a in FORMS[name]
            ]
            made = getattr(x, name)(*given)
            return module.static.Executor().run(feed={"x": X}, fetch_list=[x * 1.0, made])
    finally:
        module.disable_static()


@pytest.mark.parametrize("name", FORMS)
def test_a_programs_variable_stays_as_it_is(name: str, paddle: Any) -> None:
    with pytest.warns(UserWarning, match=f"{name}.* does not change its tensor in a static"):
        ours = of_a_program(bireme, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = of_a_program(paddle, name)
    for mine, want in zip(ours, theirs, strict=True):
        assert mine.dtype == want.dtype
        np.testing.assert_allclose(mine, want, rtol=1e-6)


def test_functions_that_write_still_do() -> None:
    bireme.enable_static()
    try:
        with bireme.static.program_guard(bireme.static.Program(), bireme.static.Program()):
            x = bireme.static.data("x", [2, 2], "float32") * 1.0
            bireme.increment(y := x.sum())
            bireme.assign(x + 1, output=x)
            got = bireme.static.Executor().run(feed={"x": X}, fetch_list=[x, y])
    finally:
        bireme.disable_static()
    np.testing.assert_allclose(got[0], X + 1)
    np.testing.assert_allclose(got[1], X.sum() + 1)
