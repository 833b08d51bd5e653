"""Config: what each switch says, and what is not for us."""

from __future__ import annotations

import numpy as np
import pytest

from bireme import inference
from bireme.core.errors import InvalidArgument


def test_the_model() -> None:
    config = inference.Config("folder")
    assert (config.model_dir(), config.prog_file(), config.params_file()) == ("folder", "", "")
    config.set_model("a.pdmodel", "a.pdiparams")
    assert (config.model_dir(), config.prog_file()) == ("", "a.pdmodel")
    config.set_prog_file("b.json")
    config.set_params_file("b.pdiparams")
    assert (config.prog_file(), config.params_file()) == ("b.json", "b.pdiparams")
    assert not config.model_from_memory()
    with pytest.raises(InvalidArgument):
        config.set_model("a", "b", "c")


def test_switches() -> None:
    config = inference.Config()
    assert config.ir_optim()
    config.switch_ir_optim(False)
    assert not config.ir_optim()
    config.switch_ir_optim()
    config.set_optimization_level(0)
    assert not config.ir_optim()
    config.set_optimization_level(3)
    assert config.ir_optim()
    assert config.mkldnn_enabled()
    config.disable_mkldnn()
    assert not config.onednn_enabled()
    config.enable_onnxruntime()
    assert config.onnxruntime_enabled()
    config.disable_onnxruntime()
    assert config.engine() == "xla"
    config.enable_openvino_engine()
    assert config.openvino_engine_enabled()
    config.set_cpu_math_library_num_threads(4)
    assert config.cpu_math_library_num_threads() == 4
    assert not config.glog_info_disabled()
    config.disable_glog_info()
    assert config.glog_info_disabled()
    assert "openvino" in config.summary()
    assert config.specify_input_name()
    config.switch_specify_input_names(False)
    assert not config.specify_input_name()
    for bad in (lambda: config.set_engine("tpu"), lambda: config.set_optimization_level(9),
                lambda: config.set_cpu_math_library_num_threads(0),
                lambda: config.set_mkldnn_cache_capacity(-1),
                lambda: config.enable_openvino_engine(inference.PrecisionType.Int8)):  # fmt: skip
        with pytest.raises(InvalidArgument):
            bad()


def test_passes() -> None:
    config = inference.Config()
    builder = config.pass_builder()
    assert "fold_affine" in builder.all_passes()
    config.delete_pass("conv_bn_fuse_pass")
    assert "fold_affine" not in builder.all_passes()
    config.delete_pass("a_pass_of_paddle")
    config.enable_custom_passes(["dead_code"], custom_pass_only=True)
    assert builder.all_passes() == ["dead_code"]
    with pytest.raises(InvalidArgument, match="no pass named"):
        builder.append_pass("a_pass_of_paddle")


def test_no_gpu_here() -> None:
    config = inference.Config()
    with pytest.warns(UserWarning, match="runs on the CPU"):
        config.enable_use_gpu(100, 0)
    assert not config.use_gpu()
    assert (config.gpu_device_id(), config.fraction_of_gpu_memory_for_pool()) == (0, 0.0)


@pytest.mark.parametrize(
    ("switch", "whose"),
    [("enable_tensorrt_engine", "TensorRT"), ("enable_xpu", "XPU"), ("enable_ipu", "IPU"),
     ("set_trt_dynamic_shape_info", "TensorRT"), ("enable_mkldnn_int8", "int8")],
)  # fmt: skip
def test_other_vendors(switch: str, whose: str) -> None:
    config = inference.Config()
    assert not hasattr(config, switch)
    with pytest.raises(AttributeError, match=f"{whose}.*not part of Bireme"):
        getattr(config, switch)
    assert not config.tensorrt_engine_enabled()
    assert not config.use_xpu()


def test_kinds() -> None:
    assert inference.get_num_bytes_of_data_type(inference.DataType.FLOAT32) == 4
    assert inference.get_num_bytes_of_data_type(inference.DataType.BOOL) == 1
    assert inference.PrecisionType is inference.Config.Precision
    assert inference.Config.Half is inference.PrecisionType.Half
    assert "version" in inference.get_version()
    assert inference.get_trt_compile_version() == inference.get_trt_runtime_version() == (0, 0, 0)


def test_numbers_are_paddles(paddle: object) -> None:
    theirs = paddle.inference  # type: ignore[attr-defined]
    for name in ("DataType", "PlaceType", "PrecisionType"):
        ours, real = getattr(inference, name), getattr(theirs, name)
        assert {k: int(v) for k, v in ours.__members__.items()} == {
            k: int(v) for k, v in real.__members__.items()
        }


def test_lod() -> None:
    handle = inference.Tensor("x", None)
    handle.set_lod([[0, 2, 5]])
    assert handle.lod() == [[0, 2, 5]]
    with pytest.raises(InvalidArgument, match="rises from 0"):
        handle.set_lod([[1, 2]])
    with pytest.raises(InvalidArgument, match="only inputs"):
        handle.copy_from_cpu(np.zeros(3))
