"""The one way to run a program: what a call does, in which order, and what is left if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest

from bireme.backends import Executable, get_backend
from bireme.capture.capture import capture
from bireme.core import checks, stats
from bireme.core.aval import aval
from bireme.core.dtype import float32, int64
from bireme.core.errors import ExecutionError, OutOfMemory, PositionOutOfRange
from bireme.core.graph import Graph
from bireme.core.place import CPUPlace, CustomPlace
from bireme.core.program import WARM, Program
from bireme.core.value import value_of
from bireme.host import heap
from bireme.nn import functional as F

X = np.arange(6, dtype="float32").reshape(2, 3)


def graph_of(function: Any, *types: Any) -> Graph:
    return capture(lambda xs: function(*xs), list(types), label="test", tape=False).graph


def chain_of(ops: int) -> Graph:
    def work(x: Any) -> Any:
        for _ in range(ops):
            x = x * 1.5
        return x

    # Of types that no other test records: errors name the line that recorded a Call first.
    return graph_of(work, aval((2, 3, 1, 7), float32))


def numbers(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    floats, ints = graph.vectors()
    return np.array(floats, np.float64), np.array(ints, np.int64)


class Recorded(Executable):
    """Says what it is asked, in order."""

    def __init__(self, results: Any, said: list[str]):
        self._results, self._said = results, said
        self.call = self._call

    def _call(self, *arguments: Any) -> list[Any]:
        self._said.append("call")
        if isinstance(self._results, BaseException):
            raise self._results
        return self._results

    def put(self, array: Any) -> Any:
        self._said.append("put")
        return Moved(array)

    def takes(self, buffer: Any) -> bool:
        return isinstance(buffer, Moved | np.ndarray)

    def reserve(self) -> None:
        self._said.append("reserve")

    def wait_for(self, inputs: Any) -> None:
        self._said.append("wait")

    def call_and_wait(self, arguments: Any) -> list[Any]:
        self._said.append("and wait")
        return self.call(*arguments)


class Moved:
    """A buffer of `Recorded`."""

    def __init__(self, array: Any):
        self.array = array


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    heard: list[str] = []
    monkeypatch.setattr(heap, "release", lambda: heard.append("release"))
    monkeypatch.setattr(checks, "starting", [lambda executable: heard.append("starting")])
    return heard


def test_a_call_in_order(said: list[str]) -> None:
    program = Program(chain_of(40), CPUPlace())
    program.executable = Recorded(["result"], said)
    assert program.results(X) == ["result"]
    assert said == ["starting", "wait", "release", "reserve", "call"]
    for _ in range(WARM):
        program.results(X)
    said.clear()
    program.results(X)
    assert said == ["starting", "wait", "reserve", "call"]
    assert program.runs == WARM + 2


def test_a_small_program_is_not_worth_a_release(said: list[str]) -> None:
    program = Program(chain_of(3), CPUPlace())
    program.executable = Recorded(["result"], said)
    program.results(X)
    assert said == ["starting", "wait", "reserve", "call"]


def test_an_unguarded_call_runs_and_nothing_else(said: list[str]) -> None:
    program = Program(chain_of(40), CPUPlace(), guarded=False)
    program.executable = Recorded(["result"], said)
    assert program.results(X) == ["result"]
    assert said == ["starting", "call"]


def test_deliver_takes_the_results_in_one_native_call(said: list[str]) -> None:
    program = Program(chain_of(2), CPUPlace())
    program.executable = Recorded(["a", "b"], said)
    seen: list[Any] = []

    def deliver(runs: Iterator[list[Any]]) -> None:
        assert "call" not in said  # asking the iterator is what runs it
        seen.extend(chain.from_iterable(runs))

    program.call((X,), deliver)
    assert seen == ["a", "b"]


def test_an_error_names_the_operations(said: list[str]) -> None:
    program = Program(chain_of(2), CPUPlace())
    program.executable = Recorded(RuntimeError("the chip is on fire"), said)
    with pytest.raises(ExecutionError, match=r"test_program\.py.*2 ops.*the chip is on fire") as e:
        program.results(X)
    assert isinstance(e.value.__cause__, RuntimeError)
    assert program.runs == 0


@pytest.mark.parametrize("error", [MemoryError("no"), RuntimeError("RESOURCE_EXHAUSTED: 5 bytes")])
def test_no_memory_names_the_largest_result(error: Exception, said: list[str]) -> None:
    program = Program(chain_of(2), CPUPlace())
    program.executable = Recorded(error, said)
    with pytest.raises(
        OutOfMemory, match=r"largest single result is \[multiply\] float32\[2, 3, 1, 7\]"
    ):
        program.results(X)


def test_errors_in_our_words_and_interrupts_stay(said: list[str]) -> None:
    program = Program(chain_of(2), CPUPlace())
    for error in (PositionOutOfRange("7 is too large"), KeyboardInterrupt()):
        program.executable = Recorded(error, said)
        with pytest.raises(type(error)) as caught:
            program.results(X)
        assert caught.value is error


def test_bring_moves_what_stays(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    large, small = np.zeros(1000, "float32"), np.zeros(3, "float32")
    index = np.arange(1000)
    program = Program(chain_of(2), CPUPlace(), donated=(3,))
    program.executable = Recorded([], said)
    values: Any = [value_of(aval(a.shape, float32), a) for a in (large, small, index, large)]
    buffers = [v.buf for v in values]
    program.bring(buffers, values)
    assert [type(b) for b in buffers] == [Moved, np.ndarray, Moved, np.ndarray]
    assert [v.buf for v in values] == buffers
    assert values[2].host is index  # positions are looked at on the host
    program.bring(buffers, values, everything=True)
    assert {type(b) for b in buffers} == {Moved}
    said.clear()
    program.bring(buffers, values, everything=True)
    assert said == []


def test_bring_takes_over_buffers_of_other_backends(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    from bireme.host import config

    monkeypatch.setattr(config, "several_backends", True)
    foreign = get_backend("xla").put(X, CPUPlace())
    program = Program(chain_of(2), CPUPlace())
    program.executable = Recorded([], said)
    value: Any = value_of(aval((2, 3), float32), foreign)
    buffers = [foreign]
    program.bring(buffers, [value])
    assert isinstance(buffers[0], Moved)
    assert value.buf is buffers[0]
    assert type(buffers[0].array) is np.ndarray


LABELS = aval((2,), int64)


def picked(x: Any, label: Any) -> Any:
    return F.cross_entropy(x, label)


@pytest.mark.parametrize("name", ["cpu", "numpy"])
def test_requirements_that_are_watched(name: str) -> None:
    """XLA's programs return evidence, and the reference raises by itself."""
    graph = graph_of(picked, aval((2, 3), float32), LABELS)
    where = CPUPlace() if name == "cpu" else CustomPlace(name)
    program = Program(graph, where, donated=(0,), watched=(0,))
    assert (program.fallible, program.donated) == (True, ())
    with stats.count_compiles() as compiles:
        program.compile()
    assert compiles == [1]
    arguments = [*numbers(graph), X]
    (loss,) = program.results(*arguments, np.array([0, 2]))
    assert np.asarray(loss).shape == ()
    with pytest.raises(PositionOutOfRange, match="holds 7"):
        program.results(*arguments, np.array([0, 7]))
    assert program.runs == 1


def test_fixed_inputs() -> None:
    graph = graph_of(lambda x, y: x * y, aval((2, 3), float32), aval((2, 3), float32))
    program = Program(graph, CPUPlace(), fixed={0: X}, guarded=False)
    with stats.count_compiles() as compiles:
        program.compile_uncounted()
    assert compiles == [0]
    (out,) = program.results(X + 1)
    np.testing.assert_array_equal(np.asarray(out), X * (X + 1))
