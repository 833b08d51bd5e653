"""Made-up models: numbers that both sides make from names, so that golden files hold only results.

`make_encoders.py` runs where transformers is and writes the results; the tests write the folders
and compare.
"""

from __future__ import annotations

import json
import pathlib
import zlib
from typing import Any

import numpy as np

GOLDEN = pathlib.Path(__file__).parent / "golden" / "made_up"
SAMPLES = 6  # elements of each gradient that are kept, besides one sum over all


def tensor(case: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The tensor `name` of the model `case`."""
    rng = np.random.default_rng(zlib.crc32(f"{case}/{name}".encode()))
    values = rng.standard_normal(shape)
    if len(shape) < 2:
        values = 0.1 * values + (1.0 if name.endswith("weight") or "lambda" in name else 0.0)
    else:
        values *= 0.35 if len(shape) == 2 else 0.2
        if name.endswith(".q.weight"):  # T5's scores are not scaled: smaller ones are kinder
            values *= 0.3
    return np.asarray(values, np.float32)


def weights_of_loss(case: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """What each element of an output counts in the loss."""
    return tensor(case, f"loss/{name}", (*shape, 1))[..., 0]


def digest(case: str, name: str, grad: np.ndarray) -> np.ndarray:
    """One sum over all elements of a gradient with made-up weights, and some elements."""
    rng = np.random.default_rng(zlib.crc32(f"digest/{case}/{name}".encode()))
    flat = grad.astype(np.float64).reshape(-1)
    signs = rng.choice([-1.0, 1.0], flat.size)
    chosen = rng.integers(0, flat.size, SAMPLES)
    return np.concatenate([[signs @ flat], flat[chosen]])


def write(case: str, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """The golden file of a case."""
    text = np.frombuffer(json.dumps(about, sort_keys=True).encode(), np.uint8)
    np.savez_compressed(GOLDEN / f"{case}.npz", about=text, **arrays)  # pyright: ignore


def read(case: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(what the case is, its arrays)."""
    with np.load(GOLDEN / f"{case}.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(arrays.pop("about").tobytes()), arrays


def cases() -> list[str]:
    """All golden files."""
    return sorted(p.stem for p in GOLDEN.glob("*.npz"))


def folder(case: str, about: dict[str, Any], into: pathlib.Path) -> pathlib.Path:
    """The model as a folder, as transformers writes one."""
    from safetensors.numpy import save_file

    into.mkdir(parents=True, exist_ok=True)
    (into / "config.json").write_text(json.dumps(about["config"]))
    made = {name: tensor(case, name, tuple(shape)) for name, shape in about["tensors"].items()}
    save_file(made, str(into / "model.safetensors"), metadata={"format": "pt"})
    return into
