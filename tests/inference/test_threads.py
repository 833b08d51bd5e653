"""The number of CPU threads reaches XLA, which decides once per process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys
import bireme as paddle
from bireme import inference

net = paddle.nn.Linear(4, 3)
paddle.jit.save(net, sys.argv[1], [paddle.static.InputSpec([2, 4], "float32", "x")])
config = inference.Config(sys.argv[1])
config.set_cpu_math_library_num_threads(3)
predictor = inference.create_predictor(config)
predictor.run([paddle.ones([2, 4])])
names = [open(f"/proc/self/task/{t}/comm").read() for t in os.listdir("/proc/self/task")]
print(sum("XLAEigen" in n for n in names))
"""


def test_threads(tmp_path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "m")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split()[-1] == "3"
