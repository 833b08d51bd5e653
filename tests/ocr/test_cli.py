"""`bireme ocr`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bireme.cli import main
from tests.ocr.pages import TEXT, page


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    page(TEXT).save("a.png")
    page(TEXT[:1]).save("b.png")
    (tmp_path / "broken.png").write_bytes(b"nothing")
    return tmp_path


def test_one_file_goes_to_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ocr", "a.png", "--tier", "tiny"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == list(TEXT)
    assert err == ""


def test_many_files_go_on_after_a_bad_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["ocr", ".", "-o", "out", "-f", "json,md,pdf", "--tier", "tiny"]
    assert main(given) == 1
    _, err = capsys.readouterr()
    assert "bireme ocr: broken.png: is not an image that can be read" in err
    assert "[3/3] broken.png: failed" in err
    names = sorted(p.name for p in (folder / "out").iterdir())
    assert names == ["a.json", "a.md", "a.pdf", "b.json", "b.md", "b.pdf"]
    assert json.loads((folder / "out/b.json").read_text())["name"] == "b.png"


def test_results_are_never_written_over_sources(folder: Path) -> None:
    before = (folder / "a.png").read_bytes()
    assert main(["ocr", "a.png", "-f", "picture", "--tier", "tiny", "-q"]) == 0
    assert (folder / "a.png").read_bytes() == before
    assert (folder / "a.png.ocr.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["no.png"], "no.png: No such file"),
        (["a.png", "-f", "docx"], "format 'docx': there is none"),
        (["pull", "huge"], "huge: is no model and no tier"),
    ],
)
def test_mistakes(
    folder: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert main(["ocr", *given]) == 1
    assert said in capsys.readouterr().err


def test_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ocr", "models"]) == 0
    assert "ppocr-v6-tiny-detect        detect      Apache-2.0  here" in capsys.readouterr().out
