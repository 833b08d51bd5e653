"""Models in lower precision, and hooks that look inside."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401 (NumPy's bfloat16)
import numpy as np
import pytest

import bireme
from bireme import inference, nn
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.inference import PlaceType, PrecisionType


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bireme.seed(3)
    layer = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 5))
    layer.eval()
    path = tmp_path_factory.mktemp("net") / "net"
    bireme.jit.save(layer, str(path), [bireme.static.InputSpec([None, 6], "float32", "x")])
    return path


X = np.random.RandomState(0).randn(3, 6).astype("float32")


def run(config: inference.Config, x: np.ndarray = X) -> np.ndarray:
    predictor = inference.create_predictor(config)
    predictor.get_input_handle("x").copy_from_cpu(x)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()


def files(path: Path) -> tuple[str, str]:
    return f"{path}.json", f"{path}.safetensors"


@pytest.mark.parametrize(
    ("precision", "kind"), [(PrecisionType.Half, "float16"), (PrecisionType.Bfloat16, "bfloat16")]
)
def test_a_models_twin(net: Path, tmp_path: Path, precision, kind) -> None:
    want = run(inference.Config(str(net)))
    twin = tmp_path / "deep" / "twin"
    inference.convert_to_mixed_precision(
        *files(net), f"{twin}.pdmodel", f"{twin}.pdiparams", precision, PlaceType.CPU
    )
    got = run(inference.Config(str(twin)))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=0.05, atol=0.05)
    assert not np.array_equal(got, want)
    from bireme.io.serialization import load

    kinds = {str(a.dtype) for a in load(f"{twin}.safetensors", return_numpy=True).values()}
    assert kind in kinds
    assert Path(f"{twin}.safetensors").stat().st_size < Path(f"{net}.safetensors").stat().st_size


def test_inputs_and_results_too(net: Path, tmp_path: Path) -> None:
    want = run(inference.Config(str(net)))
    twin = str(tmp_path / "twin")
    inference.convert_to_mixed_precision(
        *files(net), twin, twin, PrecisionType.Half, PlaceType.CPU, keep_io_types=False
    )
    got = run(inference.Config(twin), X.astype("float16"))
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype("float32"), want, rtol=0.05, atol=0.05)
    config = inference.Config(str(net))
    config.enable_mkldnn_bfloat16()
    config.enable_low_precision_io()
    other = run(config, X.astype("bfloat16"))
    assert other.dtype == np.dtype("bfloat16")
    np.testing.assert_allclose(other.astype("float32"), want, rtol=0.05, atol=0.05)


def names_in_low(net: Path, **lists) -> set[str]:
    """The ops that compute in bfloat16."""
    config = inference.Config(str(net))
    config.enable_mkldnn_bfloat16()
    config.switch_ir_optim(False)
    config.exp_disable_mixed_precision_ops(lists.get("black", set()))
    config.exp_enable_mixed_precision_ops(lists.get("white", set()))
    predictor = inference.create_predictor(config)
    found: set[str] = set()

    def look(op: str, name: str, tensor: bireme.Tensor) -> None:
        if tensor.dtype is bireme.bfloat16 and op != "cast":
            found.add(op)

    predictor.register_output_hook(look)
    predictor.get_input_handle("x").copy_from_cpu(X)
    predictor.run()
    return found


def test_lists_of_ops(net: Path) -> None:
    usual = names_in_low(net)
    assert "relu" in usual
    assert "layer_norm" not in usual
    assert "relu" not in names_in_low(net, black={"relu"})
    assert "layer_norm" in names_in_low(net, white={"layer_norm"})
    with pytest.raises(InvalidArgument, match="do not exist"):
        names_in_low(net, black={"reloo"})


def test_hooks_see_every_op(net: Path) -> None:
    config = inference.Config(str(net))
    config.switch_ir_optim(False)
    predictor = inference.create_predictor(config)
    predictor.get_input_handle("x").copy_from_cpu(X)
    predictor.run()
    plain = predictor.get_output_handle("output_0").copy_to_cpu()
    before: list[str] = []
    after: dict[str, np.ndarray] = {}
    predictor.register_input_hook(lambda op, name, tensor: before.append(name))
    predictor.register_output_hook(lambda op, name, tensor: after.update({name: tensor.numpy()}))
    predictor.run()
    np.testing.assert_allclose(
        predictor.get_output_handle("output_0").copy_to_cpu(), plain, rtol=1e-5, atol=1e-6
    )
    assert before[:3] == ["linear_0.in_0", "linear_0.in_1", "linear_0.in_2"]
    assert list(after) == ["linear_0.out_0", "relu_0.out_0", "layer_norm_0.out_0", "linear_1.out_0"]
    np.testing.assert_array_equal(after["relu_0.out_0"], np.maximum(after["linear_0.out_0"], 0))
    np.testing.assert_allclose(after["linear_1.out_0"], plain, rtol=1e-5, atol=1e-6)


def test_what_is_refused(net: Path, tmp_path: Path) -> None:
    one, other = str(tmp_path / "a.json"), str(tmp_path / "b.safetensors")
    given = (*files(net), one)
    with pytest.raises(InvalidArgument, match="side by side"):
        inference.convert_to_mixed_precision(*given, other, PrecisionType.Half, PlaceType.CPU)
    with pytest.raises(TypeMismatch, match="PlaceType"):
        inference.convert_to_mixed_precision(*given, one, PrecisionType.Half, "cpu")
    with pytest.raises(InvalidArgument, match="Int8"):
        inference.convert_to_mixed_precision(*given, one, PrecisionType.Int8, PlaceType.CPU)
    with pytest.raises(InvalidArgument, match="'colour'"):
        inference.convert_to_mixed_precision(
            *given, one, PrecisionType.Half, PlaceType.CPU, colour=1
        )
