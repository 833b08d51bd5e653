"""A loaded model's methods as static programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.static import InputSpec


class Net(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return paddle.nn.functional.dropout(self.linear(x), 0.5, training=self.training)

    @paddle.jit.to_static(input_spec=[InputSpec([None, 4], name="z")])
    def twice(self, x: Any) -> Any:
        return self.linear(x) * 2


def test_programs(tmp_path: Path) -> None:
    path = str(tmp_path / "m")
    paddle.jit.save(Net(), path, [InputSpec([None, 4], name="x")])
    loaded: Any = paddle.jit.load(path)
    x = np.random.RandomState(0).randn(5, 4).astype("float32")
    for method, fed in (("forward", "x"), ("twice", "z")):
        program = loaded.program(method)
        assert isinstance(program, static.Program)
        with static.scope_guard(static.Scope()):
            program.set_state_dict(loaded.state_dict())
            (got,) = static.Executor().run(program, {fed: x}, program._fetches)
        want = getattr(loaded, method)(paddle.to_tensor(x))
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-6)
    assert "dropout" not in [op.type for op in loaded.program().global_block().ops]
    loaded.train()
    assert "dropout" in [op.type for op in loaded.program().global_block().ops]
    with pytest.raises(ValueError, match="without missing"):
        loaded.program("missing")
