"""The C interface from C: the example reads a line of text."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import bireme as paddle
from bireme import lite
from bireme.lite.building import library, sources

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = Path(paddle.__file__).parent / "ocr" / "weights"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_example_reads_a_line(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="draws the line")
    draw = pytest.importorskip("PIL.ImageDraw")
    font = pytest.importorskip("PIL.ImageFont").load_default(32)
    line = image.new("RGB", (360, 48), "white")
    draw.Draw(line).text((10, 4), "Bireme Lite 2048", font=font, fill="black")
    line.save(tmp_path / "line.ppm")
    model = lite.export(str(WEIGHTS / "ppocr-v6-tiny-recognise"), tmp_path / "m")
    folder, program, shared = sources(), tmp_path / "recognise", Path(library()._name)
    subprocess.run(
        ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{folder}/include",
         str(ROOT / "examples" / "lite_c" / "recognise.c"), str(shared),
         f"-Wl,-rpath,{shared.parent}", "-lm", "-o", str(program)],
        check=True,
    )  # fmt: skip
    characters = WEIGHTS / "ppocr-v6-tiny-recognise.txt"
    done = subprocess.run(
        [str(program), model, str(characters), str(tmp_path / "line.ppm")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "Bireme Lite 2048"
    bad = subprocess.run([str(program), "none", "none", "none"], capture_output=True, text=True)
    assert bad.returncode == 1
    assert "cannot be read" in bad.stderr
