"""Small good files of data sets, sounds and pictures, and what reads them."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bireme import audio, text, vision
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.vision.datasets.folder import load_image
from bireme.vision.datasets.matlab import read_matrices
from tests.fuzz import structure
from tests.fuzz.formats import Format, Reader, beside

# Without a frequent word the user is told to ask for less frequent ones.
_WORDS = (FileFormatError, InvalidArgument)
At = Callable[[str, bytes, Callable[[str], Any]], tuple[bytes, Reader]]
RNG = np.random.default_rng(0)


def tar(files: dict[str, bytes], packed: bool = True) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if packed else "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def sound(width: int = 2, channels: int = 2, frames: int = 50) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as f:
        f.setnchannels(channels)
        f.setsampwidth(width)
        f.setframerate(8000)
        f.writeframes(RNG.integers(0, 256, width * channels * frames, "uint8").tobytes())
    return out.getvalue()


def picture(form: str) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (6, 5, 3), "uint8")).save(out, form)
    return out.getvalue()


def matrix(name: str, values: list[int]) -> bytes:
    """A row of a MATLAB 5 file: an element of type matrix."""

    def element(kind: int, data: bytes) -> bytes:
        return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)

    inner = element(6, struct.pack("<II", 9, 0)) + element(5, struct.pack("<ii", 1, len(values)))
    inner += element(1, name.encode()) + element(2, bytes(values))
    return element(14, inner)


def mat_file(*matrices: bytes) -> bytes:
    import zlib

    out = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    for number, m in enumerate(matrices):
        packed = zlib.compress(m)
        out += struct.pack("<II", 15, len(packed)) + packed if number % 2 == 0 else m
    return out


def cifar_batch(protocol: int = 2, labels: bytes = b"labels") -> bytes:
    batch = {
        b"data": RNG.integers(0, 256, (2, 3072), "uint8"),
        labels: [1, 2],
        b"batch_label": b"x",
    }
    return pickle.dumps(batch, protocol)


def dataset_formats(folder: Path) -> dict[str, Format]:
    place = folder / "data"
    place.mkdir()

    def at(name: str, data: bytes, read: Callable[[str], Any]) -> tuple[bytes, Reader]:
        path = place / name
        path.write_bytes(data)
        return beside(path, lambda: read(str(path)))

    def all_of(data: Any) -> None:
        for i in range(len(data)):
            data[i]

    images = bytes([0, 0, 8, 3]) + struct.pack(">III", 2, 4, 3) + bytes(range(24))
    labels = bytes([0, 0, 8, 1]) + struct.pack(">I", 2) + b"\x01\x02"
    (place / "labels").write_bytes(labels)
    npy = io.BytesIO()
    np.save(npy, np.ones((2, 3), "float32"))
    inside = structure.any_of(structure.pickled, structure.flipped)

    def mnist(path: str) -> None:
        all_of(vision.datasets.MNIST(path, str(place / "labels"), backend="cv2"))

    def flowers(images: str, names: str, sets: str) -> None:
        all_of(vision.datasets.Flowers(images, names, sets, backend="cv2"))

    shot = {f"jpg/image_{i:05}.jpg": picture("JPEG") for i in (1, 2)}
    flower_files = [place / n for n in ("102flowers.tgz", "labels.mat", "setid.mat")]
    flower_files[0].write_bytes(tar(shot))
    flower_files[1].write_bytes(mat_file(matrix("labels", [3, 1])))
    sets = mat_file(*[matrix(n, [1, 2]) for n in ("tstid", "trnid", "valid")])
    flower_files[2].write_bytes(sets)
    paths = [str(p) for p in flower_files]
    root = "VOCdevkit/VOC2012"
    voc = tar(
        {
            f"{root}/ImageSets/Segmentation/trainval.txt": b"a\n",
            f"{root}/JPEGImages/a.jpg": picture("JPEG"),
            f"{root}/SegmentationClass/a.png": picture("PNG"),
        },
        packed=False,
    )
    made = {
        "WAV": Format(
            *at("a.wav", sound(), lambda p: (audio.info(p), audio.load(p))), structure.numbers
        ),
        "WAV 24": Format(sound(3, 1), lambda d: audio.load(io.BytesIO(d)), structure.numbers),
        "idx": Format(*at("i", images, mnist), structure.numbers),
        "idx.gz": Format(
            *at("i.gz", gzip.compress(images), mnist), structure.gzipped(structure.numbers)
        ),
        "CIFAR": Format(
            *at(
                "c.tar.gz",
                tar({"c/data_batch_1": cifar_batch(), "c/test_batch": cifar_batch(4)}),
                lambda p: all_of(vision.datasets.Cifar10(p, backend="cv2")),
            ),
            structure.gzipped(structure.tarred(inside)),
            share=0.5,
        ),
        "CIFAR 100": Format(
            *at(
                "c.tar",
                tar({"c/train": cifar_batch(2, b"fine_labels")}, packed=False),
                lambda p: all_of(vision.datasets.Cifar100(p, backend="cv2")),
            ),
            structure.tarred(inside),
            share=0.5,
        ),
        "MATLAB": Format(
            *at(
                "m.mat",
                mat_file(matrix("labels", [3, 1]), matrix("x", [1])),
                lambda p: read_matrices(p, "fuzz"),
            ),
            structure.numbers,
        ),
        "Flowers": Format(
            *beside(flower_files[0], lambda: flowers(*paths)),
            structure.gzipped(structure.tarred(structure.flipped)),
            share=0.3,
        ),
        "Flowers sets": Format(
            *beside(flower_files[2], lambda: flowers(*paths)), structure.numbers, share=0.3
        ),
        "VOC": Format(
            *at("voc.tar", voc, lambda p: all_of(vision.datasets.VOC2012(p, backend="cv2"))),
            structure.tarred(structure.any_of(structure.flipped, structure.lines)),
            share=0.3,
        ),
        "npy": Format(*at("a.npy", npy.getvalue(), load_image), structure.npy),
    }
    for form in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP"):
        read = at(
            f"a.{form.lower()}", picture(form), lambda p: np.asarray(vision.image_load(p, "cv2"))
        )
        made[form] = Format(*read, structure.numbers, share=0.4)
    return {**made, **text_formats(at, all_of), **sound_sets(at, all_of)}


def text_formats(at: At, all_of: Any) -> dict[str, Format]:
    packed = structure.gzipped(
        structure.tarred(structure.any_of(structure.lines, structure.flipped))
    )
    words = b"the a of the a\nthe of\n"
    imdb = {
        f"aclImdb/{part}/{kind}/0.txt": words
        for part in ("train", "test")
        for kind in ("pos", "neg")
    }
    ptb = {f"./simple-examples/data/ptb.{part}.txt": words for part in ("train", "valid", "test")}
    wmt14 = {
        "d/src.dict": b"<s>\n<e>\n<unk>\nthe\n",
        "d/trg.dict": b"<s>\n<e>\n<unk>\nle\n",
        "d/train/train": b"the\tle\nthe the\tle\n",
    }
    wmt16 = {"wmt16/train": b"the a\tder ein\n", "wmt16/test": b"a\tein\n"}
    folder = "conll05st-release/test.wsj"
    conll = {
        f"{folder}/words/test.wsj.words.gz": gzip.compress(b"He\nruns\n\n"),
        f"{folder}/props/test.wsj.props.gz": gzip.compress(b"- (A0*)\nrun (V*)\n\n"),
    }
    rows = "\n".join(" ".join(f"{(i * j) % 7 + i:.2f}" for j in range(1, 15)) for i in range(6))
    films = {
        "ml-1m/movies.dat": b"1::Toy Story (1995)::Animation|Comedy\n",
        "ml-1m/users.dat": b"1::F::1::10::48067\n",
        "ml-1m/ratings.dat": b"1::1::5::978300760\n",
    }
    d: Any = text.datasets

    def conll05(path: str) -> None:
        names = []
        for name, data in (
            ("words", b"He\nruns\n"),
            ("verbs", b"run\n"),
            ("labels", b"B-A0\nB-V\n"),
            ("vectors", b"1 2\n"),
        ):
            names.append(Path(path).with_suffix(f".{name}"))
            names[-1].write_bytes(data)
        all_of(d.Conll05st(path, *[str(n) for n in names]))

    conll_damage = structure.gzipped(
        structure.tarred(structure.any_of(structure.gzipped(structure.lines), structure.flipped))
    )
    return {
        "Imdb": Format(
            *at("imdb.tgz", tar(imdb), lambda p: all_of(d.Imdb(p, cutoff=0))), packed, _WORDS, 0.3
        ),
        "Imikolov": Format(
            *at(
                "ptb.tgz", tar(ptb), lambda p: all_of(d.Imikolov(p, window_size=2, min_word_freq=0))
            ),
            packed,
            _WORDS,
            0.3,
        ),
        "WMT14": Format(
            *at("w14.tgz", tar(wmt14), lambda p: all_of(d.WMT14(p, dict_size=4))), packed, share=0.3
        ),
        "WMT16": Format(
            *at(
                "w16.tgz",
                tar(wmt16),
                lambda p: all_of(d.WMT16(p, src_dict_size=5, trg_dict_size=5)),
            ),
            packed,
            share=0.3,
        ),
        "CoNLL": Format(*at("conll.tgz", tar(conll), conll05), conll_damage, share=0.3),
        "housing": Format(
            *at("h.data", rows.encode(), lambda p: all_of(d.UCIHousing(p))), structure.lines
        ),
        "MovieLens": Format(
            *at("ml.zip", zip_of(films), lambda p: all_of(d.Movielens(p))),
            structure.zipped(structure.lines),
            share=0.5,
        ),
    }


def sound_sets(at: At, all_of: Any) -> dict[str, Format]:
    table = b"filename,fold,target,category,esc10,src_file,take\n1-0.wav,1,0,x,False,0,A\n"
    esc = {"ESC-50-master/meta/esc50.csv": table, "ESC-50-master/audio/1-0.wav": sound(2, 1)}
    tess = {
        f"TESS_Toronto_emotional_speech_set/OAF_word_{e}.wav": sound(2, 1) for e in ("angry", "sad")
    }
    damage = structure.zipped(
        structure.any_of(structure.lines, structure.numbers, structure.flipped)
    )
    d: Any = audio.datasets
    return {
        "ESC-50": Format(
            *at("esc.zip", zip_of(esc), lambda p: all_of(d.ESC50("dev", 1, archive=p))),
            damage,
            share=0.3,
        ),
        "TESS": Format(
            *at("tess.zip", zip_of(tess), lambda p: all_of(d.TESS("dev", 2, 1, archive=p))),
            damage,
            share=0.3,
        ),
    }
