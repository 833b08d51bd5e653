"""Helpers below fleet that models written for Paddle use, in one process."""

from __future__ import annotations

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import InvalidArgument


def test_sequences_stay_whole() -> None:
    from bireme.distributed.fleet.layers.mpu.mp_ops import _c_concat, _c_identity
    from bireme.distributed.fleet.utils.sequence_parallel_utils import (
        ColumnSequenceParallelLinear,
        GatherOp,
        RowSequenceParallelLinear,
        ScatterOp,
        is_sequence_parallel_parameter,
        mark_as_sequence_parallel_parameter,
    )

    column = ColumnSequenceParallelLinear(4, 8, has_bias=True, gather_output=False)
    row = RowSequenceParallelLinear(8, 4, has_bias=True, input_is_parallel=True)
    mark_as_sequence_parallel_parameter(row.bias)
    assert is_sequence_parallel_parameter(row.bias)
    assert not is_sequence_parallel_parameter(row.weight)
    x = paddle.randn([6, 4])
    y = GatherOp.apply(row(column(ScatterOp.apply(_c_identity(x)))))
    expected = (x @ column.weight + column.bias) @ row.weight + row.bias
    np.testing.assert_allclose(_c_concat(y).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_gradients_are_summed_in_float32() -> None:
    from bireme.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients
    from bireme.distributed.fleet.utils.mix_precision_utils import (
        MixPrecisionLayer,
        MixPrecisionOptimizer,
    )

    layer = paddle.nn.Linear(3, 2).bfloat16()
    layer.weight.set_value(np.ones((3, 2), "float32"))
    model = MixPrecisionLayer(layer, "bfloat16")
    inner = paddle.optimizer.SGD(0.1, parameters=layer.parameters(), multi_precision=True)
    rule = MixPrecisionOptimizer(inner)
    for _ in range(2):
        model(paddle.ones([1, 3], "bfloat16")).sum().backward()
    fused_allreduce_gradients(layer.parameters(), None)
    assert layer.weight.main_grad.dtype is paddle.float32
    np.testing.assert_array_equal(layer.weight.main_grad.numpy(), np.full((3, 2), 2))
    layer.weight.main_grad = layer.weight.main_grad * 0 + 1.2345678
    rule.step()
    (kept,) = [v for k, v in inner.state_dict()["master_weights"].items() if k.endswith("w_0")]
    np.testing.assert_allclose(kept.numpy(), np.full((3, 2), 1 - 0.12345678), rtol=1e-6)
    rule.clear_grad()
    assert float(layer.weight.main_grad.abs().max()) == 0


def test_stopwatches(capsys: pytest.CaptureFixture[str]) -> None:
    from bireme.distributed.fleet.utils.timer_helper import Timers

    timers = Timers()
    timers("forward").start()
    with pytest.raises(InvalidArgument, match="started already"):
        timers("forward").start()
    timers("forward").stop()
    assert timers("forward").elapsed(reset=False) > 0
    timers.log(["forward"])
    assert "| forward:" in capsys.readouterr().out
    assert timers("forward").elapsed() == 0
