"""Devices as seen from a machine without an accelerator."""

from __future__ import annotations

import pytest

import bireme
from bireme import device
from bireme.core.errors import BiremeError


def test_what_there_is(paddle):
    for name in (
        "get_device", "get_all_device_type", "get_available_device", "get_all_custom_device_type",
        "get_available_custom_device", "device_count", "is_available", "is_compiled_with_cuda",
        "is_compiled_with_cinn", "is_compiled_with_distribute", "get_cudnn_version",
    ):  # fmt: skip
        assert getattr(device, name)() == getattr(paddle.device, name)(), name
    assert device.cuda.device_count() == 0
    assert not device.is_compiled_with_custom_device("npu")


def test_set_device():
    assert device.set_device("cpu").is_cpu_place()
    assert bireme.get_device() == "cpu"
    assert device.get_device(bireme.to_tensor([1.0])) == -1
    with pytest.raises(ValueError, match=r"no device Place\(gpu:0\).*Received: 'gpu'.*one of: cpu"):
        device.set_device("gpu")
    with pytest.raises(ValueError, match="'gpu:x'"):
        device.set_device("gpu:x")
    assert device.get_device() == "cpu"


def test_device_guard_restores():
    with device.device_guard("cpu"):
        assert device.get_device() == "cpu"
    with pytest.raises(BiremeError), device.device_guard("gpu"):
        pass
    assert device.get_device() == "cpu"


def test_synchronize_runs_what_was_recorded():
    x = bireme.to_tensor([1.0]) + 1.0
    assert x._value.buf is None
    device.synchronize()
    assert x._value.buf is not None


def test_memory_figures_need_an_accelerator():
    for function in (device.memory_allocated, device.max_memory_reserved):
        with pytest.raises(ValueError, match="keeps no memory figures"):
            function()
    for name in ("memory_allocated", "get_device_name", "synchronize"):
        with pytest.raises(ValueError, match="needs a GPU; 0 found"):
            getattr(device.cuda, name)()
    device.empty_cache()


def test_names_of_programs_for_pytorch():
    cuda = bireme.cuda
    count = bireme.device.device_count()
    assert cuda.is_available() == cuda.is_initialized() == (count > 0)
    assert cuda.device_count() == count
    assert cuda.current_device() == 0
    cuda.manual_seed_all(5)
    first = bireme.rand([3]).tolist()
    cuda.manual_seed(5)
    assert bireme.rand([3]).tolist() == first
    with cuda.stream(cuda.current_stream()):
        assert cuda.FloatTensor([1, 2]).dtype is bireme.float32
    cuda.set_device("cpu")
    for call in (lambda: cuda.set_device(0), cuda.mem_get_info):
        with pytest.raises(ValueError, match="accelerator"):
            call()


def test_properties():
    assert device.get_device_properties().name == device.get_device_name()
    with pytest.raises(ValueError, match="only GPUs"):
        device.get_device_capability()
