"""paddle.Model against the real one, in the same process, from the same weights and data."""

from __future__ import annotations

import os

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError

# The real wheel warns about itself: it copies tensors with to_tensor.
pytestmark = pytest.mark.filterwarnings("ignore:To copy construct from a tensor")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 6)).astype("float32")
Y = (X @ RNG.normal(size=(6, 3))).argmax(1).astype("int64")[:, None]


def data(lib):
    class Points(lib.io.Dataset):
        def __getitem__(self, i):
            return X[i], Y[i]

        def __len__(self):
            return len(X)

    return Points()


def weights():
    rng = np.random.default_rng(7)
    return [rng.normal(size=s).astype("float32") * 0.3 for s in ((6, 8), (8,), (8, 3), (3,))]


def make(lib, optimizer="Adam", **prepare):
    net = lib.nn.Sequential(lib.nn.Linear(6, 8), lib.nn.Tanh(), lib.nn.Linear(8, 3))
    for p, value in zip(net.parameters(), weights(), strict=True):
        p.set_value(value)
    model = lib.Model(net, lib.static.InputSpec([None, 6], "float32", "x"))
    schedule = lib.optimizer.lr.StepDecay(0.05, 4)
    model.prepare(
        getattr(lib.optimizer, optimizer)(schedule, parameters=net.parameters()),
        lib.nn.CrossEntropyLoss(),
        lib.metric.Accuracy(topk=(1, 2)),
        **prepare,
    )
    return model


def recorder(lib):
    class Recorder(lib.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def note(self, name, logs):
            figures = {
                k: np.asarray(v, "float64").reshape(-1).tolist()
                for k, v in (logs or {}).items()
                if k in ("loss", "acc_top1", "acc_top2", "step", "batch_size")
            }
            self.seen.append((name, figures))

        def on_train_begin(self, logs=None):
            self.note("train begin", None)
            self.seen.append(dict(self.params))

        def on_train_end(self, logs=None):
            self.note("train end", logs)

        def on_epoch_begin(self, epoch, logs=None):
            self.note(f"epoch {epoch}", None)

        def on_epoch_end(self, epoch, logs=None):
            self.note(f"epoch {epoch} end", logs)

        def on_train_batch_end(self, step, logs=None):
            self.note(f"batch {step}", logs)

        def on_eval_begin(self, logs=None):
            self.note("eval begin", None)

        def on_eval_batch_end(self, step, logs=None):
            self.note(f"eval batch {step}", logs)

        def on_eval_end(self, logs=None):
            self.note("eval end", logs)

        def on_predict_batch_end(self, step, logs=None):
            self.note(f"predict {step}", {"step": logs["step"], "batch_size": logs["batch_size"]})

    return Recorder()


def assert_same_events(theirs, ours):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, dict):
            assert a == b
            continue
        assert a[0] == b[0]
        if b[0] == "train end":  # Paddle's logs then hold the last evaluation
            continue
        assert list(a[1]) == list(b[1])
        for key, value in b[1].items():
            np.testing.assert_allclose(a[1][key], value, rtol=2e-4, atol=1e-5, err_msg=str(b))


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 2},
        {"epochs": 2, "accumulate_grad_batches": 2},
        {"num_iters": 5},
        {"epochs": 2, "drop_last": True, "batch_size": [7, 5]},
        {"epochs": 3, "eval_freq": 2},
    ],
    ids=str,
)
def test_fit_as_paddle(paddle, options):
    options = {"batch_size": 8, "verbose": 0, "shuffle": False, **options}
    seen, values = [], []
    for lib in (paddle, bireme):
        model, watch = make(lib), recorder(lib)
        model.fit(
            data(lib), None if "num_iters" in options else data(lib), callbacks=watch, **options
        )
        seen.append(watch.seen)
        values.append([p.numpy() for p in model.parameters()])
    assert_same_events(*seen)
    for ours, theirs in zip(values[1], values[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_evaluate_predict_and_batches_as_paddle(paddle):
    results = []
    for lib in (paddle, bireme):
        model, watch = make(lib), recorder(lib)
        found = model.evaluate(data(lib), batch_size=10, verbose=0)
        few = model.evaluate(data(lib), batch_size=10, verbose=0, num_iters=1)
        outs = model.predict(data(lib), batch_size=10, verbose=0, callbacks=[watch])
        stacked = model.predict(data(lib), batch_size=10, verbose=0, stack_outputs=True)
        train = model.train_batch([X[:4]], [Y[:4]])
        train_again = model.train_batch([X[:4]], [Y[:4]], update=False)
        evaluated = model.eval_batch([X[:4]], [Y[:4]])
        predicted = model.predict_batch([X[:4]])
        numbers = [found, few, [o.shape for o in outs[0]], stacked[0].shape, watch.seen]
        arrays = [stacked[0], *train[0], *train_again[0], *evaluated[0], predicted[0]]
        results.append((numbers, train[1], evaluated[1], arrays))
    for a, b in zip(results[1][3], results[0][3], strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(results[1][0], results[0][0], strict=True):
        if isinstance(theirs, dict):
            assert list(ours) == list(theirs)
            for key, value in theirs.items():
                np.testing.assert_allclose(ours[key], value, rtol=1e-5)
        else:
            assert ours == theirs
    np.testing.assert_allclose(results[1][1], results[0][1])
    np.testing.assert_allclose(results[1][2], results[0][2])


@pytest.mark.parametrize("first", ["paddle", "bireme"])
def test_checkpoints_move_between_the_libraries(paddle, tmp_path, first, capsys):
    one, other = (paddle, bireme) if first == "paddle" else (bireme, paddle)
    options = {"batch_size": 8, "verbose": 0, "shuffle": False}
    with paddle.utils.unique_name.guard(), bireme.utils.unique_name.guard():
        model = make(one)
        model.fit(data(one), epochs=1, save_dir=str(tmp_path), **options)
        assert {"0.pdparams", "0.pdopt", "final.pdparams"} <= set(os.listdir(tmp_path))
        again = make(other)
        again.load(str(tmp_path / "final"))
        model.fit(data(one), epochs=1, **options)
        again.fit(data(other), epochs=1, **options)
    assert "save checkpoint at" in capsys.readouterr().out
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


def test_load_complains_or_skips(tmp_path):
    model = make(bireme)
    model.save(str(tmp_path / "m"))
    other = bireme.Model(bireme.nn.Sequential(bireme.nn.Linear(6, 9), bireme.nn.Linear(9, 3)))
    with pytest.raises(ValueError, match=r"0.weight receives a shape \[6, 8\]"):
        other.load(str(tmp_path / "m.pdparams"))
    with pytest.warns(UserWarning, match="Skip loading"):
        other.load(str(tmp_path / "m"), skip_mismatch=True)
    with pytest.raises(BiremeError, match="no file"):
        other.load(str(tmp_path / "nothing"))


def test_a_step_is_one_program():
    from bireme.profiler import count_compiles

    bireme.seed(1)
    model = make(bireme, "SGD")
    options = {"batch_size": 8, "verbose": 0, "shuffle": False}
    model.fit(data(bireme), epochs=4, **options)
    bireme.device.synchronize()
    with count_compiles() as found:
        model.fit(data(bireme), epochs=3, **options)
    assert found == [0]


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_mixed_precision(tmp_path, level):
    model = make(bireme, amp_configs={"level": level, "init_loss_scaling": 128.0})
    before = model.evaluate(data(bireme), batch_size=24, verbose=0)["loss"][0]
    model.fit(data(bireme), epochs=8, batch_size=24, verbose=0)
    assert model.evaluate(data(bireme), batch_size=24, verbose=0)["loss"][0] < before
    model.save(str(tmp_path / "m"))
    assert os.path.exists(tmp_path / "m.pdscaler")
    model.load(str(tmp_path / "m"))
    kinds = {p.dtype.name for p in model.parameters()}
    assert kinds == ({"float32"} if level == "O1" else {"float16"})


@pytest.mark.parametrize("configs", ["O3", {"level": "O1", "speed": 2}])
def test_bad_amp(configs):
    with pytest.raises(ValueError, match="amp_configs"):
        make(bireme, amp_configs=configs)


def test_saving_for_inference(tmp_path):
    model = make(bireme)
    model.save(str(tmp_path / "given"), training=False)
    loaded = bireme.jit.load(str(tmp_path / "given"))
    np.testing.assert_allclose(
        loaded(bireme.to_tensor(X[:5])).numpy(), model.predict_batch(X[:5])[0], rtol=1e-5
    )
    bare = bireme.Model(bireme.nn.Linear(6, 2))
    with pytest.raises(RuntimeError, match="shapes are not known"):
        bare.save(str(tmp_path / "bare"), training=False)
    bare.predict_batch(X[:3])
    with pytest.warns(UserWarning, match=r"first batch, \[\[3, 6\]\]"):
        bare.save(str(tmp_path / "bare"), training=False)


def test_mistakes():
    with pytest.raises(TypeError, match="takes a Layer"):
        bireme.Model(print)
    model = bireme.Model(bireme.nn.Linear(6, 2))
    with pytest.raises(RuntimeError, match="prepare"):
        model.train_batch(X, Y)
    with pytest.raises(TypeError, match="Metrics"):
        model.prepare(metrics=[print])
    with pytest.raises(TypeError, match="loss must be"):
        model.prepare(loss=3)
    with pytest.raises(ValueError, match="train_data"):
        model.fit()
    with pytest.raises(ValueError, match="input_size"):
        model.summary()
    with pytest.raises(TypeError, match="InputSpecs"):
        bireme.Model(bireme.nn.Linear(6, 2), inputs=[3])


def test_any_iterable_of_batches_and_several_losses():
    net = bireme.nn.Linear(6, 3)
    model = bireme.Model(net, bireme.static.InputSpec([None, 6], "float32", "x"))

    def two(out, label):
        cross = bireme.nn.functional.cross_entropy(out, label)
        return [cross, (out**2).mean()]

    model.prepare(bireme.optimizer.SGD(0.1, net.parameters()), two)
    batches = [([bireme.to_tensor(X[:8])], [bireme.to_tensor(Y[:8])])]
    model.fit(batches, epochs=2, verbose=0)
    assert len(model.evaluate(iter(batches), verbose=0)["loss"]) == 2


def test_weighted_worker_processes_are_used():
    model = make(bireme)
    loader = bireme.io.DataLoader(data(bireme), batch_size=8)
    model.fit(loader, epochs=1, verbose=0)


@pytest.mark.parametrize("verbose", [1, 2, 3])
def test_progress_lines(paddle, capsys, verbose):
    lines = []
    for lib in (paddle, bireme):
        model = make(lib)
        capsys.readouterr()
        model.fit(data(lib), data(lib), batch_size=8, epochs=1, verbose=verbose, log_freq=1)
        model.predict(data(lib), batch_size=8, verbose=verbose)
        out = capsys.readouterr().out
        lines.append([w for w in out.replace("\r", "\n").split("\n") if w.strip("\b ")][1:])
    theirs, ours = lines
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.split()[:2] == b.strip("\b").split()[:2]
        assert ("loss:" in a, "acc_top1:" in a, "ips:" in a) == (
            "loss:" in b,
            "acc_top1:" in b,
            "ips:" in b,
        )
