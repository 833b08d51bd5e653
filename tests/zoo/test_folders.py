"""Made-up models of every family against transformers: outputs, gradients, files written back."""

from __future__ import annotations

import pathlib
import zipfile
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import zoo
from bireme.io.safetensors_file import read
from bireme.zoo.files import open_source
from bireme.zoo.loading import load_model, names_of
from tests.zoo.make_folders import GOLDEN, loss_weights, marks

MODELS = sorted(path.stem for path in GOLDEN.glob("*.zip"))


def _unpacked(name: str, folder: pathlib.Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(folder)
    path = folder / "expected.safetensors"
    with open(path, "rb") as file:
        found = read(file, path.stat().st_size, str(path))[0]
    path.unlink()
    return found


def _part(found: dict[str, np.ndarray], start: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(start): v for k, v in found.items() if k.startswith(start)}


def _results(model: Any, given: dict[str, np.ndarray]) -> list[Any]:
    result = model(**{k: paddle.to_tensor(v) for k, v in given.items()})
    return list(result) if isinstance(result, tuple | list) else [result]


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_are_those_of_transformers(name: str, tmp_path: pathlib.Path) -> None:
    expected = _unpacked(name, tmp_path)
    model: Any = load_model(open_source(tmp_path))
    outputs = _part(expected, "out.")
    results = _results(model, _part(expected, "in."))
    assert len(results) == len(outputs)
    loss: Any = 0
    for (key, want), got in zip(sorted(outputs.items()), _in_order(outputs, results), strict=True):
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got.numpy() / scale, want / scale, rtol=0, atol=1e-5)
        loss = loss + (got * paddle.to_tensor(loss_weights(key, want.shape))).mean()
    loss.backward()
    _compare_gradients(model, _part(expected, "grad."))


def _in_order(outputs: dict[str, np.ndarray], results: list[Any]) -> list[Any]:
    """Results in the order of their sorted names; a pair of scores is (start, end)."""
    if set(outputs) == {"start_logits", "end_logits"}:
        return results[::-1]
    return results


def _compare_gradients(model: Any, wanted: dict[str, np.ndarray]) -> None:
    ours = {n: p.grad for n, p in model.named_parameters()}
    seen = set()
    for entry in names_of(model).entries(model):
        if any(ours.get(n) is None for n in entry.ours):
            continue
        made = entry.save([ours[n].numpy() for n in entry.ours])
        for theirs, gradient in zip(entry.theirs, made, strict=True):
            key = theirs if theirs in wanted else theirs.partition(".")[2]
            want = wanted[key]
            got = marks(key, gradient)
            # The signs' sums grow as the norm does.
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * max(want[0], 1e-3))
            seen.add(key)
    left = [n for n in wanted if n not in seen and wanted[n].any()]
    assert not left, f"no gradient was compared for {left}"


@pytest.mark.parametrize("name", MODELS)
def test_saved_folders_hold_the_same_tensors(name: str, tmp_path: pathlib.Path) -> None:
    _unpacked(name, tmp_path)
    source = open_source(tmp_path)
    model = load_model(source)
    zoo.save_pretrained(model, tmp_path / "copy")
    copy = open_source(tmp_path / "copy")
    names = names_of(model)
    kept = {n for n in source.tensors if n not in names.copies and not names.is_ignored(n)}
    prefix = next((f"{names.base}." for n in copy.tensors if n not in source.tensors), "")
    assert {n.removeprefix(prefix) for n in copy.tensors} == {n.removeprefix(prefix) for n in kept}
    for n, tensor in copy.tensors.items():
        original = source.tensors.get(n) or source.tensors[n.removeprefix(prefix)]
        np.testing.assert_array_equal(tensor.read(), original.read())
