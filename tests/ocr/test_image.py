"""Whatever shows a page becomes the same RGB bytes; what shows none is one kind of error."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bireme.ocr import OcrError
from bireme.ocr.image import MAX_PIXELS, frames
from tests.ocr.pages import TEXT, page

PAGE = page(TEXT, (320, 160), 16)
GREY = np.asarray(PAGE.convert("L"))


def one(source: Any) -> np.ndarray:
    (found,) = frames(source)
    assert found.dtype == np.uint8
    assert found.ndim == 3
    assert found.shape[2] == 3
    return found


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


RGBA = PAGE.convert("RGBA")
ODD = {
    "uint8": GREY,
    "one channel": GREY[:, :, None],
    "channels first": np.repeat(GREY[None], 3, axis=0),
    "batch of one": np.repeat(GREY[None, :, :, None], 3, axis=3),
    "grey with alpha": np.stack([GREY, np.full_like(GREY, 255)], axis=2),
    "rgba": np.asarray(RGBA),
    "uint16": GREY.astype(np.uint16) * 257,
    "int64": GREY.astype(np.int64),
    "float 0 to 1": GREY / 255,
    "float 0 to 255": GREY.astype(np.float64),
    "float16": (GREY / 255).astype(np.float16),
    "negative floats": GREY / 127.5 - 1,
    "nan": np.where(GREY == 0, np.nan, GREY / 255),
    "png": saved(PAGE, "PNG"),
    "16-bit png": saved(Image.fromarray(GREY.astype(np.uint16) * 257), "PNG"),
    "12 bits in a png": saved(Image.fromarray((GREY * 16.05).astype(np.uint16)), "PNG"),
    "float tiff": saved(Image.fromarray(GREY.astype(np.float32) / 255), "TIFF"),
    "cmyk tiff": saved(PAGE.convert("CMYK"), "TIFF"),
    "palette": saved(PAGE.convert("L").convert("P"), "PNG"),
    "transparent png": saved(RGBA, "PNG"),
    "bmp": saved(PAGE, "BMP"),
    "ppm": saved(PAGE, "PPM"),
    "webp": saved(PAGE, "WEBP", lossless=True),
    "pillow": PAGE,
}


@pytest.mark.parametrize("kind", ODD)
def test_kinds_of_images_look_the_same(kind: str) -> None:
    found = one(ODD[kind]).astype(int)
    assert found.shape == (160, 320, 3)
    assert np.abs(found - GREY[:, :, None]).max() <= 2


def test_one_bit() -> None:
    bits = PAGE.convert("1")
    expected = np.asarray(bits)[:, :, None] * 255
    assert (one(saved(bits, "PNG")) == expected).all()
    assert (one(np.asarray(bits)) == expected).all()


def test_a_camera_turned_on_its_side() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = PAGE.transpose(Image.Transpose.ROTATE_90)
    assert (one(saved(turned, "PNG", exif=exif)) == np.asarray(PAGE)).all()


def test_light_letters_on_a_transparent_ground_are_shown_on_black() -> None:
    alpha = 255 - GREY
    white = np.full_like(GREY, 255)
    assert (one(np.stack([white, white, white, alpha], axis=2))[..., 0] == alpha).all()
    black = np.zeros_like(GREY)
    assert (one(np.stack([black, black, black, alpha], axis=2))[..., 0] == GREY).all()


def test_pages_of_a_tiff() -> None:
    other = page(("another",), (100, 50), 16)
    data = saved(PAGE, "TIFF", save_all=True, append_images=[other])
    assert [p.shape for p in frames(data)] == [(160, 320, 3), (50, 100, 3)]


def test_an_animation_is_its_first_picture() -> None:
    data = saved(PAGE, "GIF", save_all=True, append_images=[PAGE.rotate(90)])
    assert len(list(frames(data))) == 1


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (20_000, 3)])
def test_extreme_sizes(size: tuple[int, int]) -> None:
    assert one(Image.new("L", size)).shape[:2] == size[::-1]


WRONG: dict[str, Any] = {
    "empty": b"",
    "no image": b"%!PS-Adobe-3.0 EPSF-3.0\n",
    "cut off": saved(PAGE, "PNG")[:200],
    "missing": "/no/such/file.png",
    "a NUL": "a\0.png",
    "an object": object(),
    "complex": np.zeros((4, 4), complex),
    "text": np.array([["a"]]),
    "a row": np.zeros(5),
    "five channels": np.zeros((8, 8, 5)),
    "no pixels": np.zeros((0, 8)),
    "too large": np.broadcast_to(np.uint8(0), (60_000, MAX_PIXELS // 60_000 + 1)),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_image_is_one_error(kind: str) -> None:
    with pytest.raises(OcrError) as caught:
        list(frames(WRONG[kind]))
    assert caught.value.source
    assert str(caught.value) == f"{caught.value.source}: {caught.value.reason}"


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(b"not a picture")
    with pytest.raises(OcrError, match=r"broken\.png: is not an image that can be read"):
        list(frames(path))
    with pytest.raises(OcrError, match="is a folder"):
        list(frames(tmp_path))


def test_a_bomb_is_refused_before_it_is_unfolded() -> None:
    data = saved(Image.new("1", (20_000, 20_000)), "PNG")
    with pytest.raises(OcrError, match=r"at most|exceeds"):
        list(frames(data))


def test_errors_can_be_sent_to_other_processes() -> None:
    error = pickle.loads(pickle.dumps(OcrError("a.png", "is empty")))
    assert (error.source, error.reason, str(error)) == ("a.png", "is empty", "a.png: is empty")
