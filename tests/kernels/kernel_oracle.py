"""Native kernels against plain lowerings in float64: what the tests of this folder share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings

import bireme as paddle
from bireme.core import executor, kernels
from bireme.host import config
from bireme.kernels import native

MARKS = [
    pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning"),
]


def many(count):
    # Without shrinking: an example costs a compilation, and thousands would be tried.
    return settings(
        max_examples=count, deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "always")


def gradients(function, arrays):
    tensors = [paddle.to_tensor(a, stop_gradient=False) for a in arrays]
    outs = function(*tensors)
    outs = list(outs) if isinstance(outs, list | tuple) else [outs]
    total = sum([(o * paddle.cos(o)).sum() for o in outs[1:]], (outs[0] * outs[0]).sum())
    total.backward()
    return [o.numpy() for o in outs] + [t.grad.numpy() for t in tensors]


def assert_kernel_equals_plain(name, function, arrays, rtol=2e-4):
    executor.clear_programs()
    before = kernels.uses[name]
    fast = gradients(function, arrays)
    assert kernels.uses[name] >= before + 2, "the kernel was not used"
    # The NumPy tier compiles nothing, and most plain rules have a body there.
    with kernels.disabled(name), pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "compile_mode", "never")
        plain = gradients(function, [a.astype(np.float64) for a in arrays])
    for a, b in zip(fast, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol / 10 * max(1.0, np.abs(b).max()))
