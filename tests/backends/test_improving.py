"""Programs that are compiled quickly first and replaced by better ones while they run."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.backends import improving, xla_backend
from bireme.core import kernels, trace
from bireme.core.graph import Graph
from bireme.core.place import CPUPlace
from bireme.core.program import Program
from bireme.host import cache_folder, config, jax_door, thresholds
from bireme.kernels import install


def graph_of(result) -> Graph:
    recorded = trace.state.trace
    leaves = [v.aval for v in recorded.leaves]
    graph = Graph.from_code(recorded.code, leaves, [result._value.slot])
    trace.flush()
    return graph


@pytest.fixture
def eager_search(monkeypatch):
    """A search begins with the second run."""
    monkeypatch.setattr(thresholds, "SEARCHED_RUNS", 2)
    monkeypatch.setattr(thresholds, "SEARCHED_SECONDS", 0.0)


def test_a_search_begins_after_many_runs_and_some_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(improving.time, "monotonic", lambda: now[0])
    made = improving.Improvement(lambda: "best")
    for _ in range(3 * thresholds.SEARCHED_RUNS):
        assert made.after_run() is None
    assert made._future is None  # it ran often, but for no time
    now[0] += thresholds.SEARCHED_SECONDS
    made.after_run()
    assert made.result() == "best"
    assert made.after_run() == "best"


def test_few_runs_are_never_searched_for():
    made = improving.Improvement(lambda: pytest.fail("searched"))
    for _ in range(thresholds.SEARCHED_RUNS - 1):
        assert made.after_run() is None
    assert made._future is None


def quick_program(monkeypatch, compile_best):
    """A program on the CPU that was compiled as on a GPU."""
    x = paddle.to_tensor(np.arange(6, dtype="float32"))
    graph = graph_of(x * 2.0 + 1.0)
    made = []

    def compiled(lowered, platform, options, quick):
        quick = lowered.compile()
        made.append(lowered)
        return quick, improving.Improvement(lambda: compile_best(lowered))

    monkeypatch.setattr(xla_backend, "_compiled", compiled)
    program = Program(graph, CPUPlace())
    program.compile()
    return program


def run(program) -> list[float]:
    arguments = (np.array([2.0, 1.0]), np.zeros(0, np.int64), np.arange(6, dtype="float32"))
    return np.asarray(program.results(*arguments)[0]).tolist()


def test_the_better_program_takes_over_between_two_runs(monkeypatch, eager_search):
    program = quick_program(monkeypatch, lambda lowered: lowered.compile())
    expected = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
    quick = program.executable.compiled
    assert [run(program) for _ in range(3)] == [expected] * 3
    program.improve(wait=True)
    assert program.executable.compiled is not quick
    assert program.executable.improvement is None
    assert run(program) == expected


def test_a_search_that_fails_leaves_the_quick_program(monkeypatch, eager_search):
    def fail(lowered):
        raise RuntimeError("no kernel")

    program = quick_program(monkeypatch, fail)
    quick = program.executable.compiled
    run(program)
    program.improve(wait=True)
    assert run(program)[0] == 1.0
    assert program.executable.compiled is quick
    assert program.executable.improvement is None


def options_of(result) -> dict:
    nodes = graph_of(result).needed()
    install()
    chosen = Counter()
    for node in nodes:
        kernel = kernels.choose(node.call, "gpu")
        if kernel is not None:
            chosen[kernel.op, kernel.name] += 1
    return xla_backend.quick_options(nodes, chosen)


def test_how_a_quick_program_is_compiled():
    x = paddle.ones([1, 2, 6, 6])
    windows, patches = nn.Conv2D(2, 3, 3), nn.Conv2D(2, 3, 3, 3)
    assert options_of(x.reshape([6, 12]) @ x.reshape([12, 6])) == xla_backend._WITHOUT_SEARCH
    assert options_of(patches(x)) == xla_backend._WITHOUT_SEARCH
    assert options_of(windows(x)) == xla_backend._RECOMMENDED
    assert options_of(patches(windows(x).sum(1, keepdim=True).expand([1, 2, 4, 4]))) == (
        xla_backend._RECOMMENDED
    )

    def attended(times: int):
        rows = windows(x).reshape([1, 6, 1, 8])
        for _ in range(times):
            rows = nn.functional.scaled_dot_product_attention(rows, rows, rows)
        return rows

    assert options_of(attended(1)) == xla_backend._RECOMMENDED
    assert options_of(attended(2)) == xla_backend._SEARCH_CONVOLUTIONS


def test_only_what_is_on_disk_is_compiled(tmp_path):
    """JAX asks the cache in the middle of a compilation, and takes ordinary exceptions for none."""
    programs = cache_folder.Programs(str(tmp_path))
    with pytest.raises(cache_folder.NotCached), cache_folder.cached_only():
        programs.get("key")
    assert programs.get("key") is None
    assert not isinstance(cache_folder.NotCached(), Exception)
    programs.put("key", b"program")
    with cache_folder.cached_only():
        assert programs.get("key") == b"program"


@pytest.mark.parametrize("cached", [False, True])
def test_a_program_of_an_earlier_process_needs_no_quick_one(monkeypatch, cached):
    compiled = []

    class Lowered:
        def compile(self, compiler_options):
            if not compiler_options and not cached:
                raise cache_folder.NotCached
            compiled.append(compiler_options)
            return "program"

    monkeypatch.setattr(config, "compile_mode", "auto")
    monkeypatch.setattr(jax_door, "keeps_programs", lambda: True)
    program, improvement = xla_backend._compiled(Lowered(), "gpu", {}, {"quick": True})
    assert program == "program"
    assert compiled == ([{}] if cached else [{"quick": True}])
    assert (improvement is None) == cached


def test_small_programs_of_other_devices_begin_on_the_host(monkeypatch):
    monkeypatch.setattr(CPUPlace, "is_cpu_place", lambda self: False)
    small = paddle.ones([4, 4])
    graph = graph_of(small @ small + 1.0)
    assert Program(graph, CPUPlace()).begins_on_host()
    large = paddle.ones([2048, 1024])
    graph = graph_of(paddle.matmul(large, large, transpose_y=True))
    assert not Program(graph, CPUPlace()).begins_on_host()
