"""Streams and events on the CPU, where they mean the same as on a GPU."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import bireme
from bireme import device
from bireme.core.place import CPUPlace


def test_events_know_when_work_is_done(monkeypatch):
    from bireme.host import config

    monkeypatch.setattr(config, "compile_mode", "always")
    x = bireme.to_tensor(np.ones((600, 600), "float32"))
    y = x
    for _ in range(30):
        y = bireme.matmul(y, x) * 1e-3
    event = device.Event()
    event.record()
    event.synchronize()
    assert event.query()
    assert y._value.buf is not None  # recording an event submits what was recorded
    assert y._value.buf.is_ready()
    assert device.current_stream().query()


def test_timing():
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    start.record()
    time.sleep(0.02)
    end.record()
    assert 15 < start.elapsed_time(end) < 2000
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(device.Event())


def test_streams():
    first = device.current_stream()
    assert device.current_stream("cpu") is first
    other = device.Stream("cpu")
    event = other.record_event()
    assert event.query()
    first.wait_event(event)
    first.wait_stream(other)
    other.synchronize()
    assert device.set_stream(other) is first
    assert device.current_stream() is other
    device.set_stream(first)
    with device.stream_guard(other):
        assert device.current_stream() is other
        value = bireme.ones([2]) + 1
    assert device.current_stream() is first
    assert value.tolist() == [2, 2]
    with device.StreamContext(None):
        assert device.current_stream() is first
    seen = []
    thread = threading.Thread(target=lambda: seen.append(device.current_stream() is first))
    thread.start()
    thread.join()
    assert seen == [False]  # every thread has its own
    assert "Stream device=Place(cpu)" in repr(first)
    assert "Place(cpu)" in repr(event)


def test_refused():
    with pytest.raises(ValueError, match="priority"):
        device.Stream(priority=1)
    with pytest.raises(TypeError, match="other libraries"):
        device.Stream(stream_base=1)
    with pytest.raises(TypeError, match="takes a Stream"):
        device.set_stream("cpu")
    with pytest.raises(ValueError, match="other processes"):
        device.Event(interprocess=True)
    for call in (device.cuda.current_stream, device.cuda.memory_summary):
        with pytest.raises(ValueError, match="needs a GPU"):
            call()


def test_custom_devices():
    custom = device.custom_device
    assert custom.device_count() == 0
    assert custom.device_count("no_such_chip") == 0
    for name in ("synchronize", "current_stream", "memory_allocated", "get_device_properties"):
        with pytest.raises(ValueError, match=f"{name}.*plug-in's device; found: none"):
            getattr(custom, name)()
    custom.empty_cache()
    assert not device.is_compiled_with_ipu()


def test_rng_state_of_a_device():
    state = device.get_rng_state()
    first = bireme.rand([3]).tolist()
    device.set_rng_state(state)
    assert bireme.rand([3]).tolist() == first
    device.set_rng_state(state[0])
    assert bireme.rand([3]).tolist() == first
    assert device.FloatTensor([1, 2]).dtype is bireme.float32


def test_a_seed_by_the_name_of_the_device_module():
    assert device.manual_seed(11) is None
    first = bireme.rand([4]).numpy()
    bireme.seed(11)
    np.testing.assert_array_equal(bireme.rand([4]).numpy(), first)


def test_device_as_a_context():
    for where in ("cpu", CPUPlace(), None, -1):
        with device.device(where):
            assert bireme.ones([1]).place == CPUPlace()
