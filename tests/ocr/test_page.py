"""The page's code runs, and the package is quiet until it is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, folder: Path) -> str:
    script = folder / "page.py"
    script.write_text(code)
    # Native kernels are built on first need: minutes where little of the machine is free.
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs/ocr.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    shown = run("\n".join(blocks), tmp_path).splitlines()
    assert shown[0] == "Two banks of oars"
    assert shown[-8:] == [
        "photo.png 1",
        "b'%PDF-'",
        "3 2 [2, 1, 1, 1, 1]",
        "<table>",
        '<tr><td colspan="2">Ships and their crews</td></tr>',
        "<tr><td>Bireme</td><td>120</td></tr>",
        "<tr><td>Trireme</td><td>200</td></tr>",
        "</table>",
    ]


def test_importing_it_imports_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys\nimport bireme.ocr\n"
    code += "print(sorted({'PIL', 'scipy', 'jax', 'pypdfium2', 'onnx'} & set(sys.modules)))"
    assert run(code, tmp_path).strip() == "[]"
