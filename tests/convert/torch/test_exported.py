"""Models that torch.export wrote: results, gradients, open sizes, damage."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import convert, jit
from bireme.convert import torch as from_torch
from bireme.convert.torch.aten import RULES
from bireme.convert.torch.program import DTypeName
from bireme.core.errors import BiremeError

GOLDEN = pathlib.Path(__file__).parent / "golden"
NAMES = ["pictures", "words", "branches"]


def figures(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz") as file:
        return dict(file)


def listed(arrays: dict[str, np.ndarray], kind: str) -> list[np.ndarray]:
    return [arrays[f"{kind}{i}"] for i in range(len(arrays)) if f"{kind}{i}" in arrays]


def leaves(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return [leaf for value in result.values() for leaf in leaves(value)]
    if isinstance(result, tuple | list):
        return [leaf for value in result for leaf in leaves(value)]
    return [result]


@pytest.mark.parametrize("name", NAMES)
def test_results(name: str, tier: str) -> None:
    arrays = figures(name)
    model = from_torch.load(GOLDEN / f"{name}.pt2")
    made = leaves(model(*[paddle.to_tensor(a) for a in listed(arrays, "input")]))
    want = listed(arrays, "result")
    assert len(made) == len(want)
    for got, wanted in zip(made, want, strict=True):
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["pictures", "words"])
def test_gradients(name: str) -> None:
    arrays = figures(name)
    model = from_torch.load(GOLDEN / f"{name}.pt2")
    made = leaves(model(*[paddle.to_tensor(a) for a in listed(arrays, "input")]))
    rng = np.random.default_rng(0)
    loss = sum(
        (r * paddle.to_tensor(rng.normal(size=r.shape).astype("float32"))).sum() for r in made
    )
    loss.backward()
    parameters = dict(model.named_parameters())
    checked = [key for key in arrays if key.startswith("grad:")]
    assert checked
    for key in checked:
        grad = parameters[key.removeprefix("grad:")].grad
        assert grad is not None
        largest = np.abs(arrays[key]).max()
        np.testing.assert_allclose(grad.numpy(), arrays[key], rtol=0, atol=1e-4 * largest)


def test_names_of_the_state_are_pytorchs() -> None:
    model = from_torch.load(GOLDEN / "pictures.pt2")
    state = model.state_dict()
    assert {"stem.0.weight", "stem.1.running_mean", "shift", "head.bias"} <= set(state)
    assert {n for n, _ in model.named_parameters()}.isdisjoint({"shift", "stem.1.running_mean"})
    words = from_torch.load(GOLDEN / "words.pt2")
    assert words.out.weight is words.words.weight  # tied


def test_results_nest_as_in_pytorch() -> None:
    model = from_torch.load(GOLDEN / "pictures.pt2")
    scores, more = model(paddle.zeros([1, 3, 17, 17]))
    assert scores.shape == [1, 5]
    assert list(more) == ["features", "peak"]


@pytest.mark.parametrize("batch", [1, 5])
def test_open_sizes_are_saved(tmp_path: pathlib.Path, batch: int) -> None:
    model = convert.load(str(GOLDEN / "words.pt2"))
    jit.save(model, str(tmp_path / "words"), model.input_specs())
    again = jit.load(str(tmp_path / "words"))
    ids = paddle.randint(0, 19, [batch, 9])
    mask = paddle.ones([batch, 9], "int64")
    np.testing.assert_allclose(again(ids, mask).numpy(), model(ids, mask).numpy(), atol=1e-5)


def test_one_program_for_one_set_of_sizes() -> None:
    model = from_torch.load(GOLDEN / "words.pt2")
    ids, mask = paddle.zeros([2, 7], "int64"), paddle.ones([2, 7], "int64")
    model(ids, mask)
    made = len(model._calls._calls)
    model(ids, mask)
    assert len(model._calls._calls) == made == 1


def test_it_trains() -> None:
    model = from_torch.load(GOLDEN / "words.pt2")
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    ids, mask = paddle.arange(14).reshape([2, 7]), paddle.ones([2, 7], "int64")
    losses = []
    for _ in range(3):
        loss = paddle.nn.functional.cross_entropy(model(ids, mask), ids)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    assert losses[2] < losses[0]


@pytest.mark.parametrize(
    "inputs",
    [
        (),
        (np.zeros((2, 3, 16, 17), "float32"),),
        (np.zeros((2, 3, 17, 17), "int64"),),
        (np.zeros((2, 3, 17, 17), "float32"), 1),
    ],
)
def test_wrong_inputs(inputs: tuple[Any, ...]) -> None:
    model = from_torch.load(GOLDEN / "pictures.pt2")
    with pytest.raises(
        BiremeError, match=r"this model takes x|the input 'x' is float32\[\w+, 3, 17, 17\]"
    ):
        model(*inputs)


def test_nothing_of_pytorch_is_imported() -> None:
    program = (
        "import sys\nfor name in ('torch', 'tensorflow', 'keras', 'caffe'):\n"
        "    sys.modules[name] = None\n"
        "import bireme\nfrom bireme import convert\n"
        f"print(convert.load({str(GOLDEN / 'branches.pt2')!r}).input_names)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['x', 'at']"


# --- damage ---------------------------------------------------------------------------------


def changed(name: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A golden file with another graph."""
    made = io.BytesIO()
    with zipfile.ZipFile(GOLDEN / f"{name}.pt2") as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            if "/models/" in entry:
                graph = json.loads(content)
                change(graph)
                content = json.dumps(graph).encode()
            new.writestr(entry, content)
    return made.getvalue()


def _unknown_op(graph: dict[str, Any]) -> None:
    graph["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.no_such_op.default"


def _other_version(graph: dict[str, Any]) -> None:
    graph["schema_version"]["major"] = 99


def _never_made(graph: dict[str, Any]) -> None:
    del graph["graph_module"]["graph"]["nodes"][1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_unknown_op, r"1 operation\(s\) .* no rule: torch.ops.aten.no_such_op.default"),
        (_other_version, "schema version 99"),
    ],
)
def test_unknown_contents_are_named(
    tmp_path: pathlib.Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = tmp_path / "changed.pt2"
    path.write_bytes(changed("pictures", change))
    with pytest.raises(from_torch.TorchFileError, match=message):
        from_torch.load(path)


def test_a_value_that_is_never_made(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "changed.pt2"
    path.write_bytes(changed("pictures", _never_made))
    with pytest.raises(from_torch.TorchFileError, match="is never made"):
        from_torch.load(path)(paddle.zeros([1, 3, 17, 17]))


def test_damaged_files_raise_one_class_of_error(tmp_path: pathlib.Path) -> None:
    rng = random.Random(3)
    whole = (GOLDEN / "branches.pt2").read_bytes()
    path = tmp_path / "damaged.pt2"
    for _ in range(60):
        data = bytearray(whole)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        for _ in range(rng.randrange(1, 8)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(bytes(data))
        with contextlib.suppress(BiremeError):
            from_torch.load(path)


def test_kinds_are_found_by_content(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes((GOLDEN / "branches.pt2").read_bytes())
    assert isinstance(convert.load(path), from_torch.TorchModel)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    with pytest.raises(BiremeError, match="no model that"):
        convert.load(path)
    with pytest.raises(BiremeError, match="there is no"):
        convert.load(tmp_path / "nothing.pt2")


def test_the_row_of_padding_gets_no_gradient() -> None:
    table = paddle.ones([3, 2])
    table.stop_gradient = False
    made = RULES["embedding"](table, paddle.to_tensor([0, 1, 0]), padding_idx=0)
    assert made.tolist() == [[1.0, 1.0]] * 3
    made.sum().backward()
    assert table.grad is not None
    assert table.grad.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]


def test_what_would_be_ignored_is_refused() -> None:
    x = paddle.ones([2, 2])
    with pytest.raises(from_torch.TorchFileError, match="sorter"):
        RULES["searchsorted"](x[0], x[0], sorter=paddle.arange(2))
    with pytest.raises(from_torch.TorchFileError, match="dropout"):
        RULES["alpha_dropout"](x, 0.5, True)
    upper = RULES["linalg_cholesky"](paddle.to_tensor([[4.0, 2.0], [2.0, 5.0]]), upper=True)
    assert upper.tolist() == [[2.0, 1.0], [0.0, 2.0]]
    assert RULES["tril_indices"](2, 2, dtype=DTypeName("int32")).dtype == paddle.int32


def test_there_are_rules() -> None:
    assert {"conv2d", "scaled_dot_product_attention", "index_put", "batch_norm"} <= set(RULES)
