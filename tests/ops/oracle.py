"""One call, written once, run in Bireme and in the real Paddle: values, gradients, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
import bireme.core.errors


def run(module: Any, call: str) -> Any:
    x = module.to_tensor(np.arange(12, dtype="float32").reshape(3, 4))
    x.stop_gradient = "_(" in call
    y = eval(call, {"P": module, "I": module.to_tensor, "x": x})  # from a test table
    y = y if hasattr(y, "numpy") else module.to_tensor(y)
    grad = None
    if not y.stop_gradient:
        weight = np.linspace(1, 2, int(np.prod(y.shape))).astype(y.numpy().dtype)
        y.backward(module.to_tensor(weight.reshape(y.shape)))
        grad = None if x.grad is None else x.grad.numpy()
    return y.numpy(), grad


def compare(paddle: Any, call: str) -> None:
    try:
        want, want_grad = run(paddle, call)
    except Exception as e:
        kinds = {AssertionError: ValueError}
        with pytest.raises((kinds.get(type(e), type(e)), bireme.core.errors.InvalidArgument)):
            run(bireme, call)
        return
    got, grad = run(bireme, call)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    assert (grad is None) == (want_grad is None)
    if grad is not None:
        np.testing.assert_allclose(grad, want_grad, rtol=1e-6)
