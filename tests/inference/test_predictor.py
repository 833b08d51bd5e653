"""Predictors: handles, engines, shapes, threads, saved graphs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import bireme
from bireme import inference, nn
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.host import config as settings
from bireme.inference import auto, sized
from bireme.inference.engines import BUILT_IN, EngineUnavailable, XlaEngine
from bireme.inference.predictor import UnknownHandle
from tests.convert.paddle.real import agree, run_files, run_predictor, small_net


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What jit.save writes: a small image net with open batch, height and width."""
    bireme.seed(3)
    layer = nn.Sequential(
        nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8), nn.ReLU(),
        nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    layer.train()
    layer(bireme.randn([4, 3, 8, 8]))
    layer.eval()
    path = tmp_path_factory.mktemp("net") / "net"
    spec = bireme.static.InputSpec([None, 3, None, None], "float32", "image")
    bireme.jit.save(layer, str(path), [spec])
    return path


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def expected(net: Path, x: np.ndarray) -> np.ndarray:
    with bireme.no_grad():
        return bireme.jit.load(str(net))(bireme.to_tensor(x)).numpy()


@pytest.fixture(scope="module")
def predictor(net: Path) -> inference.Predictor:
    return inference.create_predictor(inference.Config(str(net)))


def test_handles(net: Path, predictor: inference.Predictor) -> None:
    assert predictor.get_input_names() == ["image"]
    assert predictor.get_output_names() == ["output_0"]
    handle = predictor.get_input_handle("image")
    assert handle.shape() == [0]
    assert handle.type() is inference.DataType.FLOAT32
    x = image(2, 3, 8, 8)
    handle.copy_from_cpu(x)
    assert handle.shape() == [2, 3, 8, 8]
    x[:] = 0  # the handle has a copy
    assert predictor.run() is None
    result = predictor.get_output_handle("output_0")
    assert result.shape() == [2, 5]
    assert result.type() is inference.DataType.FLOAT32
    np.testing.assert_allclose(
        result.copy_to_cpu(), expected(net, image(2, 3, 8, 8)), rtol=1e-5, atol=1e-5
    )
    assert result.lod() == []


def test_large_weights_are_shared_by_programs(tmp_path: Path) -> None:
    """A program has the small ones within it; what all shapes need is there once."""
    width = BUILT_IN // 4 // 128
    layer = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64), nn.ReLU())
    spec = bireme.static.InputSpec([None, 64], "float32", "x")
    bireme.jit.save(layer, str(tmp_path / "net"), [spec])
    predictor = inference.create_predictor(inference.Config(str(tmp_path / "net")))
    x = image(2, 64)
    (out,) = predictor.run([bireme.to_tensor(x)]) or []
    np.testing.assert_allclose(out.numpy(), layer(bireme.to_tensor(x)).numpy(), 1e-4, 1e-5)
    engine: Any = predictor._shared.engine([x])
    assert isinstance(engine, XlaEngine)
    assert sum(w.nbytes for w in engine._fixed.values()) <= BUILT_IN
    assert len(engine._weights) == 1, "with both the limit would be passed"


def test_run_with_tensors(net: Path, predictor: inference.Predictor) -> None:
    (out,) = predictor.run([bireme.to_tensor(image(1, 3, 8, 8))]) or []
    np.testing.assert_allclose(out.numpy(), expected(net, image(1, 3, 8, 8)), rtol=1e-5, atol=1e-5)


def test_clear_errors(predictor: inference.Predictor) -> None:
    fresh = predictor.clone()
    with pytest.raises(UnknownHandle, match=r"no input 'x'\. There are: image"):
        fresh.get_input_handle("x")
    with pytest.raises(RuntimeError):  # what Paddle raises
        fresh.get_output_handle("x")
    with pytest.raises(InvalidArgument, match="'image' is not set"):
        fresh.run()
    handle = fresh.get_input_handle("image")
    with pytest.raises(TypeMismatch, match=r"astype\('float32'\)"):
        handle.copy_from_cpu(np.zeros((1, 3, 8, 8)))
    with pytest.raises(TypeMismatch, match="NumPy array"):
        handle.copy_from_cpu([1.0])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"\[1, 4, 8, 8\]"):
        handle.copy_from_cpu(image(1, 4, 8, 8))
    with pytest.raises(RuntimeError, match=r"call predictor\.run"):
        fresh.get_output_handle("output_0").copy_to_cpu()
    with pytest.raises(InvalidArgument, match="Config"):
        inference.create_predictor("path")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no model at"):
        inference.create_predictor(inference.Config("/nowhere"))


def test_compiled_programs_are_bounded(net: Path) -> None:
    config = inference.Config(str(net))
    config.set_mkldnn_cache_capacity(2)
    predictor = inference.create_predictor(config)
    for side in (4, 5, 6, 4):
        x = image(1, 3, side, side)
        (out,) = run_predictor(predictor, {"image": x})
        np.testing.assert_allclose(out, expected(net, x), rtol=1e-5, atol=1e-5)
    ((prepared, engine),) = predictor._shared.engines.values()
    assert len(engine._programs) == 2  # type: ignore[attr-defined]
    assert engine.compiled == 4, "4x4 had been dropped"  # type: ignore[attr-defined]
    run_predictor(predictor, {"image": image(1, 3, 6, 6)})
    assert engine.compiled == 4  # type: ignore[attr-defined]
    assert predictor.try_shrink_memory() == 1
    assert not engine._programs  # type: ignore[attr-defined]
    assert len(prepared.types) == 1


def test_threads_share_a_model(net: Path) -> None:
    pool = inference.PredictorPool(inference.Config(str(net)), 3)
    wrong: list[int] = []

    def serve(k: int) -> None:
        mine = pool.retrieve(k)
        x = image(k + 1, 3, 8, 8)
        want = expected(net, x)
        for _ in range(5):
            (out,) = run_predictor(mine, {"image": x})
            if not np.allclose(out, want, rtol=1e-5, atol=1e-5):
                wrong.append(k)

    threads = [threading.Thread(target=serve, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert pool.retrieve(0)._shared is pool.retrieve(2)._shared
    with pytest.raises(InvalidArgument, match="0 to 2"):
        pool.retrieve(3)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_other_engines(net: Path, engine: str) -> None:
    if find_spec(engine) is None:  # not imported here: the engine knows how (no telemetry)
        pytest.skip(f"needs {engine}")
    config = inference.Config(str(net))
    config.set_engine(engine)
    predictor = inference.create_predictor(config)
    for side in (8, 5):
        x = image(2, 3, side, side)
        (out,) = run_predictor(predictor, {"image": x})
        np.testing.assert_allclose(out, expected(net, x), rtol=1e-4, atol=1e-5)
    assert predictor.engine_name() == engine


def other_engine(net: Path, engine: str) -> inference.Predictor:
    if find_spec(engine) is None:
        pytest.skip(f"needs {engine}")
    config = inference.Config(str(net))
    config.set_engine(engine)
    return inference.create_predictor(config)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_the_first_sizes_have_engines_of_their_own(tmp_path: Path, engine: str) -> None:
    layer = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    spec = bireme.static.InputSpec([None, 4], "float32", "x")
    bireme.jit.save(layer, str(tmp_path / "net"), [spec])
    predictor = other_engine(tmp_path / "net", engine)

    def agrees(rows: int) -> None:
        x = image(rows, 4)
        (out,) = run_predictor(predictor, {"x": x})
        np.testing.assert_allclose(out, layer(bireme.to_tensor(x)).numpy(), rtol=1e-4, atol=1e-5)

    for _ in range(2):  # the second time all of them are there
        for rows in range(1, sized.OWN_SIZES + 3):
            agrees(rows)
    ((_, made),) = predictor._shared.engines.values()
    assert isinstance(made, sized.SizedEngine)
    assert len(made._sized) == sized.OWN_SIZES
    assert made._open is not None
    predictor.try_shrink_memory()
    assert not made._sized
    agrees(2)


def test_sizes_that_no_one_engine_takes(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every size has its own then, as many as are kept compiled."""
    predictor = other_engine(net, "onnxruntime")
    predictor._shared.options.set_mkldnn_cache_capacity(5)
    run_predictor(predictor, {"image": image(1, 3, 4, 4)})
    ((_, made),) = predictor._shared.engines.values()
    assert isinstance(made, sized.SizedEngine)
    kind = made._kind

    def only_static(prepared: Any, options: Any) -> Any:
        if not all(t.is_static for t in prepared.types):
            raise EngineUnavailable("open sizes")
        return kind(prepared, options)

    monkeypatch.setattr(made, "_kind", only_static)
    for side in range(4, 12):
        x = image(1, 3, side, side)
        (out,) = run_predictor(predictor, {"image": x})
        np.testing.assert_allclose(out, expected(net, x), rtol=1e-4, atol=1e-5)
    assert [t[0].shape[-1] for t, _ in made._sized.items()] == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("engine", ["xla", "onnxruntime", "openvino"])
def test_results_stay_until_the_next_run(net: Path, engine: str) -> None:
    first = inference.create_predictor(inference.Config(str(net)))
    if engine != "xla":
        first = other_engine(net, engine)
    second = first.clone()
    x, y = image(2, 3, 8, 8), image(2, 3, 8, 8)[::-1]
    first.get_input_handle("image").copy_from_cpu(x)
    first.run()
    second.get_input_handle("image").share_external_data(y)  # not contiguous
    second.run()
    for predictor, given in ((first, x), (second, y)):
        out = predictor.get_output_handle("output_0").copy_to_cpu()
        np.testing.assert_allclose(out, expected(net, given), rtol=1e-4, atol=1e-5)
    (tensor,) = first.run([bireme.to_tensor(x)]) or []
    kept = first.get_output_handle("output_0").copy_to_cpu()
    first.run([bireme.to_tensor(np.ascontiguousarray(y))])
    np.testing.assert_array_equal(tensor.numpy(), kept)


def test_openvino_reads_the_handle_s_own_array(net: Path) -> None:
    predictor = other_engine(net, "openvino")
    handle, results = predictor.get_input_handle("image"), []
    arrays = []
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((2, 3, 8, 8)).astype(np.float32)
        handle.copy_from_cpu(x)
        predictor.run()
        arrays.append(id(handle._array))
        results.append(predictor.get_output_handle("output_0").copy_to_cpu())
        np.testing.assert_allclose(results[-1], expected(net, x), rtol=1e-4, atol=1e-5)
    assert len(set(arrays)) == 1  # nobody else holds it, so it is written again
    assert not np.array_equal(results[0], results[1])


def _by_length(runners: Any, arrays: Any) -> tuple[dict[str, float], bool]:
    """A race that the shortest name wins."""
    return {n: float(len(n)) for n in runners}, True


def test_auto_remembers(net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = inference.Config(str(net))
    config.set_engine("auto")
    config.set_optim_cache_dir(str(tmp_path))
    x = {"image": image(1, 3, 8, 8)}
    first = inference.create_predictor(config)
    (out,) = run_predictor(first, x)
    np.testing.assert_allclose(out, expected(net, x["image"]), rtol=1e-4, atol=1e-5)
    ((key, kept),) = json.loads((tmp_path / "engines.json").read_text()).items()
    chosen = first.engine_name()
    assert kept.removeprefix("?") == chosen  # the machine may have been unsteady
    (tmp_path / "engines.json").write_text(json.dumps({key: chosen}))
    monkeypatch.setattr(auto, "_race", lambda *a: pytest.fail("it was measured again"))
    second = inference.create_predictor(config)
    run_predictor(second, x)
    assert second.engine_name() == chosen
    (tmp_path / "engines.json").write_text("damaged")
    monkeypatch.setattr(auto, "_race", _by_length)
    third = inference.create_predictor(config)
    run_predictor(third, x)
    assert third.engine_name() == "xla"  # the shortest name


def test_auto_remembers_nothing_in_the_current_folder(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(settings, "cache_dir", "")
    monkeypatch.setattr(auto, "_race", _by_length)
    (tmp_path / "engines.json").write_text("not ours")
    config = inference.Config(str(net))
    config.set_engine("auto")
    run_predictor(inference.create_predictor(config), {"image": image(1, 3, 8, 8)})
    assert (tmp_path / "engines.json").read_text() == "not ours"


@pytest.mark.parametrize(
    ("second", "turns"),
    [
        (1.03, [3 * auto.ROUNDS, 3 * auto.ROUNDS, 2]),  # a near tie
        (1.2, [auto.ROUNDS, auto.ROUNDS, 2]),
        (2.0, [2, 2, 2]),  # nobody else is in the race after two rounds
    ],
)
def test_near_ties_take_more_turns(
    monkeypatch: pytest.MonkeyPatch, second: float, turns: list[int]
) -> None:
    asked = []

    def measure(run: Any, arrays: Any) -> float:
        asked.append(run)
        return {"a": 1.0, "b": second, "c": 9.0}[run] * (1.5 if len(asked) < 3 else 1)

    monkeypatch.setattr(auto, "_measure", measure)
    monkeypatch.setattr(auto, "_others_seconds", lambda: 0.0)
    times, _ = auto._race(cast(Any, {n: n for n in "abc"}), [])
    assert [asked.count(n) for n in "abc"] == turns
    assert min(times, key=lambda n: times[n]) == "a"
    assert auto._race(cast(Any, {"c": "c"}), []) == ({"c": 9.0}, True)  # alone


@pytest.mark.parametrize(
    ("every", "others", "steady"), [(2, 0.0, False), (4, 0.0, True), (4, 30.0, False)]
)
def test_a_race_knows_whether_the_machine_was_steady(
    monkeypatch: pytest.MonkeyPatch, every: int, others: float, steady: bool
) -> None:
    """Every so many turns of an engine it takes half as long as usual, or twice as long; others
    use so many seconds meanwhile."""
    seconds = iter([5.0, 5.0 + others])
    monkeypatch.setattr(auto, "_others_seconds", lambda: next(seconds))
    asked: list[str] = []

    def measure(run: Any, arrays: Any) -> float:
        asked.append(run)
        rare = asked.count(run) % every == 0
        return {"a": 1.0, "b": 1.2}[run] * ((2.0 if every > 2 else 0.5) if rare else 1.0)

    monkeypatch.setattr(auto, "_measure", measure)
    times, found = auto._race(cast(Any, {"a": "a", "b": "b"}), [])
    assert times["b"] == pytest.approx(1.2 * times["a"])
    assert found is steady


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not tell")
def test_work_of_others_is_seen() -> None:
    start = auto._others_seconds()
    work = "import time\nwhile time.process_time() < 1: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    assert auto._others_seconds() - start > 0.9


def test_an_unsteady_race_must_be_won_twice(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [("xla", False), ("onnxruntime", False), ("xla", False), ("xla", False)]

    def race(runners: Any, arrays: Any) -> tuple[dict[str, float], bool]:
        winner, steady = results.pop(0)
        return {n: 1.0 if n == winner else 2.0 for n in runners}, steady

    monkeypatch.setattr(auto, "_race", race)
    config = inference.Config(str(net))
    config.set_engine("auto")
    config.set_optim_cache_dir(str(tmp_path))
    used, kept = [], []
    for _ in range(5):
        predictor = inference.create_predictor(config)
        run_predictor(predictor, {"image": image(1, 3, 8, 8)})
        used.append(predictor.engine_name())
        kept += json.loads((tmp_path / "engines.json").read_text()).values()
    assert used == ["xla", "onnxruntime", "xla", "xla", "xla"]
    assert kept == ["?xla", "?onnxruntime", "?xla", "xla", "xla"]
    assert not results


def test_engines_are_compared_within_rounds() -> None:
    """The machine is half as fast for a while, from the middle of the second round on."""
    slow = {"a": 2.0, "b": 2.1}
    rounds = [{"a": 1.0, "b": 1.05, "c": 3.0}, {"a": 2.0, "b": 1.05, "c": 3.0}, slow, slow, slow]
    times = auto._compared(rounds)
    assert times["a"] == pytest.approx(2.0)
    assert times["b"] == pytest.approx(2.1)
    assert times["c"] > 4


def test_engines_that_lose_are_given_back(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their threads and weights would go on costing the one that runs."""
    made: list[weakref.ref[Any]] = []

    def create(*given: Any) -> Any:
        engine = sized.create_engine(*given)
        made.append(weakref.ref(engine))
        return engine

    monkeypatch.setattr(auto, "create_engine", create)
    monkeypatch.setattr(auto, "_race", _by_length)
    config = inference.Config(str(net))
    config.set_engine("auto")
    config.set_optim_cache_dir(str(tmp_path))
    predictor = inference.create_predictor(config)
    run_predictor(predictor, {"image": image(1, 3, 8, 8)})
    assert [e.name for r in made if (e := r()) is not None] == [predictor.engine_name()]
    assert len(made) > 1


def test_an_engine_that_is_missing(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openvino", None)
    config = inference.Config(str(net))
    config.enable_openvino_engine()
    predictor = inference.create_predictor(config)
    predictor.get_input_handle("image").copy_from_cpu(image(1, 3, 8, 8))
    with pytest.raises(EngineUnavailable, match=r"pip install 'bireme\[openvino\]'"):
        predictor.run()


def test_passes_fold_the_norm(net: Path) -> None:
    def ops(config: inference.Config) -> list[str]:
        predictor = inference.create_predictor(config)
        x = image(1, 3, 8, 8)
        (out,) = run_predictor(predictor, {"image": x})
        np.testing.assert_allclose(out, expected(net, x), rtol=1e-5, atol=1e-5)
        (graph,) = predictor._shared.net._graphs.values()
        return [n.call.op.name for n in graph.graph.nodes]

    assert "batch_norm" not in ops(inference.Config(str(net)))
    plain = inference.Config(str(net))
    plain.switch_ir_optim(False)
    assert "batch_norm" in ops(plain)
    without = inference.Config(str(net))
    without.delete_pass("conv_bn_fuse_pass")  # Paddle's name for it
    assert "batch_norm" in ops(without)


@pytest.mark.parametrize("kind", ["Bfloat16", "Half"])
def test_low_precision(net: Path, kind: str) -> None:
    config = inference.Config(str(net))
    config._set_precision(getattr(inference.PrecisionType, kind))
    predictor = inference.create_predictor(config)
    x = image(2, 3, 8, 8)
    (out,) = run_predictor(predictor, {"image": x})
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected(net, x), atol=0.05)
    assert np.abs(out - expected(net, x)).max() > 0


def test_optimized_models(net: Path, tmp_path: Path) -> None:
    config = inference.Config(str(net))
    config.set_optim_cache_dir(str(tmp_path))
    config.enable_save_optim_model(True)
    config.switch_ir_debug(True)
    x = {"image": image(1, 3, 8, 8)}
    (first,) = run_predictor(inference.create_predictor(config), x)
    assert (tmp_path / "_optimized.json").exists()
    assert "batch_norm" in (tmp_path / "0_fold_constants.txt").read_text()
    assert "batch_norm" not in (tmp_path / "1_fold_affine.txt").read_text()
    again = inference.Config(str(net))
    again.set_optim_cache_dir(str(tmp_path))
    again.use_optimized_model(True)
    again.switch_ir_optim(False)
    predictor = inference.create_predictor(again)
    assert predictor.get_output_names() == ["output_0"]
    (second,) = run_predictor(predictor, x)
    np.testing.assert_allclose(second, first, rtol=1e-6)
    (graph,) = predictor._shared.net._graphs.values()
    assert "batch_norm" not in [n.call.op.name for n in graph.graph.nodes]


def test_shapes_profile_and_warm_up(net: Path, tmp_path: Path) -> None:
    config = inference.Config(str(net))
    config.enable_profile()
    config.collect_shape_range_info(str(tmp_path / "shapes.json"))
    predictor = inference.create_predictor(config)
    assert "call config.enable_profile" in predictor.profile_report()
    for side in (6, 7, 6):
        run_predictor(predictor, {"image": image(1, 3, side, side)})
    report = predictor.profile_report()
    assert "run" in report
    assert "     3" in report
    warm = inference.Config(str(net))
    warm.set_warm_up(str(tmp_path / "shapes.json"))
    ready = inference.create_predictor(warm)
    ((_, engine),) = ready._shared.engines.values()
    assert engine.compiled == 2  # type: ignore[attr-defined]
    run_predictor(ready, {"image": image(1, 3, 7, 7)})
    assert engine.compiled == 2  # type: ignore[attr-defined]
    ready.clear_intermediate_tensor()
    assert ready.get_input_handle("image").shape() == [1, 3, 7, 7]
    warm.set_warm_up([{"other": [1]}])
    with pytest.raises(InvalidArgument, match="no shape for image"):
        inference.create_predictor(warm)


def test_paddle_files(paddle: Any, tmp_path: Path) -> None:
    _, new, weights = small_net(paddle, tmp_path)
    path = tmp_path / "pir.json"
    x = {"x": image(2, 3, 8, 8)}
    theirs = run_files(paddle, path, x)
    config = inference.Config(str(path), str(tmp_path / "pir.pdiparams"))
    predictor = inference.create_predictor(config)
    assert predictor.get_output_names() == ["fetch_name_0"]
    agree(run_predictor(predictor, x), theirs)
    memory = inference.Config()
    memory.set_model_buffer(new, len(new), weights, len(weights))
    assert memory.model_from_memory()
    agree(run_predictor(inference.create_predictor(memory), x), theirs)
    prefix = inference.Config(str(tmp_path / "pir"))
    agree(run_predictor(inference.create_predictor(prefix), x), theirs)


READS = {
    "gather": lambda w, at: bireme.gather(w, at),
    "index": lambda w, at: w[at],
    "take_along_axis": lambda w, at: bireme.take_along_axis(w, at.unsqueeze(1), 0),
    "scatter": lambda w, at: bireme.scatter(w, at, bireme.ones([2, 4])),
    "index_add": lambda w, at: bireme.index_add(w, at, 0, bireme.ones([2, 4])),
    "message": lambda w, at: bireme.geometric.send_u_recv(w, at, at),
}


@pytest.mark.parametrize("name", READS)
def test_rows_of_a_weight_within_the_program(tmp_path: Path, name: str) -> None:
    class Rows(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.w = self.create_parameter([5, 4])

        def forward(self, at: Any) -> Any:
            return READS[name](self.w, at)

    layer = Rows()
    at = np.array([1, 3])
    wanted = layer(bireme.to_tensor(at)).numpy()
    bireme.jit.save(layer, str(tmp_path / "m"), [bireme.static.InputSpec([2], "int64")])
    predictor = inference.create_predictor(inference.Config(str(tmp_path / "m")))
    np.testing.assert_allclose(np.asarray(predictor.run([at])[0]), wanted, rtol=1e-6)
