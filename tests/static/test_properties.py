"""A program does what the same code does eagerly, whatever the code and the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme import static

STEPS = {
    "tanh": paddle.tanh,
    "square": paddle.square,
    "halve": lambda x: x / 2,
    "softmax": lambda x: paddle.nn.functional.softmax(x, axis=-1),
    "centre": lambda x: x - x.mean(axis=0, keepdim=True),
    "flatten": lambda x: paddle.reshape(x, [-1, 3]),
    "gram": lambda x: paddle.matmul(x, paddle.matmul(x, x, transpose_x=True)),
    "double": lambda x: paddle.concat([x, x], axis=0),
    "last": lambda x: x[-1:],
}


def _run(steps: list[str], x: Any) -> tuple[Any, Any]:
    for step in steps:
        x = STEPS[step](x)
    return x, paddle.square(x).sum()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5),
    st.lists(st.integers(1, 6), min_size=1, max_size=2),
)
def test_static_is_eager(steps: list[str], rows: list[int]) -> None:
    paddle.enable_static()
    try:
        main = static.Program()
        with static.scope_guard(static.Scope()), static.program_guard(main, static.Program()):
            x = static.data("x", [None, 3])
            x.stop_gradient = False
            out, loss = _run(steps, x)
            (grad,) = static.gradients(loss, x)
            feeds = [np.random.RandomState(n).rand(n, 3).astype("float32") for n in rows]
            exe = static.Executor()
            got = [exe.run(main, feed={"x": f}, fetch_list=[out, grad]) for f in feeds]
            again = exe.run(main.clone(), feed={"x": feeds[0]}, fetch_list=[out])
    finally:
        paddle.disable_static()
    np.testing.assert_array_equal(again[0], got[0][0])
    for feed, (value, slope) in zip(feeds, got, strict=True):
        eager = paddle.to_tensor(feed, stop_gradient=False)
        want, loss = _run(steps, eager)
        loss.backward()
        np.testing.assert_allclose(value, want.numpy(), rtol=1e-4, atol=1e-5)
        assert eager.grad is not None
        np.testing.assert_allclose(slope, eager.grad.numpy(), rtol=1e-3, atol=1e-3)
