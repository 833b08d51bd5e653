"""Layer norm and dropout as the CPU computes them: the plain numbers, each result written once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import bireme as paddle
import bireme.nn.functional as F
from bireme.core import executor, kernels
from bireme.host import config
from tests.kernels.kernel_oracle import assert_kernel_equals_plain, compiled, gradients, many

__all__ = ["compiled"]  # a fixture
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")


@many(15)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(2, 40), st.booleans(),
    st.floats(-2, 2), st.floats(0.5, 5),
)  # fmt: skip
def test_layer_norm(rows, width, affine, centre, spread):
    rng = np.random.default_rng(width)
    arrays = [centre + spread * rng.normal(size=(*rows, width)), *rng.normal(size=(2, width))]

    def run(x, weight=None, bias=None):
        return F.layer_norm(x, width, weight, bias)

    arrays = [a.astype(np.float32) for a in arrays[: 3 if affine else 1]]
    assert_kernel_equals_plain("kept_layer_norm", run, arrays, rtol=5e-3)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_layer_norm_in_half_precision(kind):
    x = np.random.default_rng(0).normal(size=(5, 7, 12)).astype(np.float32)

    def run(x):
        return F.layer_norm(x.astype(kind), [7, 12]).astype("float32")

    found = gradients(run, [x])
    with kernels.disabled():
        plain = gradients(run, [x])
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.05, atol=0.05)


def test_second_derivatives_of_layer_norm():
    def second():
        x = paddle.to_tensor(np.linspace(-1, 2, 24, dtype="float32").reshape(4, 6) ** 3)
        x.stop_gradient = False
        (first,) = paddle.grad((F.layer_norm(x, 6) ** 3).sum(), x, create_graph=True)
        return paddle.grad((first**2).sum(), x)[0].numpy()

    found = second()
    with kernels.disabled():
        plain = second()
    np.testing.assert_allclose(found, plain, rtol=1e-2, atol=1e-2)


@many(15)
@given(
    st.lists(st.integers(1, 23), min_size=1, max_size=4), st.floats(0, 1),
    st.sampled_from(["upscale_in_train", "downscale_in_infer"]), st.integers(0, 100),
)  # fmt: skip
@example([40, 50], 0.1, "upscale_in_train", 3)
@example([40, 50], 1.0, "upscale_in_train", 3)
def test_dropout(shape, p, mode, seed):
    def run(x):
        paddle.seed(seed)
        return F.dropout(x, p, mode=mode)

    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    if p > 0 and (p < 1 or mode == "upscale_in_train"):  # else nothing is drawn, and no kernel used
        assert_kernel_equals_plain("kept_dropout", run, [x])


def test_what_is_dropped_is_zero_whatever_it_was():
    paddle.seed(0)
    out = F.dropout(paddle.full([1000], float("inf")), 0.5).numpy()
    assert set(out.tolist()) == {0.0, float("inf")}


def test_a_deep_residual_stream_is_not_computed_again_by_every_layer():
    """The size of the compiled step grows with the depth, not with its square."""

    def lines(depth):
        rng = np.random.default_rng(0)
        x = paddle.to_tensor(rng.normal(size=(4, 8, 32)).astype("float32"))
        weights = [
            paddle.to_tensor(rng.normal(size=(32, 32)).astype("float32"), stop_gradient=False)
            for _ in range(depth)
        ]
        executor.clear_programs()
        for w in weights:
            x = F.layer_norm(x + F.dropout(F.linear(x, w), 0.1), 32)
        x.sum().backward()
        [w.grad.numpy() for w in weights]
        program = max(executor._programs.values(), key=lambda p: p.size)
        return len(program.executable.compiled.as_text().splitlines())

    assert config.compile_mode == "always"
    assert lines(8) < 2.6 * lines(4)
