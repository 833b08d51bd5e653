"""Model in static mode: the same figures as in eager mode, and files that both read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import static
from bireme.static import InputSpec

RNG = np.random.RandomState(0)
X = RNG.randn(48, 4).astype("float32")
Y = (X.argmax(1) % 3)[:, None]


class Points(paddle.io.Dataset[Any]):
    def __getitem__(self, i: int) -> Any:
        return X[i], Y[i]

    def __len__(self) -> int:
        return len(X)


def _model(metric: bool = True, **settings: Any) -> paddle.Model:
    paddle.seed(3)
    nn = paddle.nn
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1D(8), nn.Tanh(), nn.Linear(8, 3))
    labels = [InputSpec([None, 1], "int64", "y")]
    model = paddle.Model(net, [InputSpec([None, 4], "float32", "x")], labels)
    rate = paddle.optimizer.lr.StepDecay(0.05, 2)
    optimizer = paddle.optimizer.Adam(rate, parameters=net.parameters())
    metrics = paddle.metric.Accuracy() if metric else None
    model.prepare(optimizer, nn.CrossEntropyLoss(), metrics, **settings)
    return model


@pytest.fixture
def in_programs() -> Iterator[None]:
    paddle.enable_static()
    try:
        with (
            paddle.utils.unique_name.guard(),
            static.scope_guard(static.Scope()),
            static.program_guard(static.Program(), static.Program()),
        ):
            yield
    finally:
        paddle.disable_static()


def _trained() -> tuple[paddle.Model, list[Any]]:
    model = _model()
    model.fit(Points(), batch_size=16, epochs=2, shuffle=False, verbose=0)
    figures = [model.evaluate(Points(), batch_size=16, verbose=0), model.predict_batch([X])[0]]
    return model, figures


def test_as_in_eager_mode(request: pytest.FixtureRequest) -> None:
    with paddle.utils.unique_name.guard():
        _, want = _trained()
    request.getfixturevalue("in_programs")
    _, got = _trained()
    assert got[0]["acc"] == want[0]["acc"]
    np.testing.assert_allclose(got[0]["loss"], want[0]["loss"], rtol=1e-4)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-3, atol=1e-5)


def test_files(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = str(tmp_path / "m")
    with paddle.utils.unique_name.guard():
        eager, want = _trained()
        eager.save(path)
        after = eager.train_batch([X], [Y])
    request.getfixturevalue("in_programs")
    model = _model()
    model.load(path)
    np.testing.assert_allclose(model.predict_batch([X])[0], want[1], rtol=1e-5, atol=1e-6)
    got: Any = model.train_batch([X], [Y])  # with the optimizer's state
    np.testing.assert_allclose(got[0], after[0], rtol=1e-5)
    out = model.predict_batch([X])[0]
    model.save(path)
    model.save(path + "-infer", training=False)
    program, names, fetches = static.load_inference_model(path + "-infer", static.Executor())
    (again,) = static.Executor().run(program, {names[0]: X}, fetches)
    np.testing.assert_allclose(again, out, rtol=1e-6)
    paddle.disable_static()
    with paddle.utils.unique_name.guard():
        eager = _model()
        eager.load(path)
    np.testing.assert_allclose(eager.predict_batch([X])[0], out, rtol=1e-5, atol=1e-6)


def test_what_is_refused(in_programs: None) -> None:
    with pytest.raises(TypeError, match="inputs must be known"):
        paddle.Model(paddle.nn.Linear(4, 3))
    model = _model()
    with pytest.raises(ValueError, match="update must be True"):
        model.train_batch([X], [Y], update=False)
    with pytest.raises(ValueError, match="amp_configs must be None"):
        _model(amp_configs="O1")
    with pytest.raises(ValueError, match="1 inputs and 1 labels"):
        model.eval_batch([X, X], [Y])


def test_inputs_have_names() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        paddle.Model(paddle.nn.Linear(4, 3), [InputSpec([None, 4], "float32")])
