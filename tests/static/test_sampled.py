"""Noise-contrastive estimation, click-through sums and device names in programs.

The real wheel has these in its older programs only, so it runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import bireme
from bireme.core.errors import InvalidArgument, ShapeMismatch

ORACLE = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import paddle
from paddle import static
paddle.enable_static()
given = json.loads(sys.argv[1])
x, y = static.data("x", [-1, 3], "float32"), static.data("y", [-1, 2], "int64")
p, q = static.data("p", [-1, 1], "float32"), static.data("q", [-1, 1], "float32")
w = paddle.ParamAttr("w", initializer=paddle.nn.initializer.Assign(np.array(given["w"], "float32")))
b = paddle.ParamAttr("b", initializer=paddle.nn.initializer.Assign(np.array(given["b"], "float32")))
x.stop_gradient = False
# Both classes have the same weights, so that nothing is left to chance.
sampler = given["sampler"]
loss = static.nn.nce(x, y, 2, param_attr=w, bias_attr=b, num_neg_samples=3, sampler=sampler,
                     custom_dist=[0.5, 0.5] if sampler == "custom_dist" else None)
grads = static.gradients([loss], [x])
sums = static.ctr_metric_bundle(p, q)
exe = static.Executor()
exe.run(static.default_startup_program())
feed = {n: np.array(given[n], t) for n, t in
        (("x", "float32"), ("y", "int64"), ("p", "float32"), ("q", "float32"))}
for _ in range(2):
    out = exe.run(feed=feed, fetch_list=[loss, *grads, *sums])
print("RESULT" + json.dumps([np.asarray(o).tolist() for o in out]))
"""
RNG = np.random.default_rng(2)
GIVEN = {
    "x": RNG.standard_normal((4, 3)).tolist(), "y": [[0, 0], [1, 0], [0, 1], [1, 1]],
    "w": RNG.standard_normal((1, 3)).tolist() * 2, "b": [[0.3], [0.3]],
    "p": [[0.3], [0.6], [0.9], [0.2]], "q": [[0.0], [1.0], [1.0], [0.0]],
}  # fmt: skip


@pytest.fixture
def program():
    bireme.enable_static()
    main, startup = bireme.static.Program(), bireme.static.Program()
    with bireme.static.program_guard(main, startup):
        yield main, startup
    bireme.disable_static()


def _run(program, fetched, feed, times=1):
    executor = bireme.static.Executor()
    executor.run(program[1])
    return [executor.run(program[0], feed=feed, fetch_list=fetched) for _ in range(times)]


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "custom_dist"])
def test_equals_the_older_programs(paddle, program, sampler):
    given = {**GIVEN, "sampler": sampler}
    done = subprocess.run(
        [sys.executable, "-c", ORACLE, json.dumps(given)], capture_output=True, text=True,
        env={**os.environ, "FLAGS_enable_pir_api": "0"}, timeout=120,
    )  # fmt: skip
    wanted = json.loads(done.stdout.partition("RESULT")[2])
    static, nn = bireme.static, bireme.nn
    x = static.data("x", [-1, 3], "float32")
    x.stop_gradient = False
    y = static.data("y", [-1, 2], "int64")
    p, q = (static.data(n, [-1, 1], "float32") for n in "pq")
    attrs = {
        f"{kind}_attr": bireme.ParamAttr(
            initializer=nn.initializer.Assign(np.array(given[n], "float32"))
        )
        for kind, n in (("param", "w"), ("bias", "b"))
    }
    dist = [0.5, 0.5] if sampler == "custom_dist" else None
    loss = static.nn.nce(x, y, 2, num_neg_samples=3, sampler=sampler, custom_dist=dist, **attrs)
    fetched = [loss, *static.gradients([loss], [x]), *static.ctr_metric_bundle(p, q)]
    kinds = {"x": "float32", "y": "int64", "p": "float32", "q": "float32"}
    feed = {n: np.array(given[n], kind) for n, kind in kinds.items()}
    ours = _run(program, fetched, feed, times=2)[1]
    for a, b in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(a.reshape(-1), np.reshape(b, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "custom_dist"])
def test_training_finds_the_right_classes(program, sampler):
    """Each input belongs to one class; what was learnt ranks that class first."""
    x = bireme.static.data("x", [-1, 8], "float32")
    y = bireme.static.data("y", [-1, 1], "int64")
    dist = [0.125] * 8 if sampler == "custom_dist" else None
    w = bireme.ParamAttr("nce_w")
    loss = bireme.static.nn.nce(x, y, 8, param_attr=w, sampler=sampler, custom_dist=dist).mean()
    bireme.optimizer.Adam(0.1).minimize(loss)
    feed = {"x": np.eye(8, dtype="float32"), "y": np.arange(8)[:, None]}
    weight = program[0].all_parameters()[0]
    results = _run(program, [loss, weight], feed, times=60)
    assert results[-1][0] < results[0][0] / 2
    np.testing.assert_array_equal(results[-1][1].argmax(0), np.arange(8))
    assert len({float(r[0]) for r in results}) > 50, "every run draws its own classes"


def test_a_batch_of_made_up_samples(program):
    p, q = (bireme.static.data(n, [-1, 1], "float32") for n in "pq")
    tag = bireme.static.data("tag", [1, 1], "float32")
    sums = bireme.static.ctr_metric_bundle(p, q, tag)
    feed = {n: np.array(GIVEN[n], "float32") for n in "pq"}
    feed["tag"] = np.zeros((1, 1), "float32")
    out = _run(program, list(sums), feed)[0]
    assert (out[3], out[5]) == (0.0, 0.0)
    assert out[4] == 2.0


def test_device_names(program):
    x = bireme.static.data("x", [2], "float32")
    for name in ("cpu", "gpu", "gpu:0", None):
        with bireme.static.device_guard(name):
            x = x + 1
    np.testing.assert_array_equal(_run(program, [x], {"x": np.zeros(2, "float32")})[0][0], [4, 4])
    for wrong in ("cpu:0", "toaster", "gpu:x"):
        with (
            pytest.raises(InvalidArgument, match="device_guard"),
            bireme.static.device_guard(wrong),
        ):
            pass


def test_bad_input(program):
    x = bireme.static.data("x", [-1, 8], "float32")
    y = bireme.static.data("y", [-1, 1], "int64")
    with pytest.raises(ShapeMismatch, match="label"):
        bireme.static.nn.nce(x, y[:, 0], 8)
    with pytest.raises(InvalidArgument, match="sampler"):
        bireme.static.nn.nce(x, y, 8, sampler="custom_dist")
    with pytest.raises(InvalidArgument, match="8 probabilities"):
        bireme.static.nn.nce(x, y, 8, sampler="custom_dist", custom_dist=[1.0])
    with pytest.raises(ShapeMismatch, match="one shape"):
        bireme.static.ctr_metric_bundle(x, y)
