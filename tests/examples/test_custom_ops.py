"""The examples of custom ops do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import bireme as paddle
from bireme.core import kernels
from bireme.host import config, jax_door
from bireme.kernels.native import compiler

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    return runpy.run_path(str(EXAMPLES / name), run_name="example")


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_cpp():
    assert abs(load("custom_op_cpp.py")["main"]() - 3) < 0.1


def test_python():
    assert load("custom_op_python.py")["main"]() < 1e-5


def test_pallas(monkeypatch):
    example = load("custom_op_pallas.py")
    monkeypatch.setattr(config, "compile_mode", "always")
    before = kernels.uses["gated_interpreted"]
    losses = example["main"]()
    assert kernels.uses["gated_interpreted"] > before
    with kernels.disabled("gated_interpreted"):
        np.testing.assert_allclose(example["main"](), losses, rtol=1e-5)
    x = paddle.randn([7])
    np.testing.assert_allclose(  # a call that the kernel does not accept
        example["gated"](x, paddle.zeros([1])).numpy(), x.numpy() / 2, rtol=1e-6
    )


def test_pallas_lowers_for_a_gpu():
    jax = jax_door.jax()
    kernel = load("custom_op_pallas.py")["kernel"]
    x = np.ones((30, 100), np.float32)
    traced = jax.jit(lambda a, b: kernel(jax.numpy, a, b)).trace(x, x)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" in text
