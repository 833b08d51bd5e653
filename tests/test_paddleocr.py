"""Code written for PaddleOCR 2 and 3, on `bireme.ocr`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bireme.core.errors import InvalidArgument
from bireme.ocr import OcrError
from bireme.paddleocr import PaddleOCR, draw_ocr
from tests.ocr.pages import TEXT, page

VERSION_2 = """
from paddleocr import PaddleOCR, draw_ocr
ocr = PaddleOCR(use_angle_cls=True, lang="en", show_log=False)
result = ocr.ocr("page.png", cls=True)
for idx in range(len(result)):
    res = result[idx]
    for line in res:
        box, (text, score) = line
        assert len(box) == 4 and 0 < score <= 1
        print(text)
from PIL import Image
result = result[0]
image = Image.open("page.png").convert("RGB")
boxes = [line[0] for line in result]
txts = [line[1][0] for line in result]
scores = [line[1][1] for line in result]
Image.fromarray(draw_ocr(image, boxes, txts, scores)).save("result.jpg")
"""
VERSION_3 = """
from paddleocr import PaddleOCR
ocr = PaddleOCR(
    use_doc_orientation_classify=False, use_doc_unwarping=False, use_textline_orientation=False
)
result = ocr.predict("page.png")
for res in result:
    res.save_to_img("output")
    res.save_to_json("output")
    for text in res["rec_texts"]:
        print(text)
"""


@pytest.mark.parametrize("program", [VERSION_2, VERSION_3], ids=["2", "3"])
def test_programs_run(program: str, tmp_path: Path) -> None:
    page(TEXT).save(tmp_path / "page.png")
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "bireme", "run", "program.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(TEXT)
    if program is VERSION_3:
        found = json.loads((tmp_path / "output/page_res.json").read_text())
        assert found["res"]["rec_texts"] == list(TEXT)
        assert (tmp_path / "output/page_ocr_res_img.png").is_file()


@pytest.fixture(scope="module")
def ocr() -> PaddleOCR:
    return PaddleOCR(text_detection_model_name="PP-OCRv6_tiny_det")


def test_results_answer_to_both_versions(ocr: PaddleOCR) -> None:
    image = np.asarray(page(TEXT))[:, :, ::-1]
    (result,) = ocr.predict(image)
    assert result["rec_texts"] == list(TEXT) == [line[1][0] for line in result]
    assert result["rec_boxes"].shape == (3, 4)
    assert result["dt_polys"][0].shape == (4, 2)
    assert "rec_texts" in result
    assert result.json["res"]["rec_boxes"] == result["rec_boxes"].tolist()
    assert ocr.ocr(image, det=False)[0][0][0] == TEXT[0]
    assert len(ocr.ocr(image, rec=False)[0][0]) == 4


def test_nothing_to_read(ocr: PaddleOCR) -> None:
    blank = np.full((64, 200, 3), 255, np.uint8)
    assert ocr.ocr(blank, cls=True) == [None]
    assert ocr.predict(blank)[0]["rec_texts"] == []


def test_colours_come_as_opencv_has_them() -> None:
    from bireme.paddleocr import _sources

    blue = np.zeros((2, 2, 3), np.uint8)
    blue[..., 0] = 255
    assert _sources([blue])[0][0, 0].tolist() == [0, 0, 255]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lang": "korean"}, "no net here reads lang='korean'"),
        ({"use_doc_unwarping": True}, "cannot be flattened"),
        ({"det_db_thresh": 0.2}, "det_db_thresh cannot be honoured"),
        ({"ocr_version": "PP-OCRv9"}, "ocr_version is one of"),
        ({"text_recognition_model_name": "PP-OCRv5_server_rec"}, "tiny and small are here"),
    ],
)
def test_what_cannot_be_honoured_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        PaddleOCR(**given)  # type: ignore[arg-type]


def test_older_versions_are_replaced_aloud() -> None:
    with pytest.warns(UserWarning, match="PP-OCRv6 reads in place of PP-OCRv4"):
        PaddleOCR(ocr_version="PP-OCRv4", lang="ch")


def test_addresses_are_not_fetched(ocr: PaddleOCR) -> None:
    with pytest.raises(OcrError, match="download it first"):
        ocr.predict("https://example.org/a.png")
    with pytest.raises(InvalidArgument, match="can be given to PaddleOCR"):
        ocr.predict("a.png", use_doc_unwarping=True)


def test_drawings() -> None:
    image = Image.new("RGB", (100, 50), "white")
    box = [[10, 10], [60, 10], [60, 30], [10, 30]]
    assert draw_ocr(image, [box]).shape == (50, 100, 3)
    assert draw_ocr(image, [box], ["text"], [0.9]).shape == (50, 200, 3)
    assert (draw_ocr(image, [box], ["text"], [0.3]) == 255).all()


def test_names_that_are_not_there() -> None:
    with pytest.raises(ImportError):
        from bireme.paddleocr import PPStructureV3  # noqa: F401
