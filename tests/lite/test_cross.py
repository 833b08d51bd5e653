"""The runtime on other machines: built by CMake, run under qemu and Node.js; its sizes; damage.

`make lite` runs these. A target whose compiler or emulator is not installed is skipped.
"""

from __future__ import annotations

import functools
import gzip
import json
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme import lite

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "lite"
InputSpec = paddle.static.InputSpec
OCR = Path(paddle.__file__).parent / "ocr" / "weights"

# Each target: its compiler, what strips, what runs the program; CMake's settings.
TARGETS: dict[str, tuple[str, str, list[str], list[str]]] = {
    "x86-64": ("g++", "strip", [], []),
    "arm64": (
        "aarch64-linux-gnu-g++", "aarch64-linux-gnu-strip",
        ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"], ["toolchains/arm64.cmake"],
    ),
    "riscv64": (
        "riscv64-linux-gnu-g++", "riscv64-linux-gnu-strip",
        ["qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"], ["toolchains/riscv64.cmake"],
    ),
    "wasm": ("em++", "", ["node"], ["toolchains/wasm.cmake"]),
}  # fmt: skip
LIMITS = {"x86-64": 800_000, "arm64": 600_000, "riscv64": 600_000, "wasm": 500_000}


def made(target: str, *settings: str, name: str = "") -> Path:
    """The folder of a build of this target."""
    compiler, _, runner, toolchain = TARGETS[target]
    for program in ("cmake", "make", compiler, *runner[:1]):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    folder = BUILT / (name or target)
    given = [f"-DCMAKE_TOOLCHAIN_FILE={t}" for t in toolchain] + list(settings)
    quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run(["cmake", "-S", str(ROOT / "lite"), "-B", str(folder), *given], **quiet)
    subprocess.run(["make", "-C", str(folder)], **quiet)
    return folder


def size(folder: Path, target: str) -> int:
    """Bytes of the stripped library."""
    if target == "wasm":
        return (folder / "bireme.wasm").stat().st_size
    out = folder / "stripped.so"
    subprocess.run([TARGETS[target][1], "-s", "-o", out, folder / "libbireme_lite.so"], check=True)
    return out.stat().st_size


def several_ops(x, i):
    y = paddle.scatter_nd_add(x, i.unsqueeze(1), x[i])
    z = F.interpolate(x.unsqueeze([0, 1]), scale_factor=2, mode="bilinear")
    return [
        *[paddle.sort(x, 1), paddle.topk(x, 2)[0], y, paddle.cumsum(x, 1), z],
        *[paddle.argmax(x, 1), F.pad(x, [1, 1]), x.cast("int32") // 3, paddle.flip(x, 1)],
    ]


class Looping(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = paddle.nn.LSTM(4, 8, direction="bidirect")

    def forward(self, x):
        y, _ = self.lstm(x)
        _, y = paddle.static.nn.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, F.gelu(y)), [paddle.zeros([], "int32"), y]
        )
        return F.softmax(y)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, list[np.ndarray]]]:
    """Model files, and inputs for each."""
    folder, rng = tmp_path_factory.mktemp("cases"), np.random.default_rng(0)

    def noise(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    specs = [InputSpec([None, 6], "float32", "x"), InputSpec([3], "int64", "i")]
    net = paddle.vision.models.mobilenet_v3_small()
    return [
        (
            lite.export(net, folder / "net", [InputSpec([None, 3, 64, 64], "float32", "x")]),
            [noise(1, 3, 64, 64)],
        ),
        (lite.export(several_ops, folder / "ops", specs), [noise(5, 6), np.array([0, 3, 1])]),
        (
            lite.export(Looping(), folder / "loop", [InputSpec([None, None, 4], "float32", "x")]),
            [noise(2, 7, 4)],
        ),
        (
            lite.export(str(OCR / "ppocr-v6-tiny-recognise"), folder / "ocr"),
            [noise(1, 3, 48, 96)],
        ),
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_agrees(target: str, cases: Any, tmp_path: Path) -> None:
    folder = made(target)
    runner = [*TARGETS[target][2]]
    if target == "wasm":
        runner += [str(ROOT / "lite" / "tools" / "run.mjs"), str(folder / "bireme.wasm")]
        packed = len(gzip.compress((folder / "bireme.wasm").read_bytes(), 9))
        assert packed <= 170_000, packed
    else:
        runner += [str(folder / "lite_run")]
    for path, arrays in cases:
        given = []
        for i, a in enumerate(arrays):
            a.tofile(tmp_path / f"{i}.bin")
            given.append(f"{'x'.join(map(str, a.shape))}:{tmp_path / f'{i}.bin'}")
        subprocess.run([*runner, path, str(tmp_path / "out.bin"), *given], check=True)
        data, at = (tmp_path / "out.bin").read_bytes(), 0
        for want in lite.Model(path)(*arrays):
            got = np.frombuffer(data[at : at + want.nbytes], want.dtype).reshape(want.shape)
            at += want.nbytes
            scale = max(float(np.abs(want).max()), 1e-30)
            assert float(np.abs(got.astype(np.float64) - want).max()) <= 1e-4 * scale, path
        assert at == len(data)
    found = size(folder, target)
    print(f"{target}: {found:,} bytes")
    assert found <= LIMITS[target]


@pytest.mark.parametrize(("target", "limit"), [("arm64", 300_000), ("x86-64", 400_000)])
def test_a_tailored_library(target: str, limit: int, cases: Any, tmp_path: Path) -> None:
    folder = made(target, f"-DLITE_OPS_OF={cases[0][0]}", name=f"{target}-tailored")
    found = size(folder, target)
    print(f"{target} for MobileNetV3: {found:,} bytes")
    assert found <= limit
    if target == "x86-64":
        done = subprocess.run(
            [folder / "lite_run", cases[1][0], tmp_path / "out", "5x6:none", "3:none"],
            capture_output=True, text=True,
        )  # fmt: skip
        assert "this library has no op" in done.stderr


def test_damaged_files_under_sanitizers(cases: Any) -> None:
    folder = made("x86-64", "-DLITE_SANITIZE=ON", name="sanitized")
    small = [path for path, _ in cases if Path(path).stat().st_size < 1 << 20]
    done = subprocess.run(
        [folder / "lite_fuzz", "4000", "7", *small], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:3000]
    _, opened, ran = (int(w) for w in done.stdout.replace(",", "").split() if w.isdigit())
    assert opened > 400
    assert ran > 100


def test_a_folder_for_browsers(cases: Any, tmp_path: Path) -> None:
    made("wasm")  # or skipped
    _, (x,) = cases[0]
    net = paddle.vision.models.mobilenet_v3_small()
    specs = [InputSpec([None, 3, 64, 64], "float32", "x")]
    folder = Path(lite.export_web(net, tmp_path / "page", specs))
    page = (folder / "index.html").read_text() + (folder / "page.mjs").read_text()
    assert "://" not in page  # nothing from elsewhere
    x.tofile(tmp_path / "x.bin")
    subprocess.run(
        ["node", str(ROOT / "lite" / "tools" / "run.mjs"), folder / "bireme.wasm",
         folder / "model.blm", tmp_path / "out.bin", f"1x3x64x64:{tmp_path / 'x.bin'}"],
        check=True,
    )  # fmt: skip
    (want,) = lite.Model(folder / "model.blm")(x)
    got = np.fromfile(tmp_path / "out.bin", np.float32)
    assert float(np.abs(got - want.ravel()).max()) <= 1e-4 * float(np.abs(want).max())


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """Chromium without a window opens the folder's page, which runs the model."""
    made("wasm")  # or skipped
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    program = next((p for n in names if (p := shutil.which(n))), None)
    if program is None:
        pytest.skip("needs Chromium")
    folder = lite.export_web(str(OCR / "ppocr-v2-direction"), tmp_path / "page")
    handler = functools.partial(_Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            origin = f"http://127.0.0.1:{server.server_port}/"
            command = [
                "node",
                "--experimental-websocket",
                str(Path(__file__).parent / "browser.mjs"),
            ]
            done = subprocess.run(
                [*command, program, f"{origin}index.html#run", str(tmp_path / "page.png")],
                check=True, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
        finally:
            server.shutdown()
            thread.join()
    seen = json.loads(done.stdout)
    assert "Ran in" in seen["text"]
    assert "output_0 float32 [1, 2]" in seen["text"]
    assert all(r.startswith((origin, "data:,")) for r in seen["requests"])


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
