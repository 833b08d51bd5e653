"""The threads that wait awake between the kernels of a net: as many as asked for, asleep soon
after a run, and shared by predictors that run at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bireme.kernels import native

pytestmark = [
    pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at threads in /proc"),
]

PROGRAM = """
import os, sys, threading, time
import numpy as np
import bireme as paddle
from bireme import inference, nn
from bireme.kernels import native

native.load()  # a predictor does not wait for it
threads, callers = int(sys.argv[2]), int(sys.argv[3])
paddle.seed(0)
net = nn.Sequential(
    nn.Conv2D(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2D(32, 32, 3, padding=1, groups=32),
    nn.Hardswish(), nn.Conv2D(32, 64, 1), nn.Flatten(), nn.Linear(64 * 24 * 24, 64),
    nn.LayerNorm(64), nn.Linear(64, 5),
)
net.eval()
paddle.jit.save(net, sys.argv[1], [paddle.static.InputSpec([None, 3, 24, 24], "float32", "x")])
config = inference.Config(sys.argv[1])
config.set_engine("xla")
config.set_cpu_math_library_num_threads(threads)
first = inference.create_predictor(config)
images = [np.random.default_rng(i).normal(size=(2, 3, 24, 24)).astype("float32") for i in range(4)]
alone = [first.run([paddle.to_tensor(x)])[0].numpy() for x in images]
with paddle.no_grad():
    np.testing.assert_allclose(alone[0], net(paddle.to_tensor(images[0])).numpy(), 1e-4, 1e-5)

failed = []
def work(predictor):
    try:
        for _ in range(20):
            for x, expected in zip(images, alone):
                found = predictor.run([paddle.to_tensor(x)])[0].numpy()
                np.testing.assert_array_equal(found, expected)
    except Exception as e:
        failed.append(e)

running = [threading.Thread(target=work, args=(first.clone(),)) for _ in range(callers)]
for t in running: t.start()
for t in running: t.join()
assert not failed, failed

def members():
    for t in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{t}/stat") as f:
                name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:  # it has ended meanwhile
            continue
        if name == "bireme_team":
            yield rest.split()[0]

states = list(members())
for _ in range(200):
    if set(states) <= {"S"}:
        break
    time.sleep(0.05)
    states = list(members())
print(len(states), "".join(sorted(set(states))))
"""


@pytest.mark.parametrize(("threads", "callers"), [(1, 2), (2, 1), (2, 3), (4, 2)])
def test_team(tmp_path: Path, threads: int, callers: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "m"), str(threads), str(callers)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    members, *states = run.stdout.splitlines()[-1].split()
    assert int(members) == threads - 1
    assert states in ([], ["S"])
