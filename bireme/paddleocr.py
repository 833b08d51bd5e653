"""PaddleOCR's calls on `bireme.ocr`: under `bireme run`, `from paddleocr import PaddleOCR` is this
where the package itself is not installed. Calls of its versions 2 and 3 work, and a page's result
answers to both: it is the list of version 2, and takes the keys of version 3.

Arguments that say how Paddle shall compute are taken and mean nothing here; those that would change
what is read, and cannot be honoured, are refused.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import ItemsView, KeysView, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.ocr import OcrError, Page, Reader
from bireme.ocr.image import EXTENSIONS, Source, package
from bireme.ocr.write.picture import draw, images_of

if TYPE_CHECKING:
    from PIL.Image import Image

# A source, or several; a folder is its files.
Inputs: TypeAlias = "Source | Sequence[Source]"
# What a result holds under a key.
Value: TypeAlias = str | int | list[Any] | np.ndarray | dict[str, Any] | None

__all__ = ["OCRResult", "PaddleOCR", "draw_ocr"]

# How Paddle computes: threads, memory, log lines, batches.
_HOW = {
    "enable_mkldnn", "mkldnn_cache_capacity", "cpu_threads", "enable_hpi", "precision", "engine",
    "use_tensorrt", "enable_cinn", "show_log", "use_mp", "total_process_num", "process_id",
    "gpu_mem", "gpu_id", "ir_optim", "min_subgraph_size", "rec_batch_num", "cls_batch_num",
    "text_recognition_batch_size", "textline_orientation_batch_size", "benchmark", "use_onnx",
    "use_xpu", "use_npu", "use_mlu",
}  # fmt: skip
_LANGUAGES = {
    "ch", "chinese_cht", "en", "japan", "japanese", "fr", "french", "de", "german", "es", "it",
    "pt", "nl", "pl", "cs", "sk", "sl", "hr", "da", "no", "sv", "fi", "et", "lv", "lt", "hu", "ro",
    "tr", "id", "ms", "sw", "ga", "cy", "is", "sq", "la", "af", "eu", "ca", "gl", "mt", "tl", "bs",
    "rs_latin", "latin", "oc", "mi",
}  # fmt: skip
_VERSIONS = ("PP-OCR", "PP-OCRv2", "PP-OCRv3", "PP-OCRv4", "PP-OCRv5", "PP-OCRv6")


class OCRResult(list[Any]):
    """A page: `[box, (text, score)]` for each line; `result["rec_texts"]` and the like, too."""

    def __init__(self, page: Page, source: Source, index: int | None):
        self._page, self._source = page, source
        polygons = [[[round(x), round(y)] for x, y in line.polygon] for line in page.lines]
        super().__init__(
            [
                [[[float(x), float(y)] for x, y in p], (line.text, line.score)]
                for p, line in zip(polygons, page.lines, strict=True)
            ]
        )
        boxes = [[round(v) for v in line.box] for line in page.lines]
        given = isinstance(source, str | os.PathLike)
        points = [np.array(p, np.int16) for p in polygons]
        self._held: dict[str, Any] = {
            "input_path": os.fspath(source) if given else None,
            "page_index": index,
            "dt_polys": points,
            "rec_texts": [line.text for line in page.lines],
            "rec_scores": [line.score for line in page.lines],
            "rec_polys": points,
            "rec_boxes": np.array(boxes, np.int16).reshape(-1, 4),
            "model_settings": {"use_doc_preprocessor": bool(page.angle)},
            "text_type": "general",
        }

    def __getitem__(self, key: Any) -> Any:
        return self._held[key] if isinstance(key, str) else super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return key in self._held if isinstance(key, str) else super().__contains__(key)

    def get(self, key: str, default: Value = None) -> Value:
        return self._held.get(key, default)

    def keys(self) -> KeysView[str]:
        return self._held.keys()

    def items(self) -> ItemsView[str, Value]:
        return self._held.items()

    @property
    def json(self) -> dict[str, Any]:
        """The result in plain lists and numbers."""
        return {"res": {key: _plain(value) for key, value in self._held.items()}}

    @property
    def img(self) -> dict[str, Any]:
        """A picture of the result."""
        pixels = images_of(self._source)[self._page.number - 1]
        return {"ocr_res_img": draw(self._page, pixels)}

    def print(self, format_json: bool = False, indent: int = 4, ensure_ascii: bool = False) -> None:
        """Show the result."""
        text = json.dumps(self.json, indent=indent, ensure_ascii=ensure_ascii)
        sys.stdout.write((text if format_json else str(self.json)) + "\n")

    def save_to_json(self, save_path: str, indent: int = 4, ensure_ascii: bool = False) -> None:
        """Write the result as JSON into a folder, or to a file that ends in .json."""
        path = self._path(save_path, ".json", "_res")
        text = json.dumps(self.json, indent=indent, ensure_ascii=ensure_ascii)
        path.write_text(text, encoding="utf-8")

    def save_to_img(self, save_path: str) -> None:
        """Write a picture of the result into a folder, or to a file."""
        self.img["ocr_res_img"].save(self._path(save_path, ".png", "_ocr_res_img"))

    def _path(self, given: str, extension: str, mark: str) -> Path:
        path = Path(given)
        if not path.suffix:
            name = self._held["input_path"]
            index = self._held["page_index"]
            stem = Path(name).stem if name else "image"
            path = path / f"{stem}{'' if index is None else f'_{index}'}{mark}{extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class PaddleOCR:
    """Finds and reads the lines of images, as PaddleOCR's class of this name does."""

    def __init__(
        self,
        lang: str | None = None,
        ocr_version: str | None = None,
        use_doc_orientation_classify: bool | None = None,
        use_doc_unwarping: bool | None = None,
        use_textline_orientation: bool | None = None,
        use_angle_cls: bool | None = None,
        text_rec_score_thresh: float | None = None,
        drop_score: float | None = None,
        device: str | None = None,
        use_gpu: bool | None = None,
        text_detection_model_name: str | None = None,
        text_recognition_model_name: str | None = None,
        **how: object,
    ):
        _check(how)
        if lang is not None and lang not in _LANGUAGES:
            raise InvalidArgument(
                f"PaddleOCR: no net here reads lang={lang!r}. There are: "
                f"{', '.join(sorted(_LANGUAGES))}"
            )
        if ocr_version is not None and ocr_version not in _VERSIONS:
            raise InvalidArgument(f"PaddleOCR: ocr_version is one of {', '.join(_VERSIONS)}")
        if ocr_version not in (None, "PP-OCRv6"):
            warnings.warn(f"PP-OCRv6 reads in place of {ocr_version}", stacklevel=2)
        if use_doc_unwarping:
            raise InvalidArgument(
                "PaddleOCR: pages cannot be flattened here; leave out use_doc_unwarping=True"
            )
        least = text_rec_score_thresh if drop_score is None else drop_score
        lines = use_textline_orientation if use_angle_cls is None else use_angle_cls
        self._reader = Reader(
            tier=_tier(text_detection_model_name, text_recognition_model_name),
            device=device or {True: "gpu", False: "cpu", None: None}[use_gpu],
            turn_pages=use_doc_orientation_classify is not False,
            turn_lines=lines is not False,
            min_score=0.5 if least is None else least,
        )

    def predict(self, input: Inputs, **options: object) -> list[OCRResult]:
        """A result for each page of a path, a folder, an array (blue, green, red), or a list."""
        asked = {k: v for k, v in options.items() if v is not None}
        if asked:
            raise InvalidArgument(
                f"PaddleOCR.predict: {', '.join(asked)} can be given to PaddleOCR(...) only"
            )
        return [found for source in _sources(input) for found in self._read(source)]

    predict_iter = predict

    def ocr(
        self, img: Inputs, det: bool = True, rec: bool = True, cls: bool | None = None
    ) -> list[Any]:
        """Version 2's call: for each page a list of `[box, (text, score)]`, None without text.

        `cls` is PaddleOCR(use_angle_cls=...) here: lines are turned only where they read badly.
        """
        results = self.predict(img)
        if not rec:
            return [[line[0] for line in found] or None for found in results]
        if not det:
            return [[line[1] for line in found] or None for found in results]
        return [found if len(found) else None for found in results]

    def _read(self, source: Any) -> list[OCRResult]:
        document = self._reader.read(source)
        many = len(document) > 1
        return [OCRResult(page, source, i if many else None) for i, page in enumerate(document)]

    def close(self) -> None:
        """Nothing is held that has to be given back."""


def _check(how: dict[str, object]) -> None:
    unknown = [name for name, value in how.items() if name not in _HOW and value is not None]
    if unknown:
        raise InvalidArgument(
            f"PaddleOCR: {', '.join(sorted(unknown))} cannot be honoured here. Leave it out, or "
            "install the package paddleocr, which then runs on Bireme"
        )


def _tier(*names: str | None) -> str | None:
    """The tier of model names such as PP-OCRv6_tiny_rec."""
    tiers = {name.split("_")[1] for name in names if name is not None and name.count("_") >= 2}
    given = [name for name in names if name is not None]
    if not given:
        return None
    if len(tiers) != 1 or not tiers <= {"tiny", "small"}:
        raise InvalidArgument(f"PaddleOCR: PP-OCRv6's tiny and small are here. Received: {given}")
    return tiers.pop()


def _sources(given: Any) -> list[Any]:
    if isinstance(given, list | tuple):
        return [source for one in given for source in _sources(one)]
    if isinstance(given, np.ndarray):
        # Arrays come from OpenCV: blue first.
        return [given[:, :, ::-1] if given.ndim == 3 and given.shape[2] == 3 else given]
    if isinstance(given, str) and given.startswith(("http://", "https://")):
        raise OcrError(given, "is not on this machine; download it first")
    if isinstance(given, str | os.PathLike) and os.path.isdir(given):
        found = sorted(p for p in Path(given).iterdir() if p.suffix.lower() in EXTENSIONS)
        return [os.fspath(p) for p in found]
    return [given]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, list) else value


def draw_ocr(
    image: Image | np.ndarray,
    boxes: Sequence[Sequence[Sequence[float]]],
    txts: Sequence[str] | None = None,
    scores: Sequence[float] | None = None,
    drop_score: float = 0.5,
    font_path: str | None = None,
) -> np.ndarray:
    """An image with boxes, and beside it the texts where they stand."""
    pillow, fonts = package("PIL.Image"), package("PIL.ImageFont")
    pixels: Any = image if isinstance(image, pillow.Image) else pillow.fromarray(np.asarray(image))
    shown = pixels.convert("RGB")
    wide = shown.width * (1 if txts is None else 2)
    whole = pillow.new("RGB", (wide, shown.height), "white")
    whole.paste(shown, (0, 0))
    pen = package("PIL.ImageDraw").Draw(whole)
    for i, box in enumerate(boxes):
        if scores is not None and scores[i] < drop_score:
            continue
        points = [(float(x), float(y)) for x, y in box]
        pen.polygon(points, outline=(208, 48, 48))
        if txts is not None:
            size = max(8, 0.7 * abs(points[3][1] - points[0][1]))
            font = fonts.truetype(font_path, size) if font_path else fonts.load_default(size)
            pen.text((points[0][0] + shown.width, points[0][1]), txts[i], "black", font)
    return np.asarray(whole)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"paddleocr.{name} is not in Bireme: there are {', '.join(__all__)}. Install the package "
        "paddleocr for the rest; it then runs on Bireme"
    )
