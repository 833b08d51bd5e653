"""Damaged images and PDF files: a result or an OcrError, in bounded time and memory.

    python -m tests.ocr.mutants 10000

Files are changed in small ways (bytes, cuts, sizes in headers, pieces of other files) and read
with the smallest nets. Anything but a document or an OcrError, a reading of more than 30 seconds,
and a peak of more than 1.5 GiB end the campaign with the seed that shows it again.
"""

from __future__ import annotations

import faulthandler
import io
import random
import sys
import time
import warnings

from bireme.ocr import OcrError, Reader
from bireme.profiler.memory import peak_process_bytes
from tests.ocr.pages import TEXT, page

SECONDS, MEBIBYTES = 30.0, 1536


def seeds() -> list[bytes]:
    """Small sound files of many formats."""
    image = page(TEXT[:2], (260, 90), 14)
    made = []
    for name, mode, options in (
        ("PNG", "RGB", {}), ("PNG", "P", {}), ("PNG", "RGBA", {}), ("PNG", "1", {}),
        ("JPEG", "RGB", {}), ("JPEG", "CMYK", {}), ("JPEG", "L", {"progressive": True}),
        ("TIFF", "RGB", {"compression": "tiff_lzw"}), ("TIFF", "1", {"compression": "group4"}),
        ("TIFF", "RGB", {"save_all": True, "append_images": [image]}),
        ("BMP", "RGB", {}), ("GIF", "P", {}), ("WEBP", "RGB", {}), ("PPM", "RGB", {}),
        ("TGA", "RGB", {}), ("JPEG2000", "RGB", {}), ("PDF", "RGB", {}),
    ):  # fmt: skip
        file = io.BytesIO()
        image.convert(mode).save(file, name, **options)
        made.append(file.getvalue())
    return made


def mutant(rng: random.Random, files: list[bytes]) -> bytes:
    """A file with one to eight changes, most of them near its beginning."""
    data = bytearray(rng.choice(files))
    for _ in range(rng.randint(1, 8)):
        if not data:
            break
        size = len(data)
        at = rng.randrange(min(size, 256)) if rng.random() < 0.6 else rng.randrange(size)
        way = rng.randrange(6)
        if way == 0:
            data[at] = rng.randrange(256)
        elif way == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif way == 2:
            del data[at : at + rng.randint(1, 16)]
        elif way == 3:
            data[at:at] = rng.randbytes(rng.randint(1, 16))
        elif way == 4:
            data[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"])
        else:
            other = rng.choice(files)
            start = rng.randrange(len(other))
            data[at : at + 64] = other[start : start + 64]
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data)


def run(count: int, first: int = 0) -> dict[str, int]:
    """Read this many mutants; returns how many were read and refused."""
    reader, files = Reader(tier="tiny"), seeds()
    for data in files:
        reader.read(data)  # sound files are read, and programs are there
    counts = {"read": 0, "refused": 0}
    for seed in range(first, first + count):
        data = mutant(random.Random(seed), files)
        faulthandler.dump_traceback_later(2 * SECONDS, exit=True)
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # decoders' remarks on damaged files
                reader.read(data)
            counts["read"] += 1
        except OcrError:
            counts["refused"] += 1
        except BaseException:
            sys.stderr.write(f"mutant {seed} raised\n")
            raise
        faulthandler.cancel_dump_traceback_later()
        took = time.perf_counter() - start
        if took > SECONDS or _peak() > MEBIBYTES:
            raise AssertionError(f"mutant {seed}: {took:.1f} s, peak {_peak():.0f} MiB")
    return counts


def _peak() -> float:
    """The most memory that the process has had, in MiB."""
    return peak_process_bytes() / 2**20


if __name__ == "__main__":
    begin = time.perf_counter()
    found = run(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    print(f"{found}, {time.perf_counter() - begin:.0f} s, peak {_peak():.0f} MiB")
