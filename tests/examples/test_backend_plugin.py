"""The example backend, installed as a package: Bireme finds it by its entry point and trains."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[2] / "examples" / "backend_plugin"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as pip leaves it: the module, and what its pyproject.toml says of entry points."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())
    name, version = project["project"]["name"].replace("-", "_"), project["project"]["version"]
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in project["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module in project["tool"]["setuptools"]["py-modules"]:
        (folder / f"{module}.py").write_text((PLUGIN / f"{module}.py").read_text())
    return folder


def run(site: Path, *command: str) -> str:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_small() -> None:
    assert len((PLUGIN / "demo_chip.py").read_text().splitlines()) <= 110


def test_its_script_trains_on_it(site: Path) -> None:
    assert "the chip ran linear" in run(site, str(PLUGIN / "train.py"))


PRELUDE = """
import numpy as np
import bireme as paddle
import demo_chip
from bireme import nn
from bireme.core import trace
from bireme.core.place import CustomPlace

chip = CustomPlace("demo_chip")
"""

CHECKS = {
    "it is found": """
        assert "demo_chip" in paddle.device.get_all_custom_device_type()
        assert paddle.device.is_compiled_with_custom_device("demo_chip")
        devices = ["demo_chip:0", "demo_chip:1"]
        assert [d for d in paddle.device.get_available_custom_device() if "chip" in d] == devices
        try:
            paddle.set_device("demo_chip:2")
        except ValueError as error:
            assert "2 demo_chip device(s) found" in str(error), error
        else:
            raise AssertionError
    """,
    "tensors move": """
        paddle.set_device(chip)
        data = np.arange(1000, dtype="float32")
        x = paddle.to_tensor(data)
        y = x * 2
        np.testing.assert_array_equal(y.numpy(), data * 2)
        assert isinstance(y._value.buf, demo_chip.Buffer) and y.place == chip
        assert isinstance(x._value.buf, demo_chip.Buffer)  # moved by its first use
        other = paddle.to_tensor(data, place=CustomPlace("demo_chip", 1))
        assert other.place.index == 1
        np.testing.assert_array_equal((other + x).numpy(), data * 2)
        assert x.cpu().place.is_cpu_place()
        paddle.set_device("cpu")
        ran = sum(demo_chip.ran.values())
        for _ in range(3):  # the cold tier, then XLA
            np.testing.assert_array_equal((y + other + 1).numpy(), data * 3 + 1)
        assert sum(demo_chip.ran.values()) == ran
        paddle.device.synchronize(chip)
    """,
    "donated buffers are gone": """
        gone = []
        call = demo_chip.ChipProgram._call

        def watched(self, *arguments):
            results = call(self, *arguments)
            buffers = [a for a in arguments if isinstance(a, demo_chip.Buffer)]
            gone.append([b.cells is None for b in buffers])
            return results

        demo_chip.ChipProgram._call = watched
        paddle.set_device(chip)
        x = paddle.to_tensor(np.ones(1000, "float32")) * 2
        trace.flush()
        x = x + 1  # nobody else has the old x
        trace.flush()
        y = x + 1  # x is still there
        np.testing.assert_array_equal(y.numpy(), np.full(1000, 4, "float32"))
        np.testing.assert_array_equal(x.numpy(), np.full(1000, 3, "float32"))
        assert gone == [[], [True], [False]], gone
    """,
    "errors come as they are": """
        paddle.set_device(chip)
        net = nn.Linear(4, 3)
        optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
        before = net.weight.numpy()
        loss = nn.functional.cross_entropy(net(paddle.ones([2, 4])), paddle.to_tensor([0, 7]))
        loss.backward()
        optimizer.step()
        try:
            loss.item()
        except IndexError as error:
            assert "holds 7" in str(error) and error.__cause__ is None, error
        else:
            raise AssertionError
        np.testing.assert_array_equal(net.weight.numpy(), before)
    """,
    "captured steps": """
        def train(device):
            paddle.set_device(device)
            paddle.seed(0)
            net = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 1))
            optimizer = paddle.optimizer.AdamW(0.01, parameters=net.parameters())
            x = paddle.to_tensor(np.random.default_rng(0).normal(size=(64, 8)).astype("float32"))

            @paddle.jit.to_static
            def step(x):
                loss = ((net(x) - x.sum(-1, keepdim=True)) ** 2).mean()
                loss.backward()
                optimizer.step()
                optimizer.clear_grad()
                return loss

            return [step(x).item() for _ in range(12)]

        on_cpu = train("cpu")
        assert not demo_chip.ran
        on_chip = train("demo_chip:1")
        assert sum(demo_chip.ran.values()) >= 12, demo_chip.ran
        np.testing.assert_allclose(on_chip, on_cpu, rtol=1e-3)
    """,
    "predictors": """
        import tempfile
        from bireme import inference

        net = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 4))
        net.eval()
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/net"
            spec = [paddle.static.InputSpec([None, 8], "float32")]
            paddle.jit.save(net, path, input_spec=spec)
            config = inference.Config(path)
            config.enable_custom_device("demo_chip")
            predictor = inference.create_predictor(config)
            for rows in (1, 5, 1):
                x = np.random.default_rng(rows).normal(size=(rows, 8)).astype("float32")
                (out,) = predictor.run([paddle.to_tensor(x)])
                np.testing.assert_allclose(out.numpy(), net(paddle.to_tensor(x)).numpy(), rtol=1e-4)
        assert sum(demo_chip.ran.values()) >= 3
    """,
    "static programs": """
        paddle.enable_static()
        main = paddle.static.Program()
        with paddle.static.program_guard(main):
            x = paddle.static.data("x", [None, 3], "float32")
            y = (x * 2).sum()
        exe = paddle.static.Executor(chip)
        (out,) = exe.run(main, feed={"x": np.ones((4, 3), "float32")}, fetch_list=[y])
        assert out == 24.0 and demo_chip.ran
    """,
}


@pytest.mark.parametrize("check", CHECKS)
def test_on_the_chip(site: Path, check: str) -> None:
    run(site, "-c", PRELUDE + textwrap.dedent(CHECKS[check]))
