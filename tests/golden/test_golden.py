"""Models saved by every format version so far load and compute what they did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import bireme
from bireme import inference, jit
from bireme.core import kernels
from bireme.io.serialization import VERSION as STATE_VERSION
from bireme.jit.artifact import VERSION
from tests.golden.make import HERE, inputs, leaves

FOLDERS = sorted(HERE.glob("v*"), key=lambda p: int(p.name[1:]))


@pytest.fixture(autouse=True)
def _no_native_kernels() -> Iterator[None]:
    """Small nets: building the native kernels first would take longer than all tests here."""
    with kernels.disabled():
        yield


def expected(folder: Path) -> list[np.ndarray]:
    with np.load(folder / "expected.npz") as file:
        return [file[f"arr_{i}"] for i in range(len(file.files))]


def test_every_version_has_its_files() -> None:
    """Whoever raises a version adds a golden folder: `python -m tests.golden.make`."""
    assert [p.name for p in FOLDERS] == [f"v{i}" for i in range(1, VERSION + 1)]
    for folder in FOLDERS:
        document = json.loads((folder / "model.json").read_text())
        assert document["version"] == int(folder.name[1:])
    states = {int(p.stem[5:]) for f in FOLDERS for p in f.glob("state*.bin")}
    assert states == set(range(1, STATE_VERSION + 1))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_a_saved_model(folder: Path) -> None:
    model = jit.load(str(folder / "model"))
    x, ids = map(bireme.to_tensor, inputs(3))
    result = model(x, ids)
    assert result["all"][1][1:] == (7, "word", None)
    for got, wanted in zip(leaves(result), expected(folder), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    assert leaves(model(*map(bireme.to_tensor, inputs(5))))[0].shape == (5, 4)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_it_can_be_trained_further(folder: Path) -> None:
    model = jit.load(str(folder / "model"))
    model.train()
    optimizer = bireme.optimizer.SGD(0.1, parameters=model.parameters())
    before = model.state_dict()
    before = {k: v.numpy().copy() for k, v in before.items()}
    loss = model(*map(bireme.to_tensor, inputs(3)))["scores"].max()
    loss.backward()
    optimizer.step()
    changed = [k for k, v in model.state_dict().items() if (v.numpy() != before[k]).any()]
    assert any("conv" in k for k in changed)
    assert any("_mean" in k for k in changed)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_it_can_be_served(folder: Path) -> None:
    config = inference.Config(str(folder / "model"))
    config.disable_mkldnn()
    predictor = inference.create_predictor(config)
    for name, array in zip(predictor.get_input_names(), inputs(3), strict=True):
        predictor.get_input_handle(name).copy_from_cpu(array)
    predictor.run()
    results = [predictor.get_output_handle(n).copy_to_cpu() for n in predictor.get_output_names()]
    for got, wanted in zip(results, expected(folder), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    assert "fold_affine" in predictor.pass_report()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_saved_state(folder: Path) -> None:
    for path in folder.glob("state*.bin"):
        state = bireme.load(str(path))
        assert state["step"] == 3
        assert state["list"][1:] == ["text", None]
        np.testing.assert_array_equal(state["list"][0].numpy(), [0, 1, 2])
        saved = jit.load(str(folder / "model")).state_dict()
        for name, tensor in state["state"].items():
            np.testing.assert_array_equal(tensor.numpy(), saved[name].numpy())
