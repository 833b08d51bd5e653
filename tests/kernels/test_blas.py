"""NumPy's matrix library has one thread while the cold tier runs, and its own number afterwards."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import bireme as paddle
from bireme.host import config
from bireme.kernels import blas

counts = blas._counts()
pytestmark = pytest.mark.skipif(counts is None, reason="NumPy has another matrix library here")


@pytest.fixture
def two_threads():
    get, put = counts  # type: ignore[misc]
    before = get()
    put(2)
    yield get
    put(before)


def test_one_thread_inside_and_the_process_as_before(two_threads, monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "never")
    seen = []
    real = np.matmul
    monkeypatch.setattr(
        np, "matmul", lambda *a, **k: (seen.append(two_threads()), real(*a, **k))[1]
    )
    paddle.matmul(paddle.ones([3, 4]), paddle.ones([4, 3])).numpy()
    assert set(seen) == {1}
    assert two_threads() == 2
    with pytest.raises(ValueError, match="out"), blas.alone():
        raise ValueError("out")
    assert two_threads() == 2


def test_the_last_of_several_threads_restores(two_threads):
    first_in, second_out = threading.Event(), threading.Event()

    def other() -> None:
        with blas.alone():
            first_in.set()
            second_out.wait()

    thread = threading.Thread(target=other)
    thread.start()
    first_in.wait()
    with blas.alone():
        pass
    assert two_threads() == 1
    second_out.set()
    thread.join()
    assert two_threads() == 2


def test_another_matrix_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(blas, "_counts", lambda: None)
    with blas.alone():
        assert float(np.dot([1.0], [2.0])) == 2.0
