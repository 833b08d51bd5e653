"""Saving and loading: inference models, state, bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.core.errors import InvalidArgument
from bireme.static import model_files
from bireme.static.scope import MissingState
from tests.convert.paddle.real import small_net

F = paddle.nn.functional


class Trained:
    """A small trained program."""

    def __init__(self) -> None:
        self.main, startup = static.Program(), static.Program()
        with static.program_guard(self.main, startup):
            self.x = static.data("x", [None, 4])
            self.y = static.data("y", [None, 1], "int64")
            h = static.nn.batch_norm(static.nn.fc(self.x, 6), act="relu")
            self.out = F.softmax(static.nn.fc(F.dropout(h, 0.5), 3))
            loss = F.cross_entropy(self.out, self.y, use_softmax=False)
            paddle.optimizer.Adam(0.05).minimize(loss)
        self.exe = static.Executor()
        self.exe.run(startup)
        rng = np.random.RandomState(0)
        self.given = rng.rand(7, 4).astype("float32")
        for _ in range(3):
            feed = {"x": self.given, "y": rng.randint(0, 3, (7, 1))}
            self.exe.run(self.main, feed=feed)
        test = static.normalize_program(self.main, [self.x], [self.out])
        (self.want,) = self.exe.run(test, feed={"x": self.given}, fetch_list=[self.out])


@pytest.fixture
def trained() -> Iterator[Trained]:
    paddle.enable_static()
    try:
        with static.scope_guard(static.Scope()):
            yield Trained()
    finally:
        paddle.disable_static()


def test_inference_model(trained: Trained, tmp_path: Any) -> None:
    path = str(tmp_path / "new" / "model")
    static.save_inference_model(path, [trained.x], [trained.out], trained.exe, program=trained.main)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(path, trained.exe)
        assert feeds == ["x"]
        for rows in (7, 2):
            feed = {"x": trained.given[:rows]}
            (got,) = trained.exe.run(program, feed=feed, fetch_list=fetches)
            np.testing.assert_allclose(got, trained.want[:rows], rtol=1e-5)
    paddle.disable_static()
    (eager,) = paddle.jit.load(path)(paddle.to_tensor(trained.given))
    np.testing.assert_allclose(eager.numpy(), trained.want, rtol=1e-5)


def test_a_layer_saved_by_jit_loads_as_a_program(trained: Trained, tmp_path: Any) -> None:
    paddle.disable_static()
    layer = paddle.nn.Linear(4, 2)
    path = str(tmp_path / "layer")
    paddle.jit.save(layer, path, [static.InputSpec([None, 4], name="x")])
    want = layer(paddle.to_tensor(trained.given)).numpy()
    paddle.enable_static()
    program, feeds, fetches = static.load_inference_model(path, trained.exe)
    (got,) = trained.exe.run(program, feed={feeds[0]: trained.given}, fetch_list=fetches)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_readers_of_other_formats_are_asked_first(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    paddle.disable_static()
    layer: Any = paddle.nn.Linear(4, 2)
    layer.input_specs = [static.InputSpec([None, 4], name="given")]
    want = layer(paddle.to_tensor(trained.given)).numpy()
    monkeypatch.setattr(model_files, "READERS", [lambda path, *names: layer])
    paddle.enable_static()
    program, feeds, fetches = static.load_inference_model("anything", trained.exe)
    assert feeds == ["given"]
    (got,) = trained.exe.run(program, feed={"given": trained.given}, fetch_list=fetches)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_bytes(trained: Trained, tmp_path: Any) -> None:
    given, made, main = [trained.x], [trained.out], trained.main
    code = static.serialize_program(given, made, program=main)
    weights = static.serialize_persistables(given, made, trained.exe, program=main)
    static.save_to_file(str(tmp_path / "code"), code)
    with static.scope_guard(static.Scope()):
        program = static.deserialize_program(static.load_from_file(str(tmp_path / "code")))
        static.deserialize_persistables(program, weights, trained.exe)
        (got,) = trained.exe.run(program, feed={"x": trained.given}, fetch_list=program._fetches)
    np.testing.assert_allclose(got, trained.want, rtol=1e-5)
    with pytest.raises(ValueError, match="no program"):
        static.deserialize_program(b"something else")


GIVEN = np.random.default_rng(4).standard_normal((7, 4)).astype("float32")


@pytest.fixture
def static_mode() -> Iterator[None]:
    paddle.enable_static()
    yield
    paddle.disable_static()


def paddles_bytes(real: Any, x: np.ndarray) -> tuple[bytes, bytes, np.ndarray]:
    """A program, its parameters and what it computes, by the real Paddle."""
    with import_module(
        "paddle.pir_utils"
    ).OldIrGuard():  # programs of its new kind cannot be serialized: they have no `desc`
        real.enable_static()
        try:
            main, startup = real.static.Program(), real.static.Program()
            with (
                real.static.scope_guard(real.static.Scope()),
                real.static.program_guard(main, startup),
                real.utils.unique_name.guard(),
            ):
                given = real.static.data("x", [None, 4], "float32")
                hidden = real.static.nn.batch_norm(real.static.nn.fc(given, 6), is_test=True)
                made = real.static.nn.fc(hidden, 3, activation="relu")
                exe = real.static.Executor(real.CPUPlace())
                exe.run(startup)
                code = real.static.serialize_program([given], [made])
                weights = real.static.serialize_persistables([given], [made], exe)
                (want,) = exe.run(main, feed={"x": x}, fetch_list=[made])
        finally:
            real.disable_static()
    return code, weights, want


def test_paddles_bytes_one_by_one(static_mode: None) -> None:
    real: Any = pytest.importorskip("paddle")
    code, weights, want = paddles_bytes(real, GIVEN)
    exe = static.Executor()
    with static.scope_guard(static.Scope()):
        program = static.deserialize_program(code)
        assert program._feeds == ["x"]
        with pytest.raises(MissingState, match="no contents"):  # there are no parameters yet
            exe.run(program, feed={"x": GIVEN}, fetch_list=program._fetches)
        static.deserialize_persistables(program, weights, exe)
        (got,) = exe.run(program, feed={"x": GIVEN}, fetch_list=program._fetches)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        names = {p.name for p in program.all_parameters()}
    assert {"fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"} <= names
    for broken in (weights[:-1], weights + b"0", b"", b"\x01" + weights[1:]):
        with static.scope_guard(static.Scope()), pytest.raises(ValueError, match="deserialize"):
            static.deserialize_persistables(program, broken, None)
    with pytest.raises(ValueError, match="no program"):
        static.deserialize_program(code[: len(code) // 2])


def test_paddles_parameters_for_a_program_of_ours(static_mode: None) -> None:
    """They lie in the order of their names, so any program with the same names reads them."""
    real: Any = pytest.importorskip("paddle")
    _, weights, want = paddles_bytes(real, GIVEN)
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 4])
        hidden = static.nn.batch_norm(static.nn.fc(x, 6), is_test=True)
        made = static.nn.fc(hidden, 3, activation="relu")
    with static.scope_guard(static.Scope()):
        static.deserialize_persistables(main, weights, None)
        (got,) = static.Executor().run(main, feed={"x": GIVEN}, fetch_list=[made])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_models_in_memory(trained: Trained, tmp_path: Any) -> None:
    given, made, main = [trained.x], [trained.out], trained.main
    code = static.serialize_program(given, made, program=main)
    weights = static.serialize_persistables(given, made, trained.exe, program=main)
    with static.scope_guard(static.Scope()):
        program, feeds, fetches = static.load_inference_model(
            None, trained.exe, model_filename=code, params_filename=weights
        )
        (got,) = trained.exe.run(program, feed={"x": trained.given}, fetch_list=fetches)
    assert feeds == ["x"]
    np.testing.assert_allclose(got, trained.want, rtol=1e-5)
    with pytest.raises(InvalidArgument, match="bytes"):
        static.load_inference_model(None, trained.exe, model_filename=code)


def test_paddles_models_in_memory(trained: Trained, tmp_path: Any) -> None:
    real: Any = pytest.importorskip("paddle")
    _, code, weights = small_net(real, tmp_path)
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype("float32")
    results = []
    for path, names in (
        (str(tmp_path / "pir"), {}),
        (None, {"model_filename": code, "params_filename": weights}),
    ):
        with static.scope_guard(static.Scope()):
            program, feeds, fetches = static.load_inference_model(path, trained.exe, **names)
            results.append(trained.exe.run(program, feed={feeds[0]: x}, fetch_list=fetches)[0])
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0].sum(-1), 1, rtol=1e-5)


def test_options_of_saving(trained: Trained, tmp_path: Any) -> None:
    path = str(tmp_path / "net")
    given: Any = (path, [trained.x], [trained.out], trained.exe)
    for trainable in (True, False):
        static.save_inference_model(*given, program=trained.main, trainable=trainable)
        with static.scope_guard(static.Scope()):
            program = static.load_inference_model(path, trained.exe)[0]
        assert any(p.trainable for p in program.all_parameters()) is trainable
    with pytest.raises(InvalidArgument, match="legacy_format"):
        static.save_inference_model(*given, program=trained.main, legacy_format=True)
    with pytest.raises(InvalidArgument, match="colour"):
        static.save_inference_model(*given, program=trained.main, colour=1)


def test_state_comes_back(trained: Trained, tmp_path: Any) -> None:
    path = str(tmp_path / "state")
    static.save(trained.main, path)
    saved = {k: v.numpy() for k, v in trained.main.state_dict().items()}
    assert set(static.load_program_state(path)) == set(saved)
    with static.scope_guard(static.Scope()):
        static.load(trained.main, path, trained.exe)
        for name, tensor in trained.main.state_dict().items():
            np.testing.assert_array_equal(tensor.numpy(), saved[name])
    with static.scope_guard(static.Scope()):
        static.set_program_state(trained.main, saved)
        assert set(static.global_scope().local_var_names()) == set(saved)
    with pytest.raises(InvalidArgument, match="there is no file"):
        static.load(trained.main, str(tmp_path / "nothing"))


def test_the_wheel_reads_the_state(trained: Trained, tmp_path: Any) -> None:
    pytest.importorskip("paddle", reason="needs the 'parity' extra")
    path = str(tmp_path / "state")
    static.save(trained.main, path)
    code = (
        "import sys, numpy, paddle; paddle.enable_static();"
        "state = paddle.static.load_program_state(sys.argv[1]);"
        "numpy.savez(sys.argv[2], **state)"
    )
    out = str(tmp_path / "read.npz")
    subprocess.run([sys.executable, "-c", code, path, out], check=True, capture_output=True)
    read = np.load(out)
    for name, tensor in trained.main.state_dict().items():
        np.testing.assert_array_equal(read[name], tensor.numpy())


def test_what_is_refused(trained: Trained, tmp_path: Any) -> None:
    path = str(tmp_path / "m")
    with pytest.raises(InvalidArgument, match="need \\['x'\\]"):
        static.save_inference_model(path, [], [trained.out], trained.exe, program=trained.main)
    with pytest.raises(InvalidArgument, match="option 'speed'"):
        static.save_inference_model(path, trained.x, trained.out, trained.exe, speed=1)
    with pytest.raises(ValueError, match="there is no file"):
        static.load_inference_model(path, trained.exe)


def test_results_are_fed(static_mode: None, tmp_path: Any) -> None:
    """What computes a fed result is left out, whatever else is fed and in any order."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [2, None])
        h = x * 2 + 1
        g = paddle.tanh(h)
        named = F.relu(g)
        named.name = "hidden"
        out = named.sum(axis=1) + x.sum()
    exe = static.Executor()
    rng = np.random.RandomState(0)
    path = str(tmp_path / "part")

    def run(feeds: list[Any], fetches: list[Any], *arrays: np.ndarray) -> tuple[Any, Any]:
        static.save_inference_model(path, feeds, fetches, exe, program=main)
        program, names, outs = static.load_inference_model(path, exe)
        feed = dict(zip(names, arrays, strict=True))
        return names, exe.run(program, feed=feed, fetch_list=outs)

    a, b = rng.randn(2, 3).astype("float32"), rng.randn(2, 5).astype("float32")
    names, (got,) = run([h], [g], a)
    assert names == ["feed_name_0"]
    np.testing.assert_allclose(got, np.tanh(a), rtol=1e-6)
    names, (got,) = run([x, g], [out], b, a)
    assert names == ["x", "feed_name_1"]
    np.testing.assert_allclose(got, np.maximum(a, 0).sum(1) + b.sum(), rtol=1e-5)
    names, (got,) = run([named, x], [out], b, a)
    assert names == ["hidden", "x"]
    np.testing.assert_allclose(got, b.sum(1) + a.sum(), rtol=1e-5)
    names, (got, same) = run([h], [named, h], a)
    np.testing.assert_allclose(got, np.maximum(np.tanh(a), 0), rtol=1e-6)
    np.testing.assert_array_equal(same, a)
    program, names, outs = static.load_inference_model(path, exe)
    renamed = static.normalize_program(program, [outs[0]], [outs[0]])  # again, names still differ
    assert renamed._feeds[0] not in names
    with pytest.raises(InvalidArgument, match="feed_vars do not list"):
        run([h], [out], a)


def test_an_input_that_the_program_changes_is_fed_as_it_begins(
    static_mode: None, tmp_path: Any
) -> None:
    main = static.Program()
    with static.program_guard(main):
        x = static.data("x", [1])
        paddle.increment(x)
        out = x * 2
    exe = static.Executor()
    path = str(tmp_path / "changed")
    static.save_inference_model(path, [x], [out], exe, program=main)
    program, names, outs = static.load_inference_model(path, exe)
    (got,) = exe.run(program, feed={names[0]: np.zeros(1, "float32")}, fetch_list=outs)
    assert names == ["x"]
    np.testing.assert_array_equal(got, [2])
