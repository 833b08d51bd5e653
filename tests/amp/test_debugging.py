"""amp.debugging: what it finds, what it prints, and that it sees compiled programs too."""

from __future__ import annotations

import csv
import zipfile

import numpy as np
import pytest

import bireme
from bireme.amp import debugging
from bireme.core import checks
from bireme.core.errors import BiremeError
from bireme.host import config

Mode = debugging.DebugMode


@pytest.fixture(autouse=True)
def off(monkeypatch):
    monkeypatch.setattr(debugging.TensorCheckerConfig, "current_step_id", 0)
    yield
    debugging.disable_tensor_checker()
    assert checks.counters == []
    assert not config.check_nan_inf


VALUES = [[1.0, 0.0, np.nan, np.inf, -2.0], [1.0, 0.0, 2.0], [0.0], [-np.inf, 3.0]]


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("mode", ["CHECK_NAN_INF", "CHECK_ALL"])
def test_check_numerics_as_paddle(paddle, capfd, values, mode):
    results, printed = [], []
    for lib in (paddle, bireme):
        home = lib.amp.debugging
        capfd.readouterr()
        pair = home.check_numerics(lib.to_tensor(values), "op", "v", home.DebugMode[mode])
        printed.append(capfd.readouterr().out.strip())
        results.append([t.numpy() for t in pair])
    for a, b in zip(results[1], results[0], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b)
    assert printed[1] == printed[0]


def test_check_numerics_aborts(capsys):
    with pytest.raises(RuntimeError, match=r"num_nan=1, num_inf=0.*op=relu, tensor=x, dtype=fp32"):
        debugging.check_numerics(bireme.to_tensor([np.nan]), "relu", "x")
    assert "[PRECISION] [ERROR]" in capsys.readouterr().out
    with pytest.raises(TypeError, match="Tensor"):
        debugging.check_numerics([1.0], "relu", "x")


@pytest.mark.parametrize("compiled", [False, True])
def test_checker_finds_the_op_and_the_line(monkeypatch, capsys, compiled):
    monkeypatch.setattr(config, "compile_mode", "always" if compiled else "never")

    def step(x):
        return bireme.log(bireme.exp(x) - 1.0) * 2.0

    assert np.isfinite(step(bireme.to_tensor([1.0])).numpy()).all()  # compiled here, if so
    debugging.enable_tensor_checker(debugging.TensorCheckerConfig(enable=True))
    with pytest.raises(BiremeError, match=r"op=log.*test_debugging.py"):
        step(bireme.to_tensor([0.0])).numpy()
    debugging.disable_tensor_checker()
    assert np.isinf(step(bireme.to_tensor([0.0])).numpy()).all()


def checker(**options):
    debugging.enable_tensor_checker(debugging.TensorCheckerConfig(enable=True, **options))


def test_modes(capsys):
    x = bireme.to_tensor([1.0, 7e4])
    for mode, count in (
        (Mode.CHECK_NAN_INF, 1),
        (Mode.CHECK_ALL_FOR_OVERFLOW, 2),
        (Mode.CHECK_ALL, 3),
    ):
        capsys.readouterr()
        checker(debug_mode=mode)
        small = (x * 1e-3).numpy()
        (x * 2.0).numpy()
        (x / 0.0).numpy()
        debugging.disable_tensor_checker()
        assert len(capsys.readouterr().out.splitlines()) == count
    assert small[0] == pytest.approx(1e-3)


def test_lists_of_ops_steps_and_files(tmp_path, capsys):
    x = bireme.to_tensor([1.0])
    for options, count in (
        ({"checked_op_list": ["multiply"]}, 0),
        ({"checked_op_list": ["divide"]}, 1),
        ({"skipped_op_list": ["divide"]}, 0),
    ):
        checker(debug_mode=Mode.CHECK_NAN_INF, **options)
        (x / 0.0).numpy()
        debugging.disable_tensor_checker()
        assert len(capsys.readouterr().out.splitlines()) == count
    settings = debugging.TensorCheckerConfig(
        enable=True, debug_mode=Mode.CHECK_NAN_INF, debug_step=(0, 2), output_dir=str(tmp_path)
    )
    for _ in range(4):
        debugging.enable_tensor_checker(settings)
        (x / 0.0).numpy()
    assert len((tmp_path / "worker_cpu").read_text().splitlines()) == 2
    assert capsys.readouterr().out == ""
    off = debugging.TensorCheckerConfig(enable=False)
    debugging.enable_tensor_checker(off)
    (x / 0.0).numpy()


@pytest.mark.parametrize(
    "options",
    [
        {"debug_mode": 1},
        {"stack_height_limit": "2"},
        {"checked_op_list": "relu"},
        {"debug_step": (2, 1)},
    ],
    ids=str,
)
def test_bad_settings(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        debugging.TensorCheckerConfig(enable=True, **options)
    with pytest.raises(TypeError, match="TensorCheckerConfig"):
        debugging.enable_tensor_checker(None)


class Bad(bireme.nn.Layer):
    def __init__(self, where):
        super().__init__()
        self.where = where

    @debugging.check_layer_numerics
    def forward(self, x):
        if self.where == "forward":
            return x / 0.0
        return bireme.sqrt(x * 0.0)  # an infinite slope


def test_layers():
    x = bireme.to_tensor([1.0, 2.0])
    x.stop_gradient = False
    with pytest.raises(BiremeError, match="NaN or infinity"):
        Bad("forward")(x)
    out = Bad("backward")(x * 1.0)
    assert not config.check_nan_inf
    total = out.sum()
    with pytest.raises(BiremeError, match="NaN or infinity"):
        total.backward()
    debugging.disable_tensor_checker()
    data = bireme.to_tensor([1.0, 2.0])  # needs no gradient, but the layer before the loss does
    total = Bad("backward")(data).sum()
    assert not data.stop_gradient
    with pytest.raises(BiremeError, match="NaN or infinity"):
        total.backward()
    debugging.disable_tensor_checker()
    with pytest.raises(RuntimeError, match="must be a Tensor"):
        Bad("forward")(3)


def test_operator_stats(capsys):
    with debugging.collect_operator_stats():
        x = bireme.ones([2, 3])
        with bireme.amp.auto_cast(dtype="bfloat16"):
            y = bireme.matmul(x, x.t())
        (y.astype("float16") + 1.0).sum().numpy()
    lines = capsys.readouterr().out.splitlines()
    table = {
        line.split("|")[0].strip(): [int(c) for c in line.split("|")[1:]]
        for line in lines
        if line.startswith("  ")
    }
    assert table["matmul"] == [0, 1, 0, 0]
    assert table["add"] == [1, 0, 0, 0]
    assert "op count" in lines[-2]
    debugging.disable_operator_stats_collection()  # off already: prints nothing
    assert capsys.readouterr().out == ""


def test_compare_accuracy(tmp_path):
    for name, dtype in (("wide", "float32"), ("half", "float16")):
        checker(debug_mode=Mode.CHECK_ALL, output_dir=str(tmp_path / name))
        x = bireme.to_tensor([300.0, 2.0]).astype(dtype)
        ((x * x) / 3.0).numpy()
        debugging.disable_tensor_checker()
    table = str(tmp_path / "out" / "table.csv")
    debugging.compare_accuracy(str(tmp_path / "wide"), str(tmp_path / "half"), table)
    with open(table) as file:
        rows = {(r["op"], r["call"]): r for r in csv.DictReader(file)}
    product = rows["multiply", "0"]
    assert (product["1.dtype"], product["2.dtype"]) == ("fp32", "fp16")
    assert product["remark"] == "NaN or infinity in run 2"
    assert float(product["1.max"]) == 9e4
    book = str(tmp_path / "table.xlsx")
    debugging.compare_accuracy(str(tmp_path / "wide"), str(tmp_path / "half"), book, loss_scale=8)
    with zipfile.ZipFile(book) as archive:
        assert "NaN or infinity in run 2" in archive.read("xl/sheet.xml").decode()
    with pytest.raises(ValueError, match="no report"):
        debugging.compare_accuracy(str(tmp_path), str(tmp_path), table)
    with pytest.raises(ValueError, match="whole tensors"):
        debugging.compare_accuracy(str(tmp_path), str(tmp_path), table, dump_all_tensors=True)
