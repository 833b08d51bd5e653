"""Packages written against Paddle: which files, what they import that the models do not need."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.clients.absent import bare_package, stand_in
from tests.convert.paddle import packages as published

SHA256 = {
    "paddleclas==2.6.0": "3c12fd8994d95ed1b4fd60017cdbc12bb0e77a41a7921b022e9a6fb5d287fe8a",
    "paddledet==2.6.0": "a3cf717d61c771be000a7cd7f3cc6b254724aacf24db6bfcba1443c2f409deff",
    "paddlenlp==2.8.1": "8cb5324ee5c39d29264ec5049ea5a6beeebb04a625b5a5c519b92475ea7d067f",
    "paddlesci==1.4.0": "44f2b8e15d45a6b4ecd49c3ed87221e8418229ed2bfb2019bb32ed918328615c",
    "paddleseg==2.8.0": "299e70438e5a2df08ea169dfaee828c75c67c5015e958e9970ccc4d62a90d35c",
    "paddlespeech==1.5.0": "ef292722776bf824b8c949e3a829dfa8bb22c666c26f37644534b009ef49a505",
    "paddlex==3.7.2": "f1678bf650bbaccfd8f0d4e49d0ae631b4685c829fdae6e802ccd90d4fcb9a7f",
    "ppdiffusers==0.29.0": "ce8219776fea24b80cc72c1913e646a6c0f4afb0743d5ddaf557fb47ff91cc32",
    # Their small helpers.
    "six==1.17.0": "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274",
    "einops==0.8.1": "919387eb55330f5757c6bea9165c5ff5cfe63a642682ea788a6d472576d81737",
}
published.PACKAGES.update(SHA256)


@dataclass
class Package:
    """How to import a client without what it needs beside its models."""

    pinned: str
    # Packages whose __init__ is left out, with what their submodules take from it.
    bare: dict[str, dict[str, Any]] = field(default_factory=dict)
    absent: str = ""  # third-party packages replaced by empty ones
    values: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # other clients

    def fetch(self) -> list[Path]:
        """Folders for `sys.path`."""
        folders = [published.fetched(self.pinned)]
        for other in self.needs:
            folders += CLIENTS[other].fetch()
        return folders

    def enable(self) -> None:
        """Make it importable in this process."""
        for pinned in ("six==1.17.0", "einops==0.8.1"):
            sys.path.insert(0, str(published.fetched(pinned)))
        for other in self.needs:
            CLIENTS[other].enable()
        folder = published.fetched(self.pinned)
        sys.path.insert(0, str(folder))
        stand_in(self.absent.split(), self.values)
        for name, attributes in self.bare.items():
            bare_package(name, str(folder.joinpath(*name.split("."))), **attributes)


_HUB = {
    f"huggingface_hub.constants.{name}": "." for name in ("HUGGINGFACE_HUB_CACHE", "hf_cache_home")
}
CLIENTS = {
    "paddlenlp": Package(
        "paddlenlp==2.8.1",
        {
            "paddlenlp": {
                "__version__": "2.8.1",
                "version": SimpleNamespace(commit="", show=lambda: None),
            }
        },
        "aistudio_sdk huggingface_hub colorlog datasets sentencepiece seqeval jieba colorama dill "
        "multiprocess rarfile visualdl paddlefsl paddle2onnx fastapi uvicorn typer tiktoken emoji "
        "jinja2 requests rouge regex pydantic sacremoses filelock yaml",
    ),
    "paddleclas": Package(
        "paddleclas==2.6.0",
        {"paddleclas": {}},
        "cv2 faiss visualdl prettytable ujson easydict yaml skimage requests",
    ),
    "paddledet": Package(
        "paddledet==2.6.0",
        {"ppdet": {}},
        "cv2 yaml typeguard visualdl pycocotools pyclipper lap motmetrics shapely numba "
        "terminaltables requests",
    ),
    "paddleseg": Package(
        "paddleseg==2.8.0", {"paddleseg": {}}, "cv2 yaml visualdl prettytable filelock requests"
    ),
    "paddlex": Package(
        "paddlex==3.7.2",
        {"paddlex": {}},
        "cv2 yaml ruamel prettytable chardet pycocotools ujson requests colorlog modelscope "
        "huggingface_hub aistudio_sdk pydantic cpuinfo GPUtil filelock",
    ),
    "ppdiffusers": Package(
        "ppdiffusers==0.29.0",
        {"ppdiffusers": {"__version__": "0.29.0"}},
        "ftfy huggingface_hub",
        _HUB,
        needs=("paddlenlp",),
    ),
    "paddlespeech": Package(
        "paddlespeech==1.5.0",
        {"paddlespeech": {}},
        "librosa soundfile yacs loguru kaldiio resampy typeguard yaml webdataset paddleaudio "
        "sentencepiece g2p_en jieba editdistance textgrid timer colorlog pathos inflect jsonlines "
        "h5py braceexpand pypinyin requests ffmpeg ffmpy flatten_dict visualdl",
    ),
    "paddlesci": Package(
        "paddlesci==1.4.0",
        {"ppsci": {}},
        "skopt hydra omegaconf sympy cv2 h5py imageio meshio pyvista seaborn wget colorlog yaml "
        "skimage vtk pyevtk requests portalocker pysdf open3d trimesh wandb tensorboardX pydantic "
        "ml_collections",
    ),
}  # fmt: skip
