"""paddle.device.xpu on a machine without such a chip."""

from __future__ import annotations

import pytest

import bireme
from bireme import inference


def test_none_is_there() -> None:
    assert bireme.device.xpu.device_count() == 0
    assert bireme.static.xpu_places() == []
    assert str(bireme.device.XPUPlace(1)) == "Place(xpu:1)"
    with pytest.raises(ValueError, match=r"needs a plug-in's device; found: none"):
        bireme.device.xpu.memory_allocated()
    with pytest.raises(ValueError, match="xpu"):
        bireme.nn.Linear(1, 1).xpu()


def test_what_a_predictor_does_not_use() -> None:
    config = inference.Config()
    assert not config.tensorrt_dla_enabled()
    assert not config.trt_allow_build_at_runtime()
    assert not config.onednn_int8_enabled()
