"""Recurrent layers with lengths, and pooling windows that are too large, in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from bireme import nn
from bireme.nn import functional as F
from bireme.static import InputSpec
from tests.convert.test_onnx_export import check, data


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.SimpleRNN])
def test_recurrent_layers_with_lengths(tmp_path, kind) -> None:
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.net = kind(5, 7, num_layers=2, direction="bidirect", dropout=0.3)

        def forward(self, x, lengths):
            out, state = self.net(x, sequence_length=lengths)
            return (out, *state) if isinstance(state, tuple) else (out, state)

    batches = [(data(b, t, 5), np.arange(1, b + 1)) for b, t in ((3, 6), (2, 4))]
    check(Net(), [InputSpec([None, None, 5]), InputSpec([None], "int64")], batches, tmp_path)


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_a_window_that_is_cut_off(tmp_path, pool) -> None:
    spec = InputSpec([None, 3, 1, 5])
    check(lambda x: pool(x, 2), [spec], [(data(n, 3, 1, 5),) for n in (1, 2)], tmp_path)


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_open_sizes_that_windows_fit_into(tmp_path, pool) -> None:
    spec = InputSpec([None, 3, None, None])
    sizes = [(1, 3, 4, 6), (2, 3, 5, 9)]
    check(lambda x: pool(x, 2), [spec], [(data(*size),) for size in sizes], tmp_path)
